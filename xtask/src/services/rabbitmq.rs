//! One RabbitMQ, and the name server that its runtime needs: a private one, which would otherwise outlive it.

use super::Starting;
use super::server::{Server, free_port, wait_until};
use crate::failure::Failure;

/// The script beside the one on the path, which would change to another user and to the machine's own folders.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

pub(super) fn one(starting: &mut Starting<'_>) -> Result<String, Failure> {
    let [port, distribution, names] = [free_port(0)?, free_port(0)?, free_port(0)?];
    let folder = starting.folder(&format!("rabbitmq-{port}"))?;
    let path = |name: &str| folder.join(name).display().to_string();
    write(&path("plugins"), "[].\n")?;
    write(
        &path("rabbitmq.conf"),
        &format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = false\nvm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\n"
        ),
    )?;
    let names = names.to_string();
    let epmd = ["-port", &names, "-address", "127.0.0.1"].map(str::to_owned);
    starting.servers.push(Server::start("epmd", &epmd, starting.life)?);
    let home = folder.display().to_string();
    let environment = [
        ("HOME", home.clone()),
        ("RABBITMQ_NODENAME", format!("x{port}@localhost")),
        ("RABBITMQ_DIST_PORT", distribution.to_string()),
        ("RABBITMQ_MNESIA_BASE", path("mnesia")),
        ("RABBITMQ_LOG_BASE", path("log")),
        ("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins")),
        ("RABBITMQ_PID_FILE", path("pid")),
        ("ERL_EPMD_PORT", names),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
        // The script then becomes the server instead of watching over it: its id is the server's own.
        ("RABBITMQ_ALLOW_INPUT", "1".to_owned()),
        // Nothing to schedule on more threads than the tests leave it.
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none".to_owned()),
    ];
    let server = Server::start_in(&environment, PROGRAM, &["-noinput".to_owned()], starting.life)?;
    starting.servers.push(server);
    wait_until("rabbitmq-server answers", || greets(port))?;
    Ok(format!("amqp://guest:guest@127.0.0.1:{port}/%2f"))
}

fn write(path: &str, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::failed(format!("{path}: {error}")))
}

/// Whether it answers the first bytes of the protocol: it listens only once it has started.
fn greets(port: u16) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(2)));
    stream.write_all(b"AMQP\x00\x00\x09\x01").is_ok() && stream.read_exact(&mut [0]).is_ok()
}
