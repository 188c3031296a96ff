//! One server process.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::Life;
use crate::failure::Failure;
use crate::time::Stopwatch;

/// A server that is stopped when it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Option<Child>,
    pid: u32,
}

impl Server {
    pub(super) fn start(program: &str, args: &[String], life: Life) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        #[cfg(unix)]
        if life == Life::Own {
            // Out of reach of a Ctrl-C in this terminal.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        let child =
            command.spawn().map_err(|error| Failure::failed(format!("{program} did not start: {error}")))?;
        Ok(Self { pid: child.id(), child: Some(child) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it go on when this process ends.
    pub(super) fn leave(mut self) {
        self.child = None;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It keeps nothing, so there is nothing to save. An error means that it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port that nobody listens on, nor on the one that is `also` higher.
pub(super) fn free_port(also: u16) -> Result<u16, Failure> {
    let listen = |port: u16| TcpListener::bind(("127.0.0.1", port));
    for _ in 0..1000 {
        let Ok(listener) = listen(0) else { continue };
        let Ok(port) = listener.local_addr().map(|address| address.port()) else { continue };
        if also == 0 || port.checked_add(also).is_some_and(|other| listen(other).is_ok()) {
            return Ok(port);
        }
    }
    Err(Failure::failed("there is no free port on 127.0.0.1"))
}

/// Asks until it is so.
pub(super) fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    while watch.elapsed() < Duration::from_secs(30) {
        if is_so() {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    Err(Failure::failed(format!("after 30 s still not so: {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_server_ends_with_its_handle() {
        let server = Server::start("sleep", &["60".to_owned()], Life::Command).unwrap();
        let process = format!("/proc/{}", server.pid());
        assert!(std::path::Path::new(&process).exists());
        drop(server);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn a_free_port_leaves_room_for_its_second() {
        let port = free_port(10_000).unwrap();
        assert!(port <= u16::MAX - 10_000);
    }
}
