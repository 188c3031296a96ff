//! The machine under a gateway: a disk that is full or broken, and a clock that is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::client::{Answer, Request};
use crate::faults::Redis;
use crate::program::{Gateway, Setup, eventually, post};
use crate::upstream::Upstream;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A library that is loaded before the C library, built once.
fn shim(source: &str) -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| TempDir::new().unwrap());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    // Tests that run beside this one build their own.
    let library = folder.path().join(format!("{:016x}.so", rand_name()));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .status();
    assert!(built.expect("these tests need a C compiler").success());
    library
}

fn rand_name() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn open(gateway: &Gateway, path: &str) -> Answer {
    Request::new("GET", path).send(gateway.admin.unwrap())
}

fn on_a_bad_disk(home: &TempDir, upstream: &Upstream, errno: i32) -> Gateway {
    on_a_disk_that_fails(home, upstream, "write", errno)
}

fn on_a_disk_that_fails(home: &TempDir, upstream: &Upstream, op: &str, errno: i32) -> Gateway {
    let data = home.path().canonicalize().unwrap().join("data");
    Setup::new(&format!("embedded:{}", data.display()), upstream)
        .with(&["--keep-free", "0"])
        .home(home.path())
        .variable("LD_PRELOAD", shim("../store-embedded/tests/fault_shim.c").to_str().unwrap())
        .variable("FAULT_DIR", data.to_str().unwrap())
        .variable("FAULT_OP", op)
        .variable("FAULT_ERRNO", errno.to_string())
        .variable("FAULT_WHILE", home.path().join("bad").to_str().unwrap())
        .start()
}

#[test]
fn a_full_disk_is_told_as_it_is_and_survived_without_a_restart() {
    let (home, upstream) = (TempDir::new().unwrap(), Upstream::start());
    let gateway = on_a_bad_disk(&home, &upstream, ENOSPC);
    let first = gateway.post("/orders", "before", "1");
    assert_eq!(first.status / 100, 2, "{first:?}");
    let bad = home.path().join("bad");
    fs::write(&bad, "").unwrap();
    for key in ["during", "during", "also"] {
        let refused = gateway.post("/orders", key, "1");
        assert_eq!((refused.status, refused.problem().as_str()), (503, "store-unavailable"), "{refused:?}");
        assert_eq!(refused.json()["retryable"], true, "{refused:?}");
    }
    assert_eq!(upstream.effects(), 1);
    // It takes nothing new, and a new start would not help; what was answered is replayed.
    assert_eq!(open(&gateway, "/readyz").status, 503);
    assert_eq!(open(&gateway, "/healthz").status, 200);
    assert_eq!(gateway.post("/orders", "before", "1").body, first.body);
    fs::remove_file(&bad).unwrap();
    eventually(|| open(&gateway, "/readyz").status == 200);
    for key in ["during", "also", "after"] {
        let done = gateway.post("/orders", key, "1");
        assert_eq!(done.status / 100, 2, "{done:?}");
    }
    assert_eq!(upstream.effects(), 4);
    assert_eq!(gateway.post("/orders", "before", "1").body, first.body);
    assert!(gateway.log().contains("the disk is full"), "{}", gateway.log());
}

#[test]
fn a_broken_disk_is_told_as_it_is_and_not_trusted_again() {
    let (home, upstream) = (TempDir::new().unwrap(), Upstream::start());
    let mut gateway = on_a_bad_disk(&home, &upstream, EIO);
    let first = gateway.post("/orders", "before", "1");
    let bad = home.path().join("bad");
    fs::write(&bad, "").unwrap();
    gateway.post("/orders", "during", "1");
    fs::remove_file(&bad).unwrap();
    let refused = gateway.post("/orders", "during", "1");
    assert_eq!((refused.status, refused.problem().as_str()), (503, "store-unavailable"), "{refused:?}");
    assert_eq!(refused.json()["retryable"], false, "{refused:?}");
    assert_eq!(open(&gateway, "/readyz").status, 503);
    assert_eq!(open(&gateway, "/healthz").status, 503, "only a new start helps");
    gateway.kill();
    let gateway = on_a_bad_disk(&home, &upstream, EIO);
    assert_eq!(gateway.post("/orders", "before", "1").body, first.body);
    assert_eq!(open(&gateway, "/healthz").status, 200);
    assert_eq!(gateway.post("/orders", "during", "1").status / 100, 2);
    assert_eq!(upstream.effects(), 2);
}

#[test]
fn a_disk_that_hangs_holds_up_no_other_request_however_often_readiness_is_asked_for() {
    let (home, upstream) = (TempDir::new().unwrap(), Upstream::start());
    let gateway = on_a_disk_that_fails(&home, &upstream, "look", EIO);
    assert_eq!((open(&gateway, "/readyz").status, open(&gateway, "/healthz").status), (200, 200));
    let hangs = home.path().join("bad");
    fs::write(&hangs, "").unwrap();
    let admin = gateway.admin.unwrap();
    // More than there are threads.
    let ask =
        |path| (0..16).map(move |_| std::thread::spawn(move || Request::new("GET", path).send(admin).status));
    let asked: Vec<_> = ask("/readyz").chain(ask("/healthz")).collect();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let began = std::time::Instant::now();
    assert_eq!(Request::new("GET", "/elsewhere").send(gateway.address).status / 100, 2);
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    let told: Vec<u16> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
    assert_eq!(told[..16], [503; 16], "nobody can say that it takes calls");
    assert_eq!(told[16..], [200; 16], "a new start would hang too");
    fs::remove_file(&hangs).unwrap();
    eventually(|| open(&gateway, "/readyz").status == 200);
}

