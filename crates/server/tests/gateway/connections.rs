//! Places for connections: who counts, who gives way, and what the admin listener may take.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::{Request, raw};
use crate::limits::{connect, runtime};
use crate::program::{Setup, eventually};
use crate::stores::key;
use crate::upstream::Upstream;

fn open(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(bytes).unwrap();
    socket
}

/// Whether the other end has closed; what it said before is read.
fn is_closed(socket: &mut TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn the_longest_idle_connection_gives_way_when_places_run_out() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--connections", "3"]).start();
    let mut oldest = open(gateway.address, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut later = open(gateway.address, b"");
    eventually(|| upstream.seen().len() == 1);
    let busy = open(gateway.address, b"GET /gated HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    eventually(|| upstream.seen().len() == 2);
    // The one that never had a request and the one that had one are both idle; the one with a request is not.
    assert_eq!(Request::new("GET", "/").send(gateway.address).status, 201);
    assert!(is_closed(&mut oldest) != is_closed(&mut later), "one of them has left, and only one");
    upstream.open();
    let mut answer = String::new();
    let mut busy = busy;
    busy.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

#[test]
fn half_heads_and_idle_http2_connections_give_way_too() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--connections", "8"])
        .with(&["--header-timeout", "10m"])
        .with(&["--idle-timeout", "10m"])
        .start();
    let held: Vec<TcpStream> = (0..4).map(|_| open(gateway.address, b"GET / HTTP/1.1\r\nx-half: ")).collect();
    runtime().block_on(async {
        let mut idle = Vec::new();
        for _ in 0..4 {
            idle.push(connect(gateway.address, 1000).await.unwrap());
        }
        let address = gateway.address;
        let callers: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(move || Request::new("GET", "/").send(address).status))
            .collect();
        for caller in callers {
            let answered = tokio::task::spawn_blocking(move || caller.join().unwrap()).await.unwrap();
            assert_eq!(answered, 201);
        }
    });
    drop(held);
}

#[test]
fn an_http2_connection_without_a_request_is_idle_and_no_slow_head() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--header-timeout", "1s"]).start();
    runtime().block_on(async {
        let sender = connect(gateway.address, 1000).await.unwrap();
        let mut half = open(gateway.address, b"GET / HTTP/1.1\r\nx-half: ");
        eventually(|| is_closed(&mut half));
        let mut again = open(gateway.address, b"PRI * HTTP/2.0");
        eventually(|| is_closed(&mut again));
        let mut ready = sender.ready().await.expect("it is still open");
        let (answer, _) = ready.send_request(crate::limits::keyed("/pay", &key("idle")), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 201);
    });
}

#[test]
fn websockets_count_as_connections_and_are_closed_when_nothing_moves() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--connections", "2"])
        .with(&["--idle-timeout", "3s"])
        .start();
    let head = b"GET /ws HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: k\r\n\r\n";
    let mut sockets: Vec<TcpStream> = (0..2).map(|_| open(gateway.address, head)).collect();
    for socket in &mut sockets {
        let mut begin = [0; 12];
        socket.read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"HTTP/1.1 101");
    }
    // As long as bytes move, both keep their places.
    let talking = Arc::new(AtomicBool::new(true));
    let speakers: Vec<_> = sockets
        .into_iter()
        .map(|mut socket| {
            let talking = Arc::clone(&talking);
            std::thread::spawn(move || {
                while talking.load(Ordering::SeqCst) {
                    socket.write_all(b"ping").unwrap();
                    std::thread::sleep(Duration::from_millis(100));
                }
                // Now nothing moves any more.
                let (mut echoed, mut buffer) = (0, [0; 4096]);
                while let Ok(read @ 1..) = socket.read(&mut buffer) {
                    echoed += read;
                }
                echoed
            })
        })
        .collect();
    let metrics = || gateway.admin("GET", "/metrics", "").text();
    eventually(|| metrics().contains("onlyonce_connections 2\n"));
    let refused = raw(gateway.address, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Duration::from_secs(4));
    assert_eq!(refused, "", "there is no place, and a tunnel in use is not idle");
    talking.store(false, Ordering::SeqCst);
    assert_eq!(Request::new("GET", "/").send(gateway.address).status, 201);
    for speaker in speakers {
        assert!(speaker.join().unwrap() > 0);
    }
    eventually(|| metrics().contains("onlyonce_connections 0\n"));
}

