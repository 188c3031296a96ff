//! Whatever is done to them, the memory store and the reference model give the same answers.
//!
//! `PROPTEST_CASES` sets how many sequences are tried.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Fence, Filter, Fingerprint, Hash16, Inspect, Label, ManualClock,
    MemoryStore, Owner, RecordId, Settlement, StateKind, Store, Takeover, Verdict,
};
use onlyonce_testkit::ModelStore;
use proptest::prelude::*;

/// Far apart, so that each lies in a shard of its own: the memory store raises fences by the shard, the model by the id.
const IDS: [u8; 3] = [0x00, 0x50, 0xa0];
const OWNERS: u8 = 4;
const DEFAULT_CASES: u32 = 700;

#[derive(Debug, Clone)]
enum Step {
    Begin { id: usize, owner: u8, payload: u8, lease: u64, retain: u64, takeover: Wanted },
    Renew { id: usize, who: Who, lease: u64 },
    Settle { id: usize, who: Who, verdict: Verdict, retain: u64 },
    Get { id: usize },
    Forget { id: usize, earlier: usize },
    Sweep { limit: u32 },
    Pass { seconds: u64 },
    Look { state: Option<StateKind>, limit: u32 },
}

#[derive(Debug, Clone)]
enum Wanted {
    Never,
    Allowed,
    Seen { earlier: usize },
}

/// An attempt that was acquired: the last or an earlier one, with its fence, none, or a wrong one.
#[derive(Debug, Clone)]
struct Who {
    earlier: usize,
    fence: FenceKnown,
}

#[derive(Debug, Clone)]
enum FenceKnown {
    Yes,
    No,
    Wrongly,
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let bytes = prop::sample::select(vec!["", "a", "b"]);
    prop_oneof![
        bytes.clone().prop_map(|text| Verdict::Completed(Answer(text.into()))),
        Just(Verdict::Released),
        bytes.prop_map(|text| Verdict::Unknown(Answer(text.into()))),
    ]
}

fn earlier() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0_usize), 1 => 1..4_usize]
}

fn who() -> impl Strategy<Value = Who> {
    let fence =
        prop_oneof![4 => Just(FenceKnown::Yes), 2 => Just(FenceKnown::No), 1 => Just(FenceKnown::Wrongly)];
    (earlier(), fence).prop_map(|(earlier, fence)| Who { earlier, fence })
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..IDS.len();
    let seconds = prop_oneof![Just(0_u64), 1..12_u64, Just(60_u64)];
    let takeover = prop_oneof![
        3 => Just(Wanted::Never),
        2 => Just(Wanted::Allowed),
        2 => earlier().prop_map(|earlier| Wanted::Seen { earlier }),
    ];
    let state = prop::option::of(prop::sample::select(vec![
        StateKind::Running,
        StateKind::Lapsed,
        StateKind::Released,
        StateKind::Completed,
    ]));
    prop_oneof![
        6 => (id.clone(), 0..OWNERS, 0..2_u8, seconds.clone(), seconds.clone(), takeover).prop_map(
            |(id, owner, payload, lease, retain, takeover)| {
                Step::Begin { id, owner, payload, lease, retain, takeover }
            }
        ),
        2 => (id.clone(), who(), seconds.clone()).prop_map(|(id, who, lease)| Step::Renew { id, who, lease }),
        5 => (id.clone(), who(), verdict(), seconds.clone())
            .prop_map(|(id, who, verdict, retain)| Step::Settle { id, who, verdict, retain }),
        2 => id.clone().prop_map(|id| Step::Get { id }),
        1 => (id, earlier()).prop_map(|(id, earlier)| Step::Forget { id, earlier }),
        // Part of what is expired: which part is up to the store, so only all or nothing can be compared.
        1 => prop::sample::select(vec![0, 1000]).prop_map(|limit| Step::Sweep { limit }),
        4 => seconds.prop_map(|seconds| Step::Pass { seconds }),
        1 => (state, 1..4_u32).prop_map(|(state, limit)| Step::Look { state, limit }),
    ]
}

struct Pair {
    clock: ManualClock,
    memory: Arc<MemoryStore>,
    model: Arc<ModelStore>,
    acquired: [Vec<AttemptId>; IDS.len()],
}

impl Pair {
    fn new() -> Self {
        let clock = ManualClock::new();
        Self {
            memory: Arc::new(MemoryStore::new().with_clock(clock.clone())),
            model: Arc::new(ModelStore::new(clock.clone())),
            clock,
            acquired: Default::default(),
        }
    }

