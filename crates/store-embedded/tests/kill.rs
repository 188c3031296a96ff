//! The process dies at any point: what it acknowledged is there when the store is opened again.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use onlyonce_core::{StateKind, Store};
use onlyonce_store_embedded::CrashPoint;

const CHILD: &str = "works_until_it_is_killed";

/// The child: begins and settles from `FROM` on with a few tasks, and notes what was acknowledged in a file of its own.
#[test]
fn works_until_it_is_killed() {
    if !is_child(CHILD) {
        return;
    }
    let variable = |name: &str| std::env::var(name).unwrap();
    let store = Arc::new(open(variable("DATA").as_ref()));
    let acks = Arc::new(OpenOptions::new().append(true).create(true).open(variable("ACKS")).unwrap());
    let (from, count): (u64, u64) = (variable("FROM").parse().unwrap(), variable("COUNT").parse().unwrap());
    block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let (store, acks) = (store.clone(), acks.clone());
                tokio::spawn(async move {
                    for n in (from + task..from + count).step_by(8) {
                        let attempt = begin(&*store, n).await.unwrap();
                        (&*acks).write_all(format!("begun {n}\n").as_bytes()).unwrap();
                        let done = onlyonce_core::Verdict::Completed(answer(n));
                        settle(&*store, n, &attempt, done).await.unwrap();
                        (&*acks).write_all(format!("done {n}\n").as_bytes()).unwrap();
                        if n.is_multiple_of(50) {
                            store.sweep(100).await.unwrap();
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn worker(directory: &Path, from: u64, count: u64) -> Command {
    let mut command = child(CHILD);
    command.env("DATA", directory.join("data")).env("ACKS", directory.join("acks"));
    command.env("FROM", from.to_string()).env("COUNT", count.to_string());
    command
}

/// Looks at everything that was ever acknowledged; says how much that is.
fn check(directory: &Path) -> usize {
    let acks = fs::read_to_string(directory.join("acks")).unwrap_or_default();
    let store = open(&directory.join("data"));
    block_on(async {
        for line in acks.lines() {
            let (what, n) = line.split_once(' ').unwrap();
            let n = n.parse().unwrap();
            match what {
                "done" => assert_eq!(show(&store, n).await, Shown::AsAcknowledged),
                _ => {
                    let found = store.get(&id(n)).await.unwrap().expect(line);
                    assert!(
                        matches!(found.state.kind(), StateKind::Lapsed | StateKind::Completed),
                        "{found:?}"
                    );
                }
            }
        }
    });
    acks.lines().count()
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9_at_any_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..12_u64 {
        let mut worker = worker(directory.path(), round * 1_000_000, 1_000_000).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100 + round * 37 % 250));
        worker.kill().unwrap();
        assert_eq!(worker.wait().unwrap().signal(), Some(9), "it ended by itself");
        acknowledged = check(directory.path());
    }
    assert!(acknowledged > 500, "only {acknowledged}");
}

#[test]
fn nothing_acknowledged_is_lost_at_any_named_crash_point() {
    for point in CrashPoint::ALL {
        for passes in [1, 4] {
            let directory = tempfile::tempdir().unwrap();
            if passes > 1 {
                // Some points lie in opening what is there already.
                assert!(worker(directory.path(), 0, 40).status().unwrap().success());
            }
            let at_start =
                matches!(point, CrashPoint::Creating | CrashPoint::Recovering | CrashPoint::Recovered);
            if at_start && (passes > 1) == (point == CrashPoint::Creating) {
                continue;
            }
            let nth = if at_start { 1 } else { passes };
            let mut worker = worker(directory.path(), 1_000, 400);
            worker.env(CrashPoint::VARIABLE, format!("{}:{nth}", point.name()));
            let status = worker.status().unwrap();
            assert_eq!(status.signal(), Some(6), "{point:?} was not passed: {status:?}");
            // Twice: recovery may itself have been cut short.
            check(directory.path());
            check(directory.path());
            assert!(
                self::worker(directory.path(), 10_000, 40).status().unwrap().success(),
                "after {point:?}"
            );
            check(directory.path());
        }
    }
}
