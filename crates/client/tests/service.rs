//! The layer around a client that is a tower service: the same calls, retries and errors as with reqwest.
#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use bytes::Bytes;
use common::Service;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use onlyonce_client::{
    Builder, CallKey, OnlyOnce, OnlyOnceService, OutcomeQuery, OutcomeUnknown, ServerSays,
};
use onlyonce_core::{Idempotency, MemoryStore};
use onlyonce_http::{IdempotencyLayer, ScopeFrom};
use onlyonce_testkit::{FaultProxy, NetFault};
use tokio::net::TcpListener;
use tower::{Layer as _, ServiceExt as _};
use tower_http::follow_redirect::FollowRedirect;

type Calls = OnlyOnceService<Client<HttpConnector, Full<Bytes>>>;

fn client(setup: impl FnOnce(Builder) -> Builder) -> Calls {
    let fast = Duration::from_millis(5);
    let once = setup(OnlyOnce::builder().pauses(fast, 10 * fast).attempt_timeout(Duration::from_secs(2)));
    once.build().unwrap().layer(Client::builder(TokioExecutor::new()).build_http())
}

fn call(address: SocketAddr, what: &'static str) -> Request<Full<Bytes>> {
    Request::post(format!("http://{address}/pay")).body(Full::from(what)).unwrap()
}

#[tokio::test]
async fn faults_of_the_network_and_busy_servers_give_one_effect_and_its_answer_under_one_key() {
    for fault in [
        NetFault::DropRequest,
        NetFault::DropReply,
        NetFault::ResetRequest { after: 20 },
        NetFault::ResetReply { after: 0 },
        NetFault::ResetReply { after: 30 },
        NetFault::HalfCloseReply,
    ] {
        let busy = |n| match n {
            0 => Some(StatusCode::SERVICE_UNAVAILABLE.into_response()),
            1 => Some((StatusCode::CONFLICT, [("retry-after", "0")]).into_response()),
            2 => Some(StatusCode::TOO_MANY_REQUESTS.into_response()),
            _ => None,
        };
        let service = Service::new();
        let (address, _) = service.serve("127.0.0.1:0", busy).await;
        let proxy = FaultProxy::start(address.to_string()).await.unwrap();
        proxy.next(fault, 2);
        let answer = client(|it| it).oneshot(call(proxy.address(), "7")).await.unwrap();
        assert_eq!(answer.status(), 201, "{fault:?}");
        let key = answer.extensions().get::<CallKey>().unwrap().0.clone();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, format!("paid 7, effect of {key}"), "{fault:?}");
        assert_eq!((service.effects(), service.keys()), (1, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn what_can_not_be_known_is_told_with_the_key_and_what_is_stored_is_fetched() {
    let service = Service::new();
    let (address, _) = service.serve("127.0.0.1:0", |_| None).await;
    let proxy = FaultProxy::start(address.to_string()).await.unwrap();
    let hasty = || client(|it| it.attempts(2).attempt_timeout(Duration::from_millis(500)));
    proxy.always(NetFault::DropReply);
    let error = hasty().oneshot(call(proxy.address(), "4")).await.unwrap_err();
    let unknown = error.downcast_ref::<OutcomeUnknown>().expect("it may have happened");
    assert_eq!((unknown.attempts(), unknown.server_says()), (2, None));
    assert!(!error.to_string().contains(unknown.key()), "keys do not belong in logs");
    proxy.heal().await;
    let mut again = call(proxy.address(), "4");
    again.headers_mut().insert("idempotency-key", unknown.key().parse().unwrap());
    assert_eq!(hasty().oneshot(again).await.unwrap().headers()["idempotent-replayed"], "true");

    proxy.next(NetFault::DropReply, 2);
    let answer = hasty().oneshot(call(proxy.address(), "8")).await.unwrap();
    assert_eq!(answer.headers()["idempotent-replayed"], "true", "the outcome query found it");
    assert_eq!((service.effects(), service.keys()), (2, 2));
}

#[tokio::test]
async fn a_server_that_does_not_know_is_believed_and_other_answers_are_given_back() {
    let once = Idempotency::new(MemoryStore::new());
    let app = Router::new()
        .route("/pay", post(async || StatusCode::INTERNAL_SERVER_ERROR))
        .layer(IdempotencyLayer::new(once, ScopeFrom::nobody()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broken = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let error = client(|it| it).oneshot(call(broken, "1")).await.unwrap_err();
    let unknown = error.downcast_ref::<OutcomeUnknown>().unwrap();
    assert_eq!((unknown.attempts(), unknown.server_says()), (2, Some(ServerSays::Unknown)));

    let service = Service::new();
    let (address, _) = service.serve("127.0.0.1:0", |_| None).await;
    let send = async |what| {
        let mut call = call(address, what);
        call.headers_mut().insert("idempotency-key", "mine".parse().unwrap());
        client(|it| it).oneshot(call).await.unwrap().status()
    };
    assert_eq!((send("1").await, send("2").await), (StatusCode::CREATED, StatusCode::UNPROCESSABLE_ENTITY));
    assert_eq!(service.posts(), 2, "a 422 is never retried");
    let read = Request::get(format!("http://{address}/pay")).body(Full::default()).unwrap();
    let answer = client(|it| it).oneshot(read).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "false", "a GET needs no key");
}

#[tokio::test]
async fn nobody_listening_was_never_sent_and_a_server_that_is_down_is_not_stormed() {
    let error = client(|it| it.attempts(3)).oneshot(call(([127, 0, 0, 1], 1).into(), "1")).await.unwrap_err();
    assert!(error.downcast_ref::<OutcomeUnknown>().is_none(), "{error}");

    let service = Service::new();
    let (address, _) =
        service.serve("127.0.0.1:0", |_| Some(StatusCode::SERVICE_UNAVAILABLE.into_response())).await;
    let calls = client(|it| it.retry_allowance(30, 0).outcome_query(OutcomeQuery::Off));
    let all: Vec<_> = (0..100).map(|_| tokio::spawn(calls.clone().oneshot(call(address, "1")))).collect();
    for one in all {
        assert!(one.await.unwrap().unwrap_err().downcast_ref::<OutcomeUnknown>().is_some());
    }
    // 100 calls, 30 retries in reserve, and one with every five calls. Without a bound it would be 800.
    let posts = service.posts();
    assert!((100..=150).contains(&posts), "{posts}");
    assert_eq!((service.effects(), service.keys()), (0, 100));
}

#[tokio::test]
async fn a_redirect_is_given_back_and_one_that_was_followed_below_is_unknown() {
    let app = Router::new().fallback(async || "a page");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let page = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    for to in ["http://127.0.0.1:1/pay".to_owned(), page] {
        let service = Service::new();
        let location = to.clone();
        let answers =
            move |_| Some((StatusCode::SEE_OTHER, [("location", location.clone())]).into_response());
        let (address, _) = service.serve("127.0.0.1:0", answers).await;
        let plain = client(|it| it).oneshot(call(address, "1")).await.unwrap();
        assert_eq!((plain.status(), service.posts()), (StatusCode::SEE_OTHER, 1));
        let hyper = Client::builder(TokioExecutor::new()).build_http();
        let once =
            OnlyOnce::builder().attempts(2).pauses(Duration::from_millis(5), Duration::from_millis(50));
        let follows = once.build().unwrap().layer(FollowRedirect::new(hyper));
        let answered = follows.oneshot(call(address, "1")).await;
        let error = answered.map(|answer| answer.status()).expect_err(&to);
        assert!(error.downcast_ref::<OutcomeUnknown>().is_some(), "{to}: {error:?}");
    }
}
