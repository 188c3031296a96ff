//! Duplicates after the first is done: the same bytes, marked as a replay, until they expire.

use std::time::Duration;

use http::StatusCode;
use onlyonce_core::{Class, Mode, Settings};
use onlyonce_http::{On500, Options, StoredHeaders};

use crate::support::{Setup, answering, post};

#[tokio::test]
async fn a_duplicate_gets_the_same_status_headers_and_bytes() {
    let service = Setup::new()
        .serve(answering(|| {
            let headers = [
                ("location", "/payments/7"),
                ("x-custom", "one"),
                ("set-cookie", "session=secret"),
                ("x-request-id", "1"),
                ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ];
            (StatusCode::CREATED, headers, vec![0_u8, 159, 146, 150, 255])
        }))
        .await;
    let first = service.client.send(post("/pay").key("k")).await;
    assert_eq!(first.header("set-cookie"), Some("session=secret"));
    for _ in 0..3 {
        let again = service.client.send(post("/pay").key("k")).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        for name in [
            "location",
            "x-custom",
            "content-type",
            "content-length",
            "idempotency-key",
            "idempotency-expires",
        ] {
            assert_eq!(again.header(name), first.header(name), "{name}");
            assert!(again.header(name).is_some(), "{name}");
        }
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.header("set-cookie"), None);
        assert_eq!(again.header("x-request-id"), None);
        assert_ne!(again.header("date"), first.header("date"));
    }
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn repeated_headers_keep_their_order_and_lists_choose_what_is_stored() {
    let headers = StoredHeaders { allow: vec![http::header::SET_COOKIE], deny: vec![http::header::LOCATION] };
    let service = Setup::new()
        .options(Options { headers, ..Options::default() })
        .serve(answering(|| {
            let mut response = axum::response::Response::new(axum::body::Body::empty());
            for (name, value) in [
                ("link", "a"),
                ("link", "b"),
                ("set-cookie", "c=1"),
                ("location", "/x"),
                ("connection", "x-hop"),
                ("x-hop", "1"),
            ] {
                response.headers_mut().append(name, value.parse().unwrap());
            }
            response
        }))
        .await;
    service.client.send(post("/pay").key("k")).await;
    let again = service.client.send(post("/pay").key("k")).await;
    let links: Vec<_> = again.headers.get_all("link").iter().collect();
    assert_eq!(links, ["a", "b"]);
    assert_eq!(again.header("set-cookie"), Some("c=1"));
    assert_eq!(again.header("location"), None);
    assert_eq!(again.header("x-hop"), None);
}

#[tokio::test]
async fn business_refusals_and_redirects_are_answers() {
    for status in [200, 204, 301, 303, 400, 404, 409, 410, 422] {
        let status = StatusCode::from_u16(status).unwrap();
        let service = Setup::new().serve(answering(move || (status, [("location", "/done")]))).await;
        let first = service.client.send(post("/pay").key("k")).await;
        let again = service.client.send(post("/pay").key("k")).await;
        assert!(again.is_replay(), "{status}");
        assert_eq!((again.status, again.header("location")), (first.status, Some("/done")));
        assert_eq!(service.effects(), 1, "{status}");
    }
}

#[tokio::test]
async fn answers_that_say_not_now_free_the_key() {
    for status in [401, 403, 407, 408, 425, 429, 501] {
        let status = StatusCode::from_u16(status).unwrap();
        let service = Setup::new().serve(answering(move || status)).await;
        for effects in 1..=3 {
            let answer = service.client.send(post("/pay").key("k")).await;
            assert_eq!(answer.status, status);
            assert_eq!(service.effects(), effects, "{status}");
        }
    }
    let service =
        Setup::new().serve(answering(|| (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]))).await;
    for effects in 1..=2 {
        service.client.send(post("/pay").key("k")).await;
        assert_eq!(service.effects(), effects);
    }
}

