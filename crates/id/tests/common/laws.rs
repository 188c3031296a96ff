//! What every store of grants on a server must keep to. Each law is given a way to open the store, and a store of its own.
#![allow(dead_code, reason = "not every file of tests uses all of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_id::{Grant, GrantError, Grants, Holder, IdError, Layout, Request, Snowflake};

use super::{Dice, assert_unique};

/// How long anything here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn request(holder: Holder, worker: Option<u64>, workers: u64, span_millis: u64) -> Request {
    Request { holder, worker, workers, span: Duration::from_millis(span_millis) }
}

/// Asks until there is a free number.
async fn insist(grants: &dyn Grants, request: &Request) -> Grant {
    let asking = async {
        loop {
            match grants.grant(request).await {
                Ok(grant) => return grant,
                Err(GrantError::Exhausted { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("a window runs out")
}

pub(crate) async fn a_holder_keeps_its_number_and_what_is_given_back_is_given_on<G: Grants>(
    open: impl AsyncFn() -> G,
) {
    let open = async || {
        let ids = Snowflake::builder(Layout::<41, 1, 12>::new(), open().await);
        ids.span(Duration::from_secs(600)).open().await
    };
    let (first, second) = (open().await.unwrap(), open().await.unwrap());
    assert_ne!(first.worker(), second.worker());
    let Err(IdError::Grant(GrantError::Exhausted { workers: 2 })) = open().await else {
        panic!("there are two")
    };
    let last = first.next().await.unwrap();
    let number = first.worker();
    first.close().await.unwrap();
    let third = async {
        loop {
            // What was used of the window has to pass first.
            if let Ok(third) = open().await {
                return third;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let third = tokio::time::timeout(PATIENCE, third).await.unwrap();
    assert_eq!(third.worker(), number);
    let next = third.next().await.unwrap();
    assert!(next > last);
    assert_unique(vec![last, next, second.next().await.unwrap()]);
}

pub(crate) async fn a_window_is_renewed_and_one_that_is_over_is_given_on_without_overlap<G: Grants>(
    open: impl AsyncFn() -> G,
) {
    let layout = Layout::<41, 0, 12>::new();
    let span = Duration::from_secs(4);
    let open = async || Snowflake::builder(layout, open().await).span(span).open().await;
    let only = open().await.unwrap();
    let mut ids = Vec::new();
    // For longer than the window would be without a renewal.
    for _ in 0..18 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        ids.push(only.next().await.unwrap());
        assert!(open().await.is_err(), "it was renewed, so nobody else has the number");
    }
    drop(only);
    let heir = async {
        loop {
            if let Ok(heir) = open().await {
                return heir;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let heir = tokio::time::timeout(PATIENCE, heir).await.unwrap();
    ids.push(heir.next().await.unwrap());
    assert_unique(ids);
}

pub(crate) async fn a_zombie_neither_keeps_nor_shortens_what_is_somebody_elses<G: Grants>(
    open: impl AsyncFn() -> G,
) {
    let grants = open().await;
    let (zombie, heir) = (Holder::random(), Holder::random());
    let lost = grants.grant(&request(zombie, None, 1, 200)).await.unwrap();
    let given = insist(&grants, &request(heir, None, 1, 600_000)).await;
    assert_eq!(given.worker, lost.worker);
    assert!(given.from >= lost.until, "{given:?} overlaps {lost:?}");
    // It wakes up, asks for more of what was its own, and gives it back.
    let refused = grants.grant(&request(zombie, Some(lost.worker), 1, 600_000)).await;
    assert!(matches!(refused, Err(GrantError::Exhausted { workers: 1 })), "{refused:?}");
    grants.release(zombie, lost.worker, lost.from).await.unwrap();
    let refused = grants.grant(&request(Holder::random(), None, 1, 600_000)).await;
    assert!(matches!(refused, Err(GrantError::Exhausted { workers: 1 })), "{refused:?}");
    let more = grants.grant(&request(heir, Some(given.worker), 1, 900_000)).await.unwrap();
    assert_eq!((more.worker, more.from), (given.worker, given.from));
    assert!(more.until > given.until);
    // Where there is another number, the zombie is given that one.
    let other = grants.grant(&request(zombie, Some(lost.worker), 2, 600_000)).await.unwrap();
    assert_ne!(other.worker, lost.worker);
    // What was given back does not come back to who gave it.
    grants.release(heir, more.worker, more.from).await.unwrap();
    let next = insist(&grants, &request(Holder::random(), None, 2, 600_000)).await;
    assert_eq!(next.worker, more.worker);
    let refused = grants.grant(&request(heir, Some(more.worker), 2, 600_000)).await;
    assert!(matches!(refused, Err(GrantError::Exhausted { workers: 2 })), "{refused:?}");
}

pub(crate) async fn of_many_who_ask_at_once_each_has_a_number_of_its_own<G: Grants>(
    open: impl AsyncFn() -> G,
) {
    const NUMBERS: usize = 24;
    let mut asked = Vec::new();
    for _ in 0..NUMBERS + 8 {
        let grants = open().await;
        asked.push(tokio::spawn(async move {
            grants.grant(&request(Holder::random(), None, NUMBERS as u64, 600_000)).await
        }));
    }
    let (mut numbers, mut exhausted) = (BTreeSet::new(), 0);
    for asked in asked {
        match asked.await.unwrap() {
            Ok(grant) => assert!(numbers.insert(grant.worker), "{} was granted twice", grant.worker),
            Err(GrantError::Exhausted { workers }) => exhausted += usize::from(workers == NUMBERS as u64),
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        }
    }
    assert_eq!((numbers.len(), exhausted), (NUMBERS, 8));
}

pub(crate) async fn windows_of_workers_that_come_and_go_never_overlap<G: Grants>(open: impl AsyncFn() -> G) {
    const WORKERS: u64 = 4;
    let windows: Arc<std::sync::Mutex<Vec<Grant>>> = Arc::default();
    let mut tasks = Vec::new();
    for seed in 0..5 {
        let (grants, windows) = (open().await, Arc::clone(&windows));
        tasks.push(tokio::spawn(async move {
            let mut dice = Dice(seed + 1);
            for _ in 0..20 {
                let holder = Holder::random();
                let span = dice.roll(60) + 1;
                let mut had = insist(&grants, &request(holder, None, WORKERS, span)).await;
                let mut lives = true;
                for _ in 0..dice.roll(3) {
                    tokio::time::sleep(Duration::from_millis(dice.roll(40))).await;
                    let Ok(more) = grants.grant(&request(holder, Some(had.worker), WORKERS, span)).await
                    else {
                        // Its number is gone, and no other is free.
                        lives = false;
                        break;
                    };
                    if (more.worker, more.from) == (had.worker, had.from) {
                        had.until = more.until;
                    } else {
                        windows.lock().unwrap().push(had);
                        had = more;
                    }
                }
                if lives && dice.roll(2) == 0 {
                    let used = had.from + dice.roll(had.until - had.from + 1);
                    grants.release(holder, had.worker, used).await.unwrap();
                    had.until = used;
                }
                windows.lock().unwrap().push(had);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut of_worker: BTreeMap<u64, Vec<Grant>> = BTreeMap::new();
    for window in Arc::try_unwrap(windows).unwrap().into_inner().unwrap() {
        of_worker.entry(window.worker).or_default().push(window);
    }
    assert!(of_worker.values().map(Vec::len).sum::<usize>() >= 100);
    assert!(of_worker.keys().all(|worker| *worker < WORKERS));
    for mut windows in of_worker.into_values() {
        windows.sort_unstable_by_key(|window| (window.from, window.until));
        for pair in windows.windows(2) {
            assert!(pair[0].until <= pair[1].from, "{:?} overlaps {:?}", pair[0], pair[1]);
        }
    }
}
