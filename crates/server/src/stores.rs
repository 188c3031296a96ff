//! Stores by URL. A new store is one line in [`KINDS`].

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use onlyonce::embedded::EmbeddedStore;
use onlyonce::redis::RedisStore;
use onlyonce::sql::{Database, MySql, OpenError, Postgres, SqlStore, Sqlite};
use onlyonce::{Inspect, MemoryStore};

use crate::failure::Failure;
use crate::masked;

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

impl Kind {
    /// Whether it is reached over a network, by a URL with a host.
    fn is_server(&self) -> bool {
        self.example.contains("://")
    }
}

const KINDS: &[Kind] = &[
    Kind {
        schemes: &["memory"],
        example: "memory:",
        largest: Some(1023 << 20),
        check: is_memory,
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

fn is_memory(url: &str) -> Result<(), String> {
    let rest = url.strip_prefix("memory:").unwrap_or_default();
    if rest.is_empty() || rest == "//" {
        return Ok(());
    }
    Err("memory: has nothing behind it; name a directory with embedded:PATH if records are to be kept".into())
}

fn has_directory(url: &str) -> Result<(), String> {
    match directory(url) {
        None => Err("the embedded store needs a directory: embedded:./onlyonce-data".into()),
        Some(path) if path.contains('?') => {
            Err("the embedded store takes no parameters: leave out the question mark and what is behind it"
                .into())
        }
        Some(_) => Ok(()),
    }
}

fn is_redis(url: &str) -> Result<(), String> {
    if !url.contains("://") && url.split(';').any(str::is_empty) {
        return Err("a node of the Cluster has no name; write host:port;host:port".into());
    }
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
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    let named = |scheme: &str| KINDS.iter().find(|kind| kind.schemes.contains(&scheme));
    let cluster = || if is_cluster(url) { named("redis-cluster") } else { None };
    named(scheme).or_else(cluster).ok_or_else(|| {
        if url.trim().is_empty() {
            return "the URL of the store is empty; leave it out, or name a store".into();
        }
        let examples: Vec<_> = KINDS.iter().map(|kind| kind.example).collect();
        // Something else than a URL may have been given by mistake, a password for instance.
        let shown = if url.contains("://") && masked::is_scheme(scheme) { scheme } else { masked::NOTHING };
        format!("there is no store {shown:?}; there are {}", examples.join(", "))
    })
}

/// Whether it is a Cluster of Redis as `host:port;host:port`. Settings of other drivers have semicolons too.
fn is_cluster(url: &str) -> bool {
    let host =
        |node: &'_ str| node.trim().rsplit_once('@').map_or(node.trim().to_owned(), |(_, host)| host.into());
    let mut nodes = url.split(';').map(host).filter(|node| !node.is_empty());
    url.contains(';') && nodes.all(|node| masked::is_host_and_port(&node))
}

/// The URL of a store as it may be shown.
pub(crate) fn shown(url: &str) -> String {
    let has_scheme = url.split_once("://").is_some_and(|(scheme, _)| masked::is_scheme(scheme));
    let is_path = || kind(url).is_ok_and(|kind| !kind.is_server());
    if has_scheme || is_cluster(url) || is_path() { masked::url(url) } else { masked::NOTHING.into() }
}

/// What is wrong with a URL, as the store's own parser sees it; nothing is opened.
pub(crate) fn check(url: &str) -> Result<(), String> {
    let kind = kind(url)?;
    // A node of a Cluster may be called as a store is.
    let is_list = is_cluster(url) && kind.schemes.iter().any(|scheme| scheme.starts_with("redis"));
    if kind.is_server() && url.contains(':') && !url.contains("://") && !is_list {
        return Err(format!("it has no // behind its scheme; write {}", kind.example));
    }
    let query = url.split_once('?').map_or("", |(_, query)| query);
    // What a driver says of such a value, it says with all of it.
    if kind.is_server() && query.contains(';') {
        return Err("its parameters are separated by &, and a semicolon in one is written %3B".into());
    }
    let names: Vec<&str> = query.split('&').filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
    if let Some((_, twice)) = names.iter().enumerate().find(|(n, name)| names[..*n].contains(*name)) {
        return Err(format!("its parameter {twice:?} is there twice; write it once"));
    }
    (kind.check)(url)
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
        for (wrong, about) in [
            ("sqlite:?table=a;drop", "the table"),
            ("sqlite:x.db?table=a;drop", "table"),
            ("embedded:x?table=y", "no parameters"),
            ("memory:x", "nothing behind it"),
            ("memory:?table=x", "nothing behind it"),
            ("mysql:u:hunter2@h/db", "mysql://HOST/DB"),
            ("redis:h", "redis://HOST"),
            ("postgres:1;b:2", "postgres://HOST/DB"),
            ("mysql:1;b:2", "mysql://HOST/DB"),
            ("mysql://h/db?table=hunter2-x", "the table can't be used"),
            (";", "host:port"),
            ("h:1;;h:2", "host:port"),
            ("mysql://h/db?table=a&table=b", "\"table\" is there twice"),
            ("", "is empty"),
        ] {
            let why = check(wrong).err().unwrap_or_else(|| panic!("{wrong} was taken"));
            let about_redis = why.contains("Redis") || why.contains("Cluster");
            assert!(why.contains(about) && !why.contains("hunter2"), "{wrong}: {why}");
            assert!(!about_redis || wrong.contains(';') && !wrong.contains("sqlite"), "{wrong}: {why}");
        }
        assert!(check("sqlite:a;b.db").is_ok() && check("embedded:a;b").is_ok());
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
            ("h1:1;h2:2", "h1:1;h2:2"),
            ("[::1]:1;h2:2", "[::1]:1;h2:2"),
            ("Server=db;Database=x;User Id=sa;Password=hunter2", "***"),
            ("AccountName=a;AccountKey=hunter2==", "***"),
            ("h1:1;hunter2", "***"),
            ("h1:1;h2:hunter2", "***"),
            ("sqlserver://h:1433;user=sa;password=hunter2", "sqlserver://***"),
            ("mysql://h:1;password=hunter2/db", "mysql://***"),
            ("sqlserver://h:1433;user=sa;password=hun@ter2", "sqlserver://***"),
            ("redis://u:hunter=2@h:1", "redis://***@h:1"),
            ("mysql:hunter2", "***"),
            ("mysql://u:hunter2@h/db?table=a;password=hunter2", "mysql://***@h/db?table=a;password=***"),
            ("postgres://h/db?sslmode=require;ter2", "postgres://h/db?sslmode=require;***"),
        ] {
            assert_eq!(super::shown(url), shown, "{url}");
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
