//! Everything at once: many keys, duplicates, retries, callers that leave, and a store that loses what it can.
//!
//! `ONLYONCE_SEEDS` sets how many seeds are tried; a failure names its seed.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{ManualClock, MemoryStore, Settings, Started, Store};
use onlyonce_testkit::{Fault, Flaw, History, ModelStore, Op, Rates, Summary, Violations};
use tokio::task::JoinSet;

use crate::world::{Failed, Paid, World};

const KEYS: u64 = 24;
const DUPLICATES: u64 = 6;
const RETRIES: u64 = 12;
const DEFAULT_SEEDS: u64 = 6;
/// Of all callers, how many must get an answer.
const SHARE: f64 = 0.5;
/// So short that delays and lost renewals let some attempts lapse.
const LEASE: Duration = Duration::from_millis(900);
const RATES: Rates = Rates {
    unavailable: 60,
    request_lost: 60,
    reply_lost: 80,
    lands_late: 30,
    delay: 150,
    longest: Duration::from_millis(700),
};

/// A number that looks random and is always the same for the same parts.
fn dice(parts: [u64; 3]) -> u64 {
    parts.iter().fold(0x2545_f491_4f6c_dd1d, |state: u64, part| {
        let mixed = (state ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}

/// A process that dies right after the effect: nothing that it still wants to tell the store arrives.
async fn die(world: &World, key: &str) {
    let dying = world.neighbour();
    dying.faults.always(Op::Renew, Fault::HangBefore);
    dying.faults.always(Op::Settle, Fault::HangBefore);
    if let Ok(Started::Run(mut running)) = dying.once.start(&dying.id(key), &dying.intent(key).into()).await {
        running.begun();
        dying.effect(key).await.unwrap();
    }
}

/// One caller: it tries until it has an answer, or hears that there will be none.
async fn caller(world: World, history: History, seed: u64, number: u64) {
    let key = format!("order-{}", number % KEYS);
    for retry in 0..RETRIES {
        let luck = dice([seed, number, retry]);
        // All duplicates of a key come at the same time, their retries do not.
        let pause = if retry == 0 { number % KEYS * 10 } else { luck % 400 };
        world.clock_sleep(Duration::from_millis(pause)).await;
        if luck.is_multiple_of(61) {
            die(&world, &key).await;
        }
        let (inside, of) = (world.clone(), key.clone());
        let body = async move {
            inside.clock_sleep(Duration::from_millis(luck % 1200)).await;
            if luck.is_multiple_of(11) {
                return Err(Failed::Down);
            }
            inside.effect(&of).await
        };
        let call = world.call(&key).run_detached(body);
        let heard: Paid = if luck.is_multiple_of(7) {
            tokio::select! {
                heard = call => heard,
                () = world.clock_sleep(Duration::from_millis(luck % 50)) => continue,
            }
        } else {
            call.await
        };
        match heard {
            Ok(receipt) => return history.answered(&key, receipt),
            Err(Failed::Refused(refusal)) if !refusal.is_retryable() => {
                return history.refused(&key, refusal);
            }
            Err(_) => {}
        }
    }
    history.refused(&key, "it gave up");
}

/// Raises a storm over a store; says what the ledger and the callers make of it.
async fn storm(seed: u64, base: Arc<dyn Store>, clock: ManualClock) -> Result<Summary, Violations> {
    let settings = Settings { lease: LEASE, wait: Duration::from_millis(500), ..Settings::default() };
    let world = World::on(base, clock, settings);
    world.faults.at_random(seed, RATES);
    let elsewhere = world.neighbour();
    elsewhere.faults.at_random(!seed, RATES);
    let history = History::new();
    let mut callers = JoinSet::new();
    for number in 0..KEYS * DUPLICATES {
        let world = if (number / KEYS).is_multiple_of(2) { &world } else { &elsewhere };
        callers.spawn(caller(world.clone(), history.clone(), seed, number));
    }
    world.in_time(callers.join_all()).await;
    world.faults.heal();
    elsewhere.faults.heal();
    for _ in 0..60 {
        world.pass(LEASE / 2).await;
    }
    for number in 0..KEYS {
        let key = format!("order-{number}");
        history.ended(&key, world.kind(&key).await);
    }
    history.check(&world.ledger, SHARE).unwrap()
}

#[tokio::test]
async fn no_storm_makes_an_effect_happen_twice_or_gives_two_answers() {
    let seeds =
        std::env::var("ONLYONCE_SEEDS").map_or(DEFAULT_SEEDS, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        let clock = ManualClock::new();
        let memory = MemoryStore::new().with_clock(clock.clone());
        match storm(seed, Arc::new(memory), clock).await {
            Ok(summary) => println!("seed {seed}: {summary:?}"),
            Err(violations) => panic!("seed {seed}: {violations}"),
        }
    }
}

#[tokio::test]
async fn a_storm_shows_what_is_wrong_with_a_flawed_store() {
    let cases = [
        (Flaw::TwoAcquirers, "2 effects"),
        (Flaw::ExpiresWithLease, "2 effects"),
        (Flaw::TakeoverAlwaysAllowed, "2 effects"),
        (Flaw::CompletionLost, "a stored answer was lost"),
    ];
    for (flaw, wrong) in cases {
        let mut found = Vec::new();
        for seed in 0..3 {
            let clock = ManualClock::new();
            let model = ModelStore::new(clock.clone()).with_flaw(flaw);
            found.extend(storm(seed, Arc::new(model), clock).await.err());
        }
        assert!(found.iter().any(|found| found.to_string().contains(wrong)), "{flaw:?}: {found:?}");
    }
}
