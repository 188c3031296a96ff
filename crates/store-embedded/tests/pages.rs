//! What a page of a listing reads and holds.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use common::*;
use onlyonce_core::{
    Answer, Cursor, Filter, Inspect, Listed, RecordId, State, StateKind, Store as _, Verdict,
};
use onlyonce_store_embedded::EmbeddedStore;

const RECORDS: u64 = 30;
const LARGE: usize = 1 << 20;

async fn fill(store: &EmbeddedStore) {
    for n in 0..RECORDS {
        let answer = Answer(vec![b'x'; LARGE].into());
        let verdict = if n % 2 == 0 { Verdict::Completed(answer) } else { Verdict::Unknown(answer) };
        let attempt = begin(store, n).await.unwrap();
        settle(store, n, &attempt, verdict).await.unwrap();
    }
}

/// The pages of a listing: their ids.
async fn pages(store: &EmbeddedStore, filter: &Filter) -> Vec<Vec<RecordId>> {
    let (mut pages, mut after): (Vec<_>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = store.list(filter, after.as_ref(), 1_000).await.unwrap();
        for Listed { snapshot, .. } in &page.records {
            let (State::Completed(answer) | State::Lapsed { evidence: answer, .. }) = &snapshot.state else {
                panic!("{snapshot:?}")
            };
            assert_eq!(answer.0.len(), Listed::ANSWER_BYTES);
        }
        pages.push(page.records.iter().map(|listed| listed.id).collect());
        after = page.next;
        if after.is_none() {
            return pages;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_reads_a_few_mebibytes_and_then_has_a_cursor() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    fill(&store).await;
    for (state, expected) in [(None, RECORDS), (Some(StateKind::Lapsed), RECORDS / 2)] {
        let pages = pages(&store, &Filter { state, ..Filter::default() }).await;
        assert!(
            pages.iter().all(|page| page.len() <= 9),
            "{:?}",
            pages.iter().map(Vec::len).collect::<Vec<_>>()
        );
        let mut all = pages.concat();
        assert_eq!(all.len() as u64, expected);
        all.dedup();
        assert_eq!(all.len() as u64, expected, "none twice, and none left out");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_which_nothing_matches_reads_no_more_either() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    fill(&store).await;
    let nobody = Filter { route: Some("POST /nowhere".into()), ..Filter::default() };
    let pages = pages(&store, &nobody).await;
    assert!(pages.len() >= 3, "{} pages", pages.len());
    assert!(pages.concat().is_empty());
    // One record is read whole.
    let whole = store.get(&id(0)).await.unwrap().unwrap();
    assert!(matches!(&whole.state, State::Completed(answer) if answer.0.len() == LARGE));
}
