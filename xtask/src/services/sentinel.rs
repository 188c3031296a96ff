//! A Redis with a replica, and three Sentinels that watch them.

use std::fs;

use super::Starting;
use super::redis::{says, start};
use super::server::{Server, free_port, wait_until};
use crate::failure::Failure;

/// What the Sentinels call the primary.
const NAME: &str = "main";

pub(super) fn three(starting: &mut Starting<'_>) -> Result<String, Failure> {
    let (primary, replica) = (free_port(0)?, free_port(0)?);
    start(starting, primary, &["--repl-diskless-sync-delay", "0"])?;
    start(starting, replica, &["--replicaof", &format!("127.0.0.1 {primary}")])?;
    wait_until("the replica follows", || says(replica, &["info", "replication"], "master_link_status:up"))?;
    let mut ports = Vec::new();
    for _ in 0..3 {
        let port = free_port(0)?;
        watch(starting, port, primary)?;
        ports.push(port);
    }
    wait_until("the Sentinels know the replica and each other", || {
        ports.iter().all(|port| {
            says(*port, &["sentinel", "master", NAME], "num-other-sentinels\n2")
                && says(*port, &["sentinel", "master", NAME], "num-slaves\n1")
        })
    })?;
    let sentinels: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Ok(format!("redis-sentinel://{}/{NAME}", sentinels.join(",")))
}

/// A Sentinel keeps what it learns in its own configuration, so it must have a file.
fn watch(starting: &mut Starting<'_>, port: u16, primary: u16) -> Result<(), Failure> {
    let folder = starting.folder(&format!("sentinel-{port}"))?;
    let file = folder.join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nlogfile log\nsentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {NAME} 2000\nsentinel failover-timeout {NAME} 4000\n",
        folder.display()
    );
    fs::write(&file, text).map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
    let args = [file.display().to_string(), "--sentinel".to_owned()];
    starting.servers.push(Server::start("redis-server", &args, starting.life)?);
    wait_until("a Sentinel answers", || says(port, &["ping"], "PONG"))
}
