//! P2: begin and settle against the bare engine and SQLite.

use std::sync::Arc;

use onlyonce_store_embedded::EmbeddedStore;

use crate::Effort;
use crate::callers::{CALLERS, rate};
use crate::{raw, sqlite};
use onlyonce_bench_report::{Goal, Report};

pub(crate) async fn measure(effort: Effort, report: &mut Report) {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let ours = Arc::new(EmbeddedStore::open(of("ours")).unwrap());
    let bare = Arc::new(raw::engine(&of("bare")));
    let sqlite = Arc::new(sqlite::engine(&of("sqlite")));
    let (mut to_bare, mut to_sqlite) = (Vec::new(), Vec::new());
    // One round more, to warm up.
    for round in 0..=effort.rounds as u64 {
        let first = round * effort.pairs;
        // In turn forwards and backwards, so that none is always the first.
        let [mine, bares, sqlites] = if round % 2 == 0 {
            let mine = rate(&ours, CALLERS, first, effort.pairs).await;
            let bares = rate(&bare, CALLERS, first, effort.pairs).await;
            [mine, bares, rate(&sqlite, CALLERS, first, effort.pairs).await]
        } else {
            let sqlites = rate(&sqlite, CALLERS, first, effort.pairs).await;
            let bares = rate(&bare, CALLERS, first, effort.pairs).await;
            [rate(&ours, CALLERS, first, effort.pairs).await, bares, sqlites]
        };
        eprintln!("round {round}: ours {mine:.0}/s, bare engine {bares:.0}/s, SQLite {sqlites:.0}/s");
        if round > 0 {
            to_bare.push(mine / bares);
            to_sqlite.push(mine / sqlites);
        }
    }
    report.add("P2", "begin + settle, 64 callers, to the bare engine", &to_bare, Goal::AtLeast(0.85));
    report.add("P2", "begin + settle, 64 callers, to SQLite WAL FULL", &to_sqlite, Goal::AtLeast(1.7));
}
