//! One server process.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use super::Life;
use crate::cmd::Cmd;
use crate::failure::Failure;
use crate::time::Stopwatch;

/// A server that is stopped when it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Option<Child>,
    pid: u32,
    /// The signal that ends it cleanly, where being killed leaves something behind.
    signal: Option<&'static str>,
}

impl Server {
    pub(super) fn start(program: &str, args: &[String], life: Life) -> Result<Self, Failure> {
        Self::spawn(Command::new(program), args, life)
    }

    /// With these variables in its environment.
    pub(super) fn start_in(
        environment: &[(&str, String)],
        program: &str,
        args: &[String],
        life: Life,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Self::spawn(command, args, life)
    }

    pub(super) fn start_as(
        user: Option<&User>,
        program: &str,
        args: &[String],
        life: Life,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        #[cfg(unix)]
        if let Some(user) = user {
            use std::os::unix::process::CommandExt;
            // A folder that it may enter: this one may be closed to it.
            command.uid(user.uid).gid(user.gid).current_dir("/");
        }
        Self::spawn(command, args, life)
    }

    fn spawn(mut command: Command, args: &[String], life: Life) -> Result<Self, Failure> {
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        #[cfg(unix)]
        if life == Life::Own {
            // Out of reach of a Ctrl-C in this terminal.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            Failure::failed(format!("{program} did not start: {error}"))
        })?;
        Ok(Self { pid: child.id(), child: Some(child), signal: None })
    }

    /// Ends it with this signal instead of killing it.
    pub(super) fn stopped_by(mut self, signal: &'static str) -> Self {
        self.signal = Some(signal);
        self
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
            if let Some(signal) = self.signal {
                let _ = Cmd::new("kill").args(["-s", signal, &self.pid.to_string()]).output();
                let _ = wait_until("it has ended", || !matches!(child.try_wait(), Ok(None)));
            }
            // It keeps nothing, so there is nothing to save. An error means that it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Who a server runs as.
#[derive(Debug)]
pub(super) struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl User {
    /// This user, if we are root; `None` if we are not, and need nobody else.
    pub(super) fn instead_of_root(name: &str) -> Result<Option<Self>, Failure> {
        let id = |args: &[&str]| -> Result<u32, Failure> {
            let said = Cmd::new("id").args(args.iter().copied()).output()?;
            said.parse().map_err(|_| Failure::failed(format!("`id` said {said:?}")))
        };
        if id(&["-u"])? != 0 {
            return Ok(None);
        }
        Ok(Some(Self { name: name.to_owned(), uid: id(&["-u", name])?, gid: id(&["-g", name])? }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn owns(&self, folder: &Path) -> Result<(), Failure> {
        #[cfg(unix)]
        std::os::unix::fs::chown(folder, Some(self.uid), Some(self.gid))
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
        Ok(())
    }
}

/// A port that nobody listens on, nor on the one that is `also` higher, and that was not given before: servers are started
/// at the same time, and between this answer and their listening there is nobody on it.
pub(super) fn free_port(also: u16) -> Result<u16, Failure> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let listen = |port: u16| TcpListener::bind(("127.0.0.1", port));
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..1000 {
        let Ok(listener) = listen(0) else { continue };
        let Ok(port) = listener.local_addr().map(|address| address.port()) else { continue };
        let second = port.checked_add(also);
        let free = also == 0 || second.is_some_and(|other| listen(other).is_ok() && !given.contains(&other));
        if free && given.insert(port) {
            given.extend(second);
            return Ok(port);
        }
    }
    Err(Failure::failed("there is no free port on 127.0.0.1"))
}

/// All servers start at once, and RabbitMQ alone takes ten seconds of a quiet machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Asks until it is so.
pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    while watch.elapsed() < PATIENCE {
        if is_so() {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    Err(Failure::failed(format!("after {PATIENCE:?} still not so: {what}")))
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
