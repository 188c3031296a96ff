//! The process that kills.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use onlyonce_core::{StateKind, Store};
use rustix::process::{Pid, Signal, kill_process};

use super::scene::{Heard, Scene, Task};
use super::victim::{self, LEASE};
use crate::history::{History, Summary};
use crate::ledger::Ledger;

/// Of so many victims one is killed at any time, the others amid their calls.
const ANY_TIME: u64 = 4;

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
    /// How many of those kills, and of the pauses, met a victim that had had an effect and was still at work.
    pub at_work: u64,
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
    /// If a key had two effects or two answers, a stored answer was lost, a record stayed in progress, a victim failed by itself,
    /// too few calls were answered, or too few victims were met at work. The message names the keys and their histories.
    pub fn run(self, open: impl FnOnce(&Path) -> Arc<dyn Store>) -> KillReport {
        if let Some((scene, task)) = Scene::of_victim(self.name) {
            victim::run(&scene, task, open(&scene.store()));
            std::process::exit(0);
        }
        let directory = tempfile::tempdir().expect("a directory for the victim");
        let scene = Scene::new(directory.path());
        let mut rounds = 0_u64..;
        let mut at_work = 0;
        for round in rounds.by_ref().take(self.kills as usize) {
            at_work += u64::from(self.kill_at_random(&scene, round));
        }
        for round in rounds.by_ref().take(self.pauses as usize) {
            at_work += u64::from(self.pause(&scene, round));
        }
        // A machine that stalls may let a victim that is waited for come to its end first.
        let waited_for = self.kills - self.kills.div_ceil(ANY_TIME) + self.pauses;
        assert!(at_work * 2 >= waited_for, "only {at_work} victims were met at work");
        for (round, (variable, point)) in rounds.by_ref().zip(&self.crash_points) {
            self.let_crash(scene.victim(self.name, Task::Round(round)).env(variable, point), point);
        }
        let finished = self.spawn(&mut scene.victim(self.name, Task::Finish(rounds.start))).wait();
        assert!(
            finished.expect("a child can be waited for").success(),
            "the last victim failed; its output is above"
        );
        let (summary, unknown) = judge(&scene, self.share);
        let kills = self.kills + self.crash_points.len() as u64;
        KillReport { kills, at_work, pauses: self.pauses, summary, unknown }
    }

    fn spawn(&self, command: &mut Command) -> Child {
        command.spawn().expect("the test can be started again")
    }

    /// Whether the victim was met at work.
    fn kill_at_random(&self, scene: &Scene, round: u64) -> bool {
        let mut victim = self.spawn(&mut scene.victim(self.name, Task::Round(round)));
        if round.is_multiple_of(ANY_TIME) {
            // From before it has opened its store until after its last call.
            sleep(Duration::from_millis(rand::random_range(5..250)));
        } else {
            wait_for_work(scene, &mut victim);
        }
        let at_work = is_at_work(scene, &mut victim);
        victim.kill().expect("a child can be killed");
        let status = victim.wait().expect("a child can be waited for");
        assert!(status.success() || was_killed(status), "the victim failed by itself: {status}");
        at_work
    }

    /// Whether the victim was met at work.
    fn pause(&self, scene: &Scene, round: u64) -> bool {
        let mut victim = self.spawn(&mut scene.victim(self.name, Task::Round(round)));
        wait_for_work(scene, &mut victim);
        let at_work = is_at_work(scene, &mut victim);
        pause(&mut victim);
        let status = victim.wait().expect("a child can be waited for");
        assert!(status.success(), "the victim did not survive the pause: {status}");
        at_work
    }

    fn let_crash(&self, victim: &mut Command, point: &str) {
        let status = self.spawn(victim).wait().expect("a child can be waited for");
        assert!(was_killed(status), "the victim came past {point} and ended with {status}");
    }
}

/// Whether the process has had an effect and has not ended. Effects begin with the id of their process.
pub(super) fn is_at_work(scene: &Scene, process: &mut Child) -> bool {
    has_had_an_effect(scene, process) && !has_ended(process)
}

fn has_had_an_effect(scene: &Scene, process: &Child) -> bool {
    let own = format!("{}-", process.id());
    let effects = scene.effects().effects().expect("a ledger that can be read");
    effects.iter().rev().any(|effect| effect.by.starts_with(&own))
}

/// Stops the process for longer than its leases, and lets it go on; unless it has ended.
pub(super) fn pause(process: &mut Child) {
    if !has_ended(process) {
        let pid = Pid::from_child(process);
        kill_process(pid, Signal::STOP).expect("a child that was not waited for can be stopped");
        sleep(LEASE * 2);
        kill_process(pid, Signal::CONT).expect("a child can go on");
    }
}

fn has_ended(process: &mut Child) -> bool {
    process.try_wait().expect("a child can be asked").is_some()
}

/// Waits until the victim is amid its calls, or has ended.
fn wait_for_work(scene: &Scene, victim: &mut Child) {
    while !has_had_an_effect(scene, victim) && !has_ended(victim) {
        sleep(Duration::from_millis(2));
    }
    sleep(Duration::from_millis(rand::random_range(0..60)));
}

/// Holds what callers heard against what happened; says how many keys ended as unknown.
pub(super) fn judge(scene: &Scene, share: f64) -> (Summary, usize) {
    let read = |ledger: Ledger| ledger.effects().expect("a ledger that can be read");
    let heard: Vec<_> =
        read(scene.heard()).into_iter().map(|line| (line.key, Heard::from(line.by))).collect();
    let ended: Vec<_> = read(scene.ended()).into_iter().map(|line| (line.key, state(&line.by))).collect();
    let history = History::new();
    for (key, heard) in &heard {
        match heard {
            Heard::Refused(why) => history.refused(key, why),
            Heard::Stored(answer) => history.answered(key, answer.clone()),
            Heard::Pending(answer) => history.unstored(key, answer.clone()),
        }
    }
    ended.iter().for_each(|(key, state)| history.ended(key, *state));
    let checked = history.check(&scene.effects(), share).expect("a ledger that can be read");
    let summary = checked.unwrap_or_else(|violations| panic!("{violations}"));

    let answers: HashMap<_, _> = read(scene.effects()).into_iter().map(|line| (line.key, line.by)).collect();
    let last: HashMap<_, _> = heard.iter().map(|(key, heard)| (key, heard)).collect();
    for (key, state) in &ended {
        // The last one who heard anything of a key was the one who looked how it ended.
        let replayed =
            matches!(last.get(key), Some(Heard::Stored(answer)) if answers.get(key) == Some(answer));
        let replays = *state == Some(StateKind::Completed);
        assert!(replayed == replays, "{key} ended {state:?}, but its last retry heard {:?}", last.get(key));
    }
    let unknown = ended.iter().filter(|(_, state)| *state == Some(StateKind::Lapsed)).count();
    (summary, unknown)
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
