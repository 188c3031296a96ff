//! What operators see: the record id everywhere, the raw key and the body nowhere; and every result is counted.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use onlyonce_core::{Filter, Inspect, MemoryStore};
use onlyonce_http::{Options, ScopeFrom, StoreDown};
use onlyonce_testkit::{Fault, FaultyStore, Op};
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{Setup, post};

const KEY: &str = "canary-key-7f3a";
const TENANT: &str = "canary-tenant-91bc";

/// Everything that was logged.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

// One thread and one test: the recorder and the subscriber are those of this thread.
#[tokio::test]
async fn keys_tenants_and_bodies_reach_neither_store_nor_log_nor_metrics_and_results_are_counted() {
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    let _counting = metrics::set_default_local_recorder(&recorder);

    let setup = Setup::new();
    let records = Arc::new(MemoryStore::new().with_clock(setup.clock()));
    let store = Arc::new(FaultyStore::new(Arc::clone(&records) as _));
    let service = setup
        .store(Arc::clone(&store) as _)
        .scope(ScopeFrom::header("x-tenant"))
        .layer(|layer| {
            layer.route("POST /pay", Options { store_down: StoreDown::FailOpen, ..Options::default() })
        })
        .counting()
        .await;
    let pay = |body: &'static str| post("/pay").key(KEY).header("x-tenant", TENANT).body(body);
    service.client.send(pay("canary-body-55")).await;
    service.client.send(pay("canary-body-55")).await;
    let mismatch = service.client.send(pay("other")).await.assert_problem(422, "payload-mismatch");
    store.next(Op::Begin, Fault::Unavailable, 1);
    service.client.send(pay("canary-body-55")).await;

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let stored = format!("{:?}", records.list(&Filter::default(), None, 10).await.unwrap());
    let counted: Vec<_> = metrics.snapshot().into_vec();
    let shown = format!("{counted:?}");
    for canary in [KEY, TENANT, "canary-body-55"] {
        for (place, text) in [("log", &log), ("store", &stored), ("metrics", &shown)] {
            assert!(!text.contains(canary), "{canary} is in the {place}: {text}");
        }
    }
    let record = mismatch["record"].as_str().unwrap();
    assert!(log.contains(record), "the record id is not in the log: {log}");
    assert!(log.contains(mismatch["instance"].as_str().unwrap()), "the occurrence is not in the log: {log}");
    for result in ["executed", "replayed", "payload-mismatch", "failed_open"] {
        let count = counted.iter().find(|(key, ..)| {
            let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
            labels.contains(&("result", result)) && labels.contains(&("route", "POST /pay"))
        });
        assert!(matches!(count, Some((.., DebugValue::Counter(1)))), "{result}: {count:?}");
    }
}
