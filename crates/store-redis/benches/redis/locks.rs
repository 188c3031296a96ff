//! P6: acquire and release by 64 tasks, and the hand-over from one client to another that waits.

use std::time::{Duration, Instant};

use onlyonce_bench_report::{Goal, Report};
use onlyonce_core::lock::Locks;
use onlyonce_store_redis::RedisLocks;
use redis::aio::{ConnectionLike, MultiplexedConnection};

use crate::Effort;
use crate::callers::pace;
use crate::server::Server;

/// What everybody writes by hand.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const HAND_OVERS: usize = 200;

pub(crate) async fn measure(effort: Effort, report: &mut Report) {
    let server = Server::start().await;
    let (here, there) = (locks(&server).await, locks(&server).await);
    let mut raw = connect(&server).await;
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(COMPARE_AND_DELETE).query_async::<String>(&mut raw).await;
    let digest = load.unwrap();
    let (mut pairs, mut hand_overs) = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=effort.rounds {
        let ours = our_pairs(&here, effort.calls).await;
        let theirs = raw_pairs(&raw, &digest, effort.calls).await;
        let ping = median(ping(&raw).await);
        let handed = median(hand_over(&here, &there).await);
        if round > 0 {
            pairs.push(ours / theirs);
            hand_overs.push(handed / ping);
            eprintln!(
                "   round {round}: acquire + release {ours:.0}/s, raw {theirs:.0}/s; hand-over {handed:.0} µs, PING {ping:.0} µs"
            );
        }
    }
    report.add(
        "P6",
        "lock: acquire + release, to SET NX PX + compare-and-delete",
        &pairs,
        Goal::AtLeast(0.95),
    );
    report.add("P6", "lock: hand-over to who waits, to a PING", &hand_overs, Goal::AtMost(3.0));
}

async fn locks(server: &Server) -> Locks {
    Locks::new(RedisLocks::open(server.url()).await.unwrap())
}

async fn connect(server: &Server) -> MultiplexedConnection {
    redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

async fn our_pairs(locks: &Locks, calls: usize) -> f64 {
    let locks = locks.clone();
    pace(calls, move |number| {
        let request = locks.key(format!("order:{number}")).ttl(Duration::from_secs(30));
        async move {
            request.acquire().await.unwrap().release().await.unwrap();
        }
    })
    .await
}

async fn raw_pairs(connection: &MultiplexedConnection, digest: &str, calls: usize) -> f64 {
    let (connection, digest) = (connection.clone(), digest.to_owned());
    pace(calls, move |number| {
        let (mut connection, digest) = (connection.clone(), digest.clone());
        async move {
            let (key, value) = (format!("onlyonce:lock:{{00}}order:{number}"), rand::random::<[u8; 16]>());
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(&value[..]).arg("NX").arg("PX").arg(30_000);
            connection.req_packed_command(&set).await.unwrap();
            let mut delete = redis::cmd("EVALSHA");
            delete.arg(&digest).arg(1).arg(&key).arg(&value[..]);
            connection.req_packed_command(&delete).await.unwrap();
        }
    })
    .await
}

async fn ping(connection: &MultiplexedConnection) -> Vec<f64> {
    let mut connection = connection.clone();
    let mut times = Vec::new();
    for _ in 0..HAND_OVERS {
        // As rested as at a hand-over.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let begun = Instant::now();
        connection.req_packed_command(&redis::cmd("PING")).await.unwrap();
        times.push(micros(begun));
    }
    times
}

/// From the call of `release` to the guard of who waited, at another client.
async fn hand_over(here: &Locks, there: &Locks) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..HAND_OVERS {
        let held = here.key("handed over").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let request = there.key("handed over").wait(Duration::from_secs(30));
            async move { (request.acquire().await.unwrap(), Instant::now()) }
        });
        // Until it has asked, and heard that it is taken.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let begun = Instant::now();
        held.release().await.unwrap();
        let (next, had) = waiting.await.unwrap();
        times.push(had.duration_since(begun).as_secs_f64() * 1e6);
        next.release().await.unwrap();
    }
    times
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
