//! One generator and many, on grants in memory and clocks that are set.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use common::{Dice, SetClock, assert_unique};
use onlyonce_core::{Clock, ManualClock, SystemClock};
use onlyonce_id::{
    FixedWorker, Grant, GrantError, Grants, Holder, IdError, Layout, MemoryGrants, Request, Snowflake,
    SnowflakeId,
};

type Narrow = Layout<41, 5, 7>;

async fn open(grants: &MemoryGrants, clock: impl Clock) -> Snowflake {
    Snowflake::builder(Layout::STANDARD, grants.clone()).clock(clock).open().await.unwrap()
}

#[tokio::test]
async fn a_clock_that_is_set_back_far_is_an_error_and_never_a_panic() {
    let time = ManualClock::new();
    time.advance(Duration::from_secs(3600));
    let clock = SetClock::over(time.clone());
    let ids = open(&MemoryGrants::with_clock(time.clone()), clock.clone()).await;
    let before = ids.next().await.unwrap();
    clock.set_off_by(-1_500);
    let held = ids.next().await.unwrap();
    assert!(held > before);
    clock.set_off_by(-2_500);
    let Err(IdError::ClockWentBack { by }) = ids.next().await else { panic!("2.5 s are too much") };
    assert_eq!(by, Duration::from_millis(2_500));
    assert!(matches!(ids.try_next(), Err(IdError::ClockWentBack { .. })));
    clock.set_off_by(-86_400_000);
    assert!(matches!(ids.next().await, Err(IdError::OutOfTime)), "before the epoch of the layout");
    clock.set_off_by(0);
    assert!(ids.next().await.unwrap() > held);
}

#[tokio::test]
async fn a_clock_far_ahead_of_the_grants_is_an_error() {
    let time = ManualClock::new();
    let clock = SetClock::over(time.clone());
    let ids = open(&MemoryGrants::with_clock(time.clone()), clock.clone()).await;
    clock.set_off_by(90_000);
    assert!(matches!(ids.next().await, Err(IdError::ClockAhead { .. })));
    clock.set_off_by(0);
    ids.next().await.unwrap();
}

#[tokio::test]
async fn when_every_worker_number_is_taken_the_error_says_so_until_one_is_free() {
    let time = ManualClock::new();
    let grants = MemoryGrants::with_clock(time.clone());
    let open = || Snowflake::builder(Narrow::JAVASCRIPT, grants.clone()).clock(time.clone()).open();
    let mut all = Vec::new();
    for _ in 0..32 {
        all.push(open().await.unwrap());
    }
    let Err(IdError::Grant(GrantError::Exhausted { workers })) = open().await else { panic!("there are 32") };
    assert_eq!(workers, 32);
    let last = all[7].next().await.unwrap();
    all[7].close().await.unwrap();
    assert!(matches!(all[7].next().await, Err(IdError::Closed)));
    time.advance(Duration::from_millis(1));
    let next = open().await.unwrap();
    assert_eq!(next.worker(), all[7].worker());
    assert!(next.next().await.unwrap() > last);
}

#[tokio::test]
async fn a_worker_that_restarts_before_its_clock_caught_up_repeats_nothing() {
    let time = ManualClock::new();
    time.advance(Duration::from_secs(3600));
    let grants = MemoryGrants::with_clock(time.clone());
    let mut ids = Vec::new();
    for restart in 0..20 {
        let clock = SetClock::over(time.clone());
        clock.set_off_by(-100 * (restart % 7));
        let worker = open(&grants, clock).await;
        ids.extend(worker.reserve(3_000).await.unwrap());
        if restart % 2 == 0 {
            worker.close().await.unwrap();
        }
    }
    assert_unique(ids);
}

