//! What holds for every layout.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::{Dice, SetClock, assert_unique};
use onlyonce_core::ManualClock;
use onlyonce_id::{EPOCH_2024, IdError, Layout, MemoryGrants, Snowflake, SnowflakeId};
use proptest::prelude::*;

/// Composing and decoding are each other's reverse, and ids sort by time.
fn parts_read_back<const T: u32, const W: u32, const S: u32, const B: u32>(
    layout: Layout<T, W, S, B>,
    [time, worker, sequence, business]: [u64; 4],
) {
    let span = layout.end_millis() - layout.epoch_millis();
    let at = layout.epoch_millis() + time % span;
    let (worker, sequence) = (worker % layout.workers(), sequence % layout.per_milli());
    let business = business % layout.businesses();
    let id = layout.compose(at, worker, sequence, business).unwrap();
    let parts = layout.decode(id);
    assert_eq!((parts.unix_millis, parts.worker), (at, worker));
    assert_eq!((parts.sequence, parts.business), (sequence, business));
    assert!(id.get() < 1 << (T + W + S + B));
    assert_eq!(SnowflakeId::from_sortable(&id.sortable()).unwrap(), id);
    assert_eq!(id.to_string().parse::<SnowflakeId>().unwrap(), id);
    if at + 1 < layout.end_millis() {
        let later = layout.compose(at + 1, 0, 0, 0).unwrap();
        assert!(later > id && later.sortable() > id.sortable());
    }
    assert!(layout.compose(layout.end_millis(), worker, sequence, business).is_err());
    assert!(layout.compose(at, layout.workers(), sequence, business).is_err());
    assert!(layout.compose(at, worker, layout.per_milli(), business).is_err());
    assert!(layout.compose(at, worker, sequence, layout.businesses()).is_err());
}

/// Three generators whose clocks are set back and forth, by as much as they may bridge and more.
async fn never_twice<const T: u32, const W: u32, const S: u32, const B: u32>(
    layout: Layout<T, W, S, B>,
    seed: u64,
) {
    let time = ManualClock::new();
    let grants = MemoryGrants::with_clock(time.clone());
    let mut dice = Dice(seed);
    let mut ids: Vec<SnowflakeId> = Vec::new();
    let mut workers = Vec::new();
    for _ in 0..3.min(layout.workers()) {
        let clock = SetClock::over(time.clone());
        let opened = Snowflake::builder(layout, grants.clone()).clock(clock.clone()).open().await.unwrap();
        workers.push((clock, opened, None));
    }
    for _ in 0..400 {
        time.advance(Duration::from_millis(dice.roll(20)));
        let count = workers.len() as u64;
        let (clock, worker, last) = &mut workers[usize::try_from(dice.roll(count)).unwrap()];
        if dice.roll(4) == 0 {
            clock.set_off_by(dice.between(-4_000, 4_000));
        }
        for _ in 0..dice.roll(50) {
            match worker.try_next() {
                Ok(id) => {
                    assert!(last.is_none_or(|last| last < id), "ids of one generator rise");
                    *last = Some(id);
                    ids.push(id);
                }
                Err(
                    IdError::Ceiling | IdError::ClockWentBack { .. } | IdError::NoGrant | IdError::OutOfTime,
                ) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(ids.len() > 100, "only {} ids were made", ids.len());
    assert_unique(ids);
}

macro_rules! layouts {
    ($($name:ident: $layout:expr;)+) => {
        $(mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(64))]
                #[test]
                fn parts_read_back_and_ids_sort_by_time(parts: [u64; 4]) {
                    parts_read_back($layout, parts);
                }

                #[test]
                fn no_id_repeats_whatever_the_clocks_do(seed: u64) {
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
                        .block_on(never_twice($layout, seed));
                }
            }
        })+
    };
}

layouts! {
    standard: Layout::STANDARD;
    twitter: Layout::TWITTER;
    javascript: Layout::JAVASCRIPT;
    with_business_bits: Layout::<41, 8, 10, 4>::new();
    one_worker: Layout::<41, 0, 8>::new();
    many_workers: Layout::<41, 21, 1>::new();
    little_time: Layout::<30, 4, 4>::since(EPOCH_2024 - 86_400_000);
}

#[test]
fn numbers_of_the_javascript_layout_are_exact_in_javascript() {
    let layout = Layout::JAVASCRIPT;
    let last = layout.compose(layout.end_millis() - 1, 31, 127, 0).unwrap().get();
    assert_eq!(last, (1 << 53) - 1);
}

#[test]
fn twitters_own_ids_decode() {
    // The worker is data centre 11, machine 13.
    let parts = Layout::TWITTER.decode("1541815603606036480".parse().unwrap());
    assert_eq!(parts.unix_millis, 1_656_432_460_105);
    assert_eq!(parts.data_centre_and_machine(), (11, 26));
    assert_eq!(parts.sequence, 0);
}
