//! Answers whose framing can be read in several ways: all that callers get is what was read, framed once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::client::raw;
use crate::limits::{ask, connect, keyed, runtime};
use crate::program::{Gateway, Setup};
use crate::stores::key;
use crate::upstream::Upstream;

const CHUNKS: &str = "a\r\n0123456789\r\n0\r\n\r\n";

/// What the upstream answers: these lines in its head, and this behind it.
fn answer(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 201 Created\r\n{lines}\r\n{body}")
}

fn request(answer: &str, key: &str) -> String {
    let key = if key.is_empty() { String::new() } else { format!("idempotency-key: {key}\r\n") };
    let length = answer.len();
    format!("POST /raw HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\n{key}content-length: {length}\r\n\r\n{answer}")
}

/// The next answer of a connection that stays open, by its own framing: status, lengths that it names, body.
fn next(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> (String, Vec<String>, Vec<u8>) {
    let mut more = |buffer: &mut Vec<u8>| {
        let mut piece = [0; 4096];
        let read = socket.read(&mut piece).expect("an answer that has an end");
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(buffer));
        buffer.extend_from_slice(&piece[..read]);
    };
    let find = |buffer: &[u8], what: &[u8]| buffer.windows(what.len()).position(|window| window == what);
    let end = loop {
        match find(buffer, b"\r\n\r\n") {
            Some(end) => break end + 4,
            None => more(buffer),
        }
    };
    let head = String::from_utf8(buffer.drain(..end).collect()).unwrap().to_lowercase();
    let lengths: Vec<String> = head
        .lines()
        .filter_map(|line| line.strip_prefix("content-length:"))
        .map(|length| length.trim().to_owned())
        .collect();
    let mut body = Vec::new();
    if head.contains("transfer-encoding: chunked") {
        assert!(lengths.is_empty(), "{head}");
        loop {
            while find(buffer, b"\r\n").is_none() {
                more(buffer);
            }
            let line: Vec<u8> = buffer.drain(..find(buffer, b"\r\n").unwrap() + 2).collect();
            let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).expect(&head);
            while buffer.len() < size + 2 {
                more(buffer);
            }
            body.extend(buffer.drain(..size));
            buffer.drain(..2);
            if size == 0 {
                break;
            }
        }
    } else {
        let size: usize = lengths.first().expect("a length").parse().expect("one number");
        while buffer.len() < size {
            more(buffer);
        }
        body.extend(buffer.drain(..size));
    }
    (head[9..12].to_owned(), lengths, body)
}

/// Two calls on one connection of HTTP/1.1; returns the first answer.
fn twice(address: SocketAddr, answer: &str, key: &str) -> (String, Vec<String>, Vec<u8>) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = Vec::new();
    socket.write_all(request(answer, key).as_bytes()).unwrap();
    let first = next(&mut socket, &mut buffer);
    socket.write_all(b"GET /after HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let second = next(&mut socket, &mut buffer);
    assert!(second.0 == "201" && second.2.starts_with(b"effect"), "{answer}: {second:?}");
    first
}

fn over_http2(gateway: &Gateway, answer: &'static str, key: &str) -> (u16, usize) {
    runtime().block_on(async {
        let sender = connect(gateway.address, 65_535).await.unwrap();
        let (status, length) = ask(&sender, keyed("/raw", key), answer.as_bytes()).await;
        let after = http::Request::get("http://x/after").body(()).unwrap();
        assert_eq!(ask(&sender, after, b"").await.0, 201, "{answer}");
        (status.as_u16(), length)
    })
}

/// Keys of calls with and without one.
fn keys() -> [String; 2] {
    [key("framed"), String::new()]
}

