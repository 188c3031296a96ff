//! Somebody removes, moves or replaces the directory of a store that is open. What is written from then on would be lost with the process,
//! so nothing new is taken; what was answered is replayed from what is still open.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use onlyonce_core::{Begin, ErrorKind, State, Store, Verdict};
use onlyonce_store_embedded::{EmbeddedStore, OpenError};

type Deed = fn(&Path);

/// What may happen to a directory.
const DEEDS: [(&str, Deed); 10] = [
    ("removed", |data| fs::remove_dir_all(data).unwrap()),
    ("renamed", |data| fs::rename(data, data.with_extension("old")).unwrap()),
    ("emptied", |data| {
        for entry in fs::read_dir(data).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
    }),
    ("replaced by an empty one", |data| {
        fs::rename(data, data.with_extension("old")).unwrap();
        fs::create_dir(data).unwrap();
    }),
    ("replaced by a copy", |data| {
        fs::rename(data, data.with_extension("old")).unwrap();
        copy(&data.with_extension("old"), data);
    }),
    ("filled with a copy", |data| {
        fs::create_dir(data.with_extension("old")).unwrap();
        for name in ["engine", "format", "noted", "lock"] {
            fs::rename(data.join(name), data.with_extension("old").join(name)).unwrap();
        }
        copy(&data.with_extension("old"), data);
    }),
    ("without records", |data| fs::remove_dir_all(data.join("engine")).unwrap()),
    ("without journals", |data| {
        for file in fs::read_dir(data.join("engine")).unwrap().flatten() {
            if file.path().extension().is_some_and(|end| end == "jnl") {
                fs::remove_file(file.path()).unwrap();
            }
        }
    }),
    ("without tables", |data| fs::remove_dir_all(data.join("engine/keyspaces")).unwrap()),
    ("without its note", |data| fs::remove_file(data.join("noted")).unwrap()),
];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

struct World {
    _directory: tempfile::TempDir,
    data: PathBuf,
    clock: TwoClocks,
    store: EmbeddedStore,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (data, clock) = (directory.path().join("data"), TwoClocks::new());
        let store = EmbeddedStore::builder(&data).with_clock(clock.clone()).open().unwrap();
        Self { _directory: directory, data, clock, store }
    }
}

#[test]
fn a_store_whose_directory_is_gone_takes_nothing_new_and_replays_what_it_answered() {
    for (deed, act) in DEEDS {
        let World { _directory, data, clock, store } = World::new();
        block_on(async {
            complete(&store, 1).await.unwrap();
            let running = begin(&store, 2).await.unwrap();
            act(&data);
            clock.pass(Duration::from_secs(1));
            let refused = store.begin(&id(3), &claim()).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Rejected, "{deed}: a retry does not help");
            let text = std::error::Error::source(&refused).unwrap().to_string();
            assert!(text.contains("was removed, moved or replaced"), "{deed}: {text}");
            assert!(text.contains("If it is where it was, just start this process again"), "{deed}: {text}");
            // Not for good: a process that is started again would begin with nothing.
            assert_eq!(store.ready().unwrap_err().kind(), ErrorKind::Unavailable, "{deed}");
            let taken = store.begin(&id(1), &claim()).await.unwrap();
            assert!(
                matches!(&taken, Begin::Taken(taken) if taken.state == State::Completed(answer(1))),
                "{deed}: {taken:?}"
            );
            assert_eq!(show(&store, 1).await, Shown::AsAcknowledged, "{deed}");
            let unsettled = settle(&store, 2, &running, Verdict::Completed(answer(2))).await.unwrap_err();
            assert_eq!(
                unsettled.kind(),
                ErrorKind::Unavailable,
                "{deed}: only this process knows the answer"
            );
        });
    }
}

#[test]
fn an_idle_store_says_at_once_that_its_directory_is_gone_and_does_not_come_back_by_itself() {
    for (deed, act) in DEEDS {
        let World { _directory, data, clock, store } = World::new();
        block_on(complete(&store, 1)).unwrap();
        assert!(store.ready().is_ok());
        act(&data);
        assert_eq!(store.ready().unwrap_err().kind(), ErrorKind::Unavailable, "{deed}");
        let old = data.with_extension("old");
        if old.join("lock").exists() && old.join("engine").exists() {
            let _ = fs::remove_dir_all(&data);
            fs::rename(old, &data).unwrap();
        }
        clock.pass(Duration::from_secs(5));
        assert!(store.ready().is_err(), "{deed}: somebody else may have served meanwhile");
        assert!(block_on(begin(&store, 3)).is_err(), "{deed}");
    }
}

#[test]
fn a_directory_that_is_brought_back_holds_everything_that_was_acknowledged() {
    let World { _directory, data, clock, store } = World::new();
    block_on(complete(&store, 1)).unwrap();
    let aside = data.with_extension("old");
    fs::rename(&data, &aside).unwrap();
    assert!(store.ready().is_err());
    drop(store);
    fs::rename(&aside, &data).unwrap();
    let store = EmbeddedStore::builder(&data).with_clock(clock).open().unwrap();
    assert_eq!(block_on(show(&store, 1)), Shown::AsAcknowledged);
}

#[test]
fn the_name_of_a_directory_may_be_relative_or_a_link_and_a_link_that_leads_elsewhere_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("current");
    for name in ["first", "second"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink("first", &link).unwrap();
    let store = open(&link);
    assert!(store.ready().is_ok());
    assert!(matches!(EmbeddedStore::open(directory.path().join("first")), Err(OpenError::InUse { .. })));
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("second", &link).unwrap();
    assert!(store.ready().is_err(), "the next start opens another store");
}

/// Whoever asks for readiness notices it at any moment, also between the decision of a batch and its write.
#[test]
fn a_call_that_was_told_to_run_while_its_directory_was_moved_has_its_record() {
    const CALLERS: u64 = 64;
    for round in 0..40 {
        let directory = tempfile::tempdir().unwrap();
        let (data, aside) = (directory.path().join("data"), directory.path().join("aside"));
        let store = Arc::new(open(&data));
        let begun = std::thread::scope(|scope| {
            scope.spawn(|| while store.ready().is_ok() {});
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                fs::rename(&data, &aside).unwrap();
            });
            block_on(async {
                let callers = (0..CALLERS).map(|caller| {
                    let store = Arc::clone(&store);
                    tokio::spawn(async move {
                        let mut begun = Vec::new();
                        for number in (caller..).step_by(CALLERS as usize) {
                            match store.begin(&id(number), &claim()).await {
                                Ok(Begin::Acquired { .. }) => begun.push(number),
                                _ => break,
                            }
                        }
                        begun
                    })
                });
                let mut all = Vec::new();
                for caller in callers.collect::<Vec<_>>() {
                    all.extend(caller.await.unwrap());
                }
                all
            })
        });
        drop(store);
        fs::rename(&aside, &data).unwrap();
        let store = open(&data);
        block_on(async {
            for number in begun {
                let record = store.get(&id(number)).await.unwrap();
                assert!(record.is_some(), "round {round}: call {number} was told to run, and has no record");
            }
        });
    }
}
