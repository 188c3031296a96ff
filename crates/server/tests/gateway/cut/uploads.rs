//! Bodies that nobody waits for, that are answered early, or that have trailers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::service::{Service, Speech};
use crate::client::{Answer, Request};
use crate::program::{Gateway, Setup, post};
use crate::stores::key;
use crate::traffic::curl;
use crate::upstream::Upstream;

/// More than all buffers on the way can hold.
const LARGE: usize = 16 << 20;

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Reads until what came ends like this.
fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !seen.ends_with(end.as_bytes()) {
        match socket.read(&mut byte) {
            Ok(1) => seen.push(byte[0]),
            ended => panic!("{ended:?} after {}", String::from_utf8_lossy(&seen)),
        }
    }
    String::from_utf8(seen).unwrap()
}

/// A service that serves one connection after the other like this, and sends what is returned.
fn service<T: Send + 'static>(serve: impl Fn(TcpStream) -> T + Send + 'static) -> (SocketAddr, Receiver<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let _ = sender.send(serve(socket));
        }
    });
    (address, receiver)
}

fn before(scheme: &str, address: SocketAddr) -> Gateway {
    Setup::new("memory:", &Upstream::start()).with(&["--upstream", &format!("{scheme}://{address}")]).start()
}

#[test]
fn an_upload_that_is_answered_early_goes_on() {
    // Answers at once, and then reads what comes.
    let (address, uploads) = service(|mut socket| {
        read_until(&mut socket, "\r\n\r\n");
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        let mut body = vec![0; LARGE];
        socket.read_exact(&mut body).map(|()| body.iter().filter(|byte| **byte == b'x').count())
    });
    let direct = before("http", address);
    let chained = before("h2c", direct.address);
    for gateway in [&direct, &chained] {
        let mut socket = connect(gateway.address);
        let head = format!("POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\ncontent-length: {LARGE}\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        assert!(read_until(&mut socket, "\r\n\r\nok").starts_with("HTTP/1.1 200"));
        socket.write_all(&vec![b'x'; LARGE]).unwrap();
        assert_eq!(uploads.recv_timeout(Duration::from_secs(60)).unwrap().unwrap(), LARGE);
        // The connection is good for more.
        socket.write_all(b"GET /_onlyonce/nothing HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        assert!(read_until(&mut socket, "\r\n\r\n").starts_with("HTTP/1.1 404"));
    }
}

#[test]
fn an_upload_may_take_longer_than_a_head_after_it_was_answered() {
    let (address, uploads) = service(|mut socket| {
        read_until(&mut socket, "\r\n\r\n");
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        let mut body = [0; 40];
        socket.read_exact(&mut body).map(|()| body.len())
    });
    let upstream = format!("http://{address}");
    let setup = Setup::new("memory:", &Upstream::start()).with(&["--upstream", &upstream]);
    let gateway = setup.with(&["--header-timeout", "1s"]).start();
    let mut socket = connect(gateway.address);
    socket.write_all(b"POST /pay HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\n\r\n").unwrap();
    read_until(&mut socket, "\r\n\r\nok");
    for _ in 0..40 {
        thread::sleep(Duration::from_millis(60));
        socket.write_all(b"x").unwrap();
    }
    assert_eq!(uploads.recv_timeout(Duration::from_secs(60)).unwrap().unwrap(), 40);
}

#[test]
fn an_upload_that_its_upstream_does_not_take_does_not_cost_the_answer() {
    let (address, _served) = service(|mut socket| {
        read_until(&mut socket, "\r\n\r\n");
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        // It stays there, and reads no more.
        socket
    });
    let setup = Setup::new("memory:", &Upstream::start()).with(&["--upstream", &format!("http://{address}")]);
    let gateway = setup.with(&["--body-timeout", "1s"]).start();
    let request = Request::new("POST", "/pay").body("x".repeat(LARGE));
    assert_eq!(request.send(gateway.address).text(), "ok");
}

#[test]
fn a_client_that_sends_everything_before_it_reads_gets_its_refusal() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--max-request", "1KiB"])
        .with(&["--max-body", "1KiB"])
        .config("[[route]]\nmatch = \"POST /strict\"\nmissing = \"reject\"\n")
        .start();
    let large = "x".repeat(LARGE);
    let request = |path: &str| Request::new("POST", path).header("x-tenant", "a").body(&large);
    for _ in 0..5 {
        request("/pay")
            .header("idempotency-key", &key("late"))
            .send(gateway.address)
            .is(413, "request-too-large");
        request("/pay").send(gateway.address).is(413, "request-too-large");
        request("/strict").send(gateway.address).is(400, "key-missing");
        let mut socket = connect(gateway.address);
        let head = "POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nconnection: close\r\nidempotency-key: chunks\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(format!("{head}{LARGE:x}\r\n{large}\r\n0\r\n\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        Answer::parse(&answer, false).unwrap().is(413, "request-too-large");
    }
    let file = gateway.home.join("large");
    std::fs::write(&file, &large).unwrap();
    let (file, url) = (format!("@{}", file.display()), format!("http://{}/pay", gateway.address));
    for header in ["idempotency-key: large", "x-no: key"] {
        let told = curl(&[
            "--http2-prior-knowledge",
            "-H",
            "x-tenant: a",
            "-H",
            header,
            "--data-binary",
            &file,
            &url,
        ]);
        assert!(told.starts_with("HTTP/2 413") && told.contains("request-too-large"), "{told}");
    }
    assert_eq!(upstream.effects(), 0);
}

#[test]
fn who_waits_for_100_continue_hears_a_refusal_before_it_sends_its_body() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--max-request", "1KiB"])
        .with(&["--max-body", "1KiB"])
        .start();
    let head = |key: &str, length: usize| {
        format!(
            "POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\n{key}expect: 100-continue\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let keyed = format!("idempotency-key: {}\r\n", key("expect"));
    for key in [&keyed[..], ""] {
        let mut socket = connect(gateway.address);
        socket.write_all(head(key, LARGE).as_bytes()).unwrap();
        let refusal = read_until(&mut socket, "\r\n\r\n");
        assert!(refusal.starts_with("HTTP/1.1 413"), "{refusal}");
        assert_eq!(upstream.effects(), 0);
    }
    for key in [&keyed[..], ""] {
        let mut socket = connect(gateway.address);
        socket.write_all(head(key, 9).as_bytes()).unwrap();
        assert_eq!(read_until(&mut socket, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
        socket.write_all(b"amount=10").unwrap();
        assert!(read_until(&mut socket, "\r\n\r\n").starts_with("HTTP/1.1 201"));
    }
}

#[test]
fn trailers_go_both_ways_with_a_key_and_without_and_are_replayed() {
    let (address, requests) = service(|mut socket| {
        let mut seen = read_until(&mut socket, "\r\n\r\n");
        seen.push_str(&read_until(&mut socket, "\r\n\r\n"));
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n4\r\npaid\r\n0\r\nx-sum: 7\r\n\r\n";
        socket.write_all(answer.as_bytes()).unwrap();
        seen
    });
    let gateway = before("http", address);
    let keyed = format!("idempotency-key: {}\r\n", key("trailers"));
    for (key, replayed) in [("", false), (&keyed[..], false), (&keyed[..], true)] {
        let mut socket = connect(gateway.address);
        let head = "POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nconnection: close\r\nte: trailers\r\ntrailer: x-in\r\ntransfer-encoding: chunked\r\n";
        socket.write_all(format!("{head}{key}\r\n4\r\npaid\r\n0\r\nx-in: 5\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("trailer: x-sum\r\n"), "{answer}");
        assert!(answer.ends_with("4\r\npaid\r\n0\r\nx-sum: 7\r\n\r\n"), "{answer}");
        assert_eq!(answer.contains("idempotent-replayed: true"), replayed);
        if !replayed {
            let seen = requests.recv_timeout(Duration::from_secs(60)).unwrap();
            assert!(seen.ends_with("4\r\npaid\r\n0\r\nx-in: 5\r\n\r\n"), "{seen}");
        }
    }
}

#[test]
fn a_route_may_pass_on_its_answers_as_they_come() {
    let home = tempfile::tempdir().unwrap();
    let service = Service::start(Speech { http2: false, tls: false }, home.path());
    let gateway = Setup::new("memory:", &Upstream::start())
        .with(&["--upstream", &format!("http://{}", service.address)])
        .config("[[route]]\nmatch = \"POST /slow/{end}\"\nbuffer_response = \"0s\"\n")
        .start();
    let mut socket = connect(gateway.address);
    let key = key("lines");
    socket.write_all(&post("/slow/whole-chunks", &key, "x").bytes()).unwrap();
    read_until(&mut socket, "half\r\n");
    // It is still on its way: the service stands still before the end.
    gateway.post("/slow/whole-chunks", &key, "x").is(409, "in-progress");
    read_until(&mut socket, "0\r\n\r\n");
    gateway.post("/slow/whole-chunks", &key, "x").is(409, "response-not-retained");
}

#[test]
fn what_is_wrong_with_a_callers_body_is_told_as_its_own_whatever_the_upstream_speaks() {
    let (upstream, service) = (Upstream::start(), crate::trailed::Service::start());
    for url in [upstream.url(), format!("h2c://{}", service.address)] {
        let gateway = Setup::new("memory:", &upstream)
            .with(&["--upstream", &url])
            .with(&["--max-body", "1KiB"])
            .with(&["--body-timeout", "1s"])
            .variable("RUST_LOG", "onlyonce=debug")
            .start();
        let head = "POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        let send = |body: &str| {
            let mut socket = connect(gateway.address);
            socket.write_all(format!("{head}{body}").as_bytes()).unwrap();
            socket
        };
        let told = |mut socket: TcpStream| {
            let mut answer = Vec::new();
            socket.read_to_end(&mut answer).unwrap();
            Answer::parse(&answer, false).unwrap()
        };
        told(send(&format!("800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)))).is(413, "request-too-large");
        // More of it might come, and would be read for a while: the connection is not closed at once.
        let stalled = read_until(&mut send("1\r\nx\r\n"), "\r\n\r\n");
        assert!(stalled.starts_with("HTTP/1.1 408"), "{url}: {stalled}");
        // Who breaks off gets no answer; the log has whose fault it was.
        drop(send("1\r\nx\r\n"));
        crate::program::eventually(|| gateway.log().contains("problem=\"body-invalid\""));
        assert!(!gateway.log().contains("upstream-failed"), "{url}: {}", gateway.log());
    }
}