#[test]
fn half_requests_to_the_admin_listener_take_nothing_from_callers_or_operators() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).descriptors(400).start();
    let admin = gateway.admin.unwrap();
    let held: Vec<TcpStream> =
        (0..600).map(|_| open(admin, b"GET /api/records HTTP/1.1\r\nhost: x\r\nx-half: ")).collect();
    for _ in 0..20 {
        assert_eq!(gateway.post("/pay", &key("admin"), "x").status, 201);
    }
    assert_eq!(Request::new("GET", "/healthz").send(admin).status, 200);
    drop(held);
}

#[test]
fn half_requests_to_the_admin_listener_are_timed_out() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--header-timeout", "1s"])
        .with(&["--idle-timeout", "2s"])
        .start();
    for bytes in ["GET /healthz HTTP/1.1\r\nx-half: ", "", "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut socket = open(gateway.admin.unwrap(), bytes.as_bytes());
        eventually(|| is_closed(&mut socket));
    }
}

#[test]
fn more_connections_than_descriptors_are_told_at_start_and_fewer_are_taken() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).descriptors(256).start();
    let log = gateway.log();
    assert!(
        log.contains("limits.connections") && log.contains("256") && log.contains("LimitNOFILE"),
        "{log}"
    );
    // So many that the system would have none left.
    let held: Vec<TcpStream> =
        (0..300).map(|_| open(gateway.address, b"GET / HTTP/1.1\r\nx-half: ")).collect();
    for _ in 0..10 {
        assert_eq!(gateway.post("/pay", &key("descriptors"), "x").status, 201);
    }
    assert!(!gateway.log().contains("accepting failed"), "{}", gateway.log());
    drop(held);
    let (code, said) = Setup::new("memory:", &upstream).descriptors(256).with(&["--check"]).fails();
    assert!(code == 0 && said.contains("limits.connections: 4096"), "{said}");
    let enough = Setup::new("memory:", &upstream).with(&["--connections", "50"]).start();
    assert!(!enough.log().contains("limits.connections"), "{}", enough.log());
}

#[test]
fn one_http2_caller_can_not_take_every_descriptor_with_connections_to_upstreams() {
    let upstream = Upstream::start();
    let gateway =
        Setup::new("embedded:./data", &upstream).descriptors(400).with(&["--connect-timeout", "1s"]).start();
    let runtime = runtime();
    let _held = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..3 {
            let sender = connect(gateway.address, 65_535).await.unwrap();
            for n in 0..190 {
                let mut ready = sender.clone().ready().await.unwrap();
                let request = crate::limits::keyed("/gated", &key(&format!("many-{n}")));
                held.push((ready.send_request(request, true).unwrap(), sender.clone()));
            }
        }
        held
    });
    eventually(|| upstream.effects() > 50);
    let refused = gateway.post("/pay", &key("late"), "x");
    refused.is(502, "upstream-unreachable");
    assert_eq!(refused.json()["retryable"], true);
    assert_eq!(Request::new("GET", "/readyz").send(gateway.admin.unwrap()).status, 200);
    assert!(!gateway.log().contains("Too many open files"), "{}", gateway.log());
    upstream.open();
    eventually(|| gateway.post("/pay", &key("later"), "x").status == 201);
}

#[test]
fn a_call_that_waits_for_a_socket_gets_one_that_falls_idle_meanwhile_at_another_upstream() {
    let (upstream, other) = (Upstream::start(), Upstream::start());
    let gateway = Setup::new("memory:", &upstream)
        .descriptors(64)
        .config(&format!("[[forward]]\npath = \"/other\"\nupstream = \"{}\"\n", other.url()))
        .start();
    // All sixteen are in use.
    let runtime = runtime();
    let _held = runtime.block_on(async {
        let sender = connect(gateway.address, 65_535).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..16 {
            let mut ready = sender.clone().ready().await.unwrap();
            held.push((
                ready.send_request(crate::limits::keyed("/gated", ""), true).unwrap(),
                sender.clone(),
            ));
        }
        held
    });
    eventually(|| upstream.effects() == 16);
    let address = gateway.address;
    let waits = std::thread::spawn(move || crate::program::post("/other", "", "x").send(address));
    // It waits, and finds none.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(other.effects(), 0);
    upstream.open();
    assert_eq!(waits.join().unwrap().status, 201);
}
