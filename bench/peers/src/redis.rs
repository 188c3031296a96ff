//! The same call on the same Redis: first runs, replays, and locks, by 64 tasks of one process each.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotent::valkey::ValkeyStore;
use idempotent::{CachedResponse, IdempotencyKey, IdempotencyStore as _, Metadata};
use onlyonce::lock::Locks;
use onlyonce::redis::{RedisLocks, RedisStore};
use onlyonce::{Idempotency, Refusal};
use onlyonce_bench_report::{Goal, Report};

use crate::Effort;
use crate::foreign::Foreign;

const TASKS: usize = 64;
/// Answers that are replayed in turn.
const KEYS: usize = 500;
const TTL: Duration = Duration::from_secs(30);

/// Calls a second, by job and library.
pub(crate) type Rates = BTreeMap<(String, String), f64>;

/// What there is to do, and how much more of it we want to do than the best peer.
const JOBS: [(&str, &str, f64); 3] =
    [("fresh", "first runs", 3.0), ("replay", "replays", 1.5), ("lock", "acquire + release", 1.0)];

pub(crate) async fn measure(effort: Effort, url: &str, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let foreign = Foreign::install(url)?;
    let once = Idempotency::new(RedisStore::open(url).await?);
    let locks = Locks::new(RedisLocks::open(url).await?);
    let peer = Arc::new(ValkeyStore::with_url(url).prefix("peer").try_build().await?);
    let rslock = rslock::LockManager::new(vec![url.to_owned()]);
    let mut ratios: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    // The first round warms up.
    for round in 0..=effort.rounds {
        let mut rates = foreign.rates(effort.round)?;
        let mut add = |job: &str, library: &str, rate: f64| rates.insert((job.to_owned(), library.to_owned()), rate);
        let (fresh, replay) = both(effort.round, with(&peer, idempotent)).await;
        add("fresh", "idempotent", fresh);
        add("replay", "idempotent", replay);
        add("lock", "rslock", pace(effort.round, with(&rslock, rslocked)).await);
        let (fresh, replay) = both(effort.round, with(&once, ours)).await;
        let ours = [fresh, replay, pace(effort.round, with(&locks, locked)).await];
        for ((job, ..), ours) in JOBS.iter().zip(ours) {
            eprint!("{job}: ours {ours:.0}/s");
            for ((_, library), rate) in rates.iter().filter(|((of, _), _)| of == job) {
                eprint!(", {library} {rate:.0}/s");
                if round > 0 {
                    ratios.entry(((*job).into(), library.clone())).or_default().push(ours / rate);
                }
            }
            eprintln!();
        }
    }
    for (job, words, goal) in JOBS {
        for ((_, library), figures) in ratios.iter().filter(|((of, _), _)| of == job) {
            report.add("peer", &format!("redis: {words}, to {library}"), figures, Goal::AtLeast(goal));
        }
    }
    Ok(())
}

/// The call, each time with a handle of its own.
fn with<T: Clone, K, F>(handle: &T, call: fn(T, K) -> F) -> impl Fn(K) -> F + Clone + use<T, K, F> {
    let handle = handle.clone();
    move |key| call(handle.clone(), key)
}

/// First runs and replays a second.
async fn both<F>(span: Duration, call: impl Fn(String) -> F + Clone + Send + 'static) -> (f64, f64)
where
    F: Future<Output = ()> + Send,
{
    let run = format!("{:032x}", rand::random::<u128>());
    for number in 0..KEYS {
        call(format!("{run}-{number}")).await;
    }
    let (again, first) = (call.clone(), format!("{:032x}", rand::random::<u128>()));
    let fresh = pace(span, move |number| call(format!("{first}-{number}"))).await;
    let replay = pace(span, move |number| again(format!("{run}-{}", number as usize % KEYS))).await;
    (fresh, replay)
}

async fn ours(once: Idempotency, key: String) {
    let paid: Result<u64, Failed> = once.call("pay", key).input(&42).run(async { Ok(42) }).await;
    assert_eq!(paid.unwrap(), 42);
}

async fn idempotent(store: Arc<ValkeyStore>, key: String) {
    let key = IdempotencyKey::new(key).unwrap();
    let answer = || CachedResponse::new(200, Metadata::new(), b"{\"paid\":42}".to_vec().into());
    let claim = store.claim(&key, TTL).fingerprint("POST /pay", b"{\"amount\":42}");
    claim.execute_or_replay(Duration::from_secs(3600), |_| async move { Ok(answer()) }).await.unwrap();
}

async fn locked(locks: Locks, number: u64) {
    locks.key(format!("ours:{number}")).ttl(TTL).acquire().await.unwrap().release().await.unwrap();
}

async fn rslocked(locks: rslock::LockManager, number: u64) {
    locks.acquire(&*format!("rslock:{number}"), TTL).await.unwrap().release().await;
}

/// Calls a second; `call` is given the number of the call.
async fn pace<F>(span: Duration, call: impl Fn(u64) -> F + Clone + Send + 'static) -> f64
where
    F: Future<Output = ()> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (next, call) = (Arc::clone(&next), call.clone());
            tokio::spawn(async move {
                while begun.elapsed() < span {
                    call(next.fetch_add(1, Ordering::Relaxed)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    next.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

/// A call that was refused, which none is here.
#[derive(Debug, onlyonce::Classify)]
enum Failed {
    #[release]
    Refused(#[expect(dead_code, reason = "for whoever reads the panic")] String),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(format!("{refusal:?}"))
    }
}
