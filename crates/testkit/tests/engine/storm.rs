//! Everything at once: many keys, duplicates, retries, callers that leave, and a store that loses what it can.
//!
//! `ONLYONCE_SEEDS` sets how many seeds are tried; a failure names its seed.

use std::time::Duration;

use onlyonce_core::{Settings, Store};
use onlyonce_testkit::{History, Op, Rates};
use tokio::task::JoinSet;

use crate::world::{Failed, Paid, World, quiet};

const KEYS: u64 = 24;
const DUPLICATES: u64 = 6;
const RETRIES: u64 = 12;
const DEFAULT_SEEDS: u64 = 6;
const LEASE: Duration = Duration::from_secs(2);
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

/// One caller: it tries until it has an answer, or hears that there will be none.
async fn caller(world: World, history: History, seed: u64, number: u64) {
    let key = format!("order-{}", number % KEYS);
    for retry in 0..RETRIES {
        let luck = dice([seed, number, retry]);
        world.clock_sleep(Duration::from_millis(luck % 400)).await;
        let (inside, of) = (world.clone(), key.clone());
        let body = async move {
            inside.clock_sleep(Duration::from_millis(luck % 90)).await;
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

async fn storm(seed: u64) {
    let wait = Duration::from_millis(500);
    let world = World::with(Settings { lease: LEASE, wait, ..Settings::default() });
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
        quiet().await;
    }
    for number in 0..KEYS {
        let key = format!("order-{number}");
        history.ended(&key, world.memory.get(&world.id(&key)).await.unwrap().map(|seen| seen.state.kind()));
    }
    match history.check(&world.ledger, 0.9).unwrap() {
        Ok(summary) => println!("seed {seed}: {summary:?}, {} begins", world.faults.calls(Op::Begin)),
        Err(violations) => panic!("seed {seed}: {violations}"),
    }
}

#[tokio::test]
async fn no_storm_makes_an_effect_happen_twice_or_gives_two_answers() {
    let seeds =
        std::env::var("ONLYONCE_SEEDS").map_or(DEFAULT_SEEDS, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        storm(seed).await;
    }
}