#[tokio::test]
async fn a_released_key_still_belongs_to_its_payload() {
    let service = Setup::new().serve(answering(|| StatusCode::TOO_MANY_REQUESTS)).await;
    service.client.send(post("/pay").key("k").body("1")).await;
    service.client.send(post("/pay").key("k").body("2")).await.assert_problem(422, "payload-mismatch");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn server_errors_leave_doubt_and_never_run_again() {
    for status in [500, 502, 503, 504, 507] {
        let status = StatusCode::from_u16(status).unwrap();
        let service = Setup::new().serve(answering(move || (status, "boom"))).await;
        let first = service.client.send(post("/pay").key("k")).await;
        assert_eq!((first.status, &first.body[..]), (status, &b"boom"[..]));
        let problem = service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
        assert_eq!(problem["first_status"], status.as_u16());
        assert_eq!(problem["retryable"], false);
        service
            .client
            .send(post("/pay").key("k").body("other"))
            .await
            .assert_problem(422, "payload-mismatch");
        assert_eq!(service.effects(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_route_says_what_its_500_means() {
    for (on_500, effects, replayed) in [(On500::Release, 2, false), (On500::Keep, 1, true)] {
        let service = Setup::new()
            .options(Options { on_500, ..Options::default() })
            .serve(answering(|| (StatusCode::INTERNAL_SERVER_ERROR, "rolled back")))
            .await;
        service.client.send(post("/pay").key("k")).await;
        let again = service.client.send(post("/pay").key("k")).await;
        assert_eq!((again.status.as_u16(), again.is_replay()), (500, replayed));
        assert_eq!(service.effects(), effects);
    }
}

#[tokio::test]
async fn the_handler_decides_with_an_extension() {
    for (class, second, effects) in
        [(Class::Keep, 500, 1), (Class::Release, 500, 2), (Class::Unknown, 409, 1)]
    {
        let service = Setup::new()
            .serve(answering(move || (StatusCode::INTERNAL_SERVER_ERROR, axum::Extension(class))))
            .await;
        service.client.send(post("/pay").key("k")).await;
        let again = service.client.send(post("/pay").key("k")).await;
        assert_eq!(again.status, second, "{class:?}");
        assert_eq!(service.effects(), effects, "{class:?}");
    }
}

#[tokio::test]
async fn reject_mode_refuses_every_duplicate_and_stores_no_answer() {
    let settings = Settings { mode: Mode::Reject, ..Settings::default() };
    let service = Setup::new().settings(settings).counting().await;
    let first = service.client.send(post("/pay").key("k")).await;
    assert_eq!(first.status, 201);
    let problem = service.client.send(post("/pay").key("k")).await.assert_problem(409, "duplicate");
    assert_eq!(problem["retryable"], false);
    service.client.send(post("/pay").key("k").body("other")).await.assert_problem(422, "payload-mismatch");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn answers_expire_after_completion_and_reading_does_not_prolong_them() {
    let settings = Settings { retain: Duration::from_secs(3600), ..Settings::default() };
    let service = Setup::new().settings(settings).counting().await;
    let first = service.client.send(post("/pay").key("k")).await;
    for _ in 0..3 {
        service.clock.advance(Duration::from_secs(1199));
        let again = service.client.send(post("/pay").key("k")).await;
        assert!(again.is_replay());
        assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
    }
    service.clock.advance(Duration::from_secs(4));
    assert!(!service.client.send(post("/pay").key("k")).await.is_replay());
    assert_eq!(service.effects(), 2);
}

#[tokio::test]
async fn what_a_service_says_of_records_of_its_own_is_not_taken_for_ours() {
    const OWN: [(&str, &str); 4] = [
        ("idempotency-stored", "false"),
        ("onlyonce-fail-open", "true"),
        ("idempotency-expires", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("idempotency-key", "another"),
    ];
    let service = Setup::new().serve(answering(|| OWN)).await;
    for _ in 0..2 {
        let answer = service.client.send(post("/pay").key("k")).await;
        assert_eq!((answer.header("idempotency-stored"), answer.header("onlyonce-fail-open")), (None, None));
        assert_ne!(answer.header("idempotency-expires"), Some(OWN[2].1));
        assert_eq!(answer.header("idempotency-key"), Some("k"));
    }
}
