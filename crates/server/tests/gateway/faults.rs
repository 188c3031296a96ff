//! Servers that are taken away, and gateways that are killed, paused, drained and reloaded.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use onlyonce_testkit::free_port;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::{Answer, Request};
use crate::program::{Gateway, Setup, eventually, post};
use crate::stores::{key, url_in};
use crate::upstream::Upstream;

/// A Redis of the test's own, which may be stopped.
pub(crate) struct Redis {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let port = free_port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            // Every write is in the file as it was sent.
            .args(["--appendonly", "yes", "--aof-use-rdb-preamble", "no", "--dir"])
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is needed; `cargo xtask test` installs it");
        eventually(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { process, port, folder }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where it keeps what it has.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs commands as they are typed.
    pub(crate) fn told(&self, commands: &str) -> String {
        let mut cli = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli is needed; `cargo xtask test` installs it");
        cli.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
        String::from_utf8_lossy(&cli.wait_with_output().unwrap().stdout).into_owned()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What may be different the next time. A client that heard of a broken call repeats it, too, and must not make it happen twice.
const PASSING: [&str; 5] =
    ["in-progress", "draining", "store-unavailable", "upstream-unreachable", "upstream-failed"];

/// Retries until there is an answer that is not about now.
pub(crate) fn insist(address: std::net::SocketAddr, request: &Request) -> Option<Answer> {
    for _ in 0..400 {
        match request.try_send(address) {
            Ok(answer) if !PASSING.contains(&answer.problem().as_str()) => return Some(answer),
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
    None
}

#[test]
fn of_two_gateways_on_one_store_a_paused_one_can_not_overwrite_what_the_other_did() {
    let upstream = Upstream::start();
    let store = url_in("ONLYONCE_TEST_REDIS_URL");
    let setup = || Setup::new(&store, &upstream).with(&["--lease", "1s"]).with(&["--max-run", "5s"]);
    let one = setup().config("[[route]]\nmatch = \"POST /slow/{ms}\"\non_lapse = \"rerun\"\n").start();
    let other = setup().config("[[route]]\nmatch = \"POST /slow/{ms}\"\non_lapse = \"rerun\"\n").start();
    let (key, address) = (key("paused"), one.address);
    let request = post("/slow/400", &key, "x");
    let first = thread::spawn({
        let request = request.clone();
        move || request.send(address)
    });
    eventually(|| upstream.effects_of(&key) == 1);
    one.signal(Signal::STOP);
    // The paused one's lease runs out; the other takes over, as the route allows.
    let taken = insist(other.address, &request).unwrap();
    assert_eq!(taken.status, 201);
    one.signal(Signal::CONT);
    let late = first.join().unwrap();
    assert_eq!(late.body, taken.body, "the zombie's client gets the answer that is stored");
    assert_eq!(insist(one.address, &request).unwrap().body, taken.body);
    let fences: Vec<u64> =
        upstream.seen().iter().map(|seen| seen.header("onlyonce-fence").unwrap().parse().unwrap()).collect();
    assert!(fences[0] < fences[1], "a fenced resource would refuse the zombie: {fences:?}");
}

#[test]
fn two_gateways_on_one_store_run_a_key_once() {
    let upstream = Upstream::start();
    let store = url_in("ONLYONCE_TEST_REDIS_URL");
    let gateways: Vec<Gateway> =
        (0..2).map(|_| Setup::new(&store, &upstream).with(&["--wait", "20s"]).start()).collect();
    let keys: Vec<String> = (0..10).map(|_| key("both")).collect();
    let calls: Vec<_> = keys
        .iter()
        .flat_map(|key| gateways.iter().map(move |gateway| (gateway.address, post("/slow/50", key, "x"))))
        .map(|(address, request)| thread::spawn(move || insist(address, &request).unwrap()))
        .collect();
    let answers: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    for (pair, key) in answers.chunks(2).zip(&keys) {
        assert_eq!(pair[0].body, pair[1].body);
        assert_eq!(upstream.effects_of(key), 1);
    }
}

#[test]
fn sigterm_finishes_what_is_under_way_refuses_what_is_new_and_exits_0() {
    let upstream = Upstream::start();
    let mut gateway = Setup::new("embedded:./data", &upstream).start();
    let (address, admin) = (gateway.address, gateway.admin.unwrap());
    let keyed = thread::spawn(move || post("/gated", &key("keyed"), "x").send(address));
    let plain = thread::spawn(move || post("/gated", "", "x").send(address));
    eventually(|| upstream.effects() == 2);
    gateway.signal(Signal::TERM);
    eventually(|| Request::new("GET", "/readyz").send(admin).status == 503);
    let refused = post("/pay", &key("late"), "x").send(address);
    refused.is(503, "draining");
    assert!(refused.header("retry-after").is_some() && refused.header("connection") == Some("close"));
    upstream.open();
    assert_eq!(keyed.join().unwrap().status, 201);
    assert_eq!(plain.join().unwrap().status, 201);
    let status = gateway.process.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(upstream.effects(), 2);
}

#[test]
fn a_gateway_goes_on_when_nobody_reads_what_it_prints() {
    let upstream = Upstream::start();
    let mut gateway = Setup::new("memory:", &upstream).start();
    gateway.nobody_reads();
    assert_eq!(gateway.post("/pay", &key("unread"), "x").status, 201);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_gateway_whose_log_nobody_reads_answers_as_ever_and_reloads() {
    let upstream = Upstream::start();
    for format in ["human", "json"] {
        let setup = Setup::new("memory:", &upstream).config("# nothing\n").with(&["--log", format]);
        let mut gateway = setup.start_unread();
        let key = key("unread-log");
        // Each of these is logged.
        gateway.post("/reset", &key, "x").is(502, "upstream-failed");
        gateway.post("/reset", &key, "x").is(409, "outcome-unknown");
        gateway.post("/pay", "a b", "x").is(400, "key-invalid");
        std::fs::write(gateway.home.join("gateway.toml"), "[defaults]\nmissing = \"reject\"\n").unwrap();
        gateway.signal(Signal::HUP);
        eventually(|| gateway.post("/pay", "", "x").status == 400);
        std::fs::write(gateway.home.join("gateway.toml"), "nonsense").unwrap();
        gateway.signal(Signal::HUP);
        assert_eq!(gateway.post("/pay", &crate::stores::key("after"), "x").status, 201);
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.process.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn what_is_printed_for_nobody_ends_quietly() {
    let home = TempDir::new().unwrap();
    for words in [
        &["completions", "bash"][..],
        &["gateway", "--check", "--scope", "none", "--upstream", "http://127.0.0.1:9"],
        &["gateway", "--check", "--methods", "GET"],
        &["id", "generate", "--count", "100000"],
        &["--log", "json", "gateway", "--check"],
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        let command = command.args(words).current_dir(home.path());
        let piped = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut process = piped.spawn().unwrap();
        drop((process.stdout.take(), process.stderr.take()));
        let code = process.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 2)), "{words:?} ended with {code:?}");
    }
}

#[test]
fn sigterm_gives_up_after_the_limit_and_the_lease_is_left_to_lapse() {
    let upstream = Upstream::start();
    let home = TempDir::new().unwrap();
    let setup = || Setup::new("embedded:./data", &upstream).with(&["--drain", "500ms"]).home(home.path());
    let mut gateway = setup().start();
    let (key, address) = (key("stuck"), gateway.address);
    let stuck = post("/gated", &key, "x");
    let first = thread::spawn(move || stuck.try_send(address).is_err());
    eventually(|| upstream.effects() == 1);
    let (code, printed) = gateway.terminate();
    assert_eq!(code, 0);
    assert!(printed.contains("1 calls were still running"), "{printed}");
    assert!(first.join().unwrap());
    setup().start().post("/gated", &key, "x").is(409, "outcome-unknown");
}

#[test]
fn a_reload_under_load_loses_no_request_and_a_wrong_one_changes_nothing() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).config("[defaults]\nmissing = \"pass\"\n").start();
    let (address, stop, sent) =
        (gateway.address, Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(post("/pay", &key("load"), "x").send(address).status, 201);
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let file = gateway.home.join("gateway.toml");
    for round in 0..6 {
        let word = if round % 2 == 0 { "reject" } else { "pass" };
        std::fs::write(&file, format!("[defaults]\nmissing = \"{word}\"\n")).unwrap();
        gateway.signal(Signal::HUP);
        let expected = if round % 2 == 0 { 400 } else { 201 };
        eventually(|| gateway.post("/pay", "", "x").status == expected);
    }
    std::fs::write(&file, "[defaults]\nmising = \"reject\"\n").unwrap();
    gateway.signal(Signal::HUP);
    eventually(|| {
        gateway.log().contains("the old one stays") && gateway.log().contains("did you mean \"missing\"?")
    });
    assert_eq!(gateway.post("/pay", "", "x").status, 201);
    eventually(|| sent.load(Ordering::SeqCst) > 20);
    stop.store(true, Ordering::SeqCst);
    load.into_iter().for_each(|client| client.join().unwrap());
}
