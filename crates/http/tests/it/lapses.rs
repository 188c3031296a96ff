//! Attempts that end without a word: their lease runs out, and nobody knows what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, Uri};
use axum::{Extension, Router};
use http::Response;
use onlyonce_core::{OnLapse, Permit, Recovery, Resolution, Settings};
use onlyonce_http::{Options, Recover, StoredAnswer};

use crate::support::{Gate, Service, Setup, answering, effect, eventually, post};

const AFTER: Duration = Duration::from_secs(60);

/// Serves a handler that answers 500 the first time and 200 from then on.
async fn doubtful(on_lapse: OnLapse, recover: Option<Recover>) -> Service {
    let settings = Settings { on_lapse, ..Settings::default() };
    let calls = Arc::new(AtomicUsize::new(0));
    Setup::new()
        .settings(settings)
        .options(Options { recover, ..Options::default() })
        .serve(answering(move || match calls.fetch_add(1, Ordering::SeqCst) {
            0 => (StatusCode::INTERNAL_SERVER_ERROR, "crashed"),
            _ => (StatusCode::OK, "done"),
        }))
        .await
}

#[tokio::test]
async fn hold_says_unknown_until_a_person_resolves_it() {
    for (resolution, expected, effects) in [
        (
            Resolution::Happened(StoredAnswer::whole(Response::new("receipt 7".into())).encode()),
            "receipt 7",
            1,
        ),
        (Resolution::DidNotHappen, "done", 2),
    ] {
        let service = doubtful(OnLapse::Hold, None).await;
        service.client.send(post("/pay").key("k")).await;
        let problem = service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
        service.clock.advance(Duration::from_secs(24 * 3600));
        service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
        let id = problem["record"].as_str().unwrap().parse().unwrap();
        let seen = service.once.outcome(&id).await.unwrap().unwrap();
        service.once.resolve(&id, seen.fence, resolution).await.unwrap();
        let answer = service.client.send(post("/pay").key("k")).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, expected.as_bytes()));
        assert_eq!(service.effects(), effects);
    }
}

#[tokio::test]
async fn rerun_runs_again() {
    let service = doubtful(OnLapse::Rerun, None).await;
    assert_eq!(service.client.send(post("/pay").key("k")).await.status, 500);
    assert_eq!(service.client.send(post("/pay").key("k")).await.body, "done");
    assert!(service.client.send(post("/pay").key("k")).await.is_replay());
    assert_eq!(service.effects(), 2);
}

#[tokio::test]
async fn ask_waits_for_its_time_and_then_believes_the_hook() {
    type Hook = fn() -> Recovery<Response<bytes::Bytes>>;
    let answers: [(Hook, u16, &str, usize); 3] = [
        (|| Recovery::Done(Response::new("found it".into())), 200, "found it", 1),
        (|| Recovery::NotDone, 200, "done", 2),
        (|| Recovery::Unknown, 409, "outcome-unknown", 1),
    ];
    for (found, status, expected, effects) in answers {
        let hook = Recover::new(move |question| async move {
            assert_eq!(question.key.as_str(), "k");
            assert_eq!(question.request.headers["x-user"], "ann");
            assert_eq!(question.permit.attempt(), 2);
            found()
        });
        let service = doubtful(OnLapse::Ask { after: AFTER }, Some(hook)).await;
        let ask = || service.client.send(post("/pay").key("k").header("x-user", "ann"));
        ask().await;
        let early = ask().await;
        assert_eq!(early.assert_problem(409, "outcome-unknown")["retryable"], true);
        assert_eq!(early.header("retry-after"), Some("60"));
        service.clock.advance(AFTER);
        let answer = ask().await;
        assert_eq!(answer.status, status);
        assert!(String::from_utf8_lossy(&answer.body).contains(expected));
        let again = ask().await;
        assert_eq!(again.status, status);
        if status == 409 {
            assert_eq!(
                again.json()["first_status"],
                500,
                "what was seen of the first attempt is not forgotten"
            );
        }
        assert_eq!(service.effects(), effects);
    }
}

