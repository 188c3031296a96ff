//! One PostgreSQL, with an empty database. It does not run as root, so root hands it to the user `postgres`.

use super::server::{Server, User, free_port, wait_until};
use super::{Room, Starting};
use crate::cmd::Cmd;
use crate::failure::Failure;
use crate::needs;

pub(super) fn one(starting: &mut Starting<'_>) -> Result<String, Failure> {
    let port = free_port(0)?;
    let folder = starting.folder(&format!("postgres-{port}"))?;
    let user = User::instead_of_root("postgres")?;
    if let Some(user) = &user {
        user.owns(&folder)?;
    }
    let data = folder.join("data").display().to_string();
    let initdb = program("initdb")?;
    let init = ["-D", &data, "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C"];
    match &user {
        Some(user) => Cmd::new("runuser").args(["-u", user.name(), "--", &initdb]).args(init).output()?,
        None => Cmd::new(&initdb).args(init).output()?,
    };
    let port_word = port.to_string();
    let sockets = format!("unix_socket_directories={}", folder.display());
    // Every test is a process with a pool of its own.
    let args = [
        ["-D", &data],
        ["-p", &port_word],
        ["-c", "listen_addresses=127.0.0.1"],
        ["-c", &sockets],
        ["-c", "max_connections=500"],
    ];
    let much: &[_] = match starting.room {
        Room::Little => &[],
        Room::Much => &[["-c", "shared_buffers=3GB"], ["-c", "max_wal_size=4GB"]],
    };
    let args: Vec<String> = args.iter().chain(much).flatten().map(|word| (*word).to_owned()).collect();
    let server = Server::start_as(user.as_ref(), &program("postgres")?, &args, starting.life)?;
    // Killed, it would leave a piece of shared memory behind; interrupted, it ends at once and cleans up.
    starting.servers.push(server.stopped_by("INT"));
    let folder = folder.display().to_string();
    let client = Cmd::new(&program("psql")?).args(["-h", &folder, "-p", &port_word, "-U", "postgres"]);
    wait_until("postgres answers", || client.clone().args(["-c", "SELECT 1"]).works())?;
    client.args(["-c", "CREATE DATABASE onlyonce"]).output()?;
    Ok(format!("postgres://postgres@127.0.0.1:{port}/onlyonce"))
}

fn program(name: &str) -> Result<String, Failure> {
    let found = needs::find(name).map(|path| path.display().to_string());
    found.ok_or_else(|| Failure::failed(format!("{name} is missing")))
}
