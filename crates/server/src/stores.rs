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
    Serve(Serving),
    /// To look at what others left in it: a typing error must not make an empty one.
    Inspect,
}

/// What a store has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Serving {
    /// The room that is kept free on the disk of an embedded store.
    pub(crate) keep_free: usize,
    /// The largest body of an answer that is to be kept.
    pub(crate) max_response: usize,
    /// Whether a store that may lose what it has acknowledged is refused.
    pub(crate) strict: bool,
}

/// What an answer may have beside its body.
const HEAD: usize = 1 << 20;
/// The largest body of an answer in an embedded store.
const EMBEDDED: usize = 64 << 20;

/// A store, the schemes that name it, what is wrong with a URL as its own parser sees it, and how it is opened with one.
///
/// `largest` is the largest body of an answer that it can keep, where that is known without asking it.
struct Kind {
    schemes: &'static [&'static str],
    example: &'static str,
    largest: Option<usize>,
    check: fn(&str) -> Result<(), String>,
    open: fn(String, Purpose) -> Opened,
}

const KINDS: &[Kind] = &[
    Kind {
        schemes: &["memory"],
        example: "memory:",
        largest: Some(1023 << 20),
        check: |_| Ok(()),
        open: memory,
    },
    Kind {
        schemes: &["embedded"],
        example: "embedded:PATH",
        largest: Some(EMBEDDED),
        check: has_directory,
        open: embedded,
    },
    Kind {
        schemes: &["redis", "rediss", "redis+unix", "unix"],
        example: "redis://HOST, rediss://HOST",
        largest: Some(511 << 20),
        check: is_redis,
        open: redis,
    },
    Kind {
        schemes: &["redis-cluster", "rediss-cluster"],
        example: "redis-cluster://H1:P,H2:P",
        largest: Some(511 << 20),
        check: is_redis,
        open: redis,
    },
    Kind {
        schemes: &["redis-sentinel", "rediss-sentinel"],
        example: "redis-sentinel://H1:P,H2:P/NAME",
        largest: Some(511 << 20),
        check: is_redis,
        open: redis,
    },
    Kind {
        schemes: &["mysql", "mariadb"],
        example: "mysql://HOST/DB",
        largest: None,
        check: is_sql::<MySql>,
        open: sql::<MySql>,
    },
    Kind {
        schemes: &["postgres", "postgresql"],
        example: "postgres://HOST/DB",
        largest: Some(1000 << 20),
        check: is_sql::<Postgres>,
        open: sql::<Postgres>,
    },
    Kind {
        schemes: &["sqlite"],
        example: "sqlite:PATH",
        largest: Some(900 << 20),
        check: is_sqlite,
        open: sql::<Sqlite>,
    },
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

/// Records that end with the process are asked for by their own name.
fn is_sqlite(url: &str) -> Result<(), String> {
    if SqlStore::<Sqlite>::builder(url).is_in_memory() {
        return Err("SQLite would keep the records in memory, and lose them at the next start: name a file (sqlite:./records.db), \
                    or write memory: if that is what you want"
            .into());
    }
    is_sql::<Sqlite>(url)
}

/// The file of an embedded store whose presence says that it was made whole.
const COMPLETE: &str = "format";
const FORGETS: &str = "memory: forgets every record at the next start, and strict is on: name another store, or leave strict out";
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
            Purpose::Serve(Serving { strict: true, .. }) => builder.migrate().strict().open().await,
            Purpose::Serve(_) => builder.migrate().open().await,
            Purpose::Inspect => builder.open().await,
        };
        match opened {
            Ok(store) => {
                if let (Purpose::Serve(serving), Some(largest)) = (purpose, store.max_answer_bytes()) {
                    let largest = largest.saturating_sub(HEAD);
                    within(serving.max_response, largest).map_err(|why| {
                        Failure::usage(format!(
                            "max_response: {why}; or raise max_allowed_packet of the server"
                        ))
                    })?;
                }
                Ok(Arc::new(store) as Arc<dyn Inspect>)
            }
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
            Purpose::Serve(Serving { strict: true, .. }) => Err(Failure::usage(FORGETS)),
            Purpose::Serve(_) => Ok(Arc::new(MemoryStore::new()) as Arc<dyn Inspect>),
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
        let builder = EmbeddedStore::builder(path).max_answer_bytes(EMBEDDED + HEAD);
        let builder = match purpose {
            Purpose::Serve(serving) => builder.keep_free(serving.keep_free as u64),
            Purpose::Inspect => builder,
        };
        let opened = tokio::task::spawn_blocking(move || builder.open()).await;
        match opened {
            Ok(Ok(store)) => Ok(Arc::new(store) as Arc<dyn Inspect>),
            Ok(Err(error)) => Err(Failure::because(NOT_OPENED, &error)),
            Err(error) => Err(Failure::because(NOT_OPENED, &error)),
        }
    })
}

