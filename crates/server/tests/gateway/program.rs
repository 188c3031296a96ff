//! The binary as a process.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::{Answer, Request};
use crate::upstream::Upstream;

/// How a gateway is started.
pub(crate) struct Setup {
    arguments: Vec<String>,
    config: String,
    home: Option<PathBuf>,
    variables: Vec<(&'static str, String)>,
    descriptors: Option<usize>,
}

/// A gateway that is running; killed when the test is over.
pub(crate) struct Gateway {
    pub(crate) process: Child,
    output: Option<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) home: PathBuf,
    _folder: Option<TempDir>,
}

impl Setup {
    /// A gateway on a store, before an upstream, with the tenant in a header.
    pub(crate) fn new(store: &str, upstream: &Upstream) -> Self {
        Self::bare()
            .with(&["--store", store])
            .with(&["--upstream", &upstream.url()])
            .with(&["--scope", "header:x-tenant"])
    }

    pub(crate) fn bare() -> Self {
        let arguments =
            ["gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"].map(String::from).to_vec();
        Self { arguments, config: String::new(), home: None, variables: Vec::new(), descriptors: None }
    }

    /// More words on the command line; a flag that was there before is replaced.
    pub(crate) fn with(mut self, words: &[&str]) -> Self {
        if let Some(place) = self.arguments.iter().position(|word| words.first() == Some(&word.as_str())) {
            self.arguments.drain(place..place + 2);
        }
        self.arguments.extend(words.iter().map(ToString::to_string));
        self
    }

    /// What stands in the file.
    pub(crate) fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self
    }

    /// A directory that outlives the gateway.
    pub(crate) fn home(mut self, home: &Path) -> Self {
        self.home = Some(home.to_owned());
        self
    }

    /// A variable of its environment.
    pub(crate) fn variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// How many files and sockets it may have open.
    pub(crate) fn descriptors(mut self, limit: usize) -> Self {
        self.descriptors = Some(limit);
        self
    }

    fn prepare(&self) -> (Command, PathBuf, Option<TempDir>) {
        let folder = self.home.is_none().then(|| TempDir::new().unwrap());
        let home = self.home.clone().unwrap_or_else(|| folder.as_ref().unwrap().path().to_owned());
        let binary = env!("CARGO_BIN_EXE_onlyonce");
        let mut command = match self.descriptors {
            None => Command::new(binary),
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {limit}; exec {binary} \"$@\""), "onlyonce"]);
                shell
            }
        };
        command.args(&self.arguments).current_dir(&home).env("RUST_LOG", "info");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if !self.config.is_empty() {
            fs::write(home.join("gateway.toml"), &self.config).unwrap();
            command.args(["--config", "gateway.toml"]);
        }
        (command, home, folder)
    }

    pub(crate) fn start(self) -> Gateway {
        self.start_with(|home| {
            let log = fs::OpenOptions::new().append(true).create(true).open(home.join("log"));
            log.unwrap().into()
        })
    }

    /// Starts it with a log that nobody reads: the other end of the pipe is closed.
    pub(crate) fn start_unread(self) -> Gateway {
        let mut gateway = self.start_with(|home| {
            fs::write(home.join("log"), "nobody reads it").unwrap();
            Stdio::piped()
        });
        drop(gateway.process.stderr.take());
        gateway.nobody_reads();
        gateway
    }

    /// Starts it with a log that nobody reads, for as long as nobody reads from the pipe: it is full.
    pub(crate) fn start_stalled(self) -> (Gateway, PipeReader) {
        let (reader, writer) = full_pipe();
        let gateway = self.start_with(|home| {
            fs::write(home.join("log"), "nobody reads it").unwrap();
            writer.into()
        });
        (gateway, reader)
    }

    fn start_with(self, log: impl FnOnce(&Path) -> Stdio) -> Gateway {
        let (mut command, home, folder) = self.prepare();
        let mut process = command.stdout(Stdio::piped()).stderr(log(&home)).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let without_admin = self.arguments.iter().any(|word| word == "off");
        let (mut address, mut admin) = (None, None);
        while address.is_none() || (admin.is_none() && !without_admin) {
            let mut line = String::new();
            if output.read_line(&mut line).unwrap() == 0 {
                panic!(
                    "the gateway ended before it listened: {}",
                    fs::read_to_string(home.join("log")).unwrap()
                );
            }
            let after = |word: &str| {
                line.strip_prefix(word).map(|rest| rest.trim().rsplit('/').next().unwrap().parse().unwrap())
            };
            address = address.or_else(|| after("onlyonce gateway: "));
            admin = admin.or_else(|| after("onlyonce admin: "));
        }
        Gateway { process, output: Some(output), address: address.unwrap(), admin, home, _folder: folder }
    }

    /// Runs it to its end, which must come soon.
    pub(crate) fn fails(self) -> (i32, String) {
        let (mut command, _home, _folder) = self.prepare();
        said(command.output().unwrap())
    }
}

