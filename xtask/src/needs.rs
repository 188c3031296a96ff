//! Programs from the system's packages that tests call: installed where that can be done, asked for where it can't.
//!
//! A test that needs another program adds a [`Need`] to [`TESTS`].

use std::path::PathBuf;

use crate::cmd::Cmd;
use crate::failure::Failure;

/// A program, and the Debian packages that bring it.
#[derive(Debug)]
pub(crate) struct Need {
    /// Its name; with words behind it, a command that must work.
    program: &'static str,
    packages: &'static [&'static str],
    why: &'static str,
}

impl Need {
    fn is_met(&self) -> bool {
        match self.program.split_once(' ') {
            None => find(self.program).is_some(),
            Some((program, words)) => Cmd::new(program).args(words.split(' ')).works(),
        }
    }
}

pub(crate) const TESTS: &[Need] = &[
    Need {
        program: "cc",
        packages: &["gcc", "libc6-dev"],
        why: "the fault injection tests compile a small library",
    },
    Need { program: "make", packages: &["make"], why: "the client library of Kafka is built with it" },
    Need { program: "c++", packages: &["g++"], why: "the client library of Kafka is built with it" },
    Need { program: "chromium", packages: &["chromium"], why: "the tests of forms drive a real browser" },
    Need { program: "chromedriver", packages: &["chromium-driver"], why: "the browser is driven by it" },
    Need { program: "curl", packages: &["curl"], why: "the gateway's tests speak HTTP/2 and TLS with it" },
    Need {
        program: "python3 -c __import__('ensurepip')",
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

/// What the measurements need beside the servers; see `bench`.
pub(crate) const BENCHES: &[Need] = &[
    Need { program: "nginx", packages: &["nginx-light"], why: "the gateway is measured beside it" },
    Need {
        program: "valgrind",
        packages: &["valgrind"],
        why: "instructions and allocations are counted with it",
    },
];

/// What the private servers need; see `services`.
pub(crate) const SERVERS: &[Need] = &[
    Need {
        program: "redis-server",
        packages: &["redis-server"],
        why: "tests run on a private Redis and Cluster",
    },
    Need {
        program: "valkey-server",
        packages: &["valkey-server"],
        why: "what waits for replicas is tested on a server of at least 7.2 too",
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
    let missing: Vec<&Need> = needs.iter().filter(|need| !need.is_met()).collect();
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
    if packages(missing).into_iter().any(|package| !is_known(package)) && add_backports()? {
        let updated = apt_get.clone().args(["update"]).run();
        if updated.is_err() {
            // Else no update would go through on this machine any more.
            let _ = std::fs::remove_file(SOURCES);
        }
        updated?;
    }
    apt_get.args(["install", "--yes", "--no-install-recommends"]).args(packages(missing)).run()?;
    match missing.iter().find(|need| !need.is_met()) {
        None => Ok(()),
        Some(need) => Err(Failure::failed(format!(
            "{} is still missing after installing {}",
            need.program,
            need.packages.join(" ")
        ))),
    }
}

/// Whether the package can be installed from where packages come from now.
fn is_known(package: &str) -> bool {
    Cmd::new("apt-cache").args(["show", "--no-all-versions", package]).works()
}

/// Lets packages also come from the backports of this release, which it does not have by itself. Nothing else is taken from there:
/// the archive itself says that they are chosen only where there is no other.
fn add_backports() -> Result<bool, Failure> {
    let failed = |error| Failure::failed(format!("the backports can't be added to {SOURCES}: {error}"));
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let archives = Cmd::new("apt-get").args(["indextargets", "--format", "$(CODENAME) $(REPO_URI)"]);
    let Some(source) = backports(&release, &archives.output()?) else { return Ok(false) };
    println!("   adding {SOURCES}: a package is not in this release, but in its backports");
    std::fs::write(SOURCES, source).map_err(failed)?;
    Ok(true)
}

const SOURCES: &str = "/etc/apt/sources.list.d/onlyonce-backports.sources";

/// The backports of a release of Debian, as apt reads it: from the archive that this machine has its packages from. `archives` has a
/// codename and an address a line.
fn backports(os_release: &str, archives: &str) -> Option<String> {
    let field = |name: &str| {
        os_release
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .map(|value| value.trim_matches('"'))
    };
    let codename = field("VERSION_CODENAME").filter(|_| field("ID") == Some("debian"))?;
    let archive = archives.lines().find_map(|line| line.strip_prefix(codename)?.strip_prefix(' '))?;
    Some(format!(
        "Types: deb\nURIs: {archive}\nSuites: {codename}-backports\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    ))
}

fn request(missing: &[&Need], machine: Machine) -> String {
    if let Machine::Other = machine {
        let programs: Vec<_> = missing.iter().map(|need| need.program).collect();
        return format!(
            "install with your system's package manager, then try again: {}",
            programs.join(", ")
        );
    }
    let unknown: Vec<_> = packages(missing).into_iter().filter(|package| !is_known(package)).collect();
    let also = if unknown.is_empty() {
        String::new()
    } else {
        format!(" ({} may have to come from the backports of your release)", unknown.join(" "))
    };
    let packages = packages(missing).join(" ");
    format!("this needs root. Run this, then try again{also}:\n\n    sudo apt-get install --yes {packages}\n")
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
    fn backports_are_those_of_the_release_from_its_own_archive_and_of_debian_only() {
        let archives = "bookworm-security http://mirror/security/\nbookworm http://mirror/debian/\n";
        let bookworm =
            "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        let source = backports(bookworm, archives).unwrap();
        assert!(source.contains("URIs: http://mirror/debian/\nSuites: bookworm-backports\n"), "{source}");
        assert_eq!(backports(&bookworm.replace("ID=debian", "ID=ubuntu"), archives), None);
        assert_eq!(backports(bookworm, "trixie http://mirror/debian/\n"), None);
        assert_eq!(backports("", archives), None);
    }

    #[test]
    fn elsewhere_the_programs_are_named() {
        let said = request(&[&TESTS[0], &BROWSER], Machine::Other);
        assert!(said.ends_with("cc, chromium"), "{said}");
    }

    #[test]
    fn a_program_may_have_to_be_able_to_do_something() {
        let need = |program| Need { program, packages: &[], why: "" };
        assert!(need("sh -c true").is_met());
        assert!(!need("sh -c false").is_met() && !need("no-such-program -c true").is_met());
    }

    #[test]
    fn nothing_missing_needs_no_package_manager() {
        assert_eq!(ensure(&[Need { program: "sh", packages: &["dash"], why: "" }]), Ok(()));
    }
}
