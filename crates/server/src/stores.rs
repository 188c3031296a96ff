//! Stores by URL. A new store is one line in [`KINDS`].

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use onlyonce::embedded::EmbeddedStore;
use onlyonce::redis::RedisStore;
use onlyonce::sql::{Database, MySql, Postgres, SqlStore, Sqlite};
use onlyonce::{Inspect, MemoryStore};

use crate::failure::Failure;

type Opened = Pin<Box<dyn Future<Output = Result<Arc<dyn Inspect>, Failure>> + Send>>;

/// A store, the schemes that name it, and how it is opened with a URL.
struct Kind {
    schemes: &'static [&'static str],
    example: &'static str,
    open: fn(String) -> Opened,
}

const KINDS: &[Kind] = &[
    Kind { schemes: &["memory"], example: "memory:", open: memory },
    Kind { schemes: &["embedded"], example: "embedded:PATH", open: embedded },
    Kind {
        schemes: &["redis", "rediss", "redis+unix", "unix"],
        example: "redis://HOST, rediss://HOST",
        open: redis,
    },
    Kind { schemes: &["redis-cluster", "rediss-cluster"], example: "redis-cluster://H1:P,H2:P", open: redis },
    Kind {
        schemes: &["redis-sentinel", "rediss-sentinel"],
        example: "redis-sentinel://H1:P,H2:P/NAME",
        open: redis,
    },
    Kind { schemes: &["mysql", "mariadb"], example: "mysql://HOST/DB", open: sql::<MySql> },
    Kind { schemes: &["postgres", "postgresql"], example: "postgres://HOST/DB", open: sql::<Postgres> },
    Kind { schemes: &["sqlite"], example: "sqlite:PATH", open: sql::<Sqlite> },
];

fn sql<DB>(url: String) -> Opened
where
    DB: Database,
    SqlStore<DB>: Inspect,
{
    Box::pin(async move {
        match SqlStore::<DB>::builder(url).migrate().open().await {
            Ok(store) => Ok(Arc::new(store) as Arc<dyn Inspect>),
            Err(error) => Err(Failure::because("the store can't be opened", &error)),
        }
    })
}

fn memory(_: String) -> Opened {
    Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn Inspect>) })
}

fn embedded(url: String) -> Opened {
    Box::pin(async move {
        let path = directory(&url).unwrap_or_default().to_owned();
        // Opening reads journals, which may take a while.
        let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(path)).await;
        match opened {
            Ok(Ok(store)) => Ok(Arc::new(store) as Arc<dyn Inspect>),
            Ok(Err(error)) => Err(Failure::because("the store can't be opened", &error)),
            Err(error) => Err(Failure::because("the store can't be opened", &error)),
        }
    })
}

fn redis(url: String) -> Opened {
    Box::pin(async move {
        match RedisStore::open(&url).await {
            Ok(store) => Ok(Arc::new(store) as Arc<dyn Inspect>),
            Err(error) => Err(Failure::because("the store can't be opened", &error)),
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

/// What is wrong with a URL, as far as that can be said without opening it.
pub(crate) fn check(url: &str) -> Result<(), String> {
    let kind = kind(url)?;
    if kind.schemes.contains(&"embedded") && directory(url).is_none() {
        return Err("the embedded store needs a directory: embedded:./onlyonce-data".into());
    }
    Ok(())
}

/// Opens the store that the URL names. The password never appears in an error.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Inspect>, Failure> {
    let kind = kind(url).map_err(Failure::usage)?;
    check(url).map_err(Failure::usage)?;
    (kind.open)(url.to_owned()).await
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
        assert!(check("memory:").is_ok() && check("h1:1;h2:2").is_ok());
        assert_eq!(masked("redis://u:hunter2@h:1/3"), "redis://***@h:1/3");
    }
}
