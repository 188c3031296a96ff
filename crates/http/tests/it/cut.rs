//! What was cut off never counts as whole, in either direction.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::{Stream, StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce_core::{MemoryStore, Settings};
use onlyonce_http::Options;
use onlyonce_testkit::{Fault, FaultyStore, Op, frames};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Gate, Service, Setup, answering, eventually, post};

const HEAD: &str = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\nte: trailers\r\n";

/// How a request is sent over HTTP/2, behind its head.
fn over_http2(more: &[(&str, &str)], rest: &[Vec<u8>]) -> Vec<u8> {
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/pay")];
    let head = [&head[..], &[("idempotency-key", "k")], more].concat();
    [frames::opening(), frames::head(1, &head, false), rest.concat(), frames::ping()].concat()
}

/// Everything that a client may send of a request before it ends too early.
fn cut_requests() -> Vec<(String, Vec<u8>)> {
    let mut cut: Vec<(String, Vec<u8>)> = [
        ("length too short", "content-length: 14\r\n\r\n{\"amount\":"),
        ("no chunk", "transfer-encoding: chunked\r\n\r\n"),
        ("chunk cut", "transfer-encoding: chunked\r\n\r\nE\r\n{\"amount\":"),
        ("no last chunk", "transfer-encoding: chunked\r\n\r\nE\r\n{\"amount\":100}\r\n"),
        ("last chunk cut", "transfer-encoding: chunked\r\n\r\nE\r\n{\"amount\":100}\r\n0\r\n"),
        ("trailer cut", "transfer-encoding: chunked\r\ntrailer: x\r\n\r\nE\r\n{\"amount\":100}\r\n0\r\nx: y"),
    ]
    .map(|(name, rest)| (name.to_owned(), format!("{HEAD}{rest}").into_bytes()))
    .into();
    let part = frames::data(1, b"{\"amount\":1", false);
    for code in 0..=0xd {
        cut.push((format!("reset {code:x}"), over_http2(&[], &[part.clone(), frames::reset(1, code)])));
        let with_length = over_http2(&[("content-length", "14")], &[part.clone(), frames::reset(1, code)]);
        cut.push((format!("reset {code:x} against its length"), with_length));
        cut.push((format!("reset {code:x} before the body"), over_http2(&[], &[frames::reset(1, code)])));
    }
    let short = frames::data(1, b"{\"amount\":1", true);
    cut.push(("length too short in HTTP/2".into(), over_http2(&[("content-length", "14")], &[short])));
    cut.push(("gone".into(), over_http2(&[], &[part.clone(), frames::go_away(0, 0)])));
    cut.push(("cut within a frame".into(), over_http2(&[], &[part[..12].to_vec()])));
    cut
}

/// Sends bytes, closes, and waits until the other end has heard it.
async fn send_and_close(address: SocketAddr, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    if bytes.starts_with(b"PRI") {
        // The pong says that all before was read; a connection that ends instead says so too.
        let mut buffer = [0; 1024];
        while !answer.windows(17).any(|seen| seen == frames::pong()) {
            match tokio::time::timeout(Duration::from_millis(100), socket.read(&mut buffer)).await {
                Ok(Ok(read @ 1..)) => answer.extend_from_slice(&buffer[..read]),
                _ => break,
            }
        }
    }
    socket.shutdown().await.unwrap();
    // A reset is an end, too.
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_request_that_was_cut_off_does_not_run_and_burns_no_key() {
    for (name, bytes) in cut_requests() {
        let service = Setup::new().counting().await;
        send_and_close(service.client.address, &bytes).await;
        assert_eq!(service.effects(), 0, "{name}");
        let whole = service.client.send(post("/pay").key("k")).await;
        assert_eq!((whole.status.as_u16(), service.effects()), (201, 1), "{name}");
        assert!(whole.body.ends_with(b"of 14 bytes"), "{name}");
    }
}

#[tokio::test]
async fn a_whole_request_runs_also_if_its_stream_is_reset_behind_its_end() {
    let ends = [
        vec![frames::data(1, b"{\"amount\":100}", true)],
        vec![frames::data(1, b"{\"amount\":100}", false), frames::data(1, b"", true)],
        vec![frames::data(1, b"{\"amount\":100}", false), frames::head(1, &[("x-sum", "7")], true)],
    ];
    for end in ends {
        let service = Setup::new().counting().await;
        send_and_close(service.client.address, &over_http2(&[], &end)).await;
        eventually("it ran", async || service.effects() == 1).await;
        let again = service.client.send(post("/pay").key("k")).await;
        assert!(again.is_replay() && again.body.ends_with(b"of 14 bytes"));
    }
}

/// The kinds of answers that are read or passed on in different ways.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Small,
    Large,
    Events,
    Slow,
}

