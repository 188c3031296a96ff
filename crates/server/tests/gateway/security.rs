//! What an attacker might try.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::client::{Request, raw};
use crate::program::{Setup, post};
use crate::stores::key;
use crate::upstream::Upstream;

const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn with_both_length_and_chunks_nothing_behind_the_message_is_a_request() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let canary = "POST /canary HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nidempotency-key: smuggled\r\ncontent-length: 0\r\n\r\n";
    for head in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "content-length: 5\r\ncontent-length: 6\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "content-length: +5\r\n",
        "content-length: 5, 5\r\n",
    ] {
        let request = format!(
            "POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nidempotency-key: {}\r\n{head}\r\n0\r\n\r\n{canary}",
            key("cl")
        );
        let answer = raw(gateway.address, request.as_bytes(), PATIENCE);
        assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{head}: {answer}");
    }
    assert!(!upstream.seen().iter().any(|seen| seen.path == "/canary"));
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
        let decision =
            format!("{{\"outcome\":\"completed\",\"reason\":\"r\",\"headers\":{headers},\"body\":\"b\"}}");
        assert_eq!(gateway.admin("POST", &path, &decision).status, 400, "{headers}");
    }
    let body =
        "{\"outcome\":\"completed\",\"reason\":\"r\",\"body\":\"HTTP/1.1 200 OK\\r\\n\\r\\nsmuggled\"}";
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
    let held: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(gateway.address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(300));
    let one_more = raw(gateway.address, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Duration::from_millis(500));
    assert_eq!(one_more, "", "there is no room");
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
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    let ids = Request::new("POST", "/_onlyonce/ids?count=3").send(gateway.address).json();
    assert_eq!(ids["ids"].as_array().unwrap().len(), 3);
    assert!(Request::new("GET", "/_onlyonce/once.js").send(gateway.address).text().contains("once"));
    let token = Request::new("POST", "/_onlyonce/tokens?method=POST&path=/pay").header("x-tenant", "a");
    assert!(token.send(gateway.address).json()["token"].is_string());
    Request::new("GET", "/_onlyonce/admin").send(gateway.address).is(404, "not-found");
    Request::new("POST", "/_onlyonce/outcome").send(gateway.address).is(404, "not-found");
    assert_eq!(upstream.seen().len(), 0, "the gateway's own paths are not the upstream's");
}

#[test]
fn a_token_that_does_not_verify_is_denied_and_never_taken_for_absent() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("secret"), "a-secret-that-is-long-enough\n").unwrap();
    let gateway = Setup::new("memory:", &upstream)
        .home(home.path())
        .with(&["--scope", "jwt:sub"])
        .with(&["--jwt-key", "secret"])
        .with(&["--jwt-algorithms", "HS256"])
        .start();
    let token = |sub: &str, expires: i64, secret: &str, algorithm| {
        let claims = serde_json::json!({ "sub": sub, "exp": expires });
        let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
        jsonwebtoken::encode(&jsonwebtoken::Header::new(algorithm), &claims, &key).unwrap()
    };
    use jsonwebtoken::Algorithm::{HS256, HS384};
    let (secret, later) = ("a-secret-that-is-long-enough", 99_999_999_999);
    let pay = |token: &str, key: &str| {
        let request = Request::new("POST", "/pay").header("idempotency-key", key).body("x");
        request.header("authorization", &format!("Bearer {token}")).send(gateway.address)
    };
    let key = key("jwt");
    let first = pay(&token("ann", later, secret, HS256), &key);
    assert_eq!(first.status, 201);
    let refreshed = pay(&token("ann", later - 1, secret, HS256), &key);
    assert!(refreshed.is_replayed(), "a refreshed token is the same caller");
    assert!(!pay(&token("bob", later, secret, HS256), &key).is_replayed());
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJhbm4iLCJleHAiOjk5OTk5OTk5OTk5fQ.";
    for wrong in [
        token("ann", 1_000_000_000, secret, HS256).as_str(),
        &token("ann", later, "another-secret-long-enough", HS256),
        &token("ann", later, secret, HS384),
        none,
        "nonsense",
        "",
    ] {
        pay(wrong, &key).is(401, "scope-denied");
    }
    Request::new("POST", "/pay")
        .header("idempotency-key", &key)
        .body("x")
        .send(gateway.address)
        .is(400, "scope-missing");
    assert_eq!(upstream.effects(), 2);
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