#[test]
fn a_directory_that_is_removed_under_a_gateway_is_noticed_before_more_is_lost() {
    let (home, upstream) = (TempDir::new().unwrap(), Upstream::start());
    let gateway = Setup::new("embedded:data", &upstream).home(home.path()).start();
    let first = gateway.post("/orders", "before", "1");
    assert_eq!(open(&gateway, "/readyz").status, 200);
    fs::remove_dir_all(home.path().join("data")).unwrap();
    // Within about a second, whether or not anybody asks.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let refused = gateway.post("/orders", "after", "1");
    assert_eq!((refused.status, refused.problem().as_str()), (503, "store-unavailable"), "{refused:?}");
    assert_eq!(refused.json()["retryable"], false, "{refused:?}");
    assert_eq!(open(&gateway, "/readyz").status, 503);
    assert_eq!(open(&gateway, "/healthz").status, 200, "a new start would begin with nothing");
    assert_eq!(gateway.post("/orders", "before", "1").body, first.body);
    assert_eq!(upstream.effects(), 1);
    assert!(gateway.log().contains("the directory of the embedded store is gone"), "{}", gateway.log());
}

#[test]
fn below_keep_free_the_gateway_says_that_it_is_not_ready() {
    let (home, upstream) = (TempDir::new().unwrap(), Upstream::start());
    let start = |keep_free: &str| {
        Setup::new("embedded:data", &upstream).with(&["--keep-free", keep_free]).home(home.path()).start()
    };
    let mut roomy = start("0");
    let first = roomy.post("/orders", "old", "1");
    assert_eq!(open(&roomy, "/readyz").status, 200);
    roomy.terminate();
    let narrow = start("8000000GiB");
    assert_eq!(open(&narrow, "/readyz").status, 503);
    assert_eq!(open(&narrow, "/healthz").status, 200);
    let refused = narrow.post("/orders", "new", "1");
    assert_eq!((refused.status, refused.json()["retryable"].as_bool()), (503, Some(true)), "{refused:?}");
    assert_eq!(narrow.post("/orders", "old", "1").body, first.body);
    assert_eq!(upstream.effects(), 1);
}

#[test]
fn a_clock_that_is_set_makes_no_answered_call_run_again() {
    let shim = shim("tests/gateway/clock_shim.c");
    for store in ["embedded:data", "sqlite:once.db"] {
        for moved in ["CLOCK_WALL", "CLOCK_ALL"] {
            let (home, upstream) = (TempDir::new().unwrap(), Upstream::start());
            let clock = home.path().join("clock");
            let start = || {
                Setup::new(store, &upstream)
                    .home(home.path())
                    .variable("LD_PRELOAD", shim.to_str().unwrap())
                    .variable("CLOCK_FILE", clock.to_str().unwrap())
                    .variable(moved, "1")
                    .start()
            };
            let mut gateway = start();
            let first = gateway.post("/orders", "k", "1");
            assert_eq!(first.status / 100, 2, "{first:?}");
            let replays = |gateway: &Gateway, when: &str| {
                // Where every clock is moved, time-outs come that are none.
                let mut again = None;
                eventually(|| {
                    again = post("/orders", "k", "1").try_send(gateway.address).ok();
                    again.as_ref().is_some_and(|again| again.status != 503)
                });
                let again = again.unwrap();
                assert_eq!(again.body, first.body, "{store} {moved} {when}: {again:?}");
                assert_eq!(upstream.effects(), 1, "{store} {moved} {when}");
            };
            let set = |seconds: u64| {
                fs::write(home.path().join("new"), seconds.to_string()).unwrap();
                fs::rename(home.path().join("new"), &clock).unwrap();
            };
            // While it runs, while it does not, back, and forth again.
            set(25 * 3600);
            replays(&gateway, "set forward");
            assert!(gateway.log().contains("was set forward"), "{}", gateway.log());
            gateway.terminate();
            set(400 * 24 * 3600);
            let mut gateway = start();
            replays(&gateway, "set forward while it was stopped");
            if moved == "CLOCK_WALL" {
                set(0);
                replays(&gateway, "set back");
            }
            gateway.kill();
            set(0);
            let gateway = start();
            replays(&gateway, "started again");
        }
    }
}

#[test]
fn with_a_sane_clock_and_restarts_answers_expire_in_time() {
    for store in ["embedded:data", "sqlite:once.db"] {
        let (home, upstream) = (TempDir::new().unwrap(), Upstream::start());
        let start = || Setup::new(store, &upstream).with(&["--retain", "2s"]).home(home.path()).start();
        let mut gateway = start();
        assert_eq!(gateway.post("/orders", "k", "1").status / 100, 2);
        eventually(|| {
            gateway.terminate();
            gateway = start();
            gateway.post("/orders", "k", "1");
            upstream.effects() == 2
        });
    }
}

#[test]
fn a_server_that_answers_but_takes_nothing_new_is_not_ready() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateway = Setup::new(&redis.url(), &upstream).start();
    assert_eq!(open(&gateway, "/readyz").status, 200);
    let first = gateway.post("/orders", "old", "1");
    redis.told("CONFIG SET maxmemory-policy noeviction\nCONFIG SET maxmemory 1\n");
    eventually(|| open(&gateway, "/readyz").status == 503);
    assert_eq!(gateway.post("/orders", "new", "1").status, 503);
    assert_eq!(gateway.post("/orders", "old", "1").body, first.body);
    assert_eq!(open(&gateway, "/healthz").status, 200, "a new start would not help");
    redis.told("CONFIG SET maxmemory 0\n");
    eventually(|| open(&gateway, "/readyz").status == 200);
    assert_eq!(gateway.post("/orders", "new", "1").status / 100, 2);
    // A trial leaves nothing behind.
    let records = gateway.admin("GET", "/api/records", "").json();
    assert_eq!(records["records"].as_array().unwrap().len(), 2, "{records}");
}
