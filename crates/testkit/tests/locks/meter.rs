//! What is counted.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::world::*;

/// All of it in one test, on one thread: the recorder is the thread's own.
#[test]
fn held_waited_lost_renewed_and_dropped_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut held_meanwhile = Vec::new();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let world = World::new();
            let guard = world.locks.key("a").ttl(TTL).acquire().await.unwrap();
            let _ = world.locks.key("a").acquire().await.unwrap_err();
            held_meanwhile = snapshotter.snapshot().into_vec();
            world.pass(11).await;
            drop(guard);
            rest().await;
            let lost = world.locks.key("a").ttl(TTL).max_hold(TTL).acquire().await.unwrap();
            world.pass(31).await;
            lost.release().await.unwrap();
        });
    });
    let read =
        |snapshot: &[(metrics_util::CompositeKey, _, _, DebugValue)], name: &str, result: Option<&str>| {
            let mut found = snapshot.iter().filter(|(key, ..)| {
                let key = key.key();
                key.name() == name && key.labels().next().map(metrics::Label::value) == result
            });
            let value = found.next().map(|(.., value)| match value {
                DebugValue::Counter(n) => *n as f64,
                DebugValue::Gauge(n) => n.into_inner(),
                DebugValue::Histogram(values) => values.len() as f64,
            });
            value.unwrap_or(0.0)
        };
    assert_eq!(read(&held_meanwhile, "onlyonce_locks_held", None), 1.0);
    assert_eq!(read(&held_meanwhile, "onlyonce_lock_acquires_total", Some("acquired")), 1.0);
    assert_eq!(read(&held_meanwhile, "onlyonce_lock_acquires_total", Some("busy")), 1.0);
    assert_eq!(read(&held_meanwhile, "onlyonce_lock_wait_seconds", None), 1.0);
    let after = snapshotter.snapshot().into_vec();
    // A snapshot starts gauges anew.
    assert_eq!(read(&after, "onlyonce_locks_held", None), -1.0);
    assert_eq!(read(&after, "onlyonce_lock_renewals_total", Some("renewed")), 1.0);
    assert_eq!(read(&after, "onlyonce_lock_lost_total", None), 1.0);
    assert_eq!(read(&after, "onlyonce_lock_dropped_unreleased_total", None), 1.0);
}
