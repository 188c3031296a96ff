//! The engine on this store, in processes that are killed and paused.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::path::Path;
use std::sync::Arc;

use onlyonce_core::Store;
use onlyonce_testkit::KillTest;

/// Each round and its victims share a prefix, made from the directory that they share.
fn open(url: String, directory: &Path) -> Arc<dyn Store> {
    let name = directory.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(common::open(url, &format!("kill:{name}:")));
    // The connection lives on it, for as long as the victim does.
    std::mem::forget(runtime);
    Arc::new(store)
}

#[test]
fn nothing_happens_twice_when_processes_on_a_redis_are_killed_and_paused() {
    let report = KillTest::new("nothing_happens_twice_when_processes_on_a_redis_are_killed_and_paused")
        .kills(8)
        .pauses(2)
        .run(|directory| open(common::url(), directory));
    assert!(report.summary.effects > 100, "{report:?}");
}

#[test]
fn nothing_happens_twice_when_processes_on_a_cluster_are_killed_and_paused() {
    let report = KillTest::new("nothing_happens_twice_when_processes_on_a_cluster_are_killed_and_paused")
        .kills(6)
        .pauses(1)
        .run(|directory| open(common::cluster_url(), directory));
    assert!(report.summary.effects > 100, "{report:?}");
}