#[tokio::test]
async fn a_zombie_can_only_use_up_its_own_window() {
    let time = ManualClock::new();
    let grants = MemoryGrants::with_clock(time.clone());
    // Its clock stood still while it was paused; its window is over, and its number is somebody else's.
    let asleep = SetClock::over(time.clone());
    let layout = Narrow::JAVASCRIPT;
    let zombie = Snowflake::builder(layout, grants.clone()).clock(asleep.clone()).open().await.unwrap();
    let mut others = Vec::new();
    time.advance(Duration::from_secs(31));
    for _ in 0..32 {
        others.push(Snowflake::builder(layout, grants.clone()).clock(time.clone()).open().await.unwrap());
    }
    let number = zombie.worker();
    let heir = others.iter().find(|other| other.worker() == number).expect("the number was given on");
    let mut ids = Vec::new();
    for late in [-31_000, -30_000, -20_000, -5_000, -1_001] {
        asleep.set_off_by(late);
        match zombie.try_next() {
            Ok(id) => ids.push(id),
            Err(IdError::NoGrant) => {}
            Err(error) => panic!("{error}"),
        }
        ids.push(heir.next().await.unwrap());
        ids.push(heir.next().await.unwrap());
    }
    assert!(ids.iter().filter(|id| layout.decode(**id).worker == number).count() > 10);
    assert_unique(ids);
    asleep.set_off_by(0);
    assert!(
        matches!(zombie.next().await, Err(IdError::Grant(GrantError::Exhausted { .. }))),
        "it fails closed"
    );
}

