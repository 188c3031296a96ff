//! What an attacker might try.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::client::{Request, raw};
use crate::program::{Setup, eventually, post};
use crate::stores::key;
use crate::upstream::Upstream;

const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn what_two_servers_could_read_differently_is_refused_and_nothing_behind_it_is_a_request() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let canary = "POST /canary HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nidempotency-key: smuggled\r\ncontent-length: 0\r\n\r\n";
    for head in [
        "host: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n",
        "host: x\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "host: x\r\nContent-Length: 5\r\nTransfer-Encoding: CHUNKED\r\n",
        "host: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n",
        "host: x\r\ncontent-length: +5\r\n",
        "host: x\r\ncontent-length: -5\r\n",
        "host: x\r\ncontent-length: 0x5\r\n",
        "host: x\r\ncontent-length: 5, 5\r\n",
        "host: x\r\ncontent-length : 5\r\n",
        "host: x\r\ncontent-length:\r\n 5\r\n",
        "host: x\r\ntransfer-encoding: chunked, identity\r\n",
        "host: x\r\ntransfer-encoding: identity, chunked\r\n",
        "host: x\r\ntransfer-encoding: gzip, chunked\r\n",
        "host: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "host: x\r\ntransfer-encoding: xchunked\r\n",
        "host: x\r\ntransfer-encoding : chunked\r\n",
        "host: x\r\ntransfer-encoding:\x0bchunked\r\n",
        "host: x\r\nx: y\r\n transfer-encoding: chunked\r\n",
        "host: x\r\nhost: y\r\ncontent-length: 0\r\n",
        "content-length: 0\r\n",
    ] {
        for key in [format!("idempotency-key: {}\r\n", key("cl")), String::new()] {
            let request = format!("POST /pay HTTP/1.1\r\nx-tenant: a\r\n{key}{head}\r\n0\r\n\r\n{canary}");
            let answer = raw(gateway.address, request.as_bytes(), PATIENCE);
            assert!(answer.starts_with("HTTP/1.1 400"), "{head}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head}: {answer}");
        }
    }
    let old = format!("POST /pay HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{canary}");
    assert!(raw(gateway.address, old.as_bytes(), PATIENCE).starts_with("HTTP/1.1 400"));
    assert_eq!(upstream.seen().len(), 0);
    // The refusal says why, as every other.
    let both =
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let told = raw(gateway.address, both.as_bytes(), PATIENCE);
    assert!(told.contains("request-ambiguous") && told.contains("connection: close"), "{told}");
}

#[test]
fn an_ambiguous_request_in_a_pipeline_ends_the_connection() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let first = "POST /first HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx";
    let both =
        "POST /both HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let canary = "POST /canary HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let answers = raw(gateway.address, format!("{first}{both}{canary}").as_bytes(), PATIENCE);
    assert!(answers.matches("HTTP/1.1 ").count() <= 2, "{answers}");
    let seen = upstream.seen();
    assert!(seen.iter().all(|seen| seen.path != "/canary"), "{seen:?}");
    // What is taken of the second is its chunks, and the upstream hears of no length of five.
    assert!(
        seen.iter()
            .filter(|seen| seen.path == "/both")
            .all(|seen| seen.header("content-length") != Some("5"))
    );
    // Requests that are clear may follow each other on one connection, with either framing.
    let chunked = "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let last = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3\r\n\r\nxyz";
    let answers = raw(gateway.address, format!("{first}{chunked}{chunked}{last}").as_bytes(), PATIENCE);
    assert_eq!(
        (answers.matches("HTTP/1.1 201").count(), answers.matches("abc").count()),
        (4, 2),
        "{answers}"
    );
}

#[test]
fn a_replay_does_not_take_the_body_for_the_next_request() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let canary = "POST /canary HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let request = format!(
        "POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nidempotency-key: {}\r\ncontent-length: {}\r\n\r\n{canary}",
        key("pipelined"),
        canary.len()
    );
    raw(
        gateway.address,
        format!("{request}GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes(),
        PATIENCE,
    );
    let closing = request.replace("host: x\r\nx-tenant", "host: x\r\nconnection: close\r\nx-tenant");
    let replays = raw(gateway.address, format!("{request}{closing}").as_bytes(), PATIENCE);
    assert_eq!(replays.matches("idempotent-replayed: true").count(), 2, "{replays}");
    assert!(!upstream.seen().iter().any(|seen| seen.path == "/canary"));
}

#[test]
fn a_stored_answer_can_not_inject_a_header() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let key = key("inject");
    assert_eq!(gateway.post("/status/500", &key, "x").status, 500);
    let id = gateway.post("/status/500", &key, "x").json()["record"].as_str().unwrap().to_owned();
    let path = format!("/api/records/{id}/resolve");
    for headers in [
        "{\"x\":\"a\\r\\nset-cookie: stolen=1\"}",
        "{\"x y\":\"a\"}",
        "{\"transfer-encoding\":\"chunked\"}",
        "{\"content-length\":\"1\"}",
    ] {
        let decision = format!(
            "{{\"outcome\":\"completed\",\"status\":200,\"reason\":\"r\",\"headers\":{headers},\"body\":\"b\"}}"
        );
        assert_eq!(gateway.admin("POST", &path, &decision).status, 400, "{headers}");
    }
    let body = "{\"outcome\":\"completed\",\"status\":200,\"reason\":\"r\",\"body\":\"HTTP/1.1 200 OK\\r\\n\\r\\nsmuggled\"}";
    assert_eq!(gateway.admin("POST", &path, body).status, 200);
    let replay = gateway.post("/status/500", &key, "x");
    assert_eq!(replay.text(), "HTTP/1.1 200 OK\r\n\r\nsmuggled");
}

