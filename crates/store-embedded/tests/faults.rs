//! The disk says no: at every write, at every sync, once and for good. Whatever fails, nothing is acknowledged that is not
//! there later, and after a failed sync nothing is acknowledged at all.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::*;
use onlyonce_core::{Begin, ErrorKind, Inspect, Settled, State, StateKind, Store, Verdict};
use onlyonce_store_embedded::{EmbeddedStore, OpenError};

const CHILD: &str = "works_on_a_failing_disk";
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
const EROFS: i32 = 30;

/// The shim that is loaded before the C library, built once.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fault_shim.c");
        let library =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fault_shim-{}.so", std::process::id()));
        let mut compiler = Command::new("cc");
        let built =
            compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").status();
        assert!(built.expect("these tests need a C compiler").success());
        library
    })
}

/// The child: opens, begins and settles, and notes what it is told. Its log is the one in which the shim notes the fault.
#[test]
fn works_on_a_failing_disk() {
    if !is_child(CHILD) {
        return;
    }
    let variable = |name: &str| std::env::var(name).unwrap();
    let mut log = OpenOptions::new().append(true).create(true).open(variable("FAULT_LOG")).unwrap();
    let mut say = |line: String| log.write_all(format!("{line}\n").as_bytes()).unwrap();
    let store = match EmbeddedStore::builder(variable("DATA")).buffer_bytes(64 << 10).keep_free(0).open() {
        Ok(store) => store,
        Err(refused) => return say(format!("refused {} {refused}", name(&refused))),
    };
    say("opened".into());
    let (from, count): (u64, u64) = (variable("FROM").parse().unwrap(), variable("COUNT").parse().unwrap());
    block_on(async {
        for n in from..from + count {
            let attempt = match begin(&store, n).await {
                Ok(attempt) => attempt,
                Err(failed) => {
                    say(format!(
                        "failed {n} {:?} {}",
                        failed.kind(),
                        std::error::Error::source(&failed).unwrap()
                    ));
                    continue;
                }
            };
            say(format!("begun {n}"));
            match settle(&store, n, &attempt, Verdict::Completed(answer(n))).await {
                Ok(()) => say(format!("done {n}")),
                Err(failed) => say(format!(
                    "failed {n} {:?} {}",
                    failed.kind(),
                    std::error::Error::source(&failed).unwrap()
                )),
            }
        }
    });
}

fn name(refused: &OpenError) -> &'static str {
    match refused {
        OpenError::Full { .. } => "full",
        OpenError::ReadOnly { .. } => "read-only",
        OpenError::Io { .. } => "io",
        OpenError::Damaged { .. } => "damaged",
        _ => "other",
    }
}

struct Disk {
    directory: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { directory }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Works with a fault; returns the log.
    fn work(&self, records: std::ops::Range<u64>, op: &str, at: u64, errno: i32, mode: &str) -> String {
        let log = self.directory.path().join("log");
        let mut command = child(CHILD);
        command.env("LD_PRELOAD", shim()).env("FAULT_DIR", self.data()).env("FAULT_LOG", &log);
        command.env("FAULT_OP", op).env("FAULT_AT", at.to_string()).env("FAULT_ERRNO", errno.to_string());
        command.env("FAULT_MODE", mode).env("DATA", self.data());
        command
            .env("FROM", records.start.to_string())
            .env("COUNT", (records.end - records.start).to_string());
        let status = command.status().unwrap();
        let log = fs::read_to_string(log).unwrap();
        assert!(status.success(), "{op} {at}: {status:?}\n{log}");
        log
    }

    /// How many calls of a kind the work takes when nothing fails.
    fn calls(&self, records: std::ops::Range<u64>, op: &str) -> u64 {
        let log = self.work(records, op, 0, 0, "once");
        log.lines().filter_map(|line| line.strip_prefix("count ")).next_back().unwrap().parse().unwrap()
    }

    /// Opens on a disk that is well again, and looks at everything that was acknowledged.
    fn check(&self, log: &str) {
        let store = open(&self.data());
        block_on(async {
            for line in log.lines() {
                let mut words = line.split(' ');
                match (words.next(), words.next().map(str::parse)) {
                    (Some("done"), Some(Ok(n))) => {
                        assert_eq!(show(&store, n).await, Shown::AsAcknowledged, "{log}")
                    }
                    (Some("begun"), Some(Ok(n))) => {
                        assert!(store.get(&id(n)).await.unwrap().is_some(), "{n} is gone\n{log}");
                    }
                    _ => {}
                }
            }
            complete(&store, 1_000_000).await.unwrap();
        });
    }
}

