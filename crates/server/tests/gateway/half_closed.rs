//! Callers that close their sending half behind a request: some wait for the answer, as `nc -N` does, and others have left.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::client::Answer;
use crate::program::{Gateway, Setup, eventually, post};
use crate::stores::key;
use crate::upstream::Upstream;

/// Sends all, closes the sending half, and reads to the end.
fn send(address: SocketAddr, request: &str) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

fn open_connections(gateway: &Gateway) -> usize {
    let metrics = gateway.admin("GET", "/metrics", "").text();
    let line = metrics.lines().find(|line| line.starts_with("onlyonce_connections ")).unwrap().to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn who_says_that_this_was_all_may_close_its_sending_half_and_gets_its_answer() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let chunks = "transfer-encoding: chunked\r\n\r\n4\r\npaid\r\n0\r\n\r\n";
    for path in ["/pay", "/slow/300"] {
        for request in [
            format!("GET {path} HTTP/1.0\r\n\r\n"),
            format!("POST {path} HTTP/1.0\r\ncontent-length: 4\r\n\r\npaid"),
            format!("GET {path} HTTP/1.1\r\nhost: x\r\nConnection: Close\r\n\r\n"),
            format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\npaid"),
            format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{chunks}"),
            format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nidempotency-key: {}\r\nconnection: close\r\n{chunks}",
                key("half")
            ),
        ] {
            let answer = send(gateway.address, &request);
            let answer = Answer::parse(&answer, false).unwrap_or_else(|| panic!("no answer to {request}"));
            assert_eq!(answer.status, 201, "{request}: {}", answer.text());
        }
    }
    eventually(|| open_connections(&gateway) == 0);
}

#[test]
fn within_a_body_the_end_is_still_a_cut_and_is_seen_at_once() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for key in ["", "x-tenant: a\r\nidempotency-key: half\r\n"] {
        for rest in [
            "content-length: 5\r\n\r\npaid",
            "transfer-encoding: chunked\r\n\r\n4\r\npaid\r\n",
            "transfer-encoding: chunked\r\n\r\n4\r\npaid\r\nnone\r\n",
        ] {
            let begun = Instant::now();
            let request = format!("POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{key}{rest}");
            let answer = send(gateway.address, &request);
            let told = Answer::parse(&answer, false).unwrap().is(400, "body-invalid").text();
            // Without a key the service may have its head and a part of its body.
            let careful = "With a key nothing was done; without one a part may have reached the service";
            assert!(told.contains(careful) && !told.contains("Nothing was done"), "{key}{rest}: {told}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{rest}: {:?}", begun.elapsed());
        }
    }
    assert_eq!(upstream.effects(), 0);
}

#[test]
fn who_might_send_more_has_left_when_it_closes_and_its_call_with_a_key_goes_on() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let key = key("left");
    let request = format!(
        "POST /slow/500 HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\ncontent-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: 1\r\n\r\nx"
    );
    assert!(send(gateway.address, &request).is_empty());
    let mut answer = None;
    eventually(|| {
        let again = post("/slow/500", &key, "x").send(gateway.address);
        let is_answered = again.is_replayed();
        answer = Some(again);
        is_answered
    });
    assert_eq!((answer.unwrap().status, upstream.effects_of(&key)), (201, 1));
}

#[test]
fn a_caller_that_has_left_is_found_when_it_is_written_to() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let request = "GET /drips/event-stream/2000/50 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    let mut buffer = [0; 16];
    socket.read_exact(&mut buffer).unwrap();
    drop(socket);
    eventually(|| open_connections(&gateway) == 0);
}

#[test]
fn who_is_refused_before_its_body_came_and_sends_no_more_is_let_go_at_once() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let begun = Instant::now();
    let answer = send(
        gateway.address,
        "POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nidempotency-key: a\r\nidempotency-key: b\r\nconnection: close\r\n\
         content-length: 100\r\n\r\nabc",
    );
    Answer::parse(&answer, false).unwrap().is(400, "key-invalid");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn who_closes_behind_its_last_request_gives_way_when_places_run_out_and_its_call_with_a_key_goes_on() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--connections", "4"])
        .with(&["--response-timeout", "30s"])
        .start();
    let key = key("gives-way");
    let plain = "GET /gated HTTP/1.0\r\n\r\n".to_owned();
    let closing = "GET /gated HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned();
    let keyed = format!(
        "POST /gated HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\ncontent-type: application/json\r\nidempotency-key: {key}\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx"
    );
    for (count, request) in [keyed, plain, closing.clone(), closing].into_iter().enumerate() {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        eventually(|| upstream.seen().len() == count + 1);
    }
    for _ in 0..4 {
        let begun = Instant::now();
        assert_eq!(post("/pay", &crate::stores::key("next"), "x").send(gateway.address).status, 201);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    upstream.open();
    let mut answer = None;
    eventually(|| {
        let again = post("/gated", &key, "x").send(gateway.address);
        let is_answered = again.is_replayed();
        answer = Some(again);
        is_answered
    });
    assert_eq!((answer.unwrap().status, upstream.effects_of(&key)), (201, 1));
}

#[test]
fn who_closes_its_sending_half_and_gets_its_answer_does_not_give_way() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--connections", "1"]).start();
    let address = gateway.address;
    let reader = std::thread::spawn(move || {
        send(address, "GET /drips/event-stream/30/100 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    });
    eventually(|| upstream.seen().len() == 1);
    assert_eq!(post("/pay", &key("next"), "x").send(address).status, 201);
    let answer = reader.join().unwrap();
    assert!(answer.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&answer));
}
