//! A store with a near cache keeps every law, asks the truth for nothing that is near, and lives without its cache.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Fence, Fingerprint, Hash16, Inspect, Label, LocalCache, ManualClock,
    MemoryStore, NearCache, Owner, RecordId, Settled, Settlement, Snapshot, State, Store, Takeover, Tiered,
    Verdict,
};
use onlyonce_testkit::{Fault, FaultyStore, Harness, InspectHarness, Op, conformance, conformance_inspect};

struct TieredHarness {
    clock: ManualClock,
    store: Arc<Tiered<MemoryStore>>,
}

#[async_trait]
impl Harness for TieredHarness {
    async fn open() -> Self {
        let clock = ManualClock::new();
        // An hour: what the laws let pass is within it, so that it is the cache which has to be right.
        let cache = LocalCache::new().keep_for(Duration::from_secs(3_600)).with_clock(clock.clone());
        let truth = MemoryStore::new().with_clock(clock.clone());
        Self { store: Arc::new(Tiered::new(truth).with_clock(clock.clone()).with_cache(cache)), clock }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }
}

#[async_trait]
impl InspectHarness for TieredHarness {
    fn inspect(&self) -> Arc<dyn Inspect> {
        Arc::clone(&self.store) as _
    }
}

mod laws {
    use super::*;
    conformance!(TieredHarness);
    conformance_inspect!(TieredHarness);
}

/// A truth whose calls are counted, and a tier before it.
struct Case {
    clock: ManualClock,
    truth: Arc<FaultyStore>,
    store: Tiered<FaultyStore>,
}

fn id(n: u8) -> RecordId {
    RecordId::from_bytes([n; 32])
}

fn claim() -> Claim {
    Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(60),
        retain_unsettled: Duration::from_secs(600),
        takeover: Takeover::Never,
        label: Label {
            route: "t".into(),
            key: Hash16::from_bytes([1; 16]),
            scope: Hash16::from_bytes([2; 16]),
        },
    }
}

impl Case {
    fn new() -> Self {
        let clock = ManualClock::new();
        let cache = LocalCache::new().with_clock(clock.clone());
        Self::with(clock, cache)
    }

    fn with(clock: ManualClock, cache: impl NearCache) -> Self {
        let memory = MemoryStore::new().with_clock(clock.clone());
        let truth = Arc::new(FaultyStore::new(Arc::new(memory)).with_clock(clock.clone()));
        let store = Tiered::shared(Arc::clone(&truth)).with_clock(clock.clone()).with_cache(cache);
        Self { clock, truth, store }
    }

    /// Completes the record, at the truth alone.
    async fn complete(&self, id: &RecordId, retain: Duration) -> Fence {
        let claim = claim();
        let Begin::Acquired { fence, .. } = self.store.begin(id, &claim).await.unwrap() else {
            panic!("taken")
        };
        let how = Settlement { verdict: Verdict::Completed(Answer("done".into())), retain };
        let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
        assert_eq!(self.store.settle(id, &attempt, &how).await.unwrap(), Settled::Applied);
        fence
    }

    /// Asks by a begin; says whether the truth was asked too.
    async fn replay(&self, id: &RecordId) -> (Option<Snapshot>, bool) {
        let before = self.truth.calls(Op::Begin);
        let snapshot = match self.store.begin(id, &claim()).await.unwrap() {
            Begin::Taken(snapshot) => Some(snapshot),
            Begin::Acquired { .. } => None,
        };
        (snapshot, self.truth.calls(Op::Begin) > before)
    }
}

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test]
async fn a_replay_from_the_cache_makes_no_round_trip_to_the_truth() {
    let case = Case::new();
    case.complete(&id(1), DAY).await;
    assert!(case.replay(&id(1)).await.1, "the first replay fills the cache");
    for _ in 0..100 {
        let (snapshot, asked) = case.replay(&id(1)).await;
        assert!(!asked);
        assert_eq!(snapshot.unwrap().state, State::Completed(Answer("done".into())));
    }
}

#[tokio::test]
async fn an_answer_is_near_for_5_seconds_and_never_for_longer_than_it_is_kept() {
    let case = Case::new();
    case.complete(&id(1), DAY).await;
    case.replay(&id(1)).await;
    case.clock.advance(Duration::from_millis(4_999));
    assert!(!case.replay(&id(1)).await.1);
    case.clock.advance(Duration::from_millis(1));
    assert!(case.replay(&id(1)).await.1);

    case.complete(&id(2), Duration::from_secs(2)).await;
    case.replay(&id(2)).await;
    case.clock.advance(Duration::from_millis(1_999));
    assert!(!case.replay(&id(2)).await.1);
    case.clock.advance(Duration::from_millis(1));
    assert_eq!(case.replay(&id(2)).await, (None, true), "its retention is over: it runs anew");
}

#[tokio::test]
async fn the_times_of_a_cached_answer_go_on() {
    let case = Case::new();
    case.complete(&id(1), DAY).await;
    case.replay(&id(1)).await;
    case.clock.advance(Duration::from_secs(3));
    let (cached, asked) = case.replay(&id(1)).await;
    assert!(!asked);
    assert_eq!(cached, case.truth.get(&id(1)).await.unwrap());
}

