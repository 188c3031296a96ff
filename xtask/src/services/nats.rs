//! One NATS server with JetStream.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use super::Starting;
use super::server::{Server, free_port, wait_until};
use crate::failure::Failure;

pub(super) fn one(starting: &mut Starting<'_>) -> Result<String, Failure> {
    let port = free_port(0)?;
    let folder = starting.folder(&format!("nats-{port}"))?.display().to_string();
    let port_word = port.to_string();
    let args = ["-js", "-a", "127.0.0.1", "-p", &port_word, "-sd", &folder].map(str::to_owned);
    starting.servers.push(Server::start("nats-server", &args, starting.life)?);
    wait_until("nats-server answers", || greets(port))?;
    Ok(format!("nats://127.0.0.1:{port}"))
}

/// It speaks first.
fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut word = [0; 4];
    stream.set_read_timeout(Some(Duration::from_secs(2))).is_ok()
        && stream.read_exact(&mut word).is_ok()
        && &word == b"INFO"
}
