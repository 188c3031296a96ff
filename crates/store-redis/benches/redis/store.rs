//! P3: begin and settle, and a replay, by 64 tasks on one connection.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Fingerprint, Hash16, Label, Owner, RecordId, Settlement, Store,
    Takeover, Verdict,
};
use onlyonce_store_redis::RedisStore;

use crate::Effort;
use crate::callers::pace;
use crate::raw::{self, Raw};
use crate::server::Server;
use onlyonce_bench_report::{Goal, Report};

const ANSWER: &[u8] = &[b'a'; 256];

pub(crate) async fn measure(effort: Effort, report: &mut Report) {
    let server = Server::start().await;
    let store = Arc::new(RedisStore::open(server.url()).await.unwrap());
    let raw = Raw::new(&server.url(), raw::BEGIN, raw::SETTLE).await;
    // The same without the index: what it costs.
    let bare = |script: &str| -> String {
        script
            .lines()
            .filter(|line| !line.contains("'ZADD'") && !line.contains("'ZREM'"))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    let bare = Raw::new(&server.url(), &bare(raw::BEGIN), &bare(raw::SETTLE)).await;
    let (mut pairs, mut replays, mut indexed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut pair_trips, mut replay_trips) = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=effort.rounds {
        flush(&server).await;
        let none = scripts(&server).await;
        let ours = store_pairs(&store, effort.calls).await;
        let paired = scripts(&server).await;
        let again = store_replays(&store, effort.calls).await;
        let replayed = scripts(&server).await;
        flush(&server).await;
        let before = scripts(&server).await;
        let theirs = raw_pairs(&raw, "r:", effort.calls).await;
        let with_index = scripts(&server).await - before;
        let theirs_again = raw_replays(&raw, "r:", effort.calls).await;
        flush(&server).await;
        let before = scripts(&server).await;
        raw_pairs(&bare, "b:", effort.calls).await;
        let without_index = scripts(&server).await - before;
        if round > 0 {
            pair_trips.push((paired - none).calls / effort.calls as f64);
            replay_trips.push((replayed - paired).calls / effort.calls as f64);
            pairs.push(ours / theirs);
            replays.push(again / theirs_again);
            indexed.push(with_index.micros / without_index.micros);
            let of = |scripts: Scripts| scripts.micros / effort.calls as f64;
            eprintln!(
                "   round {round}: begin + settle {ours:.0}/s, raw {theirs:.0}/s; replay {again:.0}/s, raw {theirs_again:.0}/s; \
                 in the server {:.1} µs a pair, without index {:.1} µs",
                of(with_index),
                of(without_index)
            );
        }
    }
    report.add("P3", "redis: begin + settle, to the same two commands raw", &pairs, Goal::AtLeast(0.90));
    report.add("P3", "redis: replay, to the same command raw", &replays, Goal::AtLeast(0.90));
    report.add("P3", "redis: round trips of begin + settle", &pair_trips, Goal::AtMost(2.0));
    report.add("P3", "redis: round trips of a replay", &replay_trips, Goal::AtMost(1.0));
    report.add("P3", "redis: time in the server, to the same without index", &indexed, Goal::AtMost(1.25));
}

/// What the server did so far: how many scripts, each of which is one round trip, and for how long.
#[derive(Debug, Clone, Copy)]
struct Scripts {
    calls: f64,
    micros: f64,
}

impl std::ops::Sub for Scripts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, micros: self.micros - before.micros }
    }
}

async fn scripts(server: &Server) -> Scripts {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let of = |name: &str| -> f64 {
        let number = |line: &str| line.split(name).nth(1)?.split(',').next()?.parse::<f64>().ok();
        info.lines().filter(|line| line.starts_with("cmdstat_eval")).filter_map(number).sum()
    };
    Scripts { calls: of("calls="), micros: of("usec=") }
}

async fn flush(server: &Server) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
}

fn id(number: usize) -> RecordId {
    let mut id = [0; 32];
    // Spread over the shards, as digests are.
    id[..8].copy_from_slice(&(number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    RecordId::from_bytes(id)
}

fn claim() -> Claim {
    Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(60),
        retain_unsettled: Duration::from_secs(600),
        takeover: Takeover::Never,
        label: Label {
            route: "POST".into(),
            key: Hash16::from_bytes([1; 16]),
            scope: Hash16::from_bytes([1; 16]),
        },
    }
}

async fn store_pairs(store: &Arc<RedisStore>, calls: usize) -> f64 {
    let store = Arc::clone(store);
    let answer = onlyonce_core::Bytes::from_static(ANSWER);
    pace(calls, move |number| {
        let (store, answer) = (Arc::clone(&store), answer.clone());
        async move {
            let (id, claim) = (id(number), claim());
            let Begin::Acquired { fence, .. } = store.begin(&id, &claim).await.unwrap() else {
                panic!("taken")
            };
            let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
            let how =
                Settlement { verdict: Verdict::Completed(Answer(answer)), retain: Duration::from_secs(600) };
            store.settle(&id, &attempt, &how).await.unwrap();
        }
    })
    .await
}

async fn store_replays(store: &Arc<RedisStore>, calls: usize) -> f64 {
    let store = Arc::clone(store);
    pace(calls, move |number| {
        let store = Arc::clone(&store);
        async move {
            let Begin::Taken(_) = store.begin(&id(number), &claim()).await.unwrap() else {
                panic!("acquired")
            };
        }
    })
    .await
}

async fn raw_pairs(raw: &Raw, prefix: &'static str, calls: usize) -> f64 {
    let raw = raw.clone();
    pace(calls, move |number| {
        let raw = raw.clone();
        async move {
            let (key, owner) = (raw::key(prefix, number), rand::random::<[u8; 16]>());
            let fence = raw.begin(&key, &owner).await;
            raw.settle(&key, &owner, fence, ANSWER).await;
        }
    })
    .await
}

async fn raw_replays(raw: &Raw, prefix: &'static str, calls: usize) -> f64 {
    let raw = raw.clone();
    pace(calls, move |number| {
        let raw = raw.clone();
        async move {
            raw.begin(&raw::key(prefix, number), &rand::random::<[u8; 16]>()).await;
        }
    })
    .await
}
