//! One MariaDB, with an empty database.

use super::server::{Server, free_port, wait_until};
use super::{Room, Starting};
use crate::cmd::Cmd;
use crate::failure::Failure;

const DATABASE: &str = "onlyonce";

pub(super) fn one(starting: &mut Starting<'_>) -> Result<String, Failure> {
    let port = free_port(0)?;
    let folder = starting.folder(&format!("mariadb-{port}"))?;
    let data = format!("--datadir={}", folder.join("data").display());
    let socket = folder.join("s.sock").display().to_string();
    let user = Cmd::new("id").args(["-un"]).output()?;
    let user = format!("--user={user}");
    Cmd::new("mariadb-install-db")
        .args(["--no-defaults", &user, &data, "--auth-root-authentication-method=normal", "--skip-test-db"])
        .output()?;
    let mut args = vec![
        "--no-defaults".to_owned(),
        user,
        data,
        format!("--port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--socket={socket}"),
        format!("--pid-file={}", folder.join("pid").display()),
        // Every test is a process with a pool of its own.
        "--max-connections=1000".to_owned(),
    ];
    if starting.room == Room::Much {
        args.extend(["--innodb-buffer-pool-size=5G".to_owned(), "--innodb-log-file-size=1G".to_owned()]);
    }
    starting.servers.push(Server::start("mariadbd", &args, starting.life)?);
    let client = Cmd::new("mariadb").args(["--no-defaults", "--user=root", &format!("--socket={socket}")]);
    wait_until("mariadbd answers", || client.clone().args(["--execute=SELECT 1"]).works())?;
    client.args([format!("--execute=CREATE DATABASE {DATABASE}")]).output()?;
    Ok(format!("mysql://root@127.0.0.1:{port}/{DATABASE}"))
}