/// A pipe that takes nothing more.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    // What Linux gives to a pipe.
    writer.write_all(&[b'x'; 65_536]).unwrap();
    (reader, writer)
}

fn said(output: Output) -> (i32, String) {
    let all = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(all).unwrap())
}

/// Runs the binary to its end; returns its exit code and everything that it said.
pub(crate) fn onlyonce(home: &Path, arguments: &[&str]) -> (i32, String) {
    said(Command::new(env!("CARGO_BIN_EXE_onlyonce")).args(arguments).current_dir(home).output().unwrap())
}

impl Gateway {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Closes the pipe that it prints to.
    pub(crate) fn nobody_reads(&mut self) {
        self.output = None;
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// SIGTERM; returns the exit code and what was printed until the end.
    pub(crate) fn terminate(&mut self) -> (i32, String) {
        self.signal(Signal::TERM);
        let mut printed = String::new();
        self.output.as_mut().unwrap().read_to_string(&mut printed).unwrap();
        (self.process.wait().unwrap().code().unwrap_or(-1), printed)
    }

    /// What it has logged. That is written behind its answers, and soon.
    pub(crate) fn log(&self) -> String {
        std::thread::sleep(Duration::from_millis(100));
        fs::read_to_string(self.home.join("log")).unwrap()
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        let beside_the_store = self.home.join("data/admin.token");
        if beside_the_store.exists() { beside_the_store } else { self.home.join("onlyonce-admin.token") }
    }

    pub(crate) fn token(&self) -> String {
        fs::read_to_string(self.token_file()).unwrap().trim().to_owned()
    }

    /// A request to the admin API, with the token.
    pub(crate) fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        let request = Request::new(method, path).header("authorization", &format!("Bearer {}", self.token()));
        request.header("content-type", "application/json").body(body).send(self.admin.unwrap())
    }

    /// `onlyonce records …` through the admin API.
    pub(crate) fn records(&self, arguments: &[&str]) -> (i32, String) {
        let (admin, file) = (format!("http://{}", self.admin.unwrap()), self.token_file());
        let place = ["records", "--admin", &admin, "--token-file", file.to_str().unwrap()];
        onlyonce(&self.home, &[&place, arguments].concat())
    }

    pub(crate) fn post(&self, path: &str, key: &str, body: &str) -> Answer {
        post(path, key, body).send(self.address)
    }

    pub(crate) fn outcome(&self, path: &str, key: &str) -> Answer {
        let query = format!("/_onlyonce/outcome?method=POST&path={path}");
        Request::new("GET", &query).header("x-tenant", "a").header("idempotency-key", key).send(self.address)
    }

    /// How much memory it uses, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// A POST of tenant a.
pub(crate) fn post(path: &str, key: &str, body: &str) -> Request {
    let request = Request::new("POST", path)
        .header("x-tenant", "a")
        .header("content-type", "application/json")
        .body(body);
    if key.is_empty() { request } else { request.header("idempotency-key", key) }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already, which is what was wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until something holds; fails after a generous while.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it never came true");
}
