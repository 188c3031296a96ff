//! What the laws do not say: limits, the time index, and listing. The laws themselves run in `onlyonce-testkit`.

use super::*;
use crate::clock::ManualClock;
use crate::fingerprint::Fingerprint;
use crate::key::{Hash16, Key, Operation, Scope};
use crate::record::{Answer, Label, Owner, StateKind, Takeover, Verdict};
use crate::store::{Cursor, Filter, Inspect};

fn id(n: usize) -> RecordId {
    RecordId::of(&Scope::shared(), &Operation::http("POST", "/"), &Key::new(n.to_string()).unwrap())
}

fn claim() -> Claim {
    let key = Key::new("k").unwrap();
    Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(30),
        retain_unsettled: Duration::from_secs(3600),
        takeover: Takeover::Never,
        label: Label {
            route: "r".into(),
            key: Hash16::of_key(&key),
            scope: Hash16::of_scope(&Scope::shared()),
        },
    }
}

async fn complete(store: &MemoryStore, n: usize, retain: Duration) {
    let claim = claim();
    let Ok(Begin::Acquired { fence, .. }) = store.begin(&id(n), &claim).await else {
        panic!("record {n} is taken")
    };
    let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
    let how = Settlement { verdict: Verdict::Completed(Answer("0123456789".into())), retain };
    assert_eq!(store.settle(&id(n), &attempt, &how).await.unwrap(), Settled::Applied);
}

#[tokio::test]
async fn a_full_store_refuses_new_records_and_loses_none() {
    let store = MemoryStore::new().max_records(3);
    for n in 0..3 {
        complete(&store, n, Duration::from_secs(60)).await;
    }
    let refused = store.begin(&id(9), &claim()).await.unwrap_err();
    assert_eq!(refused.kind(), crate::ErrorKind::Unavailable);
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("3 of 3 records") && why.contains("raise max_records"), "{why}");
    for n in 0..3 {
        assert!(matches!(store.begin(&id(n), &claim()).await.unwrap(), Begin::Taken(_)));
    }
}

#[tokio::test]
async fn a_store_full_of_bytes_still_takes_the_answer_of_a_running_call() {
    let store = MemoryStore::new().max_bytes(10);
    let running = claim();
    let Ok(Begin::Acquired { fence, .. }) = store.begin(&id(1), &running).await else { panic!() };
    complete(&store, 2, Duration::from_secs(60)).await;
    assert!(store.begin(&id(3), &claim()).await.is_err());
    let attempt = AttemptId { owner: running.owner, fence: Some(fence) };
    let how = Settlement {
        verdict: Verdict::Completed(Answer("late answer".into())),
        retain: Duration::from_secs(60),
    };
    assert_eq!(store.settle(&id(1), &attempt, &how).await.unwrap(), Settled::Applied);
}

#[tokio::test]
async fn room_comes_back_when_records_expire() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().max_records(3).with_clock(clock.clone());
    for n in 0..3 {
        complete(&store, n, Duration::from_secs(60)).await;
    }
    clock.advance(Duration::from_secs(61));
    complete(&store, 9, Duration::from_secs(60)).await;
    assert_eq!(store.len(), 1);
    assert_eq!(store.usage.bytes.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn listing_by_pages_shows_every_record_once_in_order() {
    let store = MemoryStore::new();
    for n in 0..500 {
        complete(&store, n, Duration::from_secs(60)).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(&Filter::default(), cursor.as_ref(), 37).await.unwrap();
        assert!(page.records.len() <= 37);
        seen.extend(page.records.into_iter().map(|listed| listed.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 500);
    assert!(seen.is_sorted());
    let foreign = store.list(&Filter::default(), Some(&Cursor("x".into())), 10).await;
    assert_eq!(foreign.unwrap_err().kind(), crate::ErrorKind::Rejected);
}

#[tokio::test]
async fn the_oldest_lapsed_record_comes_first() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().with_clock(clock.clone());
    for n in 0..5 {
        store.begin(&id(n), &claim()).await.unwrap();
        clock.advance(Duration::from_secs(1));
    }
    complete(&store, 9, Duration::from_secs(60)).await;
    clock.advance(Duration::from_secs(30));
    let lapsed: Vec<_> = store.lapsed(3).await.unwrap().into_iter().map(|listed| listed.id).collect();
    assert_eq!(lapsed, [id(0), id(1), id(2)]);
    assert_eq!(store.count().await.unwrap(), [(StateKind::Lapsed, 5), (StateKind::Completed, 1)].into());
}
