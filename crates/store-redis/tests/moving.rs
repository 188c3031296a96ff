//! All laws of a store on a Cluster whose slots move, and whose primaries change, all the while.
//!
//! The store follows MOVED and ASK, and waits while the two keys of a record are on either side of a move (TRYAGAIN), within
//! limits. A call that failed as unavailable or ambiguous all the same is made again, as the engine does. What moves are the
//! slots of the very records that the laws use.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::repeating::Repeating;
use common::servers::{OwnCluster, Redis};
use futures_util::FutureExt;
use onlyonce_core::Store;
use onlyonce_store_redis::{OpenError, RedisStore};
use onlyonce_testkit::Harness;
use onlyonce_testkit::laws::store_laws;
use tokio::task::JoinSet;

/// How many laws are tried at a time.
const AT_ONCE: usize = 20;
/// Longer than a failover by agreement takes, so that no lease is lost to one.
const LEASE: Duration = Duration::from_secs(3);

struct OnMovingGround(Arc<dyn Store>);

#[async_trait::async_trait]
impl Harness for OnMovingGround {
    async fn open() -> Self {
        unreachable!("it is made where the Cluster is known")
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// Tries every law on the Cluster, each with records of its own.
async fn all_laws(open: impl AsyncFn() -> Arc<dyn Store>) {
    let mut trials = JoinSet::new();
    let mut laws = store_laws().iter();
    loop {
        while trials.len() < AT_ONCE
            && let Some(law) = laws.next()
        {
            let store = open().await;
            trials.spawn(async move {
                (law.run)(&OnMovingGround(store)).await;
                law.name
            });
        }
        match trials.join_next().await {
            None => return,
            Some(tried) => {
                tried.expect("a law was broken; its panic is above");
            }
        }
    }
}

async fn patient(url: &str) -> RedisStore {
    let prefix = common::prefix();
    for _ in 0..200 {
        let builder = RedisStore::builder(url).prefix(&prefix).response_timeout(Duration::from_secs(10));
        match builder.open().await {
            Ok(store) => return store,
            // A node that is not there for a moment is asked again, as a service is started again.
            Err(OpenError::Connect { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the Cluster can't be reached")
}

struct Primary {
    port: u16,
    name: String,
}

fn primaries(cluster: &OwnCluster) -> Vec<Primary> {
    let nodes = cluster.nodes[0].ask("cluster nodes");
    let primaries = nodes.lines().filter(|line| line.contains("master") && !line.contains("fail"));
    let primary = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let port = words[1].split('@').next()?.rsplit(':').next()?.parse().ok()?;
        Some(Primary { port, name: words[0].to_owned() })
    };
    primaries.filter_map(primary).collect()
}

/// Moves the slot of some record at `from` to another primary, with everything in it.
fn move_one(cluster: &OwnCluster, round: usize) -> bool {
    let primaries = primaries(cluster);
    let (from, to) = (&primaries[round % primaries.len()], &primaries[(round + 1) % primaries.len()]);
    let ask = |port: u16, words: String| common::servers::ask(port, &words);
    let Some(key) = ask(from.port, "randomkey".to_owned()).lines().next().map(str::to_owned) else {
        return false;
    };
    if !key.starts_with("test:") {
        return false;
    }
    let slot = ask(from.port, format!("cluster keyslot {key}")).trim().to_owned();
    ask(to.port, format!("cluster setslot {slot} importing {}", from.name));
    ask(from.port, format!("cluster setslot {slot} migrating {}", to.name));
    for n in 0.. {
        assert!(
            n < 1000,
            "slot {slot} can't be emptied: {:?}",
            ask(from.port, format!("cluster getkeysinslot {slot} 9"))
        );
        let keys = ask(from.port, format!("cluster getkeysinslot {slot} 1"));
        let Some(key) = keys.lines().next().filter(|key| !key.is_empty()) else { break };
        ask(from.port, format!("migrate 127.0.0.1 {} {key} 0 5000", to.port));
    }
    for primary in [to, from].into_iter().chain(&primaries) {
        ask(primary.port, format!("cluster setslot {slot} node {}", to.name));
    }
    true
}

/// Does something on a thread of its own, again and again, while the future runs. Says how often.
async fn meanwhile(what: impl Fn(usize) -> bool + Send + 'static, future: impl Future<Output = ()>) -> usize {
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_over, counts) = (over.clone(), done.clone());
    let thread = std::thread::spawn(move || {
        for round in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            if what(round) {
                counts.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let ended = std::panic::AssertUnwindSafe(future).catch_unwind().await;
    over.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
    done.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_while_the_slots_of_their_records_move() {
    let cluster = Arc::new(OwnCluster::start().await);
    let (url, moved) = (cluster.url(), cluster.clone());
    let moves = meanwhile(
        move |round| move_one(&moved, round),
        all_laws(async || Arc::new(Repeating(patient(&url).await)) as Arc<dyn Store>),
    )
    .await;
    assert!(moves > 20, "only {moves} slots moved: nothing was shown");
    println!("{} laws while {moves} slots moved", store_laws().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_while_primaries_fail_over() {
    let cluster = Arc::new(OwnCluster::start().await);
    let (url, failing) = (cluster.url(), cluster.clone());
    let fail_over = move |round: usize| {
        std::thread::sleep(Duration::from_millis(800));
        // A replica takes the place of its primary, which waits for it to have everything.
        let replicas: Vec<&Redis> =
            failing.nodes.iter().filter(|node| node.says("info replication", "role:slave")).collect();
        let Some(replica) = replicas.get(round % replicas.len().max(1)) else { return false };
        replica.ask("cluster failover");
        (0..50).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            replica.says("info replication", "role:master")
        })
    };
    let failovers =
        meanwhile(fail_over, all_laws(async || Arc::new(Repeating(patient(&url).await)) as Arc<dyn Store>))
            .await;
    assert!(failovers > 3, "only {failovers} failovers: nothing was shown");
    println!("{} laws while there were {failovers} failovers", store_laws().len());
}
