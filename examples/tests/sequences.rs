//! Calls that their caller numbers, over HTTP, on every store; two services share it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod stores;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use http_body_util::BodyExt;
use onlyonce::http::{IdempotencyLayer, KeyFrom, MissingKey, Options, SEQUENCE, ScopeFrom};
use onlyonce::{Idempotency, Order, Store};
use tower::ServiceExt;

stores::on_each_store!(
    every_number_of_a_credential_runs_once_in_any_order,
    in_rising_order_a_lower_number_does_not_run_but_a_retry_has_its_answer,
    of_many_at_a_time_every_number_runs_at_most_once_and_the_highest_does,
);

/// How often each number of each credential ran.
type Effects = Arc<Mutex<BTreeMap<(String, u64), u32>>>;

fn service(store: &Arc<dyn Store>, order: Order, effects: &Effects) -> Router {
    let options = Options {
        key: KeyFrom::Sequence(SEQUENCE),
        order,
        missing_key: MissingKey::Reject,
        ..Options::default()
    };
    let once = Idempotency::builder_shared(Arc::clone(store)).build().unwrap();
    let layer =
        IdempotencyLayer::builder(once, ScopeFrom::header("x-partner")).options(options).build().unwrap();
    let effects = Arc::clone(effects);
    let transfer = async move |headers: HeaderMap| {
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        let number = text("onlyonce-sequence").parse().unwrap();
        *effects.lock().unwrap().entry((text("x-partner"), number)).or_default() += 1;
        (StatusCode::CREATED, format!("transfer {number}"))
    };
    Router::new().route("/transfers", post(transfer)).layer(layer)
}

#[derive(Debug)]
struct Answer {
    status: u16,
    replayed: bool,
    body: String,
}

async fn send(service: &Router, partner: &str, number: u64) -> Answer {
    let request = Request::post("/transfers")
        .header("x-partner", partner)
        .header("onlyonce-sequence", number)
        .body(Body::empty())
        .unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let (status, replayed) =
        (response.status().as_u16(), response.headers().contains_key("idempotent-replayed"));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Answer { status, replayed, body: String::from_utf8(body.to_vec()).unwrap() }
}

async fn every_number_of_a_credential_runs_once_in_any_order(store: Arc<dyn Store>) {
    let effects = Effects::default();
    let [one, other] = [(); 2].map(|()| service(&store, Order::Unique, &effects));
    for number in [5, 3, 4] {
        let first = send(&one, "a", number).await;
        assert_eq!((first.status, first.replayed), (201, false));
        let again = send(&other, "a", number).await;
        assert_eq!((again.status, again.replayed, &again.body), (201, true, &first.body));
    }
    assert!(!send(&other, "b", 3).await.replayed, "another credential counts by itself");
    assert!(effects.lock().unwrap().values().all(|times| *times == 1));
    assert_eq!(effects.lock().unwrap().len(), 4);
}

async fn in_rising_order_a_lower_number_does_not_run_but_a_retry_has_its_answer(store: Arc<dyn Store>) {
    let effects = Effects::default();
    let [one, other] = [(); 2].map(|()| service(&store, Order::Increasing, &effects));
    for number in [1, 5, 9] {
        assert_eq!(send(&one, "a", number).await.status, 201);
    }
    for service in [&one, &other] {
        let refused = send(service, "a", 7).await;
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(refused.body.contains("urn:onlyonce:problem:out-of-order"), "{refused:?}");
        assert!(refused.body.contains("\"last\":9"), "{refused:?}");
        assert!(send(service, "a", 5).await.replayed);
    }
    assert_eq!(send(&other, "b", 2).await.status, 201);
    assert_eq!(send(&other, "a", 10).await.status, 201);
    assert!(send(&one, "a", 10).await.replayed);
    assert!(effects.lock().unwrap().values().all(|times| *times == 1));
    assert_eq!(effects.lock().unwrap().len(), 5);
}

async fn of_many_at_a_time_every_number_runs_at_most_once_and_the_highest_does(store: Arc<dyn Store>) {
    const NUMBERS: u64 = 24;
    for order in [Order::Unique, Order::Increasing] {
        let effects = Effects::default();
        let services = [(); 2].map(|()| service(&store, order, &effects));
        let partner = format!("{order:?}");
        let calls: Vec<_> = (0..2 * NUMBERS)
            .map(|n| {
                let (service, partner) = (services[usize::try_from(n % 2).unwrap()].clone(), partner.clone());
                // Each number is sent to both.
                let number = (n / 2) * 7 % NUMBERS + 1;
                tokio::spawn(async move { (number, send(&service, &partner, number).await) })
            })
            .collect();
        let mut ran: BTreeMap<u64, u32> = BTreeMap::new();
        for call in calls {
            let (number, answer) = call.await.unwrap();
            match (answer.status, answer.replayed) {
                (201, false) => *ran.entry(number).or_default() += 1,
                (201, true) | (409, _) => {}
                other => panic!("{number}: {other:?} {}", answer.body),
            }
        }
        assert!(ran.values().all(|times| *times == 1), "{order:?}: {ran:?}");
        assert!(ran.contains_key(&NUMBERS), "{order:?}: nothing is higher than the highest");
        let effects: BTreeMap<u64, u32> =
            effects.lock().unwrap().iter().map(|((_, number), times)| (*number, *times)).collect();
        assert_eq!(effects, ran, "{order:?}");
        match order {
            Order::Increasing => {
                let late = (1..NUMBERS).find(|number| !ran.contains_key(number));
                if let Some(late) = late {
                    assert_eq!(send(&services[0], &partner, late).await.status, 409);
                }
            }
            _ => assert_eq!(ran.len() as u64, NUMBERS, "in any order, each of them runs"),
        }
    }
}
