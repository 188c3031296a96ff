//! The stores that every row is shown on. A new store is one line of [`on_every_store`].

/// Turns laws that take the URL of a store into one test for each store.
macro_rules! on_every_store {
    ($($(#[$about:meta])* fn $law:ident($store:ident: &str) $body:block)*) => {
        $($(#[$about])* fn $law($store: &str) $body)*

        on_every_store! { @stores [$($law)*]
            memory => "memory:".to_owned();
            embedded => "embedded:./data".to_owned();
            redis => crate::stores::url_in("ONLYONCE_TEST_REDIS_URL");
            mysql => crate::stores::url_in("ONLYONCE_TEST_MYSQL_URL");
            postgres => crate::stores::url_in("ONLYONCE_TEST_POSTGRES_URL");
            sqlite => "sqlite:./records.db".to_owned();
            redis_cluster => crate::stores::url_in("ONLYONCE_TEST_REDIS_CLUSTER_URL");
        }
    };
    (@stores $laws:tt $($store:ident => $url:expr;)*) => {
        $(on_every_store! { @store $laws $store => $url })*
    };
    (@store [$($law:ident)*] $store:ident => $url:expr) => {
        mod $store {
            $(#[test] fn $law() { super::$law(&$url); })*
        }
    };
}

pub(crate) use on_every_store;

/// The URL in this variable. A missing server is a failure: nothing passes by not being run.
pub(crate) fn url_in(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    })
}

/// A key that nobody else has: stores on servers are shared.
pub(crate) fn key(name: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanos = std::fs::metadata("/proc/self").unwrap().modified().unwrap();
    let nanos = nanos.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("{name}-{}-{nanos:x}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
