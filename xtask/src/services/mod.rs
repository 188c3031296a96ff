//! Private servers for tests: on free ports, in a directory of their own, with nothing kept.
//!
//! A test finds its server in a variable, and fails if there is none. Where the variable is set already, that server is used
//! and none is started.

mod mariadb;
mod nats;
mod postgres;
mod rabbitmq;
mod redis;
mod sentinel;
mod server;

use std::path::PathBuf;

use clap::Args;
use tempfile::TempDir;

use self::server::Server;
use crate::cmd::Cmd;
use crate::failure::Failure;
use crate::needs;
use crate::time::Stopwatch;
use crate::workspace::Choice;

/// Packages whose tests need servers.
/// One a line, so that they are added without quarrel.
#[rustfmt::skip]
const PACKAGES: &[&str] = &[
    "onlyonce-store-redis",
    "onlyonce-sql",
    "onlyonce-id",
    "onlyonce-consumer",
    "onlyonce-examples",
    "onlyonce-server",
];

/// Starts the servers that tests need, leaves them running, and prints the variables that name them.
///
/// With these set, `cargo nextest run` works as it does inside of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> Result<(), Failure> {
    let services = Services::start_for(Life::Own, Room::Little, |_| true)?;
    println!();
    for (name, value) in &services.variables {
        println!("export {name}={value}");
    }
    let pids: Vec<String> = services.servers.iter().map(|server| server.pid().to_string()).collect();
    if !pids.is_empty() {
        println!("\nThey run until:\n\n    kill {}\n", pids.join(" "));
    }
    services.leave();
    Ok(())
}

pub(crate) fn are_needed(choice: &Choice<'_>) -> bool {
    choice.packages.iter().any(|package| are_needed_by(&package.name))
}

pub(crate) fn are_needed_by(package: &str) -> bool {
    PACKAGES.contains(&package)
}

/// How long servers live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// They stop with this command, also when it is interrupted.
    Command,
    /// They go on when this command has ended.
    Own,
}

/// How much memory servers may take to hold what they store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// What they take by default.
    Little,
    /// Enough for ten million records.
    Much,
}

/// Servers that run; dropping it stops them.
#[derive(Debug)]
pub(crate) struct Services {
    servers: Vec<Server>,
    variables: Vec<(&'static str, String)>,
    directory: Option<TempDir>,
}

impl Services {
    pub(crate) fn start() -> Result<Self, Failure> {
        Self::start_for(Life::Command, Room::Little, |_| true)
    }

    /// Databases that hold a large table in memory, as one would where one keeps it.
    pub(crate) fn start_with_room() -> Result<Self, Failure> {
        Self::start_for(Life::Command, Room::Much, |_| true)
    }

    /// Only those that these variables name.
    pub(crate) fn start_only(variables: &[&str]) -> Result<Self, Failure> {
        Self::start_for(Life::Command, Room::Little, |variable| variables.contains(&variable))
    }

    fn start_for(life: Life, room: Room, is_wanted: impl Fn(&str) -> bool) -> Result<Self, Failure> {
        let mut services = Self { servers: Vec::new(), variables: Vec::new(), directory: None };
        let kinds: &[(&'static str, Start)] = &[
            ("ONLYONCE_TEST_REDIS_URL", redis::one),
            ("ONLYONCE_TEST_REDIS_CLUSTER_URL", redis::cluster),
            ("ONLYONCE_TEST_REDIS_SENTINEL_URL", sentinel::three),
            ("ONLYONCE_TEST_REDLOCK_URLS", redis::five),
            ("ONLYONCE_TEST_MYSQL_URL", mariadb::one),
            ("ONLYONCE_TEST_POSTGRES_URL", postgres::one),
            ("ONLYONCE_TEST_AMQP_URL", rabbitmq::one),
            ("ONLYONCE_TEST_NATS_URL", nats::one),
        ];
        // What is given is passed on by itself, and not shown: it may hold a password.
        let given = |variable| std::env::var_os(variable).is_some_and(|given| !given.is_empty());
        let (given, wanted): (Vec<_>, Vec<_>) = kinds
            .iter()
            .filter(|(variable, _)| is_wanted(variable))
            .partition(|(variable, _)| given(variable));
        given.iter().for_each(|(variable, _)| println!("   {variable} is given"));
        if !wanted.is_empty() {
            needs::ensure(needs::SERVERS)?;
            services.start_all(&wanted, life, room)?;
        }
        Ok(services)
    }

    /// Starts them at the same time: most of a start is waiting. All that did start are kept, so that they are stopped if
    /// one did not.
    fn start_all(&mut self, kinds: &[(&'static str, Start)], life: Life, room: Room) -> Result<(), Failure> {
        let directory = self.directory.insert(directory()?).path();
        let started: Vec<Started> = std::thread::scope(|scope| {
            let start = |&(variable, start): &(_, Start)| {
                scope.spawn(move || Started::new(variable, start, directory, (life, room)))
            };
            let threads: Vec<_> = kinds.iter().map(start).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let mut failure = if started.len() == kinds.len() {
            Ok(())
        } else {
            Err(Failure::failed("starting a server panicked; what it said is above"))
        };
        for Started { variable, url, servers } in started {
            self.servers.extend(servers);
            match url {
                Ok(url) => self.variables.push((variable, url)),
                Err(why) => failure = Err(Failure::failed(format!("{variable}: {why}"))),
            }
        }
        failure
    }

    /// The command, told where the servers are.
    pub(crate) fn tell(&self, command: Cmd) -> Cmd {
        self.variables.iter().fold(command, |command, (name, value)| command.env(name, value))
    }

    fn leave(mut self) {
        self.servers.drain(..).for_each(Server::leave);
        if let Some(directory) = self.directory.take() {
            let _ = directory.keep();
        }
    }
}

fn directory() -> Result<TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Servers that run as another user must be able to reach their own folder in it.
        builder.permissions(std::fs::Permissions::from_mode(0o711));
    }
    let made = builder.prefix("onlyonce-").tempdir();
    made.map_err(|error| Failure::failed(format!("no directory for the servers: {error}")))
}

/// What a server is started with. Each is put into `servers` at once, so that it is stopped if the next one fails.
struct Starting<'a> {
    directory: &'a std::path::Path,
    life: Life,
    room: Room,
    servers: &'a mut Vec<Server>,
}

impl Starting<'_> {
    /// A new folder of its own.
    fn folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.directory.join(name);
        std::fs::create_dir(&folder)
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
        Ok(folder)
    }
}

/// What came of starting servers of one kind.
struct Started {
    variable: &'static str,
    url: Result<String, Failure>,
    servers: Vec<Server>,
}

impl Started {
    fn new(
        variable: &'static str,
        start: Start,
        directory: &std::path::Path,
        (life, room): (Life, Room),
    ) -> Self {
        let watch = Stopwatch::start();
        let mut servers = Vec::new();
        let url = start(&mut Starting { directory, life, room, servers: &mut servers });
        if let Ok(url) = &url {
            println!("   {variable}={url} ({})", watch.shown());
        }
        Self { variable, url, servers }
    }
}

type Start = fn(&mut Starting<'_>) -> Result<String, Failure>;