fn redis(url: String, purpose: Purpose) -> Opened {
    Box::pin(async move {
        let builder = RedisStore::builder(&url);
        let builder = match purpose {
            Purpose::Serve(Serving { strict: true, .. }) => builder.strict(),
            _ => builder,
        };
        match builder.open().await {
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

/// The size, if the store can keep an answer with a body of it.
pub(crate) fn fits(url: &str, bytes: usize) -> Result<usize, String> {
    // A store that there is not is told elsewhere.
    let largest = kind(url).ok().and_then(|kind| kind.largest);
    largest.map_or(Ok(bytes), |largest| within(bytes, largest).map(|()| bytes))
}

fn within(bytes: usize, largest: usize) -> Result<(), String> {
    if bytes <= largest {
        return Ok(());
    }
    Err(format!(
        "{bytes} bytes are more than this store keeps of one answer, which is {}MiB: write that or less",
        largest >> 20
    ))
}

/// Whether a store at this URL could be strict, as far as the URL tells.
pub(crate) fn check_strict(url: &str) -> Result<(), String> {
    if url.starts_with("memory:") { Err(FORGETS.into()) } else { Ok(()) }
}

/// Opens the store that the URL names. The password never appears in an error.
pub(crate) async fn open(url: &str, purpose: Purpose) -> Result<Arc<dyn Inspect>, Failure> {
    check(url).map_err(Failure::usage)?;
    (kind(url).map_err(Failure::usage)?.open)(url.to_owned(), purpose).await
}

/// The parameters of URLs whose values are no secrets.
const SHOWN: &[&str] = &[
    "table",
    "schema",
    "mode",
    "cache",
    "sslmode",
    "ssl-mode",
    "charset",
    "collation",
    "protocol",
    "db",
    "dbname",
    "application_name",
];

/// The URL without what must not be shown: user and password before the host, and the values of parameters unless they are known to be
/// no secret.
pub(crate) fn masked(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    // A password with a question mark in it, or a parameter with an @: nobody can tell, so nothing is shown.
    if query.is_some_and(|query| query.contains('@')) {
        return format!("{scheme}***");
    }
    let place = place.rfind('@').map_or_else(|| place.to_owned(), |at| format!("***{}", &place[at..]));
    let shown = query.map_or_else(String::new, |query| {
        let part = |part: &str| match part.split_once('=') {
            Some((name, _)) if !SHOWN.contains(&name) => format!("{name}=***"),
            None if !part.is_empty() => "***".to_owned(),
            _ => part.to_owned(),
        };
        format!("?{}", query.split('&').map(part).collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}{place}{shown}")
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
    }

    #[test]
    fn no_password_is_shown_wherever_it_stands_in_a_url() {
        for (url, shown) in [
            ("redis://u:hunter2@h:1/3", "redis://***@h:1/3"),
            ("redis://u:hun@ter2@h:1/3", "redis://***@h:1/3"),
            (
                "postgres://h/db?password=hunter2&sslmode=require&table=calls",
                "postgres://h/db?password=***&sslmode=require&table=calls",
            ),
            ("postgres://ann@h/db?password=hunter2@x", "postgres://***"),
            ("redis://u:hunter?2@h:1", "redis://***"),
            (
                "redis-sentinel://h:1/main?sentinel_user=sam&sentinel_password=hunter2",
                "redis-sentinel://h:1/main?sentinel_user=***&sentinel_password=***",
            ),
            ("redis+unix:///run/r.sock?pass=hunter2", "redis+unix:///run/r.sock?pass=***"),
            ("mysql://h/db?PASSWORD=hunter2&hunter2", "mysql://h/db?PASSWORD=***&***"),
            ("mysql://u:hunter?2@h/db", "mysql://***"),
            ("mysql://u:hunter?ter2=1@h/db", "mysql://***"),
            ("mysql://h/db?hunter2", "mysql://h/db?***"),
            ("u:hunter2@h1:1;h2:2", "***@h1:1;h2:2"),
            ("sqlite:./a.db?mode=rwc", "sqlite:./a.db?mode=rwc"),
            ("embedded:./data", "embedded:./data"),
        ] {
            assert_eq!(masked(url), shown, "{url}");
            // Nor in what is said about it.
            let said = check(url).err().unwrap_or_default();
            assert!(!said.contains("hunter") && !said.contains("ter2"), "{said}");
        }
    }

    #[test]
    fn a_parameter_that_nobody_reads_is_refused_by_its_name() {
        for (url, name) in [
            ("postgres://h/db?pasword=hunter2", "\"pasword\""),
            ("mysql://h/db?password=hunter2", "USER:PASSWORD@HOST"),
            ("mysql://h/db?tabel=x&ssl-mode=DISABLED", "table"),
            ("sqlite:./a.db?jounal=wal", "\"jounal\""),
            ("redis://h?password=hunter2", "stand before its host"),
        ] {
            let why = check(url).unwrap_err();
            assert!(why.contains(name) && !why.contains("hunter2"), "{url}: {why}");
        }
        for good in [
            "postgres://h/db?sslmode=require&options[search_path]=shop&table=calls",
            "mysql://h/db?ssl-mode=DISABLED&schema=s",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_sqlite_that_ends_with_the_process_is_refused_in_every_spelling() {
        for url in [
            "sqlite:",
            "sqlite://",
            "sqlite:?table=x",
            "sqlite://?mode=rwc",
            "sqlite::memory:",
            "sqlite://:memory:",
            "sqlite:%3Amemory%3A",
            "sqlite::memory:?table=x",
            "sqlite:a.db?mode=memory",
            "sqlite:?mode=memory&cache=shared",
            "sqlite:file::memory:",
            "sqlite:file:a.db%3Fmode=memory",
        ] {
            let why = check(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(why.contains("sqlite:./records.db"), "{url}: {why}");
        }
        for url in ["sqlite:a.db", "sqlite://a.db?mode=rwc", "sqlite:/var/lib/a.db?table=x", "sqlite:memory"]
        {
            assert_eq!(check(url), Ok(()), "{url}");
        }
    }
}