#[tokio::test]
async fn a_hundred_workers_that_come_and_go_repeat_nothing() {
    let time = ManualClock::new();
    time.advance(Duration::from_secs(3600));
    let grants = MemoryGrants::with_clock(time.clone());
    let mut dice = Dice(7);
    let mut alive: Vec<(SetClock<ManualClock>, Snowflake<41, 5, 7>)> = Vec::new();
    let mut ids: Vec<SnowflakeId> = Vec::new();
    let (mut opened, mut refused) = (0, 0);
    while opened < 100 {
        time.advance(Duration::from_millis(dice.roll(3_000)));
        match dice.roll(3) {
            0 | 1 => {
                let clock = SetClock::over(time.clone());
                clock.set_off_by(dice.between(-1_900, 1_900));
                let asked = Snowflake::builder(Layout::JAVASCRIPT, grants.clone()).clock(clock.clone());
                match asked.span(Duration::from_secs(20)).open().await {
                    Ok(worker) => {
                        opened += 1;
                        alive.push((clock, worker));
                    }
                    Err(IdError::Grant(GrantError::Exhausted { .. })) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            _ if alive.is_empty() => {}
            _ => {
                let at = usize::try_from(dice.roll(alive.len() as u64)).unwrap();
                let (_, gone) = alive.swap_remove(at);
                if dice.roll(2) == 0 {
                    gone.close().await.unwrap();
                }
            }
        }
        for (clock, worker) in &alive {
            clock.set_off_by(dice.between(-3_000, 3_000));
            ids.extend(std::iter::from_fn(|| worker.try_next().ok()).take(200));
        }
        tokio::task::yield_now().await;
    }
    assert!(ids.len() > 50_000, "only {} ids, {refused} refused", ids.len());
    assert_unique(ids);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_that_share_a_generator_repeat_nothing_and_stay_below_the_ceiling() {
    let ids = Snowflake::open(Layout::STANDARD, FixedWorker::new(3)).await.unwrap();
    let started = SystemClock.now();
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let ids = ids.clone();
            tokio::spawn(async move {
                let mut made = Vec::new();
                while made.len() < 50_000 {
                    match n {
                        0 => made.extend(ids.reserve(777).await.unwrap()),
                        _ => made.push(ids.next().await.unwrap()),
                    }
                }
                assert!(made.is_sorted());
                made
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    let millis = SystemClock.now().since(started).as_millis() as usize;
    // Unused milliseconds of the last 10 may be made up for.
    assert!(all.len() <= (millis + 12) * 4096, "{} ids in {millis} ms", all.len());
    assert_unique(all);
}

#[tokio::test]
async fn business_bits_are_carried_and_checked() {
    let layout = Layout::<41, 8, 10, 4>::new();
    let ids = Snowflake::open(layout, FixedWorker::new(255)).await.unwrap();
    let id = ids.next_for(15).await.unwrap();
    assert_eq!(layout.decode(id).business, 15);
    assert!(ids.reserve_for(100, 9).await.unwrap().all(|id| id.get() % 16 == 9));
    assert!(matches!(ids.next_for(16).await, Err(IdError::Business { value: 16, end: 16 })));
    assert!(matches!(ids.reserve(1_000_001).await, Err(IdError::TooMany { .. })));
    assert_eq!(ids.reserve(0).await.unwrap().count(), 0);
}

#[tokio::test]
async fn a_number_that_does_not_fit_the_layout_is_refused() {
    let refused = Snowflake::open(Layout::JAVASCRIPT, FixedWorker::new(32)).await;
    assert!(matches!(refused, Err(IdError::Grant(GrantError::Unavailable(_)))));
}

/// Grants that can be switched off, and that count how often they are asked.
#[derive(Debug, Clone)]
struct Switch {
    inner: MemoryGrants,
    off: Arc<AtomicBool>,
    asked: Arc<std::sync::atomic::AtomicU32>,
}

#[async_trait]
impl Grants for Switch {
    async fn grant(&self, request: &Request) -> Result<Grant, GrantError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.off.load(Ordering::SeqCst) {
            return Err(GrantError::unavailable("switched off"));
        }
        self.inner.grant(request).await
    }

    async fn release(&self, holder: Holder, worker: u64, used_until: u64) -> Result<(), GrantError> {
        self.inner.release(holder, worker, used_until).await
    }
}

#[tokio::test]
async fn a_window_is_renewed_at_a_third_and_without_a_renewal_there_are_no_ids() {
    let time = ManualClock::new();
    let inner = MemoryGrants::with_clock(time.clone());
    let grants = Switch { inner, off: Arc::default(), asked: Arc::default() };
    let ids = Snowflake::builder(Layout::STANDARD, grants.clone()).clock(time.clone());
    let ids = ids.span(Duration::from_secs(30)).open().await.unwrap();
    let settle = async || {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    };
    settle().await;
    for _ in 0..10 {
        time.advance(Duration::from_secs(10));
        settle().await;
        ids.try_next().expect("it was renewed in the background, in time");
    }
    assert_eq!(grants.asked.load(Ordering::SeqCst), 11);
    grants.off.store(true, Ordering::SeqCst);
    time.advance(Duration::from_secs(29));
    settle().await;
    ids.next().await.expect("what is left of the window may be used");
    time.advance(Duration::from_secs(2));
    settle().await;
    assert!(matches!(ids.try_next(), Err(IdError::NoGrant)));
    time.advance(Duration::from_secs(1));
    assert!(matches!(ids.next().await, Err(IdError::Grant(GrantError::Unavailable(_)))));
    let asked = grants.asked.load(Ordering::SeqCst);
    for _ in 0..100 {
        assert!(ids.next().await.is_err());
    }
    assert_eq!(grants.asked.load(Ordering::SeqCst), asked, "a store that is down is not stormed");
    grants.off.store(false, Ordering::SeqCst);
    time.advance(Duration::from_secs(1));
    ids.next().await.expect("it is back");
}

/// Its window would be renewed for nobody, and its number taken from those who wait for one.
#[tokio::test]
async fn a_closed_generator_never_leases_again() {
    let time = ManualClock::new();
    let inner = MemoryGrants::with_clock(time.clone());
    let grants = Switch { inner, off: Arc::default(), asked: Arc::default() };
    let ids = Snowflake::builder(Layout::STANDARD, grants.clone()).clock(time.clone());
    let ids = ids.span(Duration::from_secs(30)).open().await.unwrap();
    let settle = async || {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    };
    settle().await;
    ids.close().await.unwrap();
    let asked = grants.asked.load(Ordering::SeqCst);
    for _ in 0..10 {
        time.advance(Duration::from_secs(10));
        settle().await;
        assert!(matches!(ids.next().await, Err(IdError::Closed)));
        assert!(matches!(ids.try_next(), Err(IdError::Closed)));
    }
    assert_eq!(grants.asked.load(Ordering::SeqCst), asked);
}
