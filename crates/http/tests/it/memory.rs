//! One budget of memory for all that is buffered.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use http::{Request, Response, StatusCode};
use onlyonce_core::{Idempotency, MemoryStore};
use onlyonce_http::{IdempotencyLayer, MemoryBudget, Options, ScopeFrom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Gate, Setup, eventually, post};

/// Sends a head that promises a body, and `part` of that body.
async fn half_a_request(address: std::net::SocketAddr, key: &str, part: usize) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head =
        format!("POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: {key}\r\ncontent-length: 900000\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&vec![b'x'; part]).await.unwrap();
    socket
}

#[tokio::test]
async fn a_budget_full_of_half_read_bodies_refuses_what_is_new_and_finishes_what_runs() {
    let budget = MemoryBudget::new(4 << 20);
    let (gate, layered) = (Gate::new(), budget.clone());
    let handlers = gate.clone();
    let service = Setup::new()
        .layer(move |layer| layer.memory(layered))
        .serve(|_| {
            Router::new().fallback(move || {
                let gate = handlers.clone();
                async move {
                    gate.pass().await;
                    "y".repeat(900_000)
                }
            })
        })
        .await;
    let running = ["a", "b"].map(|key| {
        let client = service.client.clone();
        tokio::spawn(async move { client.send(post("/pay").key(key).body("small")).await })
    });
    gate.arrival().await;
    gate.arrival().await;
    let mut half_read = Vec::new();
    for n in 0..8 {
        half_read.push(half_a_request(service.client.address, &format!("half-{n}"), 500_000).await);
    }
    // Three quarters are for what has not begun, and half-read bodies may fill them, but no more.
    eventually("the budget is full", async || budget.used() > 2_500_000).await;
    let problem = service.client.send(post("/pay").key("new").body(vec![b'x'; 800_000])).await;
    assert_eq!(problem.assert_problem(503, "overloaded")["retryable"], true);
    assert_eq!(problem.header("retry-after"), Some("1"));
    assert!(budget.used() <= 3 << 20, "{}", budget.used());
    gate.open(2);
    for running in running {
        let answer = running.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 900_000));
    }
    for key in ["a", "b"] {
        assert!(service.client.send(post("/pay").key(key).body("small")).await.is_replay());
    }
    // What was refused has left nothing behind, and runs once there is room.
    drop(half_read);
    eventually("all is given back", async || budget.used() == 0).await;
    gate.open(1);
    let answer = service.client.send(post("/pay").key("new").body(vec![b'x'; 800_000])).await;
    assert_eq!((answer.status.as_u16(), answer.is_replay()), (200, false));
}

#[test]
fn what_the_budget_could_never_take_is_refused_when_the_layer_is_built() {
    let build = |options: Options| {
        let once = Idempotency::new(MemoryStore::new());
        let builder = IdempotencyLayer::builder(once, ScopeFrom::nobody()).memory(MemoryBudget::new(8 << 20));
        builder.route("POST /x", options).build().map(drop).map_err(|error| error.to_string())
    };
    let (most, more) = (6 << 20, (6 << 20) + 1);
    assert_eq!(build(Options { max_request: most, max_response: most, ..Options::default() }), Ok(()));
    for wrong in [
        Options { max_request: more, ..Options::default() },
        Options { max_response: more, ..Options::default() },
    ] {
        assert!(build(wrong).unwrap_err().contains("6291456 bytes"));
    }
}

#[tokio::test]
async fn a_body_in_tiny_pieces_is_read_whole() {
    let service = Setup::new().counting().await;
    let mut socket = TcpStream::connect(service.client.address).await.unwrap();
    let head = "POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: k\r\ntransfer-encoding: chunked\r\n\r\n";
    let (tiny, large) = ("1\r\nx\r\n".repeat(70_000), format!("4000\r\n{}\r\n", "y".repeat(0x4000)));
    socket.write_all(format!("{head}{tiny}{large}{tiny}0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(&format!("of {} bytes", 140_000 + 0x4000)), "{answer}");
}

#[tokio::test]
async fn answers_that_nobody_reads_stay_within_the_budget_and_none_is_lost() {
    const CALLS: usize = 20;
    const SIZE: usize = 900_000;
    let budget = MemoryBudget::new(4 << 20);
    let options = Options { response_patience: Duration::from_millis(100), ..Options::default() };
    let once = Idempotency::new(MemoryStore::new());
    let layer = IdempotencyLayer::builder(once, ScopeFrom::nobody()).options(options).memory(budget.clone());
    let (gate, layer) = (Gate::new(), layer.build().unwrap());
    let handlers = gate.clone();
    let service = layer.layer(service_fn(move |_| {
        let gate = handlers.clone();
        async move {
            gate.pass().await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(vec![b'y'; SIZE])))
        }
    }));
    let call = |number: usize| {
        let request = Request::post("/pay").header("idempotency-key", format!("key-{number}"));
        service.clone().oneshot(request.body(Body::from("x")).unwrap())
    };
    let running: Vec<_> = (0..CALLS).map(|number| tokio::spawn(call(number))).collect();
    for _ in 0..CALLS {
        gate.arrival().await;
    }
    gate.open(CALLS);
    let mut unread = Vec::new();
    for running in running {
        let answer = tokio::time::timeout(Duration::from_secs(10), running).await;
        unread.push(answer.expect("nobody waits for a reader").unwrap().unwrap());
        assert!(budget.used() <= budget.limit() + 2 * SIZE, "{} of {}", budget.used(), budget.limit());
    }
    let held = unread.iter().filter(|answer| answer.status() == StatusCode::OK).count();
    assert!((1..CALLS).contains(&held), "{held} are held");
    for told in unread.iter().filter(|answer| answer.status() != StatusCode::OK) {
        assert_eq!(
            (told.status(), &told.headers()["retry-after"]),
            (StatusCode::CONFLICT, &"1".parse().unwrap())
        );
    }
    let more = call(CALLS).await.unwrap();
    assert_eq!(more.status(), StatusCode::SERVICE_UNAVAILABLE, "no more begin");
    drop(unread);
    assert_eq!(budget.used(), 0);
    for number in 0..CALLS {
        let answer = call(number).await.unwrap();
        assert_eq!(answer.headers()["idempotent-replayed"], "true");
        assert_eq!(
            to_bytes(Body::new(answer.into_body()), SIZE).await.unwrap(),
            Bytes::from(vec![b'y'; SIZE])
        );
    }
}
