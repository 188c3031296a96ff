//! The client against a server that is a process of its own, and is really killed (SIGKILL) while calls run in it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use onlyonce_client::{CallKey, OnlyOnce, OutcomeUnknown, ServerSays};
use onlyonce_core::Idempotency;
use onlyonce_http::{IdempotencyLayer, ScopeFrom};
use onlyonce_store_embedded::EmbeddedStore;
use onlyonce_testkit::Ledger;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::net::TcpListener;

/// Tells a process that it is the server, and where.
const SERVER: &str = "ONLYONCE_CLIENT_SERVER";
/// How long anything here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server with its files: the store, who arrived at the handler, and what happened.
struct Server {
    directory: tempfile::TempDir,
    address: SocketAddr,
    test: &'static str,
    running: Option<Child>,
}

impl Server {
    fn start(test: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Below the ports that the system gives to anybody: it has to be free again after each death.
        let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let port = (0..).map(|_| 20_000 + rand::random::<u16>() % 12_000).find(free).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Self { directory, address, test, running: None };
        server.restart();
        server
    }

    fn restart(&mut self) {
        let orders = format!("{}|{}", self.address, self.directory.path().display());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", self.test]).env(SERVER, orders).stdout(Stdio::null());
        self.running = Some(command.spawn().unwrap());
    }

    fn kill(&mut self) {
        let mut running = self.running.take().unwrap();
        running.kill().unwrap();
        running.wait().unwrap();
    }

    fn effects(&self) -> Vec<String> {
        read(self.directory.path(), "effects")
    }

    fn arrived(&self) -> Vec<String> {
        read(self.directory.path(), "arrived")
    }

    /// Waits until so many calls have arrived at the handler.
    async fn arrivals(&self, count: usize) {
        let arrived = async {
            while self.arrived().len() < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, arrived).await.expect("calls arrive");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.kill();
            let _ = running.wait();
        }
    }
}

fn read(directory: &Path, name: &str) -> Vec<String> {
    let effects = Ledger::in_file(directory.join(name)).unwrap().effects().unwrap();
    effects.into_iter().map(|effect| effect.key).collect()
}

/// The server's own process, for as long as it is let live. True if this is it.
fn is_server() -> bool {
    let Ok(orders) = std::env::var(SERVER) else { return false };
    let (address, directory) = orders.split_once('|').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(serve(address, Path::new(directory)));
    true
}

