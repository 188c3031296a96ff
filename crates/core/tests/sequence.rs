//! The mark of a sequence never goes down.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::codec::CodecError;
use onlyonce_core::{
    AttemptId, Begin, Bytes, Call, Claim, Class, Classify, Clock, Fence, Filter, Fingerprint, Idempotency,
    Inspect, ManualClock, MemoryStore, Moment, OnLapse, Order, Owner, RecordId, Refusal, Revision,
    SequenceKey, Settings, Settled, Settlement, Sleep, Snapshot, State, Store, StoreError, Takeover, Verdict,
};

#[derive(Debug)]
struct No(Refusal, Class);

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        Self(refusal, Class::Release)
    }
}

impl Classify for No {
    fn classify(&self) -> Class {
        self.1
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Ok(Bytes::new())
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Ok(Self(Refusal::Duplicate, Class::Release))
    }
}

fn call(once: &Idempotency, number: u64) -> Call {
    once.sequence("pay", &SequenceKey::new("partner-7", number).unwrap(), Order::Increasing)
}

async fn send(once: &Idempotency, number: u64) -> Result<u64, No> {
    call(once, number).run(async move { Ok(number) }).await
}

/// A call whose handler says that nothing happened, or that nobody knows.
async fn fail(once: &Idempotency, number: u64, class: Class) {
    let failed = call(once, number).run(async { Err::<u64, _>(No(Refusal::Duplicate, class)) }).await;
    assert!(matches!(failed, Err(No(Refusal::Duplicate, _))), "{failed:?}");
}

fn engine(clock: &ManualClock, settings: Settings) -> Idempotency {
    let store = MemoryStore::new().with_clock(clock.clone());
    Idempotency::builder(store).clock(clock.clone()).settings(settings).build().unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_number_that_was_refused_is_refused_again() {
    let clock = ManualClock::new();
    let once = engine(&clock, Settings::default());
    send(&once, 41).await.unwrap();
    send(&once, 42).await.unwrap();
    // Its record is gone, and the mark is not.
    clock.advance(25 * HOUR);
    for retry in 1..=3 {
        for number in [42, 41, 7] {
            let heard = send(&once, number).await;
            assert!(matches!(heard, Err(No(Refusal::OutOfOrder { last: 42 }, _))), "{retry}: {heard:?}");
        }
        clock.advance(HOUR);
    }
    send(&once, 43).await.unwrap();
}

#[tokio::test]
async fn a_call_that_goes_away_while_it_is_judged_lets_no_other_in() {
    let clock = ManualClock::new();
    let memory = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let once = Idempotency::builder_shared(memory.clone()).clock(clock.clone()).build().unwrap();
    send(&once, 42).await.unwrap();
    let id = call(&once, 42).record_id().unwrap();
    let label = memory.get(&id).await.unwrap().unwrap().label;
    clock.advance(25 * HOUR);
    // Begun again, and dropped before it was judged: so the record says that nothing happened.
    let claim = Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: HOUR,
        retain_unsettled: 48 * HOUR,
        takeover: Takeover::Never,
        label,
    };
    let Begin::Acquired { fence, .. } = memory.begin(&id, &claim).await.unwrap() else { panic!("taken") };
    let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
    let how = Settlement { verdict: Verdict::Released, retain: 48 * HOUR };
    memory.settle(&id, &attempt, &how).await.unwrap();
    let heard = send(&once, 42).await;
    assert!(matches!(heard, Err(No(Refusal::OutOfOrder { last: 42 }, _))), "{heard:?}");
}

#[tokio::test]
async fn the_highest_number_runs_again_after_a_release_however_often_and_late() {
    let clock = ManualClock::new();
    let once = engine(&clock, Settings::default());
    for _ in 0..3 {
        fail(&once, 42, Class::Release).await;
        clock.advance(100 * HOUR);
    }
    assert_eq!(send(&once, 42).await.unwrap(), 42);
}

#[tokio::test]
async fn the_highest_number_is_remembered_longer_than_any_record() {
    let clock = ManualClock::new();
    let once = engine(&clock, Settings::default());
    send(&once, 42).await.unwrap();
    clock.advance(365 * 24 * HOUR);
    let heard = send(&once, 42).await;
    assert!(matches!(heard, Err(No(Refusal::OutOfOrder { last: 42 }, _))), "{heard:?}");
}

