//! The client against a service behind the layer, over a network that loses, delays and resets; every effect is in a ledger.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use common::Service;
use http::Extensions;
use onlyonce_client::{CallKey, OnlyOnce, OutcomeQuery, OutcomeUnknown, ServerSays};
use onlyonce_core::{Idempotency, MemoryStore};
use onlyonce_http::{IdempotencyLayer, ScopeFrom};
use onlyonce_testkit::{FaultProxy, Ledger, NetFault};
use reqwest::Request;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::net::TcpListener;

const FAST: Duration = Duration::from_millis(5);

fn client(setup: impl FnOnce(onlyonce_client::Builder) -> onlyonce_client::Builder) -> ClientWithMiddleware {
    let builder = OnlyOnce::builder().pauses(FAST, 10 * FAST).attempt_timeout(Duration::from_secs(2));
    let http = onlyonce_client::http().no_proxy().build().unwrap();
    ClientBuilder::new(http).with(setup(builder).build().unwrap()).build()
}

fn passes(_: u32) -> Option<Response> {
    None
}

async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

async fn pay(
    client: &ClientWithMiddleware,
    address: SocketAddr,
    what: &str,
) -> reqwest_middleware::Result<String> {
    let response = client.post(format!("http://{address}/pay")).body(what.to_owned()).send().await?;
    assert_eq!(response.status(), 201, "{response:?}");
    response.text().await.map_err(Into::into)
}

