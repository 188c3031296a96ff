//! Processes that lease worker numbers, restart, and have their clocks set back and forth: do they ever repeat an id?
#![allow(dead_code, reason = "not every file of tests uses all of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{BufWriter, Write};
use std::time::Duration;

use onlyonce_core::SystemClock;
use onlyonce_id::{Grants, IdError, Layout, Snowflake};

use super::{Dice, SetClock};

/// Tells a process that it is one of those that a test started, and its orders.
const CHILD: &str = "ONLYONCE_ID_CHILD";

/// Runs `processes` copies of the test called `test`, each of which makes `count` ids with grants from `open`, and looks for
/// duplicates. `orders` are told to all of them, and to `open`.
pub(crate) fn repeat_nothing<G: Grants>(
    test: &str,
    processes: usize,
    count: usize,
    orders: &str,
    open: impl AsyncFn(&str) -> G,
) {
    if let Ok(told) = std::env::var(CHILD) {
        let [file, seed, orders] = told.splitn(3, '|').collect::<Vec<_>>()[..] else { panic!("{told}") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(live(file, seed.parse().unwrap(), count, async || open(orders).await));
    }
    let run = format!("{:016x}", rand::random::<u64>());
    let files: Vec<_> =
        (0..processes).map(|n| std::env::temp_dir().join(format!("onlyonce-{run}-{n}"))).collect();
    let children: Vec<_> = files
        .iter()
        .enumerate()
        .map(|(n, file)| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test])
                .env(CHILD, format!("{}|{}|{orders}", file.display(), n + 1))
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    // Sorted by buckets: a comparison sort of millions is slow without optimisation.
    let mut buckets = vec![Vec::new(); 1 << 12];
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        assert!(bytes.len() >= count * 8);
        for id in bytes.chunks_exact(8) {
            let id = u64::from_le_bytes(id.try_into().unwrap());
            buckets[usize::try_from(id % (1 << 12)).unwrap()].push(id);
        }
    }
    let made: usize = buckets.iter().map(Vec::len).sum();
    assert!(made >= processes * count);
    for mut bucket in buckets {
        bucket.sort_unstable();
        assert!(bucket.is_sorted_by(|a, b| a < b), "an id is there twice");
    }
}

/// One process: five lives of a worker whose clock jumps. Writes its ids to a file.
async fn live<G: Grants>(file: &str, seed: u64, count: usize, open: impl AsyncFn() -> G) {
    let mut out = BufWriter::new(std::fs::File::create(file).unwrap());
    let mut dice = Dice(seed);
    let (mut made, mut set_back) = (0, 0);
    for life in 1..=5 {
        let clock = SetClock::over(SystemClock);
        clock.set_off_by(dice.between(-1_900, 1_900));
        let ids = Snowflake::builder(Layout::STANDARD, open().await).clock(clock.clone());
        let ids = ids.span(Duration::from_secs(20)).open().await.unwrap();
        while made < count * life / 5 {
            let wanted = 1 + dice.roll(5_000);
            match ids.reserve(u32::try_from(wanted).unwrap()).await {
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
