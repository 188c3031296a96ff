//! Calls that their caller numbers.

use http::StatusCode;
use onlyonce_core::{Mode, Order, Settings};
use onlyonce_http::{KeyFrom, MissingKey, Options, SEQUENCE, ScopeFrom};

use crate::support::{Answer, Service, Setup, answering, post};

fn numbered(order: Order) -> Options {
    Options { key: KeyFrom::Sequence(SEQUENCE), order, missing_key: MissingKey::Reject, ..Options::default() }
}

async fn send(service: &Service, credential: &str, number: &str) -> Answer {
    let ask = post("/pay").header("x-tenant", credential).header("onlyonce-sequence", number);
    service.client.send(ask).await
}

#[tokio::test]
async fn every_number_of_a_credential_runs_once_in_any_order() {
    let setup = Setup::new().scope(ScopeFrom::header("x-tenant")).options(numbered(Order::Unique));
    let service = setup.counting().await;
    for number in ["5", "3", "4"] {
        assert_eq!(send(&service, "a", number).await.status, 201);
    }
    assert!(send(&service, "a", "3").await.is_replay());
    assert!(send(&service, "a", "003").await.is_replay(), "the same number");
    assert!(!send(&service, "b", "3").await.is_replay(), "another credential counts by itself");
    assert_eq!(service.effects(), 4);
    for wrong in ["", "-1", "1.5", "x", "18446744073709551616"] {
        send(&service, "a", wrong).await.assert_problem(400, "key-invalid");
    }
    service.client.send(post("/pay").header("x-tenant", "a")).await.assert_problem(400, "key-missing");
}

#[tokio::test]
async fn a_duplicate_number_is_refused_where_answers_are_not_kept() {
    let settings = Some(Settings { mode: Mode::Reject, ..Settings::default() });
    let options = Options { settings, ..numbered(Order::Unique) };
    let service = Setup::new().scope(ScopeFrom::header("x-tenant")).options(options).counting().await;
    assert_eq!(send(&service, "a", "1").await.status, 201);
    send(&service, "a", "1").await.assert_problem(409, "duplicate");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn in_rising_order_a_lower_number_does_not_run_but_a_retry_has_its_answer() {
    let setup = Setup::new().scope(ScopeFrom::header("x-tenant")).options(numbered(Order::Increasing));
    let service = setup.counting().await;
    for number in ["1", "5", "9"] {
        assert_eq!(send(&service, "a", number).await.status, 201);
    }
    let refused = send(&service, "a", "7").await.assert_problem(409, "out-of-order");
    assert_eq!((refused["last"].as_u64(), refused["retryable"].as_bool()), (Some(9), Some(false)));
    send(&service, "a", "7").await.assert_problem(409, "out-of-order");
    assert!(send(&service, "a", "5").await.is_replay());
    assert_eq!(send(&service, "b", "2").await.status, 201);
    assert_eq!(send(&service, "a", "10").await.status, 201);
    assert_eq!(service.effects(), 5);
}

#[tokio::test]
async fn a_call_that_was_released_may_be_repeated_under_its_number_until_a_higher_one_came() {
    let setup = Setup::new().scope(ScopeFrom::header("x-tenant")).options(numbered(Order::Increasing));
    let service = setup.serve(answering(|| StatusCode::TOO_MANY_REQUESTS)).await;
    assert_eq!(send(&service, "a", "1").await.status, 429);
    assert_eq!(send(&service, "a", "1").await.status, 429, "it runs again");
    assert_eq!(send(&service, "a", "2").await.status, 429);
    send(&service, "a", "1").await.assert_problem(409, "out-of-order");
    assert_eq!(service.effects(), 3);
}

#[tokio::test]
async fn of_many_at_a_time_those_that_run_are_in_rising_order() {
    let setup = Setup::new().scope(ScopeFrom::header("x-tenant")).options(numbered(Order::Increasing));
    let clock = setup.clock();
    let service = std::sync::Arc::new(setup.counting().await);
    let pauses = tokio::spawn(async move {
        loop {
            clock.advance(std::time::Duration::from_millis(10));
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    let calls: Vec<_> = (0..40)
        .map(|n: u32| {
            let service = std::sync::Arc::clone(&service);
            tokio::spawn(async move { (n, send(&service, "a", &((n * 7) % 40).to_string()).await.status) })
        })
        .collect();
    let mut ran = 0;
    for call in calls {
        match call.await.unwrap().1.as_u16() {
            201 => ran += 1,
            409 => {}
            other => panic!("{other}"),
        }
    }
    pauses.abort();
    assert!(ran >= 1);
    assert_eq!(service.effects(), ran);
    send(&service, "a", "38").await.assert_problem(409, "out-of-order");
}
