//! A network that fails between the store and a real Redis: nothing happens twice, and nobody is in his own way.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::calls::{call, engine};
use common::*;
use onlyonce_core::{Idempotency, Settings, Store};
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::{FaultProxy, History, Ledger, NetFault};
use rand::seq::SliceRandom;
use tokio::task::JoinSet;

/// Longer than the store waits for a reply: what is delayed by it lands late.
const LATE: Duration = Duration::from_millis(700);
const REPLY: Duration = Duration::from_millis(400);
const LEASE: Duration = Duration::from_secs(2);

const KEYS: usize = 60;
const CALLERS: usize = 4;
/// Of a thousand exchanges, how many go wrong.
const RATE: u16 = 120;
/// How often a client sends a call.
const TRIES: usize = 6;
/// The least share of calls that must be answered: else nothing was shown.
const SHARE: f64 = 0.7;

const DROPS: &[NetFault] = &[NetFault::DropRequest, NetFault::DropReply];
const DELAYS: &[NetFault] = &[
    NetFault::DelayRequest(LATE),
    NetFault::DelayReply(LATE),
    NetFault::DelayRequest(Duration::from_millis(20)),
    NetFault::DelayReply(Duration::from_millis(20)),
];
const RESETS: &[NetFault] = &[
    NetFault::ResetRequest { after: 0 },
    NetFault::ResetRequest { after: 40 },
    NetFault::ResetReply { after: 0 },
    NetFault::ResetReply { after: 3 },
];
const HALVES: &[NetFault] = &[NetFault::HalfCloseRequest, NetFault::HalfCloseReply];

async fn proxy() -> FaultProxy {
    FaultProxy::start(url().trim_start_matches("redis://").to_owned()).await.unwrap()
}

async fn through(proxy: &FaultProxy) -> Arc<RedisStore> {
    let builder = RedisStore::builder(format!("redis://{}", proxy.address())).prefix(prefix());
    Arc::new(builder.response_timeout(REPLY).connect_timeout(REPLY).open().await.unwrap())
}

/// Many callers of the same keys while exchanges go wrong at random; afterwards one call of each key, and a look at its record.
async fn storm(faults: &[NetFault], seed: u64) {
    let proxy = proxy().await;
    let store = through(&proxy).await;
    let settings = Settings { lease: LEASE, wait: Duration::from_secs(3), ..Settings::default() };
    let once = engine(store.clone(), settings);
    let (effects, history) = (Ledger::in_memory(), History::new());
    proxy.at_random(seed, RATE, faults);
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (once, effects, history) = (once.clone(), effects.clone(), history.clone());
        let mut keys: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
        keys.shuffle(&mut rand::rng());
        callers.spawn(async move {
            for key in keys {
                said(&once, &key, &effects, &history).await;
            }
        });
    }
    callers.join_all().await;
    let traffic = proxy.traffic();
    proxy.heal().await;
    once.drain(Duration::from_secs(20)).await;
    // What landed late and was not undone has lapsed by then.
    tokio::time::sleep(LEASE + LATE).await;
    let once = engine(store, Settings::default());
    for key in (0..KEYS).map(|key| key.to_string()) {
        said(&once, &key, &effects, &history).await;
        let id = once.call("effect", key.as_str()).record_id().unwrap();
        history.ended(&key, once.outcome(&id).await.unwrap().map(|found| found.state.kind()));
    }
    let summary =
        history.check(&effects, SHARE).unwrap().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    assert!(traffic.faults > 5, "only {} faults: nothing was shown", traffic.faults);
    println!("seed {seed}: {summary:?} with {} faults in {} exchanges", traffic.faults, traffic.exchanges);
}

/// One call as a client makes it: sent again, a few times, where that may help.
async fn said(once: &Idempotency, key: &str, effects: &Ledger, history: &History) {
    for tries in 1.. {
        match call(once, key, effects).await {
            Ok(answer) => return history.answered(key, answer),
            Err(refused) if tries < TRIES && refused.0.is_retryable() => {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            Err(refused) => return history.refused(key, refused.0),
        }
    }
}

macro_rules! storms {
    ($($name:ident: $faults:expr;)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            storm($faults, rand::random()).await;
        }
    )+};
}

storms! {
    dropped_requests_and_replies_make_nothing_happen_twice: DROPS;
    delays_make_nothing_happen_twice: DELAYS;
    resets_make_nothing_happen_twice: RESETS;
    half_closed_connections_make_nothing_happen_twice: HALVES;
}

/// `ONLYONCE_SEEDS` says how many; see `cargo xtask soak`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_faults_of_the_network_together_make_nothing_happen_twice() {
    let seeds = std::env::var("ONLYONCE_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let all = [DROPS, DELAYS, RESETS, HALVES].concat();
    for _ in 0..seeds {
        storm(&all, rand::random()).await;
    }
}

#[tokio::test]
async fn who_lost_the_reply_to_a_begin_or_a_settlement_is_not_in_his_own_way() {
    let proxy = proxy().await;
    let store = through(&proxy).await;
    // Nobody waits: who met his own begin would hear "in progress" at once.
    let (once, effects) = (engine(store, Settings::default()), Ledger::in_memory());
    for (n, fault) in [DROPS, DELAYS, RESETS, HALVES].concat().into_iter().enumerate() {
        // The first exchange is the begin, the second, where the first is not repeated, the settlement.
        for before in 0..2 {
            let key = format!("{n}-{before}");
            proxy.next(NetFault::DelayReply(Duration::ZERO), before);
            proxy.next(fault, 1);
            let first =
                call(&once, &key, &effects).await.unwrap_or_else(|refused| panic!("{fault:?}: {refused:?}"));
            proxy.heal().await;
            assert_eq!(call(&once, &key, &effects).await.unwrap(), first, "{fault:?}");
            assert_eq!(effects.count(&key).unwrap(), 1, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_begin_a_settlement_a_renewal_and_a_replay_are_one_round_trip_each() {
    let proxy = proxy().await;
    let store = through(&proxy).await;
    // The server gets to know the scripts, and who listens has begun to.
    let warm = id();
    let attempt = begin(&*store, &warm).await.unwrap().unwrap();
    store.renew(&warm, &attempt, LEASE).await.unwrap();
    store.settle(&warm, &attempt, &completed("a")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;

    let mut last = proxy.traffic();
    let mut trips = || {
        let now = proxy.traffic();
        now.exchanges - std::mem::replace(&mut last, now).exchanges
    };
    let id = id();
    let attempt = begin(&*store, &id).await.unwrap().unwrap();
    assert_eq!(trips(), 1, "begin");
    store.renew(&id, &attempt, LEASE).await.unwrap();
    assert_eq!(trips(), 1, "renew");
    store.settle(&id, &attempt, &completed("a")).await.unwrap();
    assert_eq!(trips(), 1, "settle");
    assert!(begin(&*store, &id).await.unwrap().is_none());
    assert_eq!(trips(), 1, "replay");
}
