//! The statements say what `core::machine` says: the same random calls to a database and to a `MemoryStore` have the same
//! answers.
//!
//! Leases and retentions are over at once or never, so that no time has to pass.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::*;
use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Fence, Fingerprint, ManualClock, MemoryStore, Owner, RecordId,
    Settlement, Snapshot, State, Store, Takeover, Verdict,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const RECORDS: u64 = 100;
const CALLS: usize = 25;

/// One store, and the fences that it gave out: both stores give them out in the same order.
struct Side<'a> {
    store: &'a dyn Store,
    fences: Vec<Fence>,
}

/// A fence that was given out so many attempts ago.
type Ago = usize;

enum Call {
    Begin { owner: Owner, payload: u8, lease: Duration, retain: Duration, takeover: Option<Option<Ago>> },
    Renew { owner: Owner, fence: Option<Ago>, lease: Duration },
    Settle { owner: Owner, fence: Option<Ago>, how: Settlement },
    Forget { fence: Ago },
    Get,
}

fn call(random: &mut StdRng, owners: &[Owner]) -> Call {
    let owner = owners[random.random_range(0..owners.len())];
    let fence = [None, Some(0), Some(0), Some(1)][random.random_range(0..4)];
    let mut span = || if random.random_bool(0.35) { Duration::ZERO } else { Duration::from_secs(3600) };
    let (lease, retain) = (span(), span());
    match random.random_range(0..10) {
        0..4 => {
            let takeover = [None, None, Some(None), Some(Some(0)), Some(Some(1))][random.random_range(0..5)];
            Call::Begin { owner, payload: u8::from(random.random_bool(0.2)), lease, retain, takeover }
        }
        4 => Call::Renew { owner, fence, lease },
        5..8 => {
            let answer = Answer(["", "a", "b"][random.random_range(0..3)].into());
            let verdict = [Verdict::Released, Verdict::Completed(answer.clone()), Verdict::Unknown(answer)];
            Call::Settle {
                owner,
                fence,
                how: Settlement { verdict: verdict[random.random_range(0..3)].clone(), retain },
            }
        }
        8 => Call::Forget { fence: fence.unwrap_or(0) },
        _ => Call::Get,
    }
}

impl Side<'_> {
    fn fence(&self, ago: Ago) -> Fence {
        self.fences.iter().rev().nth(ago).copied().unwrap_or(Fence(1))
    }

    fn attempt(&self, owner: Owner, fence: Option<Ago>) -> AttemptId {
        AttemptId { owner, fence: fence.map(|ago| self.fence(ago)) }
    }

    /// Without what differs between any two stores: fences are named by their number, spans left out.
    fn shown(&self, found: Option<Snapshot>) -> String {
        let Some(found) = found else { return "absent".into() };
        let number = self.fences.iter().position(|fence| *fence == found.fence);
        let bytes = match &found.state {
            State::Completed(answer) | State::Lapsed { evidence: answer, .. } => answer.0.clone(),
            _ => Default::default(),
        };
        format!("{:?} {number:?} {} {:?} {bytes:?}", found.state.kind(), found.attempts, found.fingerprint)
    }

    async fn make(&mut self, id: &RecordId, call: &Call) -> String {
        match call {
            Call::Begin { owner, payload, lease, retain, takeover } => {
                let takeover = match takeover {
                    None => Takeover::Never,
                    Some(None) => Takeover::Allowed,
                    Some(Some(ago)) => Takeover::Seen(self.fence(*ago)),
                };
                let fingerprint = Fingerprint::from_parts(1, [*payload; 32]);
                let (lease, retain_unsettled) = (*lease, *retain);
                let claim =
                    Claim { owner: *owner, fingerprint, lease, retain_unsettled, takeover, ..claim() };
                match self.store.begin(id, &claim).await.unwrap() {
                    Begin::Taken(snapshot) => format!("taken {}", self.shown(Some(snapshot))),
                    Begin::Acquired { fence, attempt, over } => {
                        let new = self.fences.last().is_none_or(|last| *last < fence);
                        if new {
                            self.fences.push(fence);
                        }
                        let number = self.fences.iter().position(|known| *known == fence);
                        format!("acquired {number:?} {attempt} {over:?}")
                    }
                }
            }
            Call::Renew { owner, fence, lease } => {
                format!("{:?}", self.store.renew(id, &self.attempt(*owner, *fence), *lease).await.unwrap())
            }
            Call::Settle { owner, fence, how } => {
                format!("{:?}", self.store.settle(id, &self.attempt(*owner, *fence), how).await.unwrap())
            }
            Call::Forget { fence } => {
                format!("{:?}", self.store.forget(id, self.fence(*fence)).await.unwrap())
            }
            Call::Get => String::new(),
        }
    }
}

async fn the_same_calls_have_the_same_answers<DB: Served>() {
    let seed: u64 =
        std::env::var("ONLYONCE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    let (database, clock) = (open::<DB>().await, ManualClock::new());
    let memory = MemoryStore::new().with_clock(clock.clone());
    let mut random = StdRng::seed_from_u64(seed);
    let mut acquired = 0;
    for record in 0..RECORDS {
        let id = id();
        let owners = [Owner::random(), Owner::random(), Owner::random()];
        let mut sides = [&database as &dyn Store, &memory].map(|store| Side { store, fences: Vec::new() });
        for n in 0..CALLS {
            let call = call(&mut random, &owners);
            clock.advance(Duration::from_millis(1));
            let [mut here, mut there] = [String::new(), String::new()];
            for (side, said) in sides.iter_mut().zip([&mut here, &mut there]) {
                let answer = side.make(&id, &call).await;
                *said = format!("{answer}; {}", side.shown(side.store.get(&id).await.unwrap()));
            }
            assert_eq!(here, there, "ONLYONCE_SEED={seed}, record {record}, call {n}");
            acquired += usize::from(here.starts_with("acquired"));
        }
    }
    assert!(acquired > 200, "only {acquired} attempts: nothing was shown");
}

#[tokio::test]
async fn on_mysql() {
    the_same_calls_have_the_same_answers::<onlyonce_sql::MySql>().await;
}

#[tokio::test]
async fn on_postgres() {
    the_same_calls_have_the_same_answers::<onlyonce_sql::Postgres>().await;
}

#[tokio::test]
async fn on_sqlite() {
    the_same_calls_have_the_same_answers::<onlyonce_sql::Sqlite>().await;
}
