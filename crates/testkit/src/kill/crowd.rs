//! Several processes on one store, which are killed and paused while they send the same keys.

use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use onlyonce_core::{Clock, Store, SystemClock};

use super::harness::{KillReport, is_at_work, judge, pause, was_killed};
use super::scene::{Scene, Share, Task};
use super::victim::{self, LEASE};

/// The pauses between two blows, in milliseconds.
const PAUSES: std::ops::Range<u64> = 50..400;

/// Sends duplicates of every key from several processes at once, kills and pauses processes at random meanwhile, and then looks
/// whether anything happened twice, was answered differently, or was lost. For stores that processes share.
///
/// The keys come up one after the other for as long as processes are killed and paused, so that these are always amid new ones.
///
/// ```no_run
/// use std::sync::Arc;
/// use onlyonce_core::{MemoryStore, Store};
/// use onlyonce_testkit::CrowdTest;
///
/// #[test]
/// fn nothing_happens_twice_in_a_crowd() {
///     let test = CrowdTest::new("nothing_happens_twice_in_a_crowd").processes(4).keys(200).kills(8).pauses(4);
///     println!("{:?}", test.run(|directory| Arc::new(open(directory))));
/// }
/// # fn open(_: &std::path::Path) -> MemoryStore { MemoryStore::new() }
/// ```
#[derive(Debug)]
pub struct CrowdTest {
    name: &'static str,
    processes: u64,
    keys: u64,
    kills: u64,
    pauses: u64,
    share: f64,
}

impl CrowdTest {
    /// For the test with this name (its whole path, without the crate), which calls [`run`](Self::run).
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, processes: 4, keys: 200, kills: 0, pauses: 0, share: 0.5 }
    }

    /// How many processes send at a time.
    #[must_use]
    pub fn processes(mut self, processes: u64) -> Self {
        self.processes = processes.max(1);
        self
    }

    /// How many keys there are; all processes send each of them many times.
    #[must_use]
    pub fn keys(mut self, keys: u64) -> Self {
        self.keys = keys.max(1);
        self
    }

    /// How often a process is killed with SIGKILL, and started again.
    #[must_use]
    pub fn kills(mut self, kills: u64) -> Self {
        self.kills = kills;
        self
    }

    /// How often a process is stopped with SIGSTOP, for longer than its leases, and let go on with SIGCONT.
    #[must_use]
    pub fn pauses(mut self, pauses: u64) -> Self {
        self.pauses = pauses;
        self
    }

    /// The least share of calls that must be answered (a half), else nothing was shown.
    #[must_use]
    pub fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    /// Runs the test; in one of its processes, does that one's part and does not return.
    ///
    /// # Panics
    /// If a key had two effects or two answers, a stored answer was lost, a record stayed in progress, a process failed by itself, too
    /// few calls were answered, or too few processes were met at work. The message names the keys and their histories.
    pub fn run(self, open: impl FnOnce(&Path) -> Arc<dyn Store>) -> KillReport {
        if let Some((scene, task)) = Scene::of_victim(self.name) {
            victim::run(&scene, task, open(&scene.store()));
            std::process::exit(0);
        }
        let directory = tempfile::tempdir().expect("a directory for the processes");
        let scene = Scene::new(directory.path());
        let share = Share { keys: self.keys, begin: SystemClock.wall_micros(), pace: self.pace() };
        let start = |task| scene.victim(self.name, task).spawn().expect("the test can be started again");
        let mut crowd: Vec<Child> = (0..self.processes).map(|_| start(Task::Crowd(share))).collect();
        let (mut kills, mut pauses, mut at_work) = (self.kills, self.pauses, 0);
        while kills + pauses > 0 {
            sleep(Duration::from_millis(rand::random_range(PAUSES)));
            let which = rand::random_range(0..crowd.len());
            at_work += u64::from(is_at_work(&scene, &mut crowd[which]));
            if rand::random_range(0..kills + pauses) < kills {
                kills -= 1;
                crowd[which].kill().expect("a child can be killed");
                let status = crowd[which].wait().expect("a child can be waited for");
                assert!(status.success() || was_killed(status), "a process failed by itself: {status}");
                crowd[which] = start(Task::Crowd(share));
            } else {
                pauses -= 1;
                pause(&mut crowd[which]);
            }
        }
        for mut process in crowd {
            let status = process.wait().expect("a child can be waited for");
            assert!(status.success(), "a process failed by itself: {status}; its output is above");
        }
        assert!(at_work * 2 >= self.kills + self.pauses, "only {at_work} processes were met at work");
        let finished = start(Task::Sum(share)).wait().expect("a child can be waited for");
        assert!(finished.success(), "the last process failed; its output is above");
        let (summary, unknown) = judge(&scene, self.share);
        KillReport { kills: self.kills, at_work, pauses: self.pauses, summary, unknown }
    }

    /// Microseconds from one new key to the next: the last one comes up at about the last blow.
    fn pace(&self) -> u64 {
        let between = Duration::from_millis((PAUSES.start + PAUSES.end) / 2);
        let blows = u32::try_from(self.kills + self.pauses).unwrap_or(u32::MAX);
        let stopped = (LEASE * 2).saturating_mul(u32::try_from(self.pauses).unwrap_or(u32::MAX));
        let whole = between.saturating_mul(blows.saturating_add(2)).saturating_add(stopped);
        u64::try_from(whole.as_micros()).unwrap_or(u64::MAX) / self.keys
    }
}