#[tokio::test]
async fn only_completed_answers_are_cached() {
    let case = Case::new();
    for (n, verdict) in [(1, None), (2, Some(Verdict::Unknown(Answer::none())))] {
        let claim = claim();
        let Begin::Acquired { fence, .. } = case.store.begin(&id(n), &claim).await.unwrap() else {
            panic!("taken")
        };
        if let Some(verdict) = verdict {
            let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
            case.store.settle(&id(n), &attempt, &Settlement { verdict, retain: DAY }).await.unwrap();
        }
        for _ in 0..3 {
            let (snapshot, asked) = case.replay(&id(n)).await;
            assert!(asked && snapshot.is_some());
        }
    }
}

#[tokio::test]
async fn forget_is_heard_at_once_in_this_process_and_within_the_cache_time_elsewhere() {
    let case = Case::new();
    let elsewhere = Tiered::shared(Arc::clone(&case.truth))
        .with_clock(case.clock.clone())
        .with_cache(LocalCache::new().with_clock(case.clock.clone()));
    let fence = case.complete(&id(1), DAY).await;
    case.replay(&id(1)).await;
    elsewhere.begin(&id(1), &claim()).await.unwrap();
    assert_eq!(case.store.forget(&id(1), fence).await.unwrap(), Settled::Applied);
    assert!(matches!(elsewhere.begin(&id(1), &claim()).await.unwrap(), Begin::Taken(_)), "the stated delay");
    assert_eq!(case.replay(&id(1)).await, (None, true));
    case.clock.advance(Duration::from_secs(5));
    let Begin::Taken(snapshot) = elsewhere.begin(&id(1), &claim()).await.unwrap() else { panic!("it runs") };
    assert!(matches!(snapshot.state, State::Running { .. }), "{snapshot:?}");
}

/// The truth answers, then the record is forgotten, then the answer comes to the cache.
#[tokio::test]
async fn an_answer_that_was_under_way_during_a_forget_is_not_cached() {
    let clock = ManualClock::new();
    let cache = LocalCache::new().with_clock(clock.clone());
    let case = Case::new();
    case.complete(&id(1), DAY).await;
    let Some(snapshot) = case.truth.get(&id(1)).await.unwrap() else { panic!("gone") };
    let mark = cache.mark(&id(1));
    cache.evict(&id(1)).await;
    cache.put(&id(1), &snapshot, DAY, mark).await;
    assert_eq!(cache.get(&id(1)).await, None);
    cache.put(&id(1), &snapshot, DAY, cache.mark(&id(1))).await;
    assert!(cache.get(&id(1)).await.is_some());
}

#[tokio::test]
async fn the_cache_is_bounded_in_number_and_bytes() {
    let clock = ManualClock::new();
    let case = Case::new();
    case.complete(&id(1), DAY).await;
    let Some(snapshot) = case.truth.get(&id(1)).await.unwrap() else { panic!("gone") };
    let held = async |cache: &LocalCache| {
        let mut held = 0;
        for n in 0..=u8::MAX {
            held += usize::from(cache.get(&id(n)).await.is_some());
        }
        held
    };
    for (answers, bytes, most) in [(64, usize::MAX, 64), (usize::MAX, 16 * 1_024, 64), (1_000, 1 << 30, 256)]
    {
        let cache = LocalCache::new().capacity(answers, bytes).with_clock(clock.clone());
        for n in 0..=u8::MAX {
            cache.put(&id(n), &snapshot, DAY, 0).await;
        }
        let held = held(&cache).await;
        assert!(held <= most && held >= most / 2, "{held} of {most}");
        assert!(cache.get(&id(u8::MAX)).await.is_some(), "the newest is there");
    }
}

/// A cache that is down: it knows nothing and keeps nothing.
#[derive(Debug)]
struct Down;

#[async_trait]
impl NearCache for Down {
    fn longest(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn get(&self, _: &RecordId) -> Option<Snapshot> {
        None
    }

    async fn put(&self, _: &RecordId, _: &Snapshot, _: Duration, _: u64) {}

    async fn evict(&self, _: &RecordId) {}
}

#[tokio::test]
async fn without_its_cache_the_truth_answers() {
    let case = Case::with(ManualClock::new(), Down);
    let fence = case.complete(&id(1), DAY).await;
    for _ in 0..3 {
        let (snapshot, asked) = case.replay(&id(1)).await;
        assert!(asked && snapshot.is_some());
    }
    assert_eq!(case.store.forget(&id(1), fence).await.unwrap(), Settled::Applied);
    assert_eq!(case.replay(&id(1)).await.0, None);
}

#[tokio::test]
async fn while_the_truth_is_down_what_is_near_is_replayed_and_nothing_else_runs() {
    let case = Case::new();
    case.complete(&id(1), DAY).await;
    case.replay(&id(1)).await;
    case.truth.always(Op::Begin, Fault::Unavailable);
    assert!(case.replay(&id(1)).await.0.is_some());
    assert!(case.store.begin(&id(2), &claim()).await.is_err());
}