#[tokio::test]
async fn lost_replies_resets_and_delays_give_one_effect_and_its_answer() {
    for fault in [
        NetFault::DropRequest,
        NetFault::DropReply,
        NetFault::ResetRequest { after: 20 },
        NetFault::ResetReply { after: 0 },
        NetFault::ResetReply { after: 30 },
        NetFault::HalfCloseReply,
        NetFault::DelayReply(Duration::from_millis(50)),
    ] {
        let service = Service::new();
        let (address, _server) = service.serve("127.0.0.1:0", passes).await;
        let proxy = FaultProxy::start(address.to_string()).await.unwrap();
        proxy.next(fault, 2);
        let answer = pay(&client(|builder| builder), proxy.address(), "7").await.unwrap();
        assert!(answer.starts_with("paid 7"), "{fault:?}: {answer}");
        assert_eq!((service.effects(), service.keys()), (1, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn many_calls_over_a_bad_network_have_one_effect_each() {
    let service = Service::new();
    let (address, _server) = service.serve("127.0.0.1:0", passes).await;
    let proxy = FaultProxy::start(address.to_string()).await.unwrap();
    let faults = [
        NetFault::ResetReply { after: 0 },
        NetFault::ResetReply { after: 60 },
        NetFault::ResetRequest { after: 10 },
        NetFault::HalfCloseReply,
        NetFault::DelayReply(Duration::from_millis(20)),
    ];
    proxy.at_random(7, 300, &faults);
    let client = client(|builder| builder.attempts(20));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (client, address) = (client.clone(), proxy.address());
            tokio::spawn(async move {
                for n in 0..10 {
                    let what = format!("{task}-{n}");
                    let answer = pay(&client, address, &what).await.unwrap();
                    assert!(answer.starts_with(&format!("paid {what},")), "{answer}");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((service.effects(), service.keys()), (80, 80));
    assert!(proxy.traffic().faults > 10, "{:?}", proxy.traffic());
}

#[tokio::test]
async fn busy_and_failing_servers_are_asked_again_with_the_same_key_after_what_they_ask_for() {
    let answer = |status: u16, retry: Option<&'static str>| {
        let mut response = StatusCode::from_u16(status).unwrap().into_response();
        if let Some(retry) = retry {
            response.headers_mut().insert("retry-after", retry.parse().unwrap());
        }
        response
    };
    let service = Service::new();
    let answers = move |n: u32| match n {
        0 => Some(answer(429, Some("0"))),
        1 => Some(answer(500, None)),
        2 => Some(answer(503, Some("1"))),
        3 => Some(answer(502, None)),
        4 => Some(answer(408, None)),
        5 => Some(answer(409, Some("0"))),
        _ => None,
    };
    let (address, _server) = service.serve("127.0.0.1:0", answers).await;
    let client = client(|builder| builder.app("billing"));
    let sent = client.post(format!("http://{address}/pay")).body("9").send();
    let too_early = tokio::time::timeout(Duration::from_millis(900), sent);
    assert!(too_early.await.is_err(), "it asked for a second");

    let service = Service::new();
    let (address, _server) = service.serve("127.0.0.1:0", answers).await;
    let response = client.post(format!("http://{address}/pay")).body("9").send().await.unwrap();
    let key = response.extensions().get::<CallKey>().unwrap().0.clone();
    assert!(key.starts_with("billing_"));
    assert_eq!(response.text().await.unwrap(), format!("paid 9, effect of {key}"));
    assert_eq!((service.effects(), service.keys(), service.posts()), (1, 1, 7));
}

#[tokio::test]
async fn a_duplicate_of_a_call_that_still_runs_waits_for_its_answer() {
    let service = Service { takes: Duration::from_millis(600), ..Service::new() };
    let (address, _server) = service.serve("127.0.0.1:0", passes).await;
    // The first attempt is given up on while the handler runs; the next ones hear "in progress".
    let client = client(|builder| builder.attempt_timeout(Duration::from_millis(200)).attempts(20));
    let answer = pay(&client, address, "5").await.unwrap();
    assert!(answer.starts_with("paid 5"));
    assert_eq!((service.effects(), service.keys()), (1, 1));
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_is_found_again() {
    let service = Service { takes: Duration::from_millis(100), ..Service::new() };
    let (address, server) = service.serve("127.0.0.1:0", passes).await;
    let client = client(|builder| builder.attempts(50).pauses(FAST, Duration::from_millis(100)));
    let call = tokio::spawn(async move { pay(&client, address, "3").await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.abort();
    let _ = server.await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (_, _again) = service.serve(&address.to_string(), passes).await;
    // Its handler may have been running when it died; then the honest answer is that nobody knows.
    match call.await.unwrap() {
        Ok(answer) => assert!(answer.starts_with("paid 3")),
        Err(error) => assert!(OutcomeUnknown::of(&error).is_some(), "{error}"),
    }
    assert!(service.effects() <= 1);
    assert_eq!(service.keys(), 1);
}

#[tokio::test]
async fn when_no_reply_ever_comes_the_caller_is_told_that_nobody_knows_and_with_which_key_to_retry() {
    let service = Service::new();
    let (address, _server) = service.serve("127.0.0.1:0", passes).await;
    let proxy = FaultProxy::start(address.to_string()).await.unwrap();
    proxy.always(NetFault::DropReply);
    let client = client(|builder| builder.attempts(2).attempt_timeout(Duration::from_millis(500)));
    let error = pay(&client, proxy.address(), "4").await.unwrap_err();
    let unknown = OutcomeUnknown::of(&error).expect("it may have happened");
    assert_eq!((unknown.attempts(), unknown.server_says()), (2, None));
    assert!(!error.to_string().contains(unknown.key()), "keys do not belong in logs");
    proxy.heal().await;
    // Later, with the key that was kept: the answer of that time, and still one effect.
    let again =
        client.post(format!("http://{}/pay", proxy.address())).header("idempotency-key", unknown.key());
    let answer = again.body("4").send().await.unwrap();
    assert_eq!(answer.headers()["idempotent-replayed"], "true");
    assert_eq!((service.effects(), service.keys()), (1, 1));
}

#[tokio::test]
async fn after_time_outs_the_outcome_query_finds_the_answer_that_was_stored() {
    let service = Service::new();
    let (address, _server) = service.serve("127.0.0.1:0", passes).await;
    let proxy = FaultProxy::start(address.to_string()).await.unwrap();
    proxy.next(NetFault::DropReply, 2);
    let client = client(|builder| builder.attempts(2).attempt_timeout(Duration::from_millis(500)));
    let answer = pay(&client, proxy.address(), "8").await.unwrap();
    assert!(answer.starts_with("paid 8"));
    assert_eq!((service.effects(), service.keys()), (1, 1));
}

#[tokio::test]
async fn a_server_that_does_not_know_says_so_and_is_not_asked_again() {
    let once = Idempotency::new(MemoryStore::new());
    let app = Router::new()
        .route("/pay", post(async || StatusCode::INTERNAL_SERVER_ERROR))
        .layer(IdempotencyLayer::new(once, ScopeFrom::nobody()));
    let address = listen(app).await;
    let client = client(|builder| builder);
    let error = client.post(format!("http://{address}/pay")).body("1").send().await.unwrap_err();
    let unknown = OutcomeUnknown::of(&error).unwrap();
    assert_eq!(unknown.server_says(), Some(ServerSays::Unknown));
    assert_eq!((unknown.attempts(), unknown.last_status()), (2, Some(StatusCode::CONFLICT)));
}

#[tokio::test]
async fn a_mismatch_and_other_answers_are_given_back_at_once() {
    let service = Service::new();
    let (address, _server) = service.serve("127.0.0.1:0", passes).await;
    let client = client(|builder| builder);
    let send = async |body: &'static str| {
        let request = client.post(format!("http://{address}/pay")).header("idempotency-key", "mine");
        request.body(body).send().await.unwrap().status()
    };
    assert_eq!(send("1").await, 201);
    assert_eq!(send("2").await, 422);
    assert_eq!(service.posts(), 2, "a 422 is never retried");
    assert_eq!(client.get(format!("http://{address}/nothing")).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn nobody_listening_is_not_unknown_but_never_sent() {
    let client = client(|builder| builder.attempts(3));
    let error = client.post("http://127.0.0.1:1/pay").body("1").send().await.unwrap_err();
    assert!(OutcomeUnknown::of(&error).is_none() && error.is_connect(), "{error}");
}

#[tokio::test]
async fn a_server_that_is_down_is_not_stormed() {
    let service = Service::new();
    let down = |_| Some(StatusCode::SERVICE_UNAVAILABLE.into_response());
    let (address, _server) = service.serve("127.0.0.1:0", down).await;
    let client = client(|builder| builder.retry_allowance(30, 0).outcome_query(OutcomeQuery::Off));
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                let sent = client.post(format!("http://{address}/pay")).body(n.to_string()).send().await;
                assert!(OutcomeUnknown::of(&sent.unwrap_err()).is_some());
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    // 100 calls, 30 retries in reserve, and one with every five calls. Without a bound it would be 800.
    assert!((100..=150).contains(&service.posts()), "{}", service.posts());
    assert_eq!((service.effects(), service.keys()), (0, 100));
}

#[tokio::test]
async fn a_stripe_like_server_with_a_header_of_its_own_is_understood() {
    let seen = Ledger::in_memory();
    let log = seen.clone();
    let charge = async move |headers: HeaderMap| {
        log.record(headers["x-request-key"].to_str().unwrap(), "seen").unwrap();
        match log.effects().unwrap().len() {
            1 => (StatusCode::CONFLICT, r#"{"error":{"type":"idempotency_error"}}"#),
            2 => (StatusCode::INTERNAL_SERVER_ERROR, "{}"),
            _ => (StatusCode::OK, r#"{"id":"ch_1"}"#),
        }
    };
    let address = listen(Router::new().route("/v1/charges", post(charge))).await;
    let client = client(|builder| builder.header("x-request-key".parse().unwrap()));
    let answer = client.post(format!("http://{address}/v1/charges")).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), r#"{"id":"ch_1"}"#);
    let keys = seen.effects().unwrap();
    assert!(keys.len() == 3 && keys.iter().all(|effect| effect.key == keys[0].key));
}

/// A server that answers everything with a redirect to there, and how many posts it saw.
async fn redirecting(status: u16, to: &str) -> (Arc<AtomicU32>, SocketAddr) {
    let (status, to, posts) =
        (StatusCode::from_u16(status).unwrap(), to.to_owned(), Arc::new(AtomicU32::new(0)));
    let seen = Arc::clone(&posts);
    let app = Router::new().fallback(async move |method: Method| {
        seen.fetch_add(u32::from(method == Method::POST), Ordering::SeqCst);
        (status, [("location", to)])
    });
    (posts, listen(app).await)
}

/// Where nobody listens.
const NOBODY: &str = "http://127.0.0.1:1/pay";

/// A page that answers whatever is asked.
async fn page(status: u16) -> String {
    let status = StatusCode::from_u16(status).unwrap();
    let app = Router::new().fallback(async move || (status, "a page"));
    format!("http://{}/page", listen(app).await)
}

#[tokio::test]
async fn redirects_of_keyed_calls_are_given_back_and_those_of_others_are_followed() {
    let elsewhere = page(200).await;
    for status in [301, 302, 303, 307, 308] {
        for to in [NOBODY, &elsewhere, "/pay", "ftp://nowhere/"] {
            let (posts, address) = redirecting(status, to).await;
            let answer =
                client(|it| it).post(format!("http://{address}/pay")).body("1").send().await.unwrap();
            assert_eq!((answer.status().as_u16(), posts.load(Ordering::SeqCst)), (status, 1), "{to}");
        }
    }
    let moved =
        listen(Router::new().fallback(async move || (StatusCode::FOUND, [("location", elsewhere)]))).await;
    let answer = client(|it| it).get(format!("http://{moved}/")).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "a page");
}

/// With a client that follows redirects, what comes back is not the answer to the call; nor is an error of the second hop one of the
/// first.
#[tokio::test]
async fn a_call_that_a_client_has_taken_elsewhere_is_unknown_whatever_came_of_it_there() {
    // For its provider of TLS.
    drop(onlyonce_client::http());
    let follows = reqwest::Client::builder().no_proxy().build().unwrap();
    let once =
        OnlyOnce::builder().pauses(FAST, 10 * FAST).attempts(2).attempt_timeout(Duration::from_secs(2));
    let follows = ClientBuilder::new(follows).with(once.build().unwrap()).build();
    let pages = [page(200).await, page(404).await, page(500).await];
    let targets = [NOBODY, "/pay", "ftp://nowhere/", &pages[0], &pages[1], &pages[2]];
    for (status, to) in [303, 307].into_iter().flat_map(|status| targets.map(|to| (status, to))) {
        let (posts, address) = redirecting(status, to).await;
        let sent = follows.post(format!("http://{address}/pay")).body("1").send().await;
        let error = sent.expect_err(to);
        let unknown = OutcomeUnknown::of(&error).unwrap_or_else(|| panic!("{status} {to}: {error:?}"));
        assert!(posts.load(Ordering::SeqCst) >= 1);
        assert!(std::error::Error::source(unknown).is_some(), "it says why: {unknown:?}");
    }
    // A call that stays where it was sent is answered as ever.
    let service = Service::new();
    let (address, _server) = service.serve("127.0.0.1:0", passes).await;
    assert!(pay(&follows, address, "7").await.unwrap().starts_with("paid 7"));
}

/// Another middleware: it fails before it sends, or after, from its `from`th call on.
struct Fails {
    from: u32,
    after: bool,
    calls: AtomicU32,
}

#[async_trait::async_trait]
impl Middleware for Fails {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let n = self.calls.fetch_add(1, Ordering::SeqCst);
        let fails = || reqwest_middleware::Error::middleware(std::io::Error::other("a middleware failed"));
        if n < self.from {
            return next.run(request, extensions).await;
        }
        if self.after {
            next.run(request, extensions).await?;
        }
        Err(fails())
    }
}

#[tokio::test]
async fn an_error_of_another_middleware_is_an_unknown_outcome() {
    for (cut, from, after) in [(0, 0, true), (1, 1, false), (1, 1, true)] {
        let service = Service::new();
        let (address, _server) = service.serve("127.0.0.1:0", passes).await;
        let proxy = FaultProxy::start(address.to_string()).await.unwrap();
        proxy.next(NetFault::ResetReply { after: 0 }, cut);
        let once = OnlyOnce::builder().pauses(FAST, 10 * FAST).build().unwrap();
        let fails = Fails { from, after, calls: 0.into() };
        let http = onlyonce_client::http().no_proxy().build().unwrap();
        let client = ClientBuilder::new(http).with(once).with(fails).build();
        let error = pay(&client, proxy.address(), "1").await.unwrap_err();
        let unknown = OutcomeUnknown::of(&error).unwrap_or_else(|| panic!("{cut} {after}: {error:?}"));
        let cause = std::error::Error::source(unknown).unwrap().to_string();
        assert!(cause.contains("a middleware failed"), "{cause}");
        assert_eq!((service.effects(), unknown.attempts()), (1, from + 1));
    }
}
