//! Worker numbers leased from a real Redis, by processes that restart while their clocks are set back and forth.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::io::{BufWriter, Write};
use std::time::Duration;

use common::{Dice, SetClock, assert_unique};
use onlyonce_core::SystemClock;
use onlyonce_id::{GrantError, IdError, Layout, RedisGrants, Snowflake};

const PROCESSES: usize = 8;
const IDS: usize = 1_000_000;
const CHILD: &str = "ONLYONCE_ID_CHILD";

fn url() -> String {
    std::env::var("ONLYONCE_TEST_REDIS_URL").expect(
        "ONLYONCE_TEST_REDIS_URL is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints",
    )
}

fn group() -> String {
    format!("test-{:016x}", rand::random::<u64>())
}

/// One process: five lives of a worker whose clock jumps. Writes its ids to a file.
async fn live(file: &str, group: &str, seed: u64) {
    let mut out = BufWriter::new(std::fs::File::create(file).unwrap());
    let mut dice = Dice(seed);
    let (mut made, mut set_back) = (0, 0);
    for life in 1..=5 {
        let clock = SetClock::over(SystemClock);
        clock.set_off_by(dice.between(-1_900, 1_900));
        let grants = RedisGrants::open(&url(), group).unwrap();
        let ids = Snowflake::builder(Layout::STANDARD, grants).clock(clock.clone());
        let ids = ids.span(Duration::from_secs(20)).open().await.unwrap();
        while made < IDS * life / 5 {
            let count = 1 + dice.roll(5_000);
            match ids.reserve(u32::try_from(count).unwrap()).await {
                Ok(batch) => {
                    for id in batch {
                        out.write_all(&id.get().to_le_bytes()).unwrap();
                        made += 1;
                    }
                }
                Err(IdError::ClockWentBack { .. }) => {
                    set_back += 1;
                    clock.set_off_by(1_900);
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            if dice.roll(3) == 0 {
                clock.set_off_by(dice.between(-3_000, 1_900));
            }
        }
        // Half of the lives end without a word.
        if life % 2 == 0 {
            ids.close().await.unwrap();
        }
    }
    assert!(set_back > 0, "the clock was never set back by too much");
    out.flush().unwrap();
}

#[test]
fn eight_processes_with_clocks_set_back_and_forth_repeat_none_of_eight_million_ids() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Ok(orders) = std::env::var(CHILD) {
        let [file, group, seed] = orders.split('|').collect::<Vec<_>>()[..] else { panic!("{orders}") };
        return runtime.block_on(live(file, group, seed.parse().unwrap()));
    }
    let (group, directory) = (group(), std::env::temp_dir());
    let files: Vec<_> = (0..PROCESSES).map(|n| directory.join(format!("onlyonce-{group}-{n}"))).collect();
    let children: Vec<_> = files
        .iter()
        .enumerate()
        .map(|(n, file)| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "eight_processes_with_clocks_set_back_and_forth_repeat_none_of_eight_million_ids",
                ])
                .env(CHILD, format!("{}|{group}|{}", file.display(), n + 1))
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    // Sorted by buckets: a comparison sort of eight million is slow without optimisation.
    let mut buckets = vec![Vec::new(); 1 << 12];
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        assert!(bytes.len() >= IDS * 8);
        for id in bytes.chunks_exact(8) {
            let id = u64::from_le_bytes(id.try_into().unwrap());
            buckets[usize::try_from(id % (1 << 12)).unwrap()].push(id);
        }
    }
    let count: usize = buckets.iter().map(Vec::len).sum();
    assert!(count >= PROCESSES * IDS);
    for mut bucket in buckets {
        bucket.sort_unstable();
        assert!(bucket.is_sorted_by(|a, b| a < b), "an id is there twice");
    }
}

#[tokio::test]
async fn a_holder_keeps_its_number_and_what_is_given_back_is_given_on() {
    let group = group();
    let open = async || {
        Snowflake::open(Layout::<41, 1, 12>::new(), RedisGrants::open(&url(), &group).unwrap()).await
    };
    let (first, second) = (open().await.unwrap(), open().await.unwrap());
    assert_ne!(first.worker(), second.worker());
    let Err(IdError::Grant(GrantError::Exhausted { workers: 2 })) = open().await else {
        panic!("there are two")
    };
    let last = first.next().await.unwrap();
    let number = first.worker();
    first.close().await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let third = open().await.unwrap();
    assert_eq!(third.worker(), number);
    let next = third.next().await.unwrap();
    assert!(next > last);
    assert_unique(vec![last, next, second.next().await.unwrap()]);
}

#[tokio::test]
async fn a_window_is_renewed_and_one_that_is_over_is_given_on_without_overlap() {
    let group = group();
    let layout = Layout::<41, 0, 12>::new();
    let open = || {
        let grants = RedisGrants::open(&url(), &group).unwrap();
        Snowflake::builder(layout, grants).span(Duration::from_millis(900)).open()
    };
    let only = open().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        ids.push(only.next().await.unwrap());
        assert!(open().await.is_err(), "it was renewed, so nobody else has the number");
    }
    drop(only);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let heir = open().await.unwrap();
    ids.push(heir.next().await.unwrap());
    assert_unique(ids);
}

#[tokio::test]
async fn without_a_redis_there_are_no_ids() {
    // Nobody listens there.
    let grants = RedisGrants::open("redis://127.0.0.1:1", "nobody").unwrap();
    let Err(error) = Snowflake::open(Layout::STANDARD, grants).await else { panic!("nobody listens") };
    assert!(matches!(error, IdError::Grant(GrantError::Unavailable(_))), "{error}");
}
