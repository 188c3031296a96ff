//! Stores by URL. A new store is one line in [`KINDS`].

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use onlyonce::embedded::EmbeddedStore;
use onlyonce::redis::RedisStore;
use onlyonce::sql::{Database, MySql, OpenError, Postgres, SqlStore, Sqlite};
use onlyonce::{Inspect, MemoryStore};

use crate::failure::Failure;

type Opened = Pin<Box<dyn Future<Output = Result<Arc<dyn Inspect>, Failure>> + Send>>;

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To work on it: it is made if it is not there.
    Serve,
    /// To look at what others left in it: a typing error must not make an empty one.
    Inspect,
}

/// A store, the schemes that name it, what is wrong with a URL as its own parser sees it, and how it is opened with one.
struct Kind {
    schemes: &'static [&'static str],
    example: &'static str,
    check: fn(&str) -> Result<(), String>,
    open: fn(String, Purpose) -> Opened,
}

const KINDS: &[Kind] = &[
    Kind { schemes: &["memory"], example: "memory:", check: |_| Ok(()), open: memory },
    Kind { schemes: &["embedded"], example: "embedded:PATH", check: has_directory, open: embedded },
    Kind {
        schemes: &["redis", "rediss", "redis+unix", "unix"],
        example: "redis://HOST, rediss://HOST",
        check: is_redis,
        open: redis,
    },
    Kind {
        schemes: &["redis-cluster", "rediss-cluster"],
        example: "redis-cluster://H1:P,H2:P",
        check: is_redis,
        open: redis,
    },
    Kind {
        schemes: &["redis-sentinel", "rediss-sentinel"],
        example: "redis-sentinel://H1:P,H2:P/NAME",
        check: is_redis,
        open: redis,
    },
    Kind {
        schemes: &["mysql", "mariadb"],
        example: "mysql://HOST/DB",
        check: is_sql::<MySql>,
        open: sql::<MySql>,
    },
    Kind {
        schemes: &["postgres", "postgresql"],
        example: "postgres://HOST/DB",
        check: is_sql::<Postgres>,
        open: sql::<Postgres>,
    },
    Kind { schemes: &["sqlite"], example: "sqlite:PATH", check: is_sql::<Sqlite>, open: sql::<Sqlite> },
];

fn has_directory(url: &str) -> Result<(), String> {
    let why = "the embedded store needs a directory: embedded:./onlyonce-data";
    directory(url).map(drop).ok_or_else(|| why.into())
}

fn is_redis(url: &str) -> Result<(), String> {
    RedisStore::check_url(url).map_err(|error| error.to_string())
}

fn is_sql<DB: Database>(url: &str) -> Result<(), String> {
    let checked = SqlStore::<DB>::builder(url).check_url();
    checked.map_err(|error| Failure::because("it can't be read as a URL", &error).to_string())
}

/// The file of an embedded store whose presence says that it was made whole.
const COMPLETE: &str = "format";
const NOT_OPENED: &str = "the store can't be opened";

fn sql<DB>(url: String, purpose: Purpose) -> Opened
where
    DB: Database,
    SqlStore<DB>: Inspect,
{
    Box::pin(async move {
        if purpose == Purpose::Inspect {
            has_file(&url)?;
        }
        let builder = SqlStore::<DB>::builder(url);
        let opened = match purpose {
            Purpose::Serve => builder.migrate().open().await,
            Purpose::Inspect => builder.open().await,
        };
        match opened {
            Ok(store) => Ok(Arc::new(store) as Arc<dyn Inspect>),
            Err(OpenError::NotMigrated { table, .. }) => Err(Failure::usage(format!(
                "there are no records in this database: it has no table {table}, which a gateway makes at its first start (another \
                 one is named by ?table=NAME in the URL)"
            ))),
            Err(OpenError::OlderSchema { table, .. }) => Err(Failure::usage(format!(
                "the table {table} is of an older release: start a gateway of this release on it, which brings it up to date"
            ))),
            Err(error) => Err(Failure::because(NOT_OPENED, &error)),
        }
    })
}

/// SQLite would make a database that is not there.
fn has_file(url: &str) -> Result<(), Failure> {
    let Some(path) = url.strip_prefix("sqlite:") else { return Ok(()) };
    let path = path.strip_prefix("//").unwrap_or(path).split('?').next().unwrap_or_default();
    if Path::new(path).is_file() {
        return Ok(());
    }
    Err(Failure::usage(format!("there is no database {path:?}")))
}