/// After an I/O error the failing call is told that it can't know, the later ones that nothing happens, and what to do. The failing
/// write may have been one that nobody waited for.
///
/// While it makes an empty store, the engine does some housekeeping whose failure it may ignore; it rests on nothing.
fn told_closed(log: &str) {
    if log.find("fault") < log.find("opened") {
        return;
    }
    let after = log.lines().skip_while(|line| *line != "fault").skip(1);
    let after: Vec<_> = after.filter(|line| !line.starts_with("count")).collect();
    assert!(!after.iter().any(|line| line.starts_with("begun") || line.starts_with("done")), "{log}");
    for (index, line) in after.iter().filter(|line| line.starts_with("failed")).enumerate() {
        let is_ambiguous = line.contains(&format!("{:?}", ErrorKind::Ambiguous));
        let is_closed = line.contains(&format!("{:?}", ErrorKind::Rejected));
        assert!(is_closed || (index == 0 && is_ambiguous), "{line} in\n{log}");
        assert!(line.contains("start this process again"), "{line}");
    }
}

#[test]
fn nothing_is_acknowledged_after_a_failed_sync_at_any_sync() {
    let calls = Disk::new().calls(0..3, "sync");
    assert!(calls > 12, "only {calls} syncs");
    let mut closed = 0;
    for at in 1..=calls {
        let disk = Disk::new();
        let log = disk.work(0..3, "sync", at, EIO, if at % 2 == 0 { "once" } else { "always" });
        assert!(log.contains("fault"), "sync {at} was not reached\n{log}");
        told_closed(&log);
        closed += u64::from(log.contains("Ambiguous"));
        disk.check(&log);
    }
    // Each of the six batches was synced, and each was the one to fail.
    assert!(closed >= 6, "only {closed}");
}

#[test]
fn a_failed_write_at_any_write_stops_the_store_or_refuses_to_open() {
    let calls = Disk::new().calls(0..3, "write");
    assert!(calls > 12, "only {calls} writes");
    for at in 1..=calls {
        let disk = Disk::new();
        let errno = if at % 2 == 0 { ENOSPC } else { EIO };
        let log = disk.work(0..3, "write", at, errno, "once");
        assert!(log.contains("fault"), "write {at} was not reached\n{log}");
        if errno == EIO {
            told_closed(&log);
        }
        disk.check(&log);
    }
}

#[test]
fn faults_while_opening_what_is_there_refuse_to_open_and_harm_nothing() {
    for op in ["write", "sync", "open"] {
        let counted = Disk::new();
        counted.work(0..3, op, 0, 0, "once");
        let calls = counted.calls(0..0, op);
        for at in 1..=calls {
            let disk = Disk::new();
            disk.work(0..3, op, 0, 0, "once");
            let log = disk.work(0..0, op, at, EIO, "once");
            disk.check(&log);
        }
    }
}

#[test]
fn faults_in_the_background_lose_nothing() {
    // Enough for tables to be written and merged.
    let calls = Disk::new().calls(0..120, "sync");
    let writes = Disk::new().calls(0..120, "write");
    for step in 1..=6 {
        for (op, calls, errno) in [("sync", calls, EIO), ("write", writes, ENOSPC)] {
            let disk = Disk::new();
            let log = disk.work(0..120, op, calls * step / 7, errno, "once");
            disk.check(&log);
        }
    }
}

#[test]
fn a_disk_that_stays_full_is_told_with_what_to_do_and_loses_nothing() {
    let calls = Disk::new().calls(0..3, "write");
    let disk = Disk::new();
    let log = disk.work(0..20, "write", calls, ENOSPC, "always");
    assert!(log.contains("No space left") && log.contains("Free disk space"), "{log}");
    assert!(!log.contains("done 19"), "{log}");
    let again = disk.work(20..40, "write", 1, ENOSPC, "always");
    assert!(again.contains("refused full") && again.contains("free disk space"), "{again}");
    disk.check(&log);
    let well = disk.work(40..45, "write", 0, 0, "once");
    assert!(well.contains("done 44"), "{well}");
}

#[test]
fn a_read_only_or_full_disk_is_named_when_a_store_is_made() {
    let log = Disk::new().work(0..1, "open", 1, EROFS, "always");
    assert!(log.contains("refused read-only") && log.contains("write access"), "{log}");
    let log = Disk::new().work(0..1, "write", 1, ENOSPC, "always");
    assert!(log.contains("refused full") && log.contains("free disk space"), "{log}");
}

const OUTAGE: &str = "lives_through_an_outage";

