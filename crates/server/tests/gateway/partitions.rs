//! Two gateways on one store that do not agree about the time, or of which one does not reach the store.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use onlyonce_testkit::{FaultProxy, NetFault};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::client::Request;
use crate::faults::{Redis, insist};
use crate::program::{Gateway, Setup, eventually, onlyonce, post};
use crate::stores::{key, url_in};
use crate::upstream::Upstream;

/// A library that moves the wall clock of a process.
fn clock(folder: &Path) -> String {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, include_str!("clock.c")).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    assert!(built.expect("cc is needed; `cargo xtask test` installs it").success());
    library.display().to_string()
}

/// Seconds until an answer is forgotten, as the gateway's own clock sees it.
fn seconds_of(gateway: &Gateway) -> i64 {
    let metrics = Request::new("GET", "/metrics").send(gateway.admin.unwrap());
    let date = metrics.header("date").unwrap();
    let output = Command::new("date").args(["-u", "-d", date, "+%s"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Scenario 30.
fn skewed_by_an_hour(store: &str) {
    let upstream = Upstream::start();
    let folder = TempDir::new().unwrap();
    let library = clock(folder.path());
    let start = |seconds: i64| {
        let setup = Setup::new(store, &upstream).with(&["--retain", "10m"]).with(&["--wait", "0s"]);
        setup.variable("LD_PRELOAD", library.as_str()).variable("AHEAD_SECONDS", seconds.to_string()).start()
    };
    let gateways = [start(-3600), start(0), start(3600)];
    let apart = seconds_of(&gateways[2]) - seconds_of(&gateways[0]);
    assert!((7000..7400).contains(&apart), "the clocks are {apart} s apart");
    for (first, gateway) in gateways.iter().enumerate() {
        let others = || gateways.iter().enumerate().filter(move |(n, _)| *n != first).map(|(_, other)| other);
        // Kept for ten minutes is kept for ten minutes, whatever the others' clocks say.
        let done = key("skewed");
        let answer = gateway.post("/pay", &done, "x");
        assert_eq!(answer.status, 201);
        for other in others() {
            let again = other.post("/pay", &done, "x");
            assert!(again.is_replayed() && again.body == answer.body, "{again:?}");
            other.post("/pay", &done, "y").is(422, "payload-mismatch");
        }
        // A lease of thirty seconds has not run out an hour ahead, nor does it last for an hour more.
        let running = key("running");
        let (address, call) = (gateway.address, post("/slow/1500", &running, "x"));
        let call = thread::spawn(move || call.send(address));
        eventually(|| upstream.effects_of(&running) == 1);
        for other in others() {
            let told = other.post("/slow/1500", &running, "x");
            assert!(told.problem() == "in-progress" || told.is_replayed(), "{told:?}");
        }
        let answer = call.join().unwrap();
        assert_eq!(answer.status, 201);
        for other in others() {
            eventually(|| other.post("/slow/1500", &running, "x").body == answer.body);
        }
        assert_eq!((upstream.effects_of(&done), upstream.effects_of(&running)), (1, 1));
        // What nobody knows is unknown to all, and a release by one is seen by all; fences only rise.
        let doubtful = key("doubtful");
        gateway.post("/status/500", &doubtful, "x");
        for other in others() {
            other.post("/status/500", &doubtful, "x").is(409, "outcome-unknown");
        }
        let freed = key("freed");
        gateways.iter().for_each(|gateway| drop(gateway.post("/status/429", &freed, "x")));
        let of_key = |seen: &crate::upstream::Seen| seen.header("idempotency-key") == Some(freed.as_str());
        let fences: Vec<u64> = upstream
            .seen()
            .iter()
            .filter(|seen| of_key(seen))
            .map(|seen| seen.header("onlyonce-fence").unwrap().parse().unwrap())
            .collect();
        assert!(fences.len() == 3 && fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    }
}

#[test]
fn scenario_30_gateways_that_are_an_hour_apart_on_redis() {
    skewed_by_an_hour(&url_in("ONLYONCE_TEST_REDIS_URL"));
}

#[test]
fn scenario_30_gateways_that_are_an_hour_apart_on_postgres() {
    skewed_by_an_hour(&url_in("ONLYONCE_TEST_POSTGRES_URL"));
}

#[test]
fn scenario_30_gateways_that_are_an_hour_apart_on_mysql() {
    skewed_by_an_hour(&url_in("ONLYONCE_TEST_MYSQL_URL"));
}

/// A Redis that one gateway reaches over a network that can be cut, and another one directly.
struct Split {
    network: FaultProxy,
    cut_off: Gateway,
    other: Gateway,
    upstream: Upstream,
    runtime: Runtime,
    _redis: Redis,
}

impl Split {
    fn start() -> Self {
        let (upstream, redis) = (Upstream::start(), Redis::start());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let network = runtime.block_on(FaultProxy::start(redis.address())).unwrap();
        let start = |store: &str| {
            Setup::new(store, &upstream).with(&["--lease", "2s"]).with(&["--max-run", "30s"]).start()
        };
        let cut_off = start(&format!("redis://{}", network.address()));
        let other = start(&redis.url());
        Self { network, cut_off, other, upstream, runtime, _redis: redis }
    }

    /// Begins a call on the gateway that is about to be cut off, and goes on when it has had its effect.
    fn begin(&self, key: &str) -> thread::JoinHandle<std::io::Result<crate::client::Answer>> {
        let (address, call) = (self.cut_off.address, post("/gated", key, "x"));
        let call = thread::spawn(move || call.try_send(address));
        eventually(|| self.upstream.effects_of(key) == 1);
        call
    }

    /// Nobody runs it again, whatever the gateway that is cut off does.
    fn is_unknown_elsewhere(&self, key: &str) {
        eventually(|| self.other.post("/gated", key, "x").problem() == "outcome-unknown");
        assert_eq!(self.upstream.effects_of(key), 1);
    }

    /// After the network is well again, both have the one answer.
    fn is_settled_everywhere(&self, key: &str, body: &[u8]) {
        self.runtime.block_on(self.network.heal());
        eventually(|| self.other.post("/gated", key, "x").is_replayed());
        for gateway in [&self.cut_off, &self.other] {
            let again = insist(gateway.address, &post("/gated", key, "x")).unwrap();
            assert!(again.is_replayed() && again.body == body, "{again:?}");
        }
        assert_eq!(self.upstream.effects_of(key), 1);
    }
}

#[test]
fn scenario_34_a_gateway_whose_store_fell_silent_runs_nothing_new_and_loses_nothing() {
    let split = Split::start();
    let key = key("silent");
    let call = split.begin(&key);
    split.network.black_hole();
    split.is_unknown_elsewhere(&key);
    // Nothing new begins where the store can't be heard.
    let fresh = crate::stores::key("fresh");
    split.cut_off.post("/pay", &fresh, "x").is(503, "store-unavailable");
    assert_eq!(split.upstream.effects_of(&fresh), 0);
    assert_eq!(split.other.post("/pay", &fresh, "x").status, 201);
    eventually(|| Request::new("GET", "/readyz").send(split.cut_off.admin.unwrap()).status == 503);
    split.upstream.open();
    let answer = call.join().unwrap().unwrap();
    assert_eq!((answer.status, answer.header("idempotency-stored")), (201, Some("false")));
    split.is_settled_everywhere(&key, &answer.body);
    eventually(|| Request::new("GET", "/readyz").send(split.cut_off.admin.unwrap()).status == 200);
    assert_eq!(insist(split.cut_off.address, &post("/pay", &fresh, "x")).unwrap().status, 201);
    assert_eq!(split.upstream.effects_of(&fresh), 1);
}

#[test]
fn scenario_34_a_gateway_that_the_store_hears_and_that_hears_nothing_back_runs_a_key_once() {
    let split = Split::start();
    let first = key("deaf");
    let call = split.begin(&first);
    // What it writes arrives; it never learns so.
    split.network.always(NetFault::DropReply);
    split.network.cut();
    let deaf = key("begun");
    let told = split.cut_off.post("/pay", &deaf, "x");
    told.is(503, "store-unavailable");
    assert_eq!(split.upstream.effects_of(&deaf), 0, "its begin may have arrived, and it did not run");
    split.upstream.open();
    let answer = call.join().unwrap().unwrap();
    assert_eq!(answer.status, 201);
    split.is_settled_everywhere(&first, &answer.body);
    // The begin that was never answered is given up when its lease is over, at the latest.
    eventually(|| {
        let told = split.other.post("/pay", &deaf, "x");
        told.status == 201 || told.problem() == "outcome-unknown"
    });
    assert!(split.upstream.effects_of(&deaf) <= 1);
}

#[test]
fn scenario_34_a_gateway_whose_connections_to_the_store_are_cut_again_and_again_runs_a_key_once() {
    let split = Split::start();
    let keys: Vec<String> = (0..30).map(|_| key("cut")).collect();
    for (round, key) in keys.iter().enumerate() {
        let (one, other, call) = (split.cut_off.address, split.other.address, post("/slow/20", key, "x"));
        let again = call.clone();
        let calls = [thread::spawn(move || call.try_send(one)), thread::spawn(move || again.try_send(other))];
        thread::sleep(Duration::from_millis((round as u64 * 7) % 30));
        split.network.cut();
        calls.into_iter().for_each(|call| drop(call.join().unwrap()));
    }
    split.runtime.block_on(split.network.heal());
    let mut answered = 0;
    for key in &keys {
        assert!(split.upstream.effects_of(key) <= 1, "{key}");
        let answers = [split.other.address, split.cut_off.address]
            .map(|address| insist(address, &post("/slow/20", key, "x")).unwrap());
        assert_eq!(answers[0].status, answers[1].status, "{key}");
        assert!(split.upstream.effects_of(key) <= 1, "{key}");
        answered += usize::from(answers[0].status == 201 && answers[0].body == answers[1].body);
    }
    assert!(answered > keys.len() / 2, "{answered} of {}", keys.len());
}

/// A repair that is broken off amid its two steps puts back what was seen, also where the process has nothing else to do.
#[test]
fn a_repair_from_the_terminal_that_lost_its_store_half_way_leaves_the_evidence() {
    let (upstream, redis) = (Upstream::start(), Redis::start());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let network = runtime.block_on(FaultProxy::start(redis.address())).unwrap();
    let gateway = Setup::new(&redis.url(), &upstream).start();
    let key = key("repaired");
    gateway.post("/status/500", &key, "x");
    let id = gateway.post("/status/500", &key, "x").json()["record"].as_str().unwrap().to_owned();
    let shown = || gateway.admin("GET", &format!("/api/records/{id}"), "").json();
    let before = shown();
    assert_eq!(before["state"], "unknown", "{before}");
    assert_eq!(before["answer"]["status"], 500, "{before}");

    // Replies take their time, so that the takeover is seen before its reply arrives.
    network.always(NetFault::DelayReply(Duration::from_millis(300)));
    let (home, store, id_of) = (gateway.home.clone(), format!("redis://{}", network.address()), id.clone());
    let repair = thread::spawn(move || {
        onlyonce(&home, &["records", "--store", &store, "resolve", &id_of, "--not-done", "--reason", "r"])
    });
    eventually(|| shown()["state"] == "in_progress");
    runtime.block_on(network.refuse());
    thread::sleep(Duration::from_secs(2));
    runtime.block_on(network.heal());
    let (code, said) = repair.join().unwrap();
    assert!(code == 1 && said.contains("look again"), "{code}: {said}");
    let after = shown();
    assert_eq!((&after["state"], &after["answer"]), (&before["state"], &before["answer"]), "{after}");
}
