//! Standard error and standard output that nobody reads while their pipes stay open: a pager, a log shipper that hangs.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::program::{Setup, eventually, full_pipe, post};
use crate::stores::key;
use crate::upstream::Upstream;

/// A gateway that says something about every call to /truncated.
fn talkative(upstream: &Upstream) -> Setup {
    Setup::new("memory:", upstream).with(&["--buffer-response", "0s"])
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let upstream = Upstream::start();
    let (mut gateway, mut log) = talkative(&upstream).start_stalled();
    for n in 0..1500 {
        let (to, key) = (gateway.address, key("unread"));
        let (send, sent) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // It is cut off, and that is said.
            let _ = post("/truncated", &key, "x").try_send(to);
            send.send(post("/pay", &key, "x").send(to).status)
        });
        let answered = sent.recv_timeout(Duration::from_secs(10));
        assert_eq!(answered.ok(), Some(201), "call {n}");
    }
    // Whoever reads again is told what was lost.
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        log.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    gateway.terminate();
    let text = reader.join().unwrap();
    let (lines, end) =
        (text.matches("the answer broke off").count(), &text[text.len().saturating_sub(1000)..]);
    assert!((100..1500).contains(&lines), "{lines}: {end}");
    let lost = text.split(" lines of the log were lost").next().unwrap().rsplit(' ').next().unwrap();
    assert_eq!(lost.parse::<usize>().ok(), Some(1500 - lines), "{end}");
}

#[test]
fn a_gateway_whose_log_nobody_reads_ends_when_it_is_asked_to() {
    let upstream = Upstream::start();
    let (mut gateway, _log) = talkative(&upstream).start_stalled();
    for _ in 0..10 {
        let _ = post("/truncated", &key("unread"), "x").try_send(gateway.address);
    }
    let begun = Instant::now();
    gateway.signal(Signal::TERM);
    eventually(|| gateway.process.try_wait().unwrap().is_some());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn a_greeting_that_nobody_reads_stops_nothing() {
    let upstream = Upstream::start();
    let (_reader, writer) = full_pipe();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["gateway", "--store", "memory:", "--scope", "header:x-tenant", "--admin", "off"])
        .args(["--listen", &free.to_string(), "--upstream", &upstream.url()])
        .current_dir(home.path())
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let mut answered = false;
    while !answered && begun.elapsed() < Duration::from_secs(10) {
        // What is bound before the greeting is accepted by the system alone.
        let (send, sent) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(post("/pay", &key("greeted"), "x").try_send(free).is_ok()));
        answered = sent.recv_timeout(Duration::from_secs(3)) == Ok(true);
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&process), Signal::TERM).unwrap();
    let begun = Instant::now();
    while process.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(8) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = process.try_wait().unwrap().is_some();
    let _ = process.kill();
    let _ = process.wait();
    assert!(answered, "no call was answered");
    assert!(ended, "it did not end");
}
