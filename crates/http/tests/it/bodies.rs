//! Limits: large, slow and streamed bodies.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use onlyonce_http::Options;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Setup, answering, eventually, post};

fn small() -> Options {
    Options { max_request: 1000, max_response: 1000, ..Options::default() }
}

#[tokio::test]
async fn a_request_over_the_limit_is_refused_and_never_bypasses() {
    let service = Setup::new().options(small()).counting().await;
    let problem = service.client.send(post("/pay").key("k").body(vec![b'x'; 1001])).await;
    assert!(problem.assert_problem(413, "request-too-large")["detail"].as_str().unwrap().contains("1000"));
    assert_eq!(service.effects(), 0);
    assert_eq!(service.client.send(post("/pay").key("k").body(vec![b'x'; 1000])).await.status, 201);
    // Without a key nothing is read into memory, and so nothing is limited.
    assert_eq!(service.client.send(post("/pay").body(vec![b'x'; 100_000])).await.status, 201);
}

#[tokio::test]
async fn a_request_of_unknown_length_over_the_limit_is_refused() {
    let service = Setup::new().options(small()).counting().await;
    let mut socket = TcpStream::connect(service.client.address).await.unwrap();
    let head = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    socket.write_all(format!("{head}{chunk}{chunk}0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(service.effects(), 0);
}

#[tokio::test]
async fn a_request_body_that_does_not_come_is_timed_out_and_nothing_runs() {
    let service = Setup::new().counting().await;
    let mut socket = TcpStream::connect(service.client.address).await.unwrap();
    let head = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 10\r\n\r\nhalf";
    socket.write_all(head.as_bytes()).await.unwrap();
    let clock = service.clock.clone();
    let reader = tokio::spawn(async move {
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    });
    eventually("the body is given up", async || {
        clock.advance(Duration::from_secs(10));
        reader.is_finished()
    })
    .await;
    let answer = reader.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request-timeout"), "{answer}");
    assert_eq!(service.effects(), 0);
}

#[tokio::test]
async fn a_client_that_goes_away_while_sending_its_body_leaves_no_record() {
    let service = Setup::new().counting().await;
    let mut socket = TcpStream::connect(service.client.address).await.unwrap();
    let head = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 10\r\n\r\nhalf";
    socket.write_all(head.as_bytes()).await.unwrap();
    drop(socket);
    let answer = service.client.send(post("/pay").key("k")).await;
    assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, false));
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn an_answer_at_the_limit_is_stored_and_one_over_it_leaves_a_tombstone() {
    for (size, retained) in [(1000, true), (1001, false)] {
        let service = Setup::new()
            .options(small())
            .serve(answering(move || {
                (http::StatusCode::CREATED, [("location", "/payments/7")], "x".repeat(size))
            }))
            .await;
        let first = service.client.send(post("/pay").key("k")).await;
        assert_eq!((first.status.as_u16(), first.body.len()), (201, size));
        let again = service.client.send(post("/pay").key("k")).await;
        if retained {
            assert!(again.is_replay());
            assert_eq!(again.body, first.body);
        } else {
            let problem = again.assert_problem(409, "response-not-retained");
            assert_eq!(problem["original_status"], 201);
            assert_eq!(problem["original_location"], "/payments/7");
            assert_eq!(again.header("location"), Some("/payments/7"));
            assert_eq!(problem["retryable"], false);
        }
        assert_eq!(service.effects(), 1);
    }
}

#[tokio::test]
async fn event_streams_pass_through_and_leave_a_tombstone() {
    for content_type in ["text/event-stream", "application/grpc+proto"] {
        let service =
            Setup::new().serve(answering(move || ([("content-type", content_type)], "data: 1\n\n"))).await;
        assert_eq!(service.client.send(post("/pay").key("k")).await.body, "data: 1\n\n");
        let again = service.client.send(post("/pay").key("k")).await;
        assert_eq!(again.assert_problem(409, "response-not-retained")["original_status"], 200);
        assert_eq!(service.effects(), 1);
    }
}

#[tokio::test]
async fn a_body_still_open_at_the_time_limit_is_passed_on_as_a_stream() {
    let service = Setup::new()
        .serve(answering(|| {
            let parts = stream::unfold(0, |n| async move {
                match n {
                    0 => Some((Ok::<_, Infallible>(Bytes::from_static(b"head ")), 1)),
                    1 => {
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        Some((Ok(Bytes::from_static(b"tail")), 2))
                    }
                    _ => None,
                }
            });
            Response::new(Body::from_stream(parts))
        }))
        .await;
    let client = service.client.clone();
    let first = tokio::spawn(async move { client.send(post("/pay").key("k")).await });
    eventually("the handler has run", async || service.effects() == 1).await;
    let clock = service.clock.clone();
    eventually("the body counts as a stream", async || {
        clock.advance(Duration::from_secs(1));
        first.is_finished()
    })
    .await;
    assert_eq!(first.await.unwrap().body, "head tail");
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "response-not-retained");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn an_answer_that_breaks_off_leaves_doubt() {
    let service = Setup::new()
        .serve(answering(|| {
            let parts = stream::iter([Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("reset"))]);
            Response::new(Body::from_stream(parts))
        }))
        .await;
    service.client.send(post("/pay").key("k")).await.assert_problem(500, "handler-failed");
    service.client.send(post("/pay").key("k")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(service.effects(), 1);
}
