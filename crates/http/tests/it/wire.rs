//! On the wire: framing, pipelining, HTTP/2, and services other than axum.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use onlyonce_core::{Idempotency, MemoryStore};
use onlyonce_http::{IdempotencyLayer, RequestBody, ScopeFrom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, service_fn};

use crate::support::{Service, Setup};

async fn exchange(service: &Service, bytes: &str) -> String {
    let mut socket = TcpStream::connect(service.client.address).await.unwrap();
    socket.write_all(bytes.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_replay_does_not_take_the_body_for_the_next_request() {
    let service = Setup::new().counting().await;
    let canary = "POST /canary HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let request = format!(
        "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: {}\r\n\r\n{canary}",
        canary.len()
    );
    exchange(&service, &request).await;
    let replay = exchange(&service, &format!("{request}{request}")).await;
    assert_eq!(replay.matches("idempotent-replayed: true").count(), 2, "{replay}");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn with_both_length_and_chunks_nothing_behind_the_message_is_a_request() {
    let service = Setup::new().counting().await;
    let request = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let canary = "POST /canary HTTP/1.1\r\nhost: x\r\nidempotency-key: smuggled\r\ncontent-length: 0\r\n\r\n";
    for _ in 0..2 {
        let answer = exchange(&service, &format!("{request}{canary}")).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn any_service_of_http_requests_can_be_wrapped_also_over_http2() {
    let once = Idempotency::new(MemoryStore::new());
    let layer = IdempotencyLayer::new(once, ScopeFrom::nobody());
    let plain = service_fn(async |request: Request<RequestBody<hyper::body::Incoming>>| {
        let length = request.into_body().collect().await.unwrap().to_bytes().len();
        let nonce: u64 = rand_number();
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{length} bytes, nonce {nonce}")))))
    });
    let service = TowerToHyperService::new(layer.layer(plain));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(socket), service)
            .await
    });
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let request = Request::post(format!("http://{address}/pay")).header("idempotency-key", "k");
        let response = sender
            .send_request(request.body(Full::new(Bytes::from_static(b"hello"))).unwrap())
            .await
            .unwrap();
        bodies.push(response.into_body().collect().await.unwrap().to_bytes());
    }
    assert!(bodies[0].starts_with(b"5 bytes"));
    assert_eq!(bodies[0], bodies[1]);
}

/// Differs from run to run of the handler.
fn rand_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
