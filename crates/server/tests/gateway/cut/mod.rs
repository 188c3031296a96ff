//! What was cut off never counts as whole: both directions, HTTP/1.1 and HTTP/2, with and without TLS, in every way to end too early.

mod answers;
mod line;
mod requests;
mod service;
mod uploads;

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;

/// Runs many cases at a time on a runtime of their own; all that fail are told.
fn run_all(cases: Vec<impl Future<Output = Result<(), String>> + Send + 'static>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let count = cases.len();
    let failed: Vec<String> = runtime.block_on(async {
        let in_time = |case| async {
            let case = tokio::time::timeout(Duration::from_secs(60), case).await;
            case.unwrap_or_else(|_| Err("it took too long".into()))
        };
        let told = stream::iter(cases).map(|case| tokio::spawn(in_time(case))).buffer_unordered(48);
        told.filter_map(|told| async { told.unwrap().err() }).collect().await
    });
    assert!(failed.is_empty(), "{} of {count}:\n{}", failed.len(), failed.join("\n"));
}

/// A certificate in a new folder within `home`.
fn certified(home: &Path) -> String {
    crate::traffic::certify(home)
}
