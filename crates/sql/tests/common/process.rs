//! Processes that a test starts: the test itself, once more, with a task.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStderr, Command, Stdio};

use super::{SQLITE_FILE, Served};

/// What a child process is told: the table to work on.
pub(crate) const CHILD: &str = "ONLYONCE_TX_CHILD";

/// The test with this name as a process that works on this table.
pub(crate) fn child<DB: Served>(test: &str, table: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, table);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(file) = DB::url().strip_prefix("sqlite://") {
        command.env(SQLITE_FILE, file);
    }
    command
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

/// A child process that says lines (on its standard error) and may be told to go on. It does not outlive the test.
pub(crate) struct Partner {
    process: Child,
    lines: BufReader<ChildStderr>,
}

impl Partner {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap());
        Self { process, lines }
    }

    /// What it says after this word, which has to begin a line; everything before is passed over.
    pub(crate) fn hear(&mut self, word: &str) -> String {
        let mut heard = String::new();
        loop {
            let from = heard.len();
            assert!(self.lines.read_line(&mut heard).unwrap() > 0, "it never said {word}, but: {heard}");
            if let Some(rest) = heard[from..].strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn tell_to_go_on(&mut self) {
        writeln!(self.process.stdin.as_mut().unwrap(), "on").unwrap();
    }

    /// From now on it is as if its host were dead, but for its open connections.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn wake(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill {signal} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the child: says a line, and waits until it is told to go on.
pub(crate) async fn say_and_wait(word: &'static str) {
    eprintln!("{word}");
    let waited = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new()));
    waited.await.unwrap().unwrap();
}
