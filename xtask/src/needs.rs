//! Programs from the system's packages that tests call: installed where that can be done, asked for where it can't.
//!
//! A test that needs another program adds a [`Need`] to [`TESTS`].

use std::path::PathBuf;

use crate::cmd::Cmd;
use crate::failure::Failure;

/// A program, and the Debian packages that bring it.
#[derive(Debug)]
pub(crate) struct Need {
    program: &'static str,
    packages: &'static [&'static str],
    why: &'static str,
}

pub(crate) const TESTS: &[Need] = &[
    Need {
        program: "cc",
        packages: &["gcc", "libc6-dev"],
        why: "the fault injection tests compile a small library",
    },
    Need { program: "chromium", packages: &["chromium"], why: "the tests of forms drive a real browser" },
    Need { program: "chromedriver", packages: &["chromium-driver"], why: "the browser is driven by it" },
    Need { program: "curl", packages: &["curl"], why: "the gateway's tests speak HTTP/2 and TLS with it" },
    Need {
        program: "python3",
        packages: &["python3", "python3-venv"],
        why: "a Flask service is put behind the gateway, and its admin API is tried out by Schemathesis",
    },
    Need {
        program: "systemd-analyze",
        packages: &["systemd"],
        why: "the unit of the gateway is verified with it",
    },
    Need { program: "script", packages: &["bsdutils"], why: "progress is shown to terminals only" },
    Need {
        program: "npm",
        packages: &["nodejs", "npm"],
        why: "an Express service is put behind the gateway",
    },
];

/// What the private servers need; see `services`.
pub(crate) const SERVERS: &[Need] = &[
    Need {
        program: "redis-server",
        packages: &["redis-server"],
        why: "tests run on a private Redis and Cluster",
    },
    Need { program: "openssl", packages: &["openssl"], why: "tests make certificates for a Redis with TLS" },
    Need { program: "redis-cli", packages: &["redis-tools"], why: "the Cluster is made with it" },
    Need { program: "mariadbd", packages: &["mariadb-server"], why: "tests run on a private MariaDB" },
    Need { program: "mariadb", packages: &["mariadb-client"], why: "the private MariaDB is set up with it" },
    Need { program: "initdb", packages: &["postgresql"], why: "tests run on a private PostgreSQL" },
    Need {
        program: "psql",
        packages: &["postgresql-client"],
        why: "the private PostgreSQL is set up with it",
    },
    Need {
        program: "rabbitmq-server",
        packages: &["rabbitmq-server"],
        why: "tests run on a private RabbitMQ",
    },
    Need { program: "epmd", packages: &["erlang-base"], why: "the private RabbitMQ needs its own" },
    Need { program: "nats-server", packages: &["nats-server"], why: "tests run on a private NATS" },
];

/// What this machine lets us do.
#[derive(Debug, Clone, Copy)]
enum Machine {
    DebianAsRoot,
    Debian,
    Other,
}

pub(crate) fn ensure(needs: &[Need]) -> Result<(), Failure> {
    let missing: Vec<&Need> = needs.iter().filter(|need| find(need.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        println!("   {} is missing: {}", need.program, need.why);
    }
    match machine() {
        Machine::DebianAsRoot => install(&missing),
        other => Err(Failure::failed(request(&missing, other))),
    }
}

fn install(missing: &[&Need]) -> Result<(), Failure> {
    // Never a question: there may be nobody to answer it.
    let apt_get = Cmd::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(["-qq"]);
    apt_get.clone().args(["update"]).run()?;
    apt_get.args(["install", "--yes", "--no-install-recommends"]).args(packages(missing)).run()?;
    match missing.iter().find(|need| find(need.program).is_none()) {
        None => Ok(()),
        Some(need) => Err(Failure::failed(format!(
            "{} is still missing after installing {}",
            need.program,
            need.packages.join(" ")
        ))),
    }
}

fn request(missing: &[&Need], machine: Machine) -> String {
    if let Machine::Other = machine {
        let programs: Vec<_> = missing.iter().map(|need| need.program).collect();
        return format!(
            "install with your system's package manager, then try again: {}",
            programs.join(", ")
        );
    }
    let packages = packages(missing).join(" ");
    format!("this needs root. Run this, then try again:\n\n    sudo apt-get install --yes {packages}\n")
}

fn packages(missing: &[&Need]) -> Vec<&'static str> {
    missing.iter().flat_map(|need| need.packages).copied().collect()
}

fn machine() -> Machine {
    let root = Cmd::new("id").args(["-u"]).output().is_ok_and(|id| id == "0");
    match (find("apt-get").is_some(), root) {
        (true, true) => Machine::DebianAsRoot,
        (true, false) => Machine::Debian,
        (false, _) => Machine::Other,
    }
}

/// Where a program is: on the path, or where Debian keeps those of PostgreSQL, the newest release first.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut releases: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|found| found.flatten().map(|release| release.path().join("bin")).collect())
        .unwrap_or_default();
    releases.sort();
    let folders = std::env::split_paths(&path).chain(releases.into_iter().rev());
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROWSER: Need = Need { program: "chromium", packages: &["chromium", "chromium-driver"], why: "" };

    #[test]
    fn without_root_the_exact_command_is_given() {
        let said = request(&[&TESTS[0], &BROWSER], Machine::Debian);
        assert!(
            said.contains("sudo apt-get install --yes gcc libc6-dev chromium chromium-driver\n"),
            "{said}"
        );
    }

    #[test]
    fn elsewhere_the_programs_are_named() {
        let said = request(&[&TESTS[0], &BROWSER], Machine::Other);
        assert!(said.ends_with("cc, chromium"), "{said}");
    }

    #[test]
    fn nothing_missing_needs_no_package_manager() {
        assert_eq!(ensure(&[Need { program: "sh", packages: &["dash"], why: "" }]), Ok(()));
    }
}
