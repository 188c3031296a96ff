//! Calls over one connection to the gateway's own binary.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::block_on;
use crate::calls::Kind;
use crate::case::Counts;
use crate::load::Connection;
use crate::valgrind::{Callgrind, What};

pub(crate) const CASES: &[&str] = &[
    "gateway, unkeyed",
    "gateway on memory, first run",
    "gateway on memory, replay",
    "gateway on embedded, first run",
    "gateway on embedded, replay",
];

pub(crate) fn count(case: &'static str, calls: u64) -> Counts {
    let callgrind = Callgrind::new();
    block_on(run(case, &callgrind, calls));
    callgrind.counts(&[What::Instructions, What::Allocations])
}

/// Starts a gateway before a small service, makes the calls and ends it.
async fn run(case: &str, callgrind: &Callgrind, calls: u64) {
    let kind = if case.ends_with("replay") { Kind::Replay } else { Kind::First };
    let store = if case.contains("embedded") { "embedded:./data" } else { "memory:" };
    // Another method than that of the calls is protected.
    let methods = if case.ends_with("unkeyed") { "DELETE" } else { "POST" };
    let home = TempDir::new().expect("a folder");
    let upstream = upstream().await;
    let program = std::env::current_exe().expect("this program").with_file_name("onlyonce");
    let mut command = callgrind.command(&program);
    command
        .args(["gateway", "--listen", "127.0.0.1:0", "--admin", "off", "--scope", "none"])
        .args(["--upstream", &format!("http://{upstream}"), "--store", store, "--methods", methods])
        .current_dir(home.path())
        .env("RUST_LOG", "error")
        .env("TOKIO_WORKER_THREADS", "1");
    let mut gateway = command.stdout(Stdio::piped()).spawn().expect("valgrind is installed");
    let mut greeting = String::new();
    let mut said = BufReader::new(gateway.stdout.take().expect("it is piped"));
    said.read_line(&mut greeting).expect("the gateway greets");
    let address = greeting.trim().rsplit('/').next().and_then(|address| address.parse().ok());
    let address = address.unwrap_or_else(|| panic!("the gateway did not say where it listens: {greeting}"));
    let connection = tokio::sync::Mutex::new(Connection::open(address).await);
    let body = format!("{{\"order\":\"{}\"}}", "x".repeat(1000));
    kind.repeat(calls, async |key| connection.lock().await.call(&key, &body).await).await;
    kill_process(Pid::from_child(&gateway), Signal::TERM).expect("it runs");
    drop(connection);
    let ended = tokio::task::spawn_blocking(move || gateway.wait()).await.expect("no panic");
    assert!(ended.expect("an exit code").success(), "the gateway did not end as it should");
}

async fn upstream() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let app = Router::new().route("/pay", post(async |_: Bytes| "{\"receipt\":7}"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}