#[test]
fn slow_heads_bodies_and_idle_connections_are_closed() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--header-timeout", "1s"])
        .with(&["--body-timeout", "1s"])
        .with(&["--idle-timeout", "2s"])
        .start();
    let patience = Duration::from_secs(30);
    let closes = |bytes: &str, drip: bool| {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.set_read_timeout(Some(if drip { Duration::from_millis(200) } else { patience })).unwrap();
        socket.write_all(bytes.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut buffer = [0; 1024];
        for _ in 0..150 {
            match socket.read(&mut buffer) {
                Ok(0) => return String::from_utf8_lossy(&answer).into_owned(),
                Ok(read) => answer.extend_from_slice(&buffer[..read]),
                // A drop now and then keeps nothing alive.
                Err(_) if drip => {
                    if socket.write_all(b"a").is_err() {
                        return String::from_utf8_lossy(&answer).into_owned();
                    }
                }
                Err(error) => panic!("it was not closed: {error}"),
            }
        }
        panic!("it was not closed");
    };
    closes("POST /pay HTTP/1.1\r\nx-slow: ", true);
    closes("", false);
    let keyed = format!(
        "POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nidempotency-key: {}\r\ncontent-length: 1000\r\n\r\n",
        key("slow")
    );
    assert!(closes(&keyed, true).contains("408"), "a body with a key");
    closes("POST /pay HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nabc", false);
    let idle = closes("GET / HTTP/1.1\r\nhost: x\r\n\r\n", false);
    assert!(idle.starts_with("HTTP/1.1 201"), "{idle}");
    assert_eq!(upstream.effects_of("slow"), 0);
}

#[test]
fn connections_and_heads_are_limited() {
    let upstream = Upstream::start();
    let gateway =
        Setup::new("memory:", &upstream).with(&["--connections", "3"]).with(&["--max-head", "8KiB"]).start();
    let held: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut socket = TcpStream::connect(gateway.address).unwrap();
            socket.write_all(b"GET /gated HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            socket
        })
        .collect();
    eventually(|| upstream.seen().len() == 3);
    let one_more = raw(gateway.address, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Duration::from_millis(1500));
    assert_eq!(one_more, "", "there is no room, and nobody is idle");
    upstream.open();
    drop(held);
    assert_eq!(Request::new("GET", "/").send(gateway.address).status, 201);
    let huge = Request::new("GET", "/").header("x-huge", &"h".repeat(20_000));
    let answer = raw(gateway.address, &huge.bytes(), PATIENCE);
    assert!(answer.starts_with("HTTP/1.1 431") || answer.is_empty(), "{answer}");
}

#[test]
fn tunnels_and_unknown_own_paths_are_refused() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let answer = raw(
        gateway.address,
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\n\r\n",
        PATIENCE,
    );
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: GET"), "{answer}");
    let ids = Request::new("POST", "/_onlyonce/ids?count=3").send(gateway.address).json();
    assert_eq!(ids["ids"].as_array().unwrap().len(), 3);
    assert!(Request::new("GET", "/_onlyonce/once.js").send(gateway.address).text().contains("once"));
    let token = Request::new("POST", "/_onlyonce/tokens?method=POST&path=/pay").header("x-tenant", "a");
    assert!(token.send(gateway.address).json()["token"].is_string());
    Request::new("GET", "/_onlyonce/admin").send(gateway.address).is(404, "not-found");
    for (method, path, allowed) in [
        ("GET", "/_onlyonce/tokens", "POST"),
        ("OPTIONS", "/_onlyonce/tokens", "POST"),
        ("GET", "/_onlyonce/ids", "POST"),
        ("post", "/_onlyonce/tokens", "POST"),
        ("POST", "/_onlyonce/outcome", "GET, HEAD"),
        ("DELETE", "/_onlyonce/once.js", "GET, HEAD"),
    ] {
        let refused = Request::new(method, path).send(gateway.address);
        assert_eq!(refused.is(405, "method-refused").header("allow"), Some(allowed), "{method} {path}");
        assert!(refused.text().contains(&format!("(here: {allowed})")), "{}", refused.text());
    }
    assert_eq!(Request::new("HEAD", "/_onlyonce/once.js").send(gateway.address).status, 200);
    assert_eq!(upstream.seen().len(), 0, "the gateway's own paths are not the upstream's");
}

#[test]
fn memory_is_bounded_during_a_flood_of_unique_keys() {
    let upstream = Upstream::start();
    let gateway = Setup::new("embedded:./data", &upstream).start();
    let flood = |count: usize| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let address = gateway.address;
                std::thread::spawn(move || {
                    (0..count / 8)
                        .for_each(|_| drop(post("/pay", &key("flood"), &"x".repeat(2000)).send(address)))
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    };
    flood(800);
    let before = gateway.memory();
    flood(4_000);
    let grown = gateway.memory().saturating_sub(before);
    assert!(grown < 40 * 1024, "{grown} KiB more after 4000 keys of 2 KB");
}