fn memory(_: String, purpose: Purpose) -> Opened {
    Box::pin(async move {
        match purpose {
            Purpose::Serve => Ok(Arc::new(MemoryStore::new()) as Arc<dyn Inspect>),
            Purpose::Inspect => Err(Failure::usage(
                "memory: is within the gateway's own process and can't be opened from here; reach it through its admin API, with --admin",
            )),
        }
    })
}

fn embedded(url: String, purpose: Purpose) -> Opened {
    Box::pin(async move {
        let path = PathBuf::from(directory(&url).unwrap_or_default());
        if purpose == Purpose::Inspect && !path.join(COMPLETE).is_file() {
            return Err(Failure::usage(format!("there is no store in {}", path.display())));
        }
        // Opening reads journals, which may take a while.
        let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(path)).await;
        match opened {
            Ok(Ok(store)) => Ok(Arc::new(store) as Arc<dyn Inspect>),
            Ok(Err(error)) => Err(Failure::because(NOT_OPENED, &error)),
            Err(error) => Err(Failure::because(NOT_OPENED, &error)),
        }
    })
}

fn redis(url: String, _: Purpose) -> Opened {
    Box::pin(async move {
        match RedisStore::open(&url).await {
            Ok(store) => Ok(Arc::new(store) as Arc<dyn Inspect>),
            Err(error) => Err(Failure::because(NOT_OPENED, &error)),
        }
    })
}

/// The directory of an embedded store.
pub(crate) fn directory(url: &str) -> Option<&str> {
    let path = url.strip_prefix("embedded:")?;
    Some(path.strip_prefix("//").unwrap_or(path)).filter(|path| !path.is_empty())
}

/// Where a file of the gateway's own is kept: in the store's directory, or in the working directory with the product's name.
pub(crate) fn beside(url: &str, name: &str) -> PathBuf {
    match directory(url) {
        Some(directory) => Path::new(directory).join(name),
        None => PathBuf::from(format!("onlyonce-{name}")),
    }
}

/// Whether no other process can use the store at the same time.
pub(crate) fn is_of_one_process(url: &str) -> bool {
    ["memory:", "embedded:"].iter().any(|scheme| url.starts_with(scheme))
}

fn kind(url: &str) -> Result<&'static Kind, String> {
    // `host:port;host:port` is a Cluster.
    let scheme = if url.contains(';') && !url.contains("://") {
        "redis-cluster"
    } else {
        url.split_once(':').map_or(url, |(scheme, _)| scheme)
    };
    KINDS.iter().find(|kind| kind.schemes.contains(&scheme)).ok_or_else(|| {
        let examples: Vec<_> = KINDS.iter().map(|kind| kind.example).collect();
        format!("there is no store {:?}; there are {}", masked(scheme), examples.join(", "))
    })
}

/// What is wrong with a URL, as the store's own parser sees it; nothing is opened.
pub(crate) fn check(url: &str) -> Result<(), String> {
    (kind(url)?.check)(url)
}

/// Opens the store that the URL names. The password never appears in an error.
pub(crate) async fn open(url: &str, purpose: Purpose) -> Result<Arc<dyn Inspect>, Failure> {
    check(url).map_err(Failure::usage)?;
    (kind(url).map_err(Failure::usage)?.open)(url.to_owned(), purpose).await
}

/// The URL without what must not be shown.
pub(crate) fn masked(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://***{}", &url[..scheme], &url[at..]),
        (None, Some(at)) => format!("***{}", &url[at..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_url_says_which_schemes_there_are_and_no_password_is_shown() {
        let why = check("mysq://u:hunter2@h/db").unwrap_err();
        assert!(
            why.contains("memory:") && why.contains("redis://") && why.contains("embedded:PATH"),
            "{why}"
        );
        assert!(!why.contains("hunter2"));
        assert!(check("embedded:").is_err());
        for wrong in [
            "redis://h:x",
            "redis-cluster://h1",
            "redis-sentinel://h:1",
            "mysql://h:x/db",
            "mysql://h/db?table=No-Name",
            "postgres://h:x/db",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        assert!(check("redis-cluster://h1:1;h2:2").is_ok() && check("sqlite:x.db").is_ok());
        assert!(check("memory:").is_ok() && check("h1:1;h2:2").is_ok());
        assert_eq!(masked("redis://u:hunter2@h:1/3"), "redis://***@h:1/3");
    }
}
