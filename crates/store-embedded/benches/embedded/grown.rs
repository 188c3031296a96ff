//! P5: the same with many records as with few.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onlyonce_core::{Clock, Moment, Sleep, Store, SystemClock};
use onlyonce_store_embedded::EmbeddedStore;

use crate::Effort;
use crate::callers::{CALLERS, DAY, Pairs, begin_and_settle, rate};
use onlyonce_bench_report::{Goal, Report};

const FEW: u64 = 10_000;
/// How many expire among the others.
const EXPIRE: u64 = 10_000;

/// The machine's clock, ahead by some time.
#[derive(Debug, Clone, Default)]
struct Ahead(Arc<AtomicU64>);

impl Clock for Ahead {
    fn now(&self) -> Moment {
        SystemClock.now().plus(Duration::from_micros(self.0.load(Ordering::Relaxed)))
    }

    fn wall_micros(&self) -> u64 {
        SystemClock.wall_micros() + self.0.load(Ordering::Relaxed)
    }

    fn sleep(&self, span: Duration) -> Sleep {
        SystemClock.sleep(span)
    }
}

/// The default cache, and four write buffers: the one that is filled and those that wait to become tables.
const MEMORY_BOUND: u64 = (32 + 4 * 16) << 20;

/// A store with so many records.
struct Grown {
    path: PathBuf,
    clock: Ahead,
    store: Arc<EmbeddedStore>,
    next: u64,
    records: u64,
}

impl Grown {
    async fn new(path: PathBuf, records: u64) -> Self {
        let clock = Ahead::default();
        let store = Arc::new(EmbeddedStore::builder(&path).with_clock(clock.clone()).open().unwrap());
        let start = Instant::now();
        let loaded = rate(&store, 1024, 0, records).await;
        eprintln!("{records} records loaded in {:.0} s, {loaded:.0}/s", start.elapsed().as_secs_f64());
        Self { path, clock, store, next: records, records }
    }

    async fn pairs_a_second(&mut self, pairs: u64) -> f64 {
        let rate = rate(&self.store, CALLERS, self.next, pairs).await;
        self.next += pairs;
        rate
    }

    /// How long it takes to open, in seconds.
    fn reopen(self) -> (Self, f64) {
        let Self { path, clock, store, next, records } = self;
        drop(store);
        let start = Instant::now();
        let store = Arc::new(EmbeddedStore::builder(&path).with_clock(clock.clone()).open().unwrap());
        let took = start.elapsed().as_secs_f64();
        (Self { path, clock, store, next, records }, took)
    }

    /// How long it takes to sweep a thousand expired records, in seconds.
    async fn sweep(&mut self) -> f64 {
        let short = Arc::new(Short(self.store.clone()));
        rate(&short, 1024, self.next, EXPIRE).await;
        self.next += EXPIRE;
        self.clock.0.fetch_add(3_600_000_000, Ordering::Relaxed);
        let start = Instant::now();
        assert_eq!(self.store.sweep(u32::MAX).await.unwrap() as u64, EXPIRE);
        start.elapsed().as_secs_f64() / EXPIRE as f64 * 1_000.0
    }
}

/// Records that are kept for an hour only.
struct Short(Arc<EmbeddedStore>);

impl Pairs for Short {
    async fn pair(&self, n: u64) {
        begin_and_settle(&self.0, n, DAY / 24).await;
    }
}

pub(crate) async fn measure(effort: Effort, report: &mut Report) {
    let directory = tempfile::tempdir().unwrap();
    let memory_at_first = resident_bytes();
    let mut few = Grown::new(directory.path().join("few"), FEW).await;
    let memory_few = resident_bytes() - memory_at_first;
    let mut many = Grown::new(directory.path().join("many"), effort.records).await;
    let memory_many = resident_bytes() - memory_at_first - memory_few;
    eprintln!("resident: +{} MiB with few, +{} MiB with many", memory_few >> 20, memory_many >> 20);
    eprintln!("disk: {} MiB few, {} MiB many", disk_bytes(&few.path) >> 20, disk_bytes(&many.path) >> 20);
    let bytes_each = |grown: &Grown| disk_bytes(&grown.path) as f64 / grown.records as f64;
    let (bytes_few, bytes_many) = (bytes_each(&few), bytes_each(&many));

    let (mut costs, mut opens, mut sweeps) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=effort.rounds {
        let rates = [few.pairs_a_second(effort.pairs).await, many.pairs_a_second(effort.pairs).await];
        let sweep = [few.sweep().await, many.sweep().await];
        let (reopened, open_few) = few.reopen();
        few = reopened;
        let (reopened, open_many) = many.reopen();
        many = reopened;
        eprintln!(
            "round {round}: {:.0}/s few, {:.0}/s many; a thousand swept in {:.1} ms, {:.1} ms; opened in {:.0} ms, {:.0} ms",
            rates[0],
            rates[1],
            sweep[0] * 1e3,
            sweep[1] * 1e3,
            open_few * 1e3,
            open_many * 1e3
        );
        if round > 0 {
            costs.push(rates[0] / rates[1]);
            sweeps.push(sweep[1] / sweep[0]);
            opens.push(open_many / open_few);
        }
    }
    let case = |what: &str| format!("{what}, {} records to {FEW}", effort.records);
    report.add("P5", &case("cost of begin + settle"), &costs, Goal::AtMost(1.3));
    report.add("P5", &case("cost of a sweep of as many"), &sweeps, Goal::AtMost(1.3));
    report.add("P5", &case("time to open"), &opens, Goal::AtMost(1.3));
    // The few fill neither the cache nor the write buffers, so this says how much of them the many use.
    let memory = memory_many as f64 / memory_few.max(1) as f64;
    report.add("P5", &case("memory"), &[memory], Goal::AtMost(1.3));
    let bound = memory_many as f64 / MEMORY_BOUND as f64;
    let bounded = format!("memory with {} records, to cache and write buffers", effort.records);
    report.add("P5", &bounded, &[bound], Goal::AtMost(1.3));
    report.add("P5", &case("bytes on disk for each"), &[bytes_many / bytes_few], Goal::AtMost(1.3));
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::symlink_metadata(path).unwrap();
    if meta.is_dir() {
        std::fs::read_dir(path).unwrap().map(|entry| disk_bytes(&entry.unwrap().path())).sum()
    } else {
        meta.blocks() * 512
    }
}