    fn attempt(&self, id: usize, earlier: usize) -> AttemptId {
        let nobody = AttemptId { owner: Owner::from_bytes([9; 16]), fence: Some(Fence(1)) };
        self.acquired[id].iter().rev().nth(earlier).copied().unwrap_or(nobody)
    }

    fn fence(&self, id: usize, earlier: usize) -> Fence {
        self.attempt(id, earlier).fence.unwrap_or(Fence(0))
    }

    fn as_known(&self, id: usize, who: &Who) -> AttemptId {
        let attempt = self.attempt(id, who.earlier);
        let fence = match who.fence {
            FenceKnown::Yes => attempt.fence,
            FenceKnown::No => None,
            FenceKnown::Wrongly => Some(Fence(self.fence(id, who.earlier).0 + 1)),
        };
        AttemptId { fence, ..attempt }
    }

    async fn both(&mut self, step: &Step) {
        let (memory, model) = (Arc::clone(&self.memory), Arc::clone(&self.model));
        let id = |id: usize| RecordId::from_bytes([IDS[id]; 32]);
        match step {
            Step::Begin { id: n, owner, payload, lease, retain, takeover } => {
                let claim = Claim {
                    owner: Owner::from_bytes([*owner; 16]),
                    fingerprint: Fingerprint::from_parts(Fingerprint::VERSION, [*payload; 32]),
                    lease: Duration::from_secs(*lease),
                    retain_unsettled: Duration::from_secs(*retain),
                    takeover: match takeover {
                        Wanted::Never => Takeover::Never,
                        Wanted::Allowed => Takeover::Allowed,
                        Wanted::Seen { earlier } => Takeover::Seen(self.fence(*n, *earlier)),
                    },
                    label: label(*owner),
                };
                let begun = memory.begin(&id(*n), &claim).await.unwrap();
                assert_eq!(begun, model.begin(&id(*n), &claim).await.unwrap());
                if let Begin::Acquired { fence, .. } = begun {
                    self.acquired[*n].push(AttemptId { owner: claim.owner, fence: Some(fence) });
                }
            }
            Step::Renew { id: n, who, lease } => {
                let (attempt, lease) = (self.as_known(*n, who), Duration::from_secs(*lease));
                let renewed = memory.renew(&id(*n), &attempt, lease).await.unwrap();
                assert_eq!(renewed, model.renew(&id(*n), &attempt, lease).await.unwrap());
            }
            Step::Settle { id: n, who, verdict, retain } => {
                let attempt = self.as_known(*n, who);
                let how = Settlement { verdict: verdict.clone(), retain: Duration::from_secs(*retain) };
                let settled = memory.settle(&id(*n), &attempt, &how).await.unwrap();
                assert_eq!(settled, model.settle(&id(*n), &attempt, &how).await.unwrap());
            }
            Step::Get { id: n } => {
                assert_eq!(memory.get(&id(*n)).await.unwrap(), model.get(&id(*n)).await.unwrap());
            }
            Step::Forget { id: n, earlier } => {
                let seen = self.fence(*n, *earlier);
                let forgotten = memory.forget(&id(*n), seen).await.unwrap();
                assert_eq!(forgotten, model.forget(&id(*n), seen).await.unwrap());
            }
            Step::Sweep { limit } => {
                assert_eq!(memory.sweep(*limit).await.unwrap(), model.sweep(*limit).await.unwrap());
            }
            Step::Pass { seconds } => self.clock.advance(Duration::from_secs(*seconds)),
            Step::Look { state, limit } => {
                let filter = Filter { state: *state, ..Filter::default() };
                let page = memory.list(&filter, None, *limit).await.unwrap();
                assert_eq!(page, model.list(&filter, None, *limit).await.unwrap());
                let after = page.next.as_ref();
                let (theirs, ours) =
                    (memory.list(&filter, after, *limit).await, model.list(&filter, after, *limit).await);
                assert_eq!(theirs.unwrap(), ours.unwrap());
                assert_eq!(memory.count().await.unwrap(), model.count().await.unwrap());
                assert_eq!(memory.lapsed(*limit).await.unwrap(), model.lapsed(*limit).await.unwrap());
            }
        }
    }
}

fn label(owner: u8) -> Label {
    let hash = Hash16::from_bytes([owner; 16]);
    Label { route: "POST /".into(), key: hash, scope: hash }
}

fn cases() -> ProptestConfig {
    let given = std::env::var_os("PROPTEST_CASES").is_some();
    if given { ProptestConfig::default() } else { ProptestConfig::with_cases(DEFAULT_CASES) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_same_steps_have_the_same_answers(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::new();
            for step in &steps {
                pair.both(step).await;
            }
        });
    }
}