#[tokio::test]
async fn a_recovered_answer_that_is_too_large_is_the_same_refusal_every_time() {
    let hook = Recover::new(|_| async { Recovery::Done(Response::new(vec![b'x'; 2 << 20].into())) });
    let service = doubtful(OnLapse::Ask { after: AFTER }, Some(hook)).await;
    service.client.send(post("/pay").key("k")).await;
    service.clock.advance(AFTER);
    for _ in 0..2 {
        let answer = service.client.send(post("/pay").key("k")).await;
        assert_eq!(answer.assert_problem(409, "response-not-retained")["original_status"], 200);
    }
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn ask_without_a_hook_stays_unknown() {
    let service = doubtful(OnLapse::Ask { after: AFTER }, None).await;
    service.client.send(post("/pay").key("k")).await;
    let early = service.client.send(post("/pay").key("k")).await;
    assert_eq!(early.assert_problem(409, "outcome-unknown")["retryable"], false, "nobody will ask");
    service.clock.advance(AFTER);
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_handler_that_fails_half_way_is_told_by_the_rules_of_its_route() {
    let hook = || Some(Recover::new(|_| async { Recovery::Unknown }));
    for (on_lapse, recover, retry_after, words) in [
        (OnLapse::Hold, None, None, "ask the operator"),
        (OnLapse::Rerun, None, Some("1"), "run again"),
        (OnLapse::Ask { after: AFTER }, hook(), Some("60"), "found out"),
        (OnLapse::Ask { after: AFTER }, None, None, "ask the operator"),
    ] {
        let service = Setup::new()
            .settings(Settings { on_lapse, ..Settings::default() })
            .options(Options { recover, ..Options::default() })
            .serve(answering(|| -> &'static str { panic!("half-way") }))
            .await;
        let answer = service.client.send(post("/pay").key("k")).await;
        let problem = answer.assert_problem(500, "handler-failed");
        assert_eq!(problem["retryable"], retry_after.is_some(), "{on_lapse:?}");
        assert_eq!(answer.header("retry-after"), retry_after, "{on_lapse:?}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
}

/// Serves a handler that waits at a gate, and after it says whether its lease is lost.
async fn slow(settings: Settings, gate: &Gate) -> Service {
    let gate = gate.clone();
    Setup::new()
        .settings(settings)
        .serve(move |ledger| {
            Router::new().fallback(
                move |Extension(permit): Extension<Permit>, uri: Uri, headers: HeaderMap| {
                    let (gate, ledger) = (gate.clone(), ledger.clone());
                    async move {
                        gate.pass().await;
                        let number = effect(&ledger, &headers, &uri);
                        format!("effect {number}, lost: {}", permit.is_lost())
                    }
                },
            )
        })
        .await
}

#[tokio::test]
async fn a_lease_is_renewed_while_the_handler_runs_and_runs_out_at_max_run() {
    let gate = Gate::new();
    let settings = Settings { max_run: Duration::from_secs(300), ..Settings::default() };
    let service = slow(settings, &gate).await;
    let client = service.client.clone();
    let first = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    gate.arrival().await;
    let asked =
        async || service.client.send(post("/pay").key("k")).await.json()["type"].as_str().unwrap().to_owned();
    for _ in 0..25 {
        service.clock.advance(Duration::from_secs(10));
        // The keeper has to get its turn before time moves on.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(asked().await.ends_with("in-progress"));
    }
    let clock = service.clock.clone();
    eventually("the lease runs out after max_run", async || {
        clock.advance(Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(5)).await;
        asked().await.ends_with("outcome-unknown")
    })
    .await;
    gate.open(1);
    // Nobody took over, so the late answer still counts.
    let late = first.await.unwrap();
    assert_eq!(late.body, "effect 1, lost: true");
    let again = service.client.send(post("/pay").key("k")).await;
    assert!(again.is_replay());
    assert_eq!(again.body, late.body);
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_zombie_gets_the_answer_of_its_successor() {
    let gate = Gate::new();
    let lease = Duration::from_secs(30);
    let settings = Settings { on_lapse: OnLapse::Rerun, max_run: lease, lease, ..Settings::default() };
    let service = slow(settings, &gate).await;
    let client = service.client.clone();
    let zombie = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    gate.arrival().await;
    // No renewal may prolong it: they end at max_run, which is the lease itself.
    service.clock.advance(Duration::from_secs(61));
    let client = service.client.clone();
    let successor = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    gate.arrival().await;
    // The gate is fair: the zombie goes on first, but the record belongs to its successor by now.
    gate.open(1);
    zombie.await.unwrap().assert_problem(409, "in-progress");
    gate.open(1);
    let answer = successor.await.unwrap();
    assert_eq!(answer.body, "effect 2, lost: false");
    assert_eq!(service.client.send(post("/pay").key("k")).await.body, answer.body);
}