const SHAPES: [Shape; 4] = [Shape::Small, Shape::Large, Shape::Events, Shape::Slow];

type Piece = Result<Bytes, io::Error>;

/// An answer of this shape, with this behind its first piece.
fn shaped(shape: Shape, rest: impl Stream<Item = Piece> + Send + 'static) -> Response {
    let first = Bytes::from(if shape == Shape::Large { "x".repeat(2000) } else { "half".into() });
    // Anything but a slow one is there at once, so that no clock is asked.
    let pause = stream::once(async move {
        if shape == Shape::Slow {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let rest = pause.filter_map(|()| std::future::ready(None)).chain(rest);
    let first = stream::once(std::future::ready(Ok(first)));
    let mut response = Response::new(Body::from_stream(first.chain(rest)));
    if shape == Shape::Events {
        response.headers_mut().insert(CONTENT_TYPE, "text/event-stream".parse().unwrap());
    }
    response
}

fn options() -> Options {
    Options { max_response: 1000, response_patience: Duration::from_millis(1), ..Options::default() }
}

async fn ask(service: &Service) -> String {
    let socket = TcpStream::connect(service.client.address).await;
    let mut socket = socket.unwrap();
    let body = "{\"amount\":100}";
    let request = format!("{HEAD}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).await.unwrap();
    let clock = service.clock.clone();
    let reading = tokio::spawn(async move {
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    });
    // Slow answers are waited for by the clock of the test.
    eventually("the answer ends", async || {
        clock.advance(Duration::from_secs(1));
        reading.is_finished()
    })
    .await;
    reading.await.unwrap()
}

/// Whether an answer in chunks came with its end.
fn is_whole(answer: &str) -> bool {
    answer.ends_with("\r\n0\r\n\r\n")
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_unknown_whatever_its_size() {
    for shape in SHAPES {
        let broken = move || shaped(shape, stream::iter([Err(io::Error::other("reset"))]));
        let service = Setup::new().options(options()).serve(answering(broken)).await;
        let first = ask(&service).await;
        if shape == Shape::Small {
            assert!(first.starts_with("HTTP/1.1 500"), "{first}");
        } else {
            // What breaks off at once may take its head with it.
            assert!(!is_whole(&first) && !first.starts_with("HTTP/1.1 500"), "{shape:?}: {first}");
        }
        service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
        let outcome =
            service.client.get("/_onlyonce/outcome?method=POST&path=/pay", &[("idempotency-key", "k")]).await;
        assert_eq!(outcome.json()["state"], "unknown", "{shape:?}");
        assert_eq!(service.effects(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_ends_is_done_whatever_its_size() {
    for shape in SHAPES {
        let whole = move || shaped(shape, stream::iter([Ok(Bytes::from_static(b" and half"))]));
        let service = Setup::new().options(options()).serve(answering(whole)).await;
        let first = ask(&service).await;
        assert!(first.starts_with("HTTP/1.1 200") && first.contains("and half"), "{shape:?}: {first}");
        let again = service.client.send(post("/pay").key("k")).await;
        if shape == Shape::Small {
            assert!(again.is_replay(), "{again:?}");
        } else {
            again.assert_problem(409, "response-not-retained");
        }
        assert_eq!(service.effects(), 1);
    }
}

/// Over HTTP/1.1 a length that is reached is the end for the caller, while trailers still come to us.
#[tokio::test]
async fn whoever_has_a_whole_answer_finds_its_call_ended() {
    for shape in [Shape::Small, Shape::Large, Shape::Events] {
        let whole = move || {
            let first = "x".repeat(if shape == Shape::Large { 2000 } else { 4 });
            let length = first.len();
            let pieces: [Result<_, Infallible>; 2] =
                [Ok(Frame::data(Bytes::from(first))), Ok(Frame::trailers(http::HeaderMap::new()))];
            let mut response = Response::new(Body::new(StreamBody::new(stream::iter(pieces))));
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
            if shape == Shape::Events {
                response.headers_mut().insert(CONTENT_TYPE, "text/event-stream".parse().unwrap());
            }
            response
        };
        let setup = Setup::new();
        // An answer that does not wait for the store is there long before its record.
        let store = FaultyStore::new(Arc::new(MemoryStore::new().with_clock(setup.clock())));
        store.always(Op::Settle, Fault::Delay(Duration::from_millis(300)));
        let service = setup.store(Arc::new(store)).options(options()).serve(answering(whole)).await;
        let first = service.client.send(post("/pay").key("k")).await;
        assert_eq!(first.status, 200, "{shape:?}: {first:?}");
        let again = service.client.send(post("/pay").key("k")).await;
        if shape == Shape::Small {
            assert!(again.is_replay(), "{again:?}");
        } else {
            again.assert_problem(409, "response-not-retained");
        }
    }
}

#[tokio::test]
async fn an_answer_shorter_than_its_length_is_unknown() {
    for shape in SHAPES {
        let short = move || {
            let mut response = shaped(shape, stream::empty());
            response.headers_mut().insert(CONTENT_LENGTH, "3000".parse().unwrap());
            response
        };
        let service = Setup::new().options(options()).serve(answering(short)).await;
        ask(&service).await;
        service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
        assert_eq!(service.effects(), 1);
    }
}

/// A service that answers over HTTP/2 with a part of its body, and then resets its stream.
async fn resetting(code: u32) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let settings = &frames::opening()[24..];
                let mut buffer = [0; 4096];
                // The head of the request comes behind the greeting and the other end's word that it has ours.
                socket.write_all(settings).await.unwrap();
                while !buffer.windows(5).any(|seen| seen == b"\x01\x04\0\0\0" || seen == b"\x01\x05\0\0\0") {
                    if socket.read(&mut buffer).await.unwrap() == 0 {
                        return;
                    }
                }
                let head = frames::head(1, &[(":status", "200")], false);
                let cut = [head, frames::data(1, b"half", false), frames::reset(1, code)].concat();
                socket.write_all(&cut).await.unwrap();
                let _ = socket.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn an_answer_of_another_service_that_resets_its_stream_is_unknown() {
    for code in [0, 2, 8] {
        let upstream = resetting(code).await;
        let relay = move |ledger| {
            let router: axum::Router = answering(|| ())(ledger);
            router.layer(axum::middleware::from_fn(move |request, next: axum::middleware::Next| async move {
                next.run(request).await;
                let socket = TcpStream::connect(upstream).await.unwrap();
                let (mut sender, connection) =
                    hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                        .await
                        .unwrap();
                tokio::spawn(connection);
                let request = http::Request::get(format!("http://{upstream}/")).body(String::new()).unwrap();
                sender.send_request(request).await.unwrap().map(Body::new)
            }))
        };
        let service = Setup::new().serve(relay).await;
        service.client.send(post("/pay").key("k")).await.assert_problem(500, "handler-failed");
        service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
        assert_eq!(service.effects(), 1, "{code}");
    }
}

/// An endless stream of events that ends when the gate opens.
fn events(gate: &Gate) -> impl Fn() -> Response + Clone + Send + Sync + use<> {
    let gate = gate.clone();
    move || {
        let gate = gate.clone();
        let rest = stream::once(async move {
            gate.pass().await;
            Ok(Bytes::from_static(b" and half"))
        });
        shaped(Shape::Events, rest)
    }
}

async fn begin(service: &Service) -> TcpStream {
    let mut socket = TcpStream::connect(service.client.address).await.unwrap();
    let request = format!("{HEAD}connection: close\r\ncontent-length: 14\r\n\r\n{{\"amount\":100}}");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"half\r\n") {
        let read = socket.read_buf(&mut seen).await.unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&seen));
    }
    let head = String::from_utf8_lossy(&seen).into_owned();
    assert!(!head.contains("idempotency-expires"), "whether it will be kept is not known: {head}");
    socket
}

#[tokio::test]
async fn while_an_answer_streams_its_call_is_in_progress() {
    let gate = Gate::new();
    let service = Setup::new().serve(answering(events(&gate))).await;
    let mut first = begin(&service).await;
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "in-progress");
    gate.open(1);
    let mut rest = String::new();
    first.read_to_string(&mut rest).await.unwrap();
    assert!(is_whole(&rest), "{rest}");
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "response-not-retained");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_caller_that_leaves_a_stream_stops_nothing() {
    let gate = Gate::new();
    let service = Setup::new().serve(answering(events(&gate))).await;
    drop(begin(&service).await);
    gate.arrival().await;
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "in-progress");
    gate.open(1);
    eventually("it is done", async || {
        service.client.send(post("/pay").key("k")).await.json()["type"]
            == "urn:onlyonce:problem:response-not-retained"
    })
    .await;
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_stream_longer_than_max_run_is_unknown_until_it_ends() {
    let gate = Gate::new();
    let settings = Settings { max_run: Duration::from_secs(60), ..Settings::default() };
    let service = Setup::new().settings(settings).serve(answering(events(&gate))).await;
    let mut first = begin(&service).await;
    let clock = service.clock.clone();
    eventually("its lease is over", async || {
        clock.advance(Duration::from_secs(5));
        service.client.send(post("/pay").key("k")).await.json()["type"]
            == "urn:onlyonce:problem:outcome-unknown"
    })
    .await;
    gate.open(1);
    let mut rest = String::new();
    first.read_to_string(&mut rest).await.unwrap();
    assert!(is_whole(&rest), "{rest}");
    // Nobody took over, so what its end says is the truth.
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "response-not-retained");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_stream_that_panics_is_unknown() {
    let panicking = || shaped(Shape::Events, stream::once(async { panic!("in the middle of an answer") }));
    let service = Setup::new().serve(answering(panicking)).await;
    assert!(!is_whole(&ask(&service).await));
    eventually("it is known to be unknown", async || {
        service.client.send(post("/pay").key("k")).await.json()["type"]
            == "urn:onlyonce:problem:outcome-unknown"
    })
    .await;
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_route_may_pass_on_its_answers_as_they_come() {
    let gate = Gate::new();
    let lines = {
        let gate = gate.clone();
        move || {
            let gate = gate.clone();
            let rest = async move {
                gate.pass().await;
                Ok(Bytes::from_static(b" and half"))
            };
            shaped(Shape::Small, stream::once(rest))
        }
    };
    let options = Options { response_patience: Duration::ZERO, ..Options::default() };
    let service = Setup::new().options(options).serve(answering(lines)).await;
    let mut first = begin(&service).await;
    gate.open(1);
    let mut rest = String::new();
    first.read_to_string(&mut rest).await.unwrap();
    assert!(is_whole(&rest), "{rest}");
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "response-not-retained");
}

/// An answer with a trailer.
fn with_trailer() -> Response {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    trailers.insert("server-timing", "db;dur=1".parse().unwrap());
    let parts: [Result<_, Infallible>; 2] =
        [Ok(Frame::data(Bytes::from_static(b"paid"))), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(Body::new(StreamBody::new(stream::iter(parts))));
    response.headers_mut().insert("trailer", "x-sum, server-timing".parse().unwrap());
    response
}

#[tokio::test]
async fn trailers_of_an_answer_come_with_it_and_with_its_replays() {
    let service = Setup::new().serve(answering(with_trailer)).await;
    let first = ask(&service).await;
    assert!(first.contains("trailer: x-sum, server-timing\r\n"), "{first}");
    assert!(first.ends_with("paid\r\n0\r\nx-sum: 7\r\nserver-timing: db;dur=1\r\n\r\n"), "{first}");
    let again = ask(&service).await;
    assert!(again.contains("idempotent-replayed: true") && again.contains("trailer: x-sum\r\n"), "{again}");
    assert!(
        again.ends_with("paid\r\n0\r\nx-sum: 7\r\n\r\n"),
        "what belongs to one moment is not kept: {again}"
    );
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn trailers_of_a_request_reach_the_handler() {
    let routes = |_| {
        axum::Router::new().fallback(|request: axum::extract::Request| async move {
            let length = request.headers().contains_key(CONTENT_LENGTH);
            let whole = request.into_body().collect().await.unwrap();
            let sum = whole.trailers().and_then(|trailers| trailers.get("x-sum")).cloned();
            format!("{sum:?} {length} {}", whole.to_bytes().len())
        })
    };
    let service = Setup::new().serve(routes).await;
    let chunked = format!(
        "{HEAD}connection: close\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n4\r\npaid\r\n0\r\nx-sum: 7\r\n\r\n"
    );
    for _ in 0..2 {
        let mut socket = TcpStream::connect(service.client.address).await.unwrap();
        socket.write_all(chunked.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("Some(\"7\") false 4"), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_without_a_body_that_does_not_end_is_unknown_and_not_given_out() {
    for patience in [Duration::ZERO, Duration::from_secs(5)] {
        let options = Options { response_patience: patience, ..Options::default() };
        let service = Setup::new()
            .options(options)
            .serve(|ledger| {
                axum::Router::new().fallback(move || {
                    let ledger = ledger.clone();
                    async move {
                        ledger.record("k", "").unwrap();
                        let endless =
                            futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>();
                        (http::StatusCode::NO_CONTENT, Body::from_stream(endless))
                    }
                })
            })
            .await;
        let clock = service.clock.clone();
        let time = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                clock.advance(Duration::from_millis(500));
            }
        });
        service.client.send(post("/pay").key("k")).await.assert_problem(500, "handler-failed");
        time.abort();
        service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
        assert_eq!(service.effects(), 1);
    }
}