/// The child: some calls are answered and one runs when the disk begins to fail, and it fails until the file is gone.
#[test]
fn lives_through_an_outage() {
    if !is_child(OUTAGE) {
        return;
    }
    let variable = |name: &str| std::env::var(name).unwrap();
    let recovers = !matches!(variable("RECOVERS").as_str(), "no" | "broken, then gone");
    let bad = PathBuf::from(variable("FAULT_WHILE"));
    let store = EmbeddedStore::builder(variable("DATA")).keep_free(0).open().unwrap();
    block_on(async {
        for n in 0..5 {
            complete(&store, n).await.unwrap();
        }
        let running = begin(&store, 100).await.unwrap();
        assert!(store.ready().is_ok());
        fs::write(&bad, "").unwrap();
        // The one that meets the fault can't know; those after it can.
        assert_eq!(begin(&store, 5).await.unwrap_err().kind(), ErrorKind::Ambiguous);
        let kind = if recovers { ErrorKind::Unavailable } else { ErrorKind::Rejected };
        assert_eq!(begin(&store, 6).await.unwrap_err().kind(), kind);
        assert_eq!(store.ready().unwrap_err().kind(), kind);
        if variable("RECOVERS") == "gone" {
            // Nobody asks whether it is ready, so the first to notice is the one that would open it again.
            fs::remove_dir_all(variable("DATA")).unwrap();
            fs::remove_file(&bad).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
            assert_eq!(show(&store, 1).await, Shown::AsAcknowledged);
            assert_eq!(begin(&store, 6).await.unwrap_err().kind(), ErrorKind::Rejected);
            return assert!(!Path::new(&variable("DATA")).exists(), "no new store is made of nothing");
        }
        if variable("RECOVERS") == "broken, then gone" {
            fs::remove_dir_all(variable("DATA")).unwrap();
            let gone = store.ready().unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::Unavailable, "a new start would begin with nothing");
            let text = std::error::Error::source(&gone).unwrap().to_string();
            assert!(text.contains("Bring the directory back") && !text.contains("replayed"), "{text}");
            // Nobody knows what the disk held, still.
            let refused = store.get(&id(1)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Rejected);
            return assert_eq!(begin(&store, 6).await.unwrap_err().kind(), ErrorKind::Rejected);
        }
        if !recovers {
            fs::remove_file(&bad).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
            assert_eq!(begin(&store, 6).await.unwrap_err().kind(), kind);
            return assert_eq!(store.ready().unwrap_err().kind(), kind);
        }
        // What was answered is replayed, and what runs goes on.
        for n in 0..5 {
            assert_eq!(show(&store, n).await, Shown::AsAcknowledged);
            let retry = store.begin(&id(n), &claim()).await.unwrap();
            assert!(
                matches!(&retry, Begin::Taken(taken) if taken.state == State::Completed(answer(n))),
                "{retry:?}"
            );
        }
        let renew = async || store.renew(&id(100), &running, HOUR).await.unwrap();
        assert_eq!(renew().await, Settled::Applied);
        let busy = store.begin(&id(100), &claim()).await.unwrap();
        assert!(matches!(&busy, Begin::Taken(taken) if taken.state.kind() == StateKind::Running), "{busy:?}");
        let answered = Verdict::Completed(answer(100));
        let early = settle(&store, 100, &running, answered.clone()).await.unwrap_err();
        assert_eq!(early.kind(), ErrorKind::Unavailable);
        fs::remove_file(&bad).unwrap();
        while store.ready().is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(renew().await, Settled::Applied);
        settle(&store, 100, &running, answered).await.unwrap();
        // What failed has not happened, and nothing is left of it.
        for n in 5..20 {
            complete(&store, n).await.unwrap();
        }
        let counts = [(StateKind::Completed, 21)].into();
        assert_eq!(store.count().await.unwrap(), counts);
        for n in (0..20).chain([100]) {
            assert_eq!(show(&store, n).await, Shown::AsAcknowledged);
        }
    });
    drop(store);
    if variable("RECOVERS").ends_with("gone") {
        return;
    }
    // A restart finds all that was acknowledged.
    let store = open(variable("DATA").as_ref());
    let done: Vec<_> = if recovers { (0..20).chain([100]).collect() } else { (0..5).collect() };
    block_on(async {
        for n in done {
            assert_eq!(show(&store, n).await, Shown::AsAcknowledged);
        }
    });
}

fn outage(op: &str, errno: i32, recovers: &str) {
    let disk = Disk::new();
    let log = disk.directory.path().join("log");
    let mut command = child(OUTAGE);
    command.env("LD_PRELOAD", shim()).env("FAULT_DIR", disk.data()).env("DATA", disk.data());
    command.env("FAULT_OP", op).env("FAULT_ERRNO", errno.to_string()).env("RECOVERS", recovers);
    command.env("FAULT_WHILE", disk.directory.path().join("bad"));
    command
        .stdout(fs::File::create(&log).unwrap())
        .stderr(fs::File::options().append(true).open(&log).unwrap());
    let status = command.status().unwrap();
    assert!(status.success(), "{op} {errno}: {}", fs::read_to_string(log).unwrap());
}

#[test]
fn a_full_disk_is_survived_without_a_restart_and_leases_live_on() {
    for op in ["write", "sync"] {
        for errno in [ENOSPC, EDQUOT] {
            outage(op, errno, "yes");
        }
    }
}

#[test]
fn an_io_error_is_not_recovered_from_even_if_the_disk_is_well_again() {
    for op in ["write", "sync"] {
        outage(op, EIO, "no");
    }
}

#[test]
fn a_full_disk_that_has_room_again_after_its_directory_was_removed_is_not_begun_anew() {
    outage("write", ENOSPC, "gone");
}

#[test]
fn a_store_that_stopped_for_good_and_whose_directory_goes_then_asks_for_no_new_start() {
    for op in ["write", "sync"] {
        outage(op, EIO, "broken, then gone");
    }
}
