//! The engine on this store, in a process that is killed at random, killed at every named point, and paused.
#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop there")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::codec::CodecError;
use onlyonce_core::{Bytes, Class, Classify, Idempotency, OnLapse, Refusal, Settings};
use onlyonce_store_embedded::{CrashPoint, EmbeddedStore};
use onlyonce_testkit::KillTest;
use rustix::process::{Pid, Signal, kill_process};

/// A dozen, or what a soak asks for.
fn kills() -> u64 {
    std::env::var("ONLYONCE_KILLS").map_or(12, |kills| kills.parse().unwrap())
}

#[test]
fn killed_at_random_nothing_happens_twice_and_no_answer_is_lost() {
    let report = KillTest::new("killed_at_random_nothing_happens_twice_and_no_answer_is_lost")
        .kills(kills())
        .run(|directory| Arc::new(EmbeddedStore::open(directory).unwrap()));
    println!("{report:?}");
    assert!(report.summary.effects > 100, "{report:?}");
}

/// How often at each point: three times, or what a soak asks for.
fn crashes() -> u64 {
    std::env::var("ONLYONCE_CRASHES").map_or(3, |crashes| crashes.parse().unwrap())
}

#[test]
fn killed_at_every_named_point_nothing_happens_twice_and_no_answer_is_lost() {
    let mut test =
        KillTest::new("killed_at_every_named_point_nothing_happens_twice_and_no_answer_is_lost").kills(1);
    // The store exists from the first round on, so that it is never created again.
    for point in CrashPoint::ALL.into_iter().filter(|point| *point != CrashPoint::Creating) {
        let in_start = matches!(point, CrashPoint::Recovering | CrashPoint::Recovered);
        for crash in 1..=crashes() {
            // The first, the eighth, the 27th pass, and so on around the number of batches that a round certainly has.
            let pass = if in_start { 1 } else { 1 + (crash * crash * crash - 1) % 41 };
            test = test.crash_at(CrashPoint::VARIABLE, format!("{}:{pass}", point.name()));
        }
    }
    let report = test.run(|directory| Arc::new(EmbeddedStore::open(directory).unwrap()));
    println!("{report:?}");
    assert!(report.summary.effects > 50, "{report:?}");
}

#[test]
fn paused_past_its_leases_nothing_happens_twice() {
    let report = KillTest::new("paused_past_its_leases_nothing_happens_twice")
        .pauses(4)
        .run(|directory| Arc::new(EmbeddedStore::open(directory).unwrap()));
    println!("{report:?}");
    assert!(report.summary.effects > 50, "{report:?}");
}

const ZOMBIE: &str = "a_zombie_that_wakes_after_its_lease_gets_the_answer_of_its_successor";
const LEASE: Duration = Duration::from_millis(300);

#[derive(Debug)]
struct Refused;

impl From<Refusal> for Refused {
    fn from(_: Refusal) -> Self {
        Self
    }
}

impl Classify for Refused {
    fn classify(&self) -> Class {
        Class::Unknown
    }
    fn save(&self) -> Result<Bytes, CodecError> {
        Ok(Bytes::new())
    }
    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Ok(Self)
    }
}

/// The process that is stopped: runs a call which waits for a line, and a successor after another line.
async fn zombie(directory: &str) {
    let settings = Settings { lease: LEASE, on_lapse: OnLapse::Rerun, ..Settings::default() };
    let once =
        Idempotency::builder(EmbeddedStore::open(directory).unwrap()).settings(settings).build().unwrap();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let (started, running) = tokio::sync::oneshot::channel::<()>();
    let holder = tokio::spawn(once.call("effect", "k").run(async move {
        started.send(()).unwrap();
        gone.await.unwrap();
        Ok::<_, Refused>("the zombie's".to_owned())
    }));
    running.await.unwrap();
    println!("ZOMBIE running");
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap();
    let successor =
        once.call("effect", "k").run(async { Ok::<_, Refused>("the successor's".to_owned()) }).await;
    go.send(()).unwrap();
    println!("ZOMBIE {} / {}", successor.unwrap(), holder.await.unwrap().unwrap());
    once.drain(Duration::from_secs(5)).await;
}

#[test]
fn a_zombie_that_wakes_after_its_lease_gets_the_answer_of_its_successor() {
    if let Ok(directory) = std::env::var("ONLYONCE_ZOMBIE") {
        tokio::runtime::Runtime::new().unwrap().block_on(zombie(&directory));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([ZOMBIE, "--exact", "--nocapture", "--test-threads=1"])
        .env("ONLYONCE_ZOMBIE", directory.path().join("store"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said =
        || said.find_map(|line| line.split_once("ZOMBIE ").map(|(_, rest)| rest.to_owned())).unwrap();
    assert_eq!(said(), "running");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    std::thread::sleep(LEASE * 3);
    kill_process(pid, Signal::CONT).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"succeed\n").unwrap();
    // The zombie's own settlement was refused, or its caller would have heard its own answer.
    assert_eq!(said(), "the successor's / the successor's");
    assert!(child.wait().unwrap().success());
}