async fn serve(address: &str, directory: &Path) {
    let once = Idempotency::new(EmbeddedStore::open(directory.join("store")).unwrap());
    let arrived = Ledger::in_file(directory.join("arrived")).unwrap();
    let effects = Ledger::in_file(directory.join("effects")).unwrap();
    let pay = async move |headers: HeaderMap, body: String| {
        let key = headers["idempotency-key"].to_str().unwrap();
        if body == "dies before" {
            arrived.record(key, &body).unwrap();
            std::future::pending::<()>().await;
        }
        if body == "takes a while" {
            arrived.record(key, &body).unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        effects.record(key, &body).unwrap();
        if body == "dies after" {
            arrived.record(key, &body).unwrap();
            std::future::pending::<()>().await;
        }
        (StatusCode::CREATED, format!("{body}, effect of {key}"))
    };
    let app = Router::new().route("/pay", post(pay)).layer(IdempotencyLayer::new(once, ScopeFrom::nobody()));
    // A connection of somebody else may have the port for a moment.
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    // It is killed; if its test was killed instead, it ends by itself.
    let _ = tokio::time::timeout(3 * PATIENCE, async { axum::serve(listener, app).await }).await;
}

fn client() -> ClientWithMiddleware {
    let once = OnlyOnce::builder()
        .pauses(Duration::from_millis(5), Duration::from_millis(100))
        .attempts(10_000)
        .attempt_timeout(Duration::from_secs(10))
        .budget(PATIENCE)
        .retry_allowance(100_000, 100);
    let http = onlyonce_client::http().no_proxy().build().unwrap();
    ClientBuilder::new(http).with(once.build().unwrap()).build()
}

#[test]
fn killed_in_the_middle_of_a_call_the_caller_is_told_and_nothing_happens_twice() {
    if is_server() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for (what, happened) in [("dies before", 0), ("dies after", 1)] {
            let mut server =
                Server::start("killed_in_the_middle_of_a_call_the_caller_is_told_and_nothing_happens_twice");
            let (client, url) = (client(), format!("http://{}/pay", server.address));
            let call = client.post(&url).body(what).send();
            let call = tokio::spawn(call);
            server.arrivals(1).await;
            server.kill();
            server.restart();
            let error = call.await.unwrap().unwrap_err();
            let unknown = OutcomeUnknown::of(&error).expect("nobody can know what a dead handler did");
            assert_eq!(unknown.server_says(), Some(ServerSays::Unknown), "{what}");
            assert!(unknown.attempts() >= 2, "{what}");
            assert_eq!(server.arrived(), [unknown.key()], "{what}: one key, and it ran once");
            assert_eq!(server.effects().len(), happened, "{what}");

            // What was answered before a death is answered the same after it.
            let answer = client.post(&url).body("is done").send().await.unwrap();
            let key = answer.extensions().get::<CallKey>().unwrap().0.clone();
            let first = answer.bytes().await.unwrap();
            server.kill();
            server.restart();
            let again =
                client.post(&url).header("idempotency-key", &key).body("is done").send().await.unwrap();
            assert_eq!(again.headers()["idempotent-replayed"], "true");
            assert_eq!(again.bytes().await.unwrap(), first);
            assert_eq!(server.effects().len(), happened + 1);
        }
    });
}

#[test]
fn killed_again_and_again_under_load_every_call_has_one_effect_and_its_answer_or_a_clear_unknown() {
    const TASKS: usize = 4;
    const CALLS: usize = 12;
    const KILLS: usize = 4;
    if is_server() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut server = Server::start(
            "killed_again_and_again_under_load_every_call_has_one_effect_and_its_answer_or_a_clear_unknown",
        );
        let (client, url) = (client(), format!("http://{}/pay", server.address));
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (client, url) = (client.clone(), url.clone());
                tokio::spawn(async move {
                    let (mut answered, mut unknown) = (Vec::new(), Vec::new());
                    for _ in 0..CALLS {
                        match client.post(&url).body("takes a while").send().await {
                            Ok(answer) => {
                                assert_eq!(answer.status(), 201);
                                let key = answer.extensions().get::<CallKey>().unwrap().0.clone();
                                let text = answer.text().await.unwrap();
                                assert_eq!(text, format!("takes a while, effect of {key}"));
                                answered.push(key);
                            }
                            Err(error) => unknown.push(OutcomeUnknown::of(&error).unwrap().key().to_owned()),
                        }
                    }
                    (answered, unknown)
                })
            })
            .collect();
        // Each kill hits at most one call of each task, so that there are enough of them for all kills.
        for _ in 0..KILLS {
            let seen = server.arrived().len();
            server.arrivals(seen + 1).await;
            server.kill();
            server.restart();
        }
        let (mut answered, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for task in tasks {
            let (of_task, not_known) = task.await.unwrap();
            answered.extend(of_task);
            unknown.extend(not_known);
        }
        assert_eq!(answered.len() + unknown.len(), TASKS * CALLS, "one key a call");
        assert!(unknown.len() <= TASKS * KILLS, "{} unknown", unknown.len());
        let (effects, arrived) = (server.effects(), server.arrived());
        let happened: BTreeSet<String> = effects.iter().cloned().collect();
        assert_eq!(happened.len(), effects.len(), "something happened twice");
        assert!(answered.is_subset(&happened), "an answer without its effect");
        let keys: BTreeSet<String> = arrived.iter().cloned().collect();
        assert_eq!(keys.len(), arrived.len(), "a handler ran twice for a key");
        assert!(keys.is_subset(&answered.union(&unknown).cloned().collect()), "a retry had a new key");
    });
}
