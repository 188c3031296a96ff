//! Callers that each begin and settle one record after the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use onlyonce_core::{
    Answer, AttemptId, Begin, Bytes, Claim, Fingerprint, Hash16, Key, Label, Operation, Owner, RecordId,
    Scope, Settlement, Store, Takeover, Verdict,
};
use onlyonce_store_embedded::EmbeddedStore;

pub(crate) const CALLERS: usize = 64;
/// What a call answers.
pub(crate) const ANSWER: &[u8] = &[b'a'; 256];
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn id(n: u64) -> RecordId {
    RecordId::of(&Scope::shared(), &Operation::http("POST", "/orders"), &Key::new(n.to_string()).unwrap())
}

/// Something that takes a pair of durable writes for one record.
pub(crate) trait Pairs: Send + Sync + 'static {
    fn pair(&self, n: u64) -> impl Future<Output = ()> + Send;
}

impl Pairs for EmbeddedStore {
    async fn pair(&self, n: u64) {
        begin_and_settle(self, n, DAY).await;
    }
}

pub(crate) async fn begin_and_settle(store: &EmbeddedStore, n: u64, retain: Duration) {
    // The engine above hashes keys and payloads; here the store is measured.
    static CLAIM: LazyLock<Claim> = LazyLock::new(|| Claim {
        owner: Owner::from_bytes([0; 16]),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(30),
        retain_unsettled: 30 * DAY,
        takeover: Takeover::Never,
        label: Label {
            route: "POST /orders".into(),
            key: Hash16::of_key(&Key::new("k").unwrap()),
            scope: Hash16::of_scope(&Scope::shared()),
        },
    });
    let claim = Claim { owner: Owner::random(), ..CLAIM.clone() };
    let id = id(n);
    let begun = store.begin(&id, &claim).await.unwrap();
    let Begin::Acquired { fence, .. } = begun else { panic!("record {n} is taken") };
    let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
    let how = Settlement { verdict: Verdict::Completed(Answer(Bytes::from_static(ANSWER))), retain };
    store.settle(&id, &attempt, &how).await.unwrap();
}

/// Does `pairs` pairs from `first` on with so many callers, and says how many a second.
pub(crate) async fn rate<P: Pairs>(on: &Arc<P>, callers: usize, first: u64, pairs: u64) -> f64 {
    let next = Arc::new(AtomicU64::new(first));
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (on, next) = (on.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= first + pairs {
                        break;
                    }
                    on.pair(n).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    pairs as f64 / start.elapsed().as_secs_f64()
}
