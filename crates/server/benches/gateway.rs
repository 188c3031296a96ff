//! P7: the gateway beside nginx as a plain proxy and the bare upstream, in one run. P8: what it weighs when idle.
//!
//! The load is that of `onlyonce-bench`: POST of 1 KiB over 64 connections. All share the machine's cores.

#![allow(clippy::unwrap_used, reason = "a measurement that can't go on should stop there")]
#![allow(clippy::disallowed_methods, reason = "measuring is about real time")]

#[path = "../../../bench/benches/ratios/load.rs"]
#[allow(dead_code, reason = "replays are measured elsewhere")]
mod load;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use load::{Keys, Pace, pace};
use onlyonce_bench_report::{Goal, Length, Report};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A process that is ended with the measurement.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Politely: nginx would leave its workers behind.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

fn gateway(home: &Path, upstream: SocketAddr, words: &[&str]) -> Server {
    let mut process = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["gateway", "--listen", "127.0.0.1:0", "--admin", "off", "--scope", "none"])
        .args(["--upstream", &format!("http://{upstream}")])
        .args(words)
        .current_dir(home)
        .env("RUST_LOG", "warn")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.trim().rsplit('/').next().unwrap().parse().expect("the gateway prints where it listens");
    Server { process, address }
}

fn nginx(home: &Path, upstream: SocketAddr) -> Server {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let home = home.display();
    let config = format!(
        "daemon off; worker_processes auto; pid {home}/pid; error_log {home}/error.log;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;\n\
         fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s; keepalive_requests 100000000;\n\
         upstream shop {{ server {upstream}; keepalive 128; keepalive_requests 100000000; }}\n\
         server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://shop; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; }} }} }}\n"
    );
    let file = format!("{home}/nginx.conf");
    std::fs::write(&file, config).unwrap();
    let process =
        Command::new("nginx").args(["-c", &file, "-p", &home.to_string()]).stderr(Stdio::null()).spawn();
    let process = process.expect("nginx is needed: apt-get install nginx-light");
    let server = Server { process, address: SocketAddr::from(([127, 0, 0, 1], port)) };
    for _ in 0..500 {
        if TcpStream::connect(server.address).is_ok() {
            return server;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nginx does not listen");
}

fn megabytes(server: &Server) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

async fn upstream() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/pay", post(async |_: Bytes| "{\"receipt\":7}"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::main]
async fn main() {
    let (rounds, millis) = Length::from_args().pick((1, 50), (5, 500), (9, 2_000));
    let span = Duration::from_millis(millis);
    let upstream = upstream().await;
    let homes: Vec<TempDir> = (0..4).map(|_| TempDir::new().unwrap()).collect();
    // Another method than the load's is protected, so that everything passes.
    let unkeyed = gateway(homes[0].path(), upstream, &["--store", "memory:", "--methods", "DELETE"]);
    let memory = gateway(homes[1].path(), upstream, &["--store", "memory:"]);
    let embedded = gateway(homes[2].path(), upstream, &["--store", "embedded:./data"]);
    let nginx = nginx(homes[3].path(), upstream);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut report = Report::default();
    report.add("P8", "an idle gateway on the memory store, MB", &[megabytes(&memory)], Goal::AtMost(25.0));
    report.add(
        "P8",
        "an idle gateway on the embedded store, MB",
        &[megabytes(&embedded)],
        Goal::AtMost(25.0),
    );

    let body = format!("{{\"order\":\"{}\"}}", "x".repeat(1000));
    let targets = [upstream, nginx.address, unkeyed.address, memory.address, embedded.address];
    let mut paces: Vec<[Pace; 5]> = Vec::new();
    for round in 0..=rounds {
        let mut measured = [Pace::default(); 5];
        for (measured, address) in measured.iter_mut().zip(targets) {
            *measured = pace(address, &body, Keys::Fresh, span).await;
        }
        // The first round warms everything up.
        if round > 0 {
            paces.push(measured);
        }
    }
    let each = |figure: &dyn Fn(&[Pace; 5]) -> f64| paces.iter().map(figure).collect::<Vec<_>>();
    let ratio = |over: usize, under: usize| each(&|pace| pace[over].rate / pace[under].rate);
    // What a proxy adds to the upstream's own.
    let added = |over: usize, under: usize| {
        each(&|pace| (pace[over].p99 - pace[0].p99).max(1.0) / (pace[under].p99 - pace[0].p99).max(1.0))
    };
    report.add("P7", "unkeyed, of nginx as a plain proxy", &ratio(2, 1), Goal::AtLeast(0.90));
    report.add("P7", "keyed on memory, of unkeyed", &ratio(3, 2), Goal::AtLeast(0.80));
    report.add("P7", "keyed on embedded, of unkeyed", &ratio(4, 2), Goal::AtLeast(0.50));
    report.add("P7", "unkeyed, of the bare upstream (no goal)", &ratio(2, 0), Goal::AtLeast(0.0));
    report.add("P7", "added p99, unkeyed, to nginx's (no goal)", &added(2, 1), Goal::AtLeast(0.0));
    report.add("P7", "added p99, keyed on memory, to unkeyed's (no goal)", &added(3, 2), Goal::AtLeast(0.0));
    println!("upstream, nginx, unkeyed, keyed memory, keyed embedded:");
    for pace in &paces {
        println!("   {}", pace.map(|pace| pace.to_string()).join(", "));
    }
    report.finish().unwrap();
}
