//! Gateways and upstreams that are killed at random moments while clients retry.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::client::Answer;
use crate::faults::insist;
use crate::program::{Setup, eventually, post};
use crate::stores::{key, url_in};
use crate::upstream::Upstream;

/// How much a test does: little in `test`, much in `soak`.
fn kills(usual: usize) -> usize {
    std::env::var("ONLYONCE_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// Clients that make calls with new keys until they are told to stop.
struct Clients {
    done: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    working: Vec<thread::JoinHandle<Vec<Made>>>,
}

/// A call, and its answer if that is promised to be kept.
struct Made {
    key: String,
    promised: Option<Answer>,
}

impl Clients {
    fn start(count: usize, address: SocketAddr, path: &'static str) -> Self {
        let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let work = |_| {
            let (done, answered) = (Arc::clone(&done), Arc::clone(&answered));
            thread::spawn(move || {
                let mut made = Vec::new();
                while !done.load(Ordering::SeqCst) {
                    let key = key("kill");
                    let answer =
                        insist(address, &post(path, &key, "x")).filter(|answer| answer.status == 201);
                    answered.fetch_add(usize::from(answer.is_some()), Ordering::SeqCst);
                    let stored = |answer: &Answer| answer.header("idempotency-stored") != Some("false");
                    // Those without an answer are looked at too: they are the ones in doubt.
                    made.push(Made { key, promised: answer.filter(stored) });
                }
                made
            })
        };
        let working = (0..count).map(work).collect();
        Self { done, answered, working }
    }

    /// Waits until more calls were answered, and then for a moment that differs with the round.
    fn until_a_random_moment(&self, round: usize, calls: usize) {
        let before = self.answered.load(Ordering::SeqCst);
        eventually(|| self.answered.load(Ordering::SeqCst) > before + calls);
        thread::sleep(Duration::from_millis((round as u64 * 37) % 40));
    }

    fn stop(self) -> Vec<Made> {
        self.done.store(true, Ordering::SeqCst);
        self.working.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

type Effects = std::collections::HashMap<String, usize>;

/// At most one effect a key, whoever sent it and whatever was heard, also after one more retry of each; and what was promised
/// is still the answer.
fn check(made: &[Made], kills: usize, address: SocketAddr, path: &str, effects: impl Fn() -> Effects) {
    let answered = made.iter().filter(|made| made.promised.is_some()).count();
    assert!(answered * 2 > made.len() && answered >= kills / 2, "{answered} of {} were answered", made.len());
    let before = effects();
    for Made { key, promised } in made {
        let again = insist(address, &post(path, key, "x")).expect("an answer");
        if let Some(answer) = promised {
            assert_eq!(before.get(key), Some(&1), "{key} was answered");
            assert!(again.is_replayed(), "{key}: {again:?}");
            assert_eq!((again.status, &again.body), (answer.status, &answer.body), "{key}");
        }
    }
    let twice: Vec<_> = effects().into_iter().filter(|(_, effects)| *effects > 1).collect();
    assert!(twice.is_empty(), "more than one effect: {twice:?}");
    println!("{kills} kills, {} keys, {answered} answered", made.len());
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], onlyonce_testkit::free_port()))
}

fn gateways_are_killed_at_random(store: &str, count: usize) {
    let upstream = Upstream::start();
    let home = TempDir::new().unwrap();
    let address = free_address().to_string();
    let start = || {
        let setup = Setup::new(store, &upstream).with(&["--listen", &address]).home(home.path());
        setup.with(&["--lease", "1s"]).with(&["--max-run", "10s"]).start()
    };
    let mut gateway = start();
    let clients = Clients::start(6, gateway.address, "/slow/5");
    for round in 0..count {
        // On a slow machine too, every life of a gateway does something before it ends.
        clients.until_a_random_moment(round, 10);
        gateway.kill();
        gateway = start();
    }
    clients.until_a_random_moment(0, 1);
    let made = clients.stop();
    check(&made, count, gateway.address, "/slow/5", || {
        let mut effects = Effects::new();
        for seen in upstream.seen() {
            *effects.entry(seen.header("idempotency-key").unwrap_or_default().to_owned()).or_default() += 1;
        }
        effects
    });
}

#[test]
fn killed_at_random_on_the_embedded_store() {
    gateways_are_killed_at_random("embedded:./data", kills(12));
}

#[test]
fn killed_at_random_on_redis() {
    gateways_are_killed_at_random(&url_in("ONLYONCE_TEST_REDIS_URL"), kills(12));
}

#[test]
fn killed_at_random_on_postgres() {
    gateways_are_killed_at_random(&url_in("ONLYONCE_TEST_POSTGRES_URL"), kills(8));
}

/// A service in a process of its own: it writes its effect to a file, waits, and answers.
struct Service {
    process: Child,
    ledger: PathBuf,
}

impl Service {
    fn start(folder: &Path, address: SocketAddr) -> Self {
        let (script, ledger) = (folder.join("service.py"), folder.join("ledger"));
        std::fs::write(&script, include_str!("frameworks/ledger.py")).unwrap();
        let process = Command::new("python3")
            .arg(script)
            .args([&address.port().to_string(), ledger.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is needed; `cargo xtask test` installs it");
        eventually(|| TcpStream::connect(address).is_ok());
        Self { process, ledger }
    }

    fn effects(&self) -> Effects {
        let mut effects = Effects::new();
        for line in std::fs::read_to_string(&self.ledger).unwrap_or_default().lines() {
            *effects.entry(line.to_owned()).or_default() += 1;
        }
        effects
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_upstream_is_killed_at_random_and_no_call_runs_twice() {
    let count = kills(10);
    let (folder, address) = (TempDir::new().unwrap(), free_address());
    let mut service = Service::start(folder.path(), address);
    let gateway = Setup::new("embedded:./data", &Upstream::start())
        .with(&["--upstream", &format!("http://{address}")])
        .start();
    let clients = Clients::start(6, gateway.address, "/pay");
    let mut open = 0;
    for round in 0..count {
        clients.until_a_random_moment(round, 6);
        drop(service);
        service = Service::start(folder.path(), address);
        open = gateway.admin("GET", "/api/attention", "").json()["records"].as_array().unwrap().len();
    }
    clients.until_a_random_moment(0, 1);
    let made = clients.stop();
    check(&made, count, gateway.address, "/pay", || service.effects());
    // Each kill hits six clients, of which at least one waits for an answer: nobody knows what became of those calls.
    assert!(open > 0, "no kill hit a call");
}