#[test]
fn an_answer_with_a_length_and_chunks_is_what_its_chunks_say() {
    let gateway = Setup::new("memory:", &Upstream::start()).start();
    for lines in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 50\r\n",
        "content-length: 0\r\ntransfer-encoding: CHUNKED\r\n",
        "content-length: 10\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n",
        "content-length: x\r\ntransfer-encoding: chunked\r\n",
    ] {
        let answer: &'static str = answer(lines, CHUNKS).leak();
        for key in keys() {
            // The second time it is the kept one.
            for _ in 0..2 {
                let (status, _, body) = twice(gateway.address, answer, &key);
                assert_eq!((status.as_str(), body.as_slice()), ("201", &b"0123456789"[..]), "{lines}");
            }
        }
        for key in keys() {
            for _ in 0..2 {
                assert_eq!(over_http2(&gateway, answer, &key), (201, 10), "{lines}");
            }
        }
    }
}

#[test]
fn a_length_that_is_said_several_times_is_said_once() {
    let gateway = Setup::new("memory:", &Upstream::start()).start();
    for lines in ["content-length: 5, 5\r\n", "content-length: 5\r\ncontent-length: 5\r\n"] {
        let answer: &'static str = answer(lines, "hello").leak();
        for key in keys() {
            for _ in 0..2 {
                let (status, lengths, body) = twice(gateway.address, answer, &key);
                assert_eq!((status.as_str(), body.as_slice()), ("201", &b"hello"[..]), "{lines}");
                assert_eq!(lengths, ["5"], "{lines}");
            }
        }
        for key in keys() {
            assert_eq!(over_http2(&gateway, answer, &key), (201, 5), "{lines}");
        }
    }
}

#[test]
fn a_length_that_a_caller_of_http2_says_twice_reaches_the_service_once() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    runtime().block_on(async {
        let sender = connect(gateway.address, 65_535).await.unwrap();
        for key in keys() {
            let mut request = keyed("/pay", &key);
            for _ in 0..2 {
                request.headers_mut().append("content-length", 5.into());
            }
            assert_eq!(ask(&sender, request, b"hello").await.0, 201);
        }
    });
    for seen in upstream.seen() {
        let lengths = seen.headers.iter().filter(|(name, _)| name == "content-length");
        assert_eq!((lengths.count(), seen.body.as_slice()), (1, &b"hello"[..]), "{:?}", seen.headers);
    }
    assert_eq!(upstream.effects(), 2);
}

#[test]
fn an_answer_whose_framing_is_not_understood_is_broken() {
    let gateway = Setup::new("memory:", &Upstream::start()).start();
    for (lines, body) in [
        ("transfer-encoding: gzip, chunked\r\n", CHUNKS),
        ("transfer-encoding: gzip\r\ncontent-length: 5\r\nconnection: close\r\n", "0123456789"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", CHUNKS),
        ("transfer-encoding: chunked, chunked\r\n", CHUNKS),
        ("transfer-encoding: xchunked\r\n", CHUNKS),
        ("transfer-encoding: identity\r\ncontent-length: 5\r\n", "hello"),
        ("content-length: 5, 6\r\n", "hello!"),
        ("content-length: +5\r\n", "hello"),
        ("content-length: 5\r\ncontent-length: 6\r\n", "hello!"),
    ] {
        let answer: &'static str = answer(lines, body).leak();
        for key in keys() {
            let (status, _, text) = twice(gateway.address, answer, &key);
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(status == "502" && text.contains("upstream-failed"), "{lines}: {status} {text}");
            if !key.is_empty() {
                let (status, _, text) = twice(gateway.address, answer, &key);
                let text = String::from_utf8_lossy(&text).into_owned();
                assert!(status == "409" && text.contains("outcome-unknown"), "{lines}: {status} {text}");
            }
        }
        for key in keys() {
            assert_eq!(over_http2(&gateway, answer, &key).0, 502, "{lines}");
        }
    }
}

#[test]
fn an_answer_to_head_keeps_the_length_that_a_get_would_have() {
    let gateway = Setup::new("memory:", &Upstream::start()).start();
    let head = "HEAD /large/77 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let told = raw(gateway.address, head.as_bytes(), Duration::from_secs(10));
    assert!(told.starts_with("HTTP/1.1 201") && told.contains("content-length: 77\r\n"), "{told}");
}
