//! The binary as a process, and the simplest client there is.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A demo that is running; killed when the test is over.
pub(crate) struct Demo {
    process: Child,
    output: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Demo {
    pub(crate) fn start(data: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .args(["demo", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the demo ended before it listened");
            if let Some(address) = line.strip_prefix("onlyonce demo: http://") {
                break address.trim().parse().unwrap();
            }
        };
        Self { process, output, address }
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Ctrl-C; returns what was printed until the end.
    pub(crate) fn interrupt(&mut self) -> String {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).unwrap();
        assert!(self.process.wait().unwrap().success());
        printed
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended already, which is what was wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the binary to its end; returns its exit code and everything that it said.
pub(crate) fn onlyonce(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onlyonce")).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) fn pay(address: SocketAddr, key: &str, amount: u64) -> Answer {
    let key = if key.is_empty() { String::new() } else { format!("idempotency-key: {key}\r\n") };
    let body = format!("{{\"order\":\"coffee\",\"amount\":{amount}}}");
    let head = format!(
        "POST /payments HTTP/1.1\r\nhost: demo\r\nconnection: close\r\n{key}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    exchange(address, &(head + &body))
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nhost: demo\r\nconnection: close\r\n\r\n"))
}

pub(crate) fn outcome(address: SocketAddr, key: &str) -> Answer {
    let path = "/_onlyonce/outcome?path=/payments";
    exchange(
        address,
        &format!("GET {path} HTTP/1.1\r\nhost: demo\r\nconnection: close\r\nidempotency-key: {key}\r\n\r\n"),
    )
}

fn exchange(address: SocketAddr, request: &str) -> Answer {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    Answer { head: head.to_owned(), body: body.to_owned() }
}

/// Waits until something holds; fails after a generous while.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it never came true");
}