#[tokio::test]
async fn a_refused_number_does_not_wipe_the_doubt_about_it() {
    let clock = ManualClock::new();
    let settings = Settings { on_lapse: OnLapse::Rerun, ..Settings::default() };
    let once = engine(&clock, settings);
    fail(&once, 41, Class::Unknown).await;
    send(&once, 42).await.unwrap();
    let heard = send(&once, 41).await;
    assert!(matches!(heard, Err(No(Refusal::OutOfOrder { last: 42 }, _))), "{heard:?}");
    let record = once.outcome(&call(&once, 41).record_id().unwrap()).await.unwrap().unwrap();
    assert!(matches!(record.state, State::Lapsed { .. }), "{:?}", record.state);
}

/// A store in which a higher number comes between a look that finds no mark and the begin that follows it.
#[derive(Debug)]
struct Overtaken {
    store: Arc<MemoryStore>,
    yet: AtomicBool,
}

#[async_trait]
impl Store for Overtaken {
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        self.store.begin(id, claim).await
    }

    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        self.store.renew(id, attempt, lease).await
    }

    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        self.store.settle(id, attempt, how).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let found = self.store.get(id).await?;
        if found.is_none() && !self.yet.swap(true, Ordering::SeqCst) {
            let faster = Idempotency::builder_shared(self.store.clone()).build().unwrap();
            send(&faster, 24).await.unwrap();
        }
        Ok(found)
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        self.store.forget(id, seen).await
    }

    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        self.store.sweep(limit).await
    }

    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        self.store.changed(id, seen, timeout).await;
    }
}

#[tokio::test]
async fn a_lower_number_that_saw_no_mark_does_not_take_over_a_higher_one_that_came_since() {
    let store = Overtaken { store: Arc::new(MemoryStore::new()), yet: AtomicBool::new(false) };
    let once = Idempotency::new(store);
    for late in [10, 11] {
        let refused = send(&once, late).await;
        assert!(matches!(refused, Err(No(Refusal::OutOfOrder { last: 24 }, _))), "{late}: {refused:?}");
    }
    assert_eq!(send(&once, 25).await.unwrap(), 25);
}

/// A wall clock that is set, beside a time that really passes.
#[derive(Debug, Clone)]
struct Stepping(ManualClock, Arc<std::sync::atomic::AtomicU64>);

impl Clock for Stepping {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn wall_micros(&self) -> u64 {
        self.0.wall_micros() + self.1.load(Ordering::SeqCst)
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.0.sleep(span)
    }
}

#[tokio::test]
async fn a_wall_clock_that_is_set_forward_keeps_no_retry_of_the_highest_number_out() {
    let (step, clock) = (Arc::default(), ManualClock::new());
    let stepping = Stepping(clock.clone(), Arc::clone(&step));
    let store = MemoryStore::new().with_clock(stepping.clone());
    let once = Idempotency::builder(store).clock(stepping).build().unwrap();
    fail(&once, 42, Class::Release).await;
    step.store(3_600_000_000, Ordering::SeqCst);
    clock.advance(Duration::from_secs(5));
    assert_eq!(send(&once, 42).await.unwrap(), 42);
}

#[tokio::test]
async fn a_call_waits_for_one_who_is_just_moving_the_mark() {
    let memory = Arc::new(MemoryStore::new());
    let once = Idempotency::builder_shared(memory.clone()).build().unwrap();
    send(&once, 41).await.unwrap();
    let records = memory.list(&Filter::default(), None, 10).await.unwrap().records;
    let mark = records.into_iter().find(|listed| SequenceKey::is_mark(&listed.snapshot.label.route)).unwrap();
    // Another process has written a higher number, and is about to say so.
    let claim = Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(5),
        retain_unsettled: 48 * HOUR,
        takeover: Takeover::Seen(mark.snapshot.fence),
        label: mark.snapshot.label.clone(),
    };
    let Begin::Acquired { fence, .. } = memory.begin(&mark.id, &claim).await.unwrap() else {
        panic!("taken")
    };
    let waits = tokio::spawn(async move { send(&once, 43).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished(), "it gave up: {:?}", waits.await.unwrap());
    let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
    let how = Settlement { verdict: Verdict::Released, retain: 48 * HOUR };
    assert_eq!(memory.settle(&mark.id, &attempt, &how).await.unwrap(), Settled::Applied);
    assert_eq!(waits.await.unwrap().unwrap(), 43);
}
