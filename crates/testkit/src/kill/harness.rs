//! The process that kills.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use onlyonce_core::{StateKind, Store};
use rustix::process::{Pid, Signal, kill_process};

use super::scene::{Scene, Task};
use super::victim::{self, LEASE};
use crate::history::{History, Summary};

/// Kills a process that makes calls through the engine, again and again, and then looks whether anything happened twice,
/// was answered differently, or was lost. See the [module](crate::kill).
#[derive(Debug)]
pub struct KillTest {
    name: &'static str,
    kills: u64,
    pauses: u64,
    crash_points: Vec<(String, String)>,
    share: f64,
}

/// What was done, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillReport {
    /// How often the victim was killed, by the harness or at a crash point.
    pub kills: u64,
    /// How often it was stopped for longer than its leases, and let go on.
    pub pauses: u64,
    /// Keys, effects and calls.
    pub summary: Summary,
    /// Keys whose outcome nobody can know.
    pub unknown: usize,
}

impl KillTest {
    /// For the test with this name (its whole path, without the crate), which calls [`run`](Self::run).
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, kills: 0, pauses: 0, crash_points: Vec::new(), share: 0.5 }
    }

    /// Kills the victim that often with SIGKILL, each time after another while.
    #[must_use]
    pub fn kills(mut self, kills: u64) -> Self {
        self.kills = kills;
        self
    }

    /// Stops the victim that often with SIGSTOP, for longer than its leases, and lets it go on with SIGCONT.
    #[must_use]
    pub fn pauses(mut self, pauses: u64) -> Self {
        self.pauses = pauses;
        self
    }

    /// Lets the victim die at a named point: it is started with `variable` set to `point`, and must not survive it.
    #[must_use]
    pub fn crash_at(mut self, variable: &str, point: impl Into<String>) -> Self {
        self.crash_points.push((variable.into(), point.into()));
        self
    }

    /// The least share of calls that must be answered (a half), else nothing was shown.
    #[must_use]
    pub fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    /// Runs the test; in the victim, does the victim's part and does not return.
    ///
    /// # Panics
    /// If a key had two effects or two answers, an answer was lost, a record stayed in progress, a victim failed by itself,
    /// or too few calls were answered. The message names the keys and their histories.
    pub fn run(self, open: impl FnOnce(&Path) -> Arc<dyn Store>) -> KillReport {
        if let Some((scene, task)) = Scene::of_victim(self.name) {
            victim::run(&scene, task, open(&scene.store()));
            std::process::exit(0);
        }
        let directory = tempfile::tempdir().expect("a directory for the victim");
        let scene = Scene::new(directory.path());
        let mut rounds = 0_u64..;
        for round in rounds.by_ref().take(self.kills as usize) {
            self.kill_at_random(&scene, round);
        }
        for round in rounds.by_ref().take(self.pauses as usize) {
            self.pause(&scene, round);
        }
        for (round, (variable, point)) in rounds.by_ref().zip(&self.crash_points) {
            self.let_crash(scene.victim(self.name, Task::Round(round)).env(variable, point), point);
        }
        let finished = self.spawn(&mut scene.victim(self.name, Task::Finish(rounds.start))).wait();
        assert!(
            finished.expect("a child can be waited for").success(),
            "the last victim failed; its output is above"
        );
        judge(&scene, self.share, self.kills + self.crash_points.len() as u64, self.pauses)
    }

    fn spawn(&self, command: &mut Command) -> Child {
        command.spawn().expect("the test can be started again")
    }

    fn kill_at_random(&self, scene: &Scene, round: u64) {
        let mut victim = self.spawn(&mut scene.victim(self.name, Task::Round(round)));
        // From before it has opened its store until after its last call.
        sleep(Duration::from_millis(rand::random_range(5..250)));
        victim.kill().expect("a child can be killed");
        let status = victim.wait().expect("a child can be waited for");
        assert!(status.success() || was_killed(status), "the victim failed by itself: {status}");
    }

    fn pause(&self, scene: &Scene, round: u64) {
        let mut victim = self.spawn(&mut scene.victim(self.name, Task::Round(round)));
        sleep(Duration::from_millis(rand::random_range(20..150)));
        let pid = Pid::from_child(&victim);
        kill_process(pid, Signal::STOP).expect("a child can be stopped");
        sleep(LEASE * 2);
        kill_process(pid, Signal::CONT).expect("a child can go on");
        let status = victim.wait().expect("a child can be waited for");
        assert!(status.success(), "the victim did not survive the pause: {status}");
    }

    fn let_crash(&self, victim: &mut Command, point: &str) {
        let status = self.spawn(victim).wait().expect("a child can be waited for");
        assert!(was_killed(status), "the victim came past {point} and ended with {status}");
    }
}

/// Holds what callers heard against what happened.
pub(super) fn judge(scene: &Scene, share: f64, kills: u64, pauses: u64) -> KillReport {
    let history = History::new();
    for heard in scene.heard().effects().expect("a ledger that can be read") {
        match heard.by.strip_prefix('!') {
            Some(refusal) => history.refused(&heard.key, refusal),
            None => history.answered(&heard.key, heard.by),
        }
    }
    let mut ends = BTreeMap::new();
    for ended in scene.ended().effects().expect("a ledger that can be read") {
        let state = state(&ended.by);
        history.ended(&ended.key, state);
        ends.insert(ended.key, state);
    }
    let unknown = ends.values().filter(|state| **state == Some(StateKind::Lapsed)).count();
    let checked = history.check(&scene.effects(), share).expect("a ledger that can be read");
    let summary = checked.unwrap_or_else(|violations| panic!("{violations}"));
    KillReport { kills, pauses, summary, unknown }
}

pub(super) fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal().is_some()
}

fn state(name: &str) -> Option<StateKind> {
    Some(match name {
        "running" => StateKind::Running,
        "lapsed" => StateKind::Lapsed,
        "released" => StateKind::Released,
        "completed" => StateKind::Completed,
        _ => return None,
    })
}
