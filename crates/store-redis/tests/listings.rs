//! What a listing costs: the answers of its records stay where they are.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::*;
use onlyonce_core::{Answer, Filter, Inspect, Listed, Settlement, State, Store as _, Verdict};
use onlyonce_testkit::FaultProxy;

const RECORDS: usize = 20;
const LARGE: usize = 200_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_leave_answers_where_they_are() {
    let prefix = prefix();
    let near = open(url(), &prefix).await;
    // The beginning of a record holds a short route, and more is read for a long one.
    let routes = ["POST /".into(), "r".repeat(350), "r".repeat(5_000)];
    for n in 0..RECORDS {
        let (id, mut claim, answer) = (id(), claim(), Answer(vec![b'x'; LARGE].into()));
        claim.label.route = routes[n % routes.len()].as_str().into();
        near.begin(&id, &claim).await.unwrap();
        let verdict = if n % 2 == 0 { Verdict::Completed(answer) } else { Verdict::Unknown(answer) };
        let attempt = onlyonce_core::AttemptId { owner: claim.owner, fence: None };
        near.settle(&id, &attempt, &Settlement { verdict, retain: Duration::from_secs(600) }).await.unwrap();
    }
    let proxy = FaultProxy::start(url().trim_start_matches("redis://").to_owned()).await.unwrap();
    let store = open(format!("redis://{}", proxy.address()), &prefix).await;
    let before = proxy.traffic().to_client;
    let mut listed = store.list(&Filter::default(), None, 1_000).await.unwrap().records;
    listed.extend(store.lapsed(1_000).await.unwrap());
    assert_eq!(store.unresolved(1_000).await.unwrap().count, RECORDS as u64 / 2);
    assert_eq!(listed.len(), RECORDS + RECORDS / 2);
    for listed in &listed {
        let (State::Completed(answer) | State::Lapsed { evidence: answer, .. }) = &listed.snapshot.state
        else {
            panic!("{listed:?}")
        };
        // Enough to say of what kind it is.
        assert_eq!(answer.0, vec![b'x'; Listed::ANSWER_BYTES]);
    }
    // What other tests have on this server is looked at too, and is little.
    let bytes = proxy.traffic().to_client - before;
    assert!(bytes < 1_000_000, "{bytes} bytes for {} records", listed.len());
    let whole = store.get(&listed[0].id).await.unwrap().unwrap();
    assert!(
        matches!(&whole.state, State::Completed(answer) | State::Lapsed { evidence: answer, .. } if answer.0.len() == LARGE),
        "one record is read whole"
    );
}
