//! Connections to upstreams that are kept open: which of them may be used again, and which are dead.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use tokio::runtime::Runtime;

use crate::limits::runtime;
use crate::program::{Gateway, Setup, eventually};
use crate::stores::key;
use crate::upstream::Upstream;

/// A service that closes a kept connection some milliseconds after its answer, as long as it is told to.
struct Closing {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    closes: Arc<AtomicBool>,
}

impl Closing {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, closes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let (counted, flag) = (Arc::clone(&connections), Arc::clone(&closes));
        std::thread::spawn(move || {
            for (n, socket) in listener.incoming().flatten().enumerate() {
                counted.fetch_add(1, Ordering::SeqCst);
                let flag = Arc::clone(&flag);
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(socket.try_clone().unwrap());
                    let mut socket = socket;
                    let mut first = true;
                    loop {
                        let patience = Duration::from_millis(5 + (n as u64 * 7) % 16);
                        let closes = flag.load(Ordering::SeqCst);
                        socket.set_read_timeout((closes && !first).then_some(patience)).unwrap();
                        first = false;
                        let mut length = 0;
                        loop {
                            let mut line = String::new();
                            if !matches!(reader.read_line(&mut line), Ok(1..)) {
                                return;
                            }
                            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                                length = value.trim().parse().unwrap();
                            }
                            if line == "\r\n" {
                                break;
                            }
                        }
                        reader.read_exact(&mut vec![0; length]).unwrap();
                        let _ = socket.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\ndone");
                    }
                });
            }
        });
        Self { address, connections, closes }
    }

    fn gateway(&self, idle: &str) -> Gateway {
        let setup = Setup::new("memory:", &Upstream::start()).with(&["--upstream-idle", idle]);
        setup.with(&["--upstream", &format!("http://{}", self.address)]).start()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[test]
fn an_upstream_that_closes_kept_connections_early_makes_no_call_unknown() {
    let service = Closing::start();
    let gateway = service.gateway("auto");
    for n in 0..200 {
        let answer = gateway.post("/pay", &key("early"), "x");
        assert_eq!(answer.status, 201, "{n}: {}", answer.text());
        std::thread::sleep(Duration::from_millis(n % 23));
    }
    // Once it stops that, it is trusted again, and connections are used again.
    service.closes.store(false, Ordering::SeqCst);
    let mut last = 0;
    eventually(|| {
        let before = service.connections();
        for _ in 0..5 {
            assert_eq!(gateway.post("/pay", &key("kept"), "x").status, 201);
        }
        last = service.connections() - before;
        last <= 1
    });
}

#[test]
fn the_setting_overrides_what_was_learned() {
    let service = Closing::start();
    service.closes.store(false, Ordering::SeqCst);
    let fresh = service.gateway("0s");
    for _ in 0..10 {
        assert_eq!(fresh.post("/pay", &key("fresh"), "x").status, 201);
    }
    assert_eq!(service.connections(), 10, "a fresh one each time");
    let kept = service.gateway("30s");
    for _ in 0..10 {
        assert_eq!(kept.post("/pay", &key("kept"), "x").status, 201);
    }
    assert_eq!(service.connections(), 11, "one for all, from the beginning");
}

/// A service that speaks HTTP/2, whose first connection falls silent after its first answer and stays open.
struct Silent {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Silent {
    fn start() -> Self {
        let runtime = runtime();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(socket).await.unwrap();
                    let mut answered = 0;
                    while let Some(Ok((_request, mut respond))) = connection.accept().await {
                        let answer = Response::builder().status(201).body(()).unwrap();
                        respond.send_response(answer, true).unwrap();
                        answered += 1;
                        if number == 0 && answered == 1 {
                            // What was said goes out, and then no word: a request that comes before the pong is left lying too.
                            let mut ping = connection.ping_pong().unwrap();
                            let mut pong = std::pin::pin!(ping.ping(h2::Ping::opaque()));
                            let mut unanswered = Vec::new();
                            loop {
                                tokio::select! {
                                    pong = &mut pong => {
                                        pong.unwrap();
                                        break;
                                    }
                                    request = connection.accept() => unanswered.push(request.unwrap().unwrap()),
                                }
                            }
                            return std::future::pending::<()>().await;
                        }
                    }
                });
            }
        });
        Self { address, connections, _runtime: runtime }
    }

    fn gateway(&self) -> Gateway {
        let setup = Setup::new("memory:", &Upstream::start()).with(&["--response-timeout", "1s"]);
        setup.with(&["--upstream", &format!("h2c://{}", self.address)]).start()
    }
}

#[test]
fn a_silent_http2_connection_is_given_up_after_one_call_and_the_healthy_upstream_is_reached() {
    let service = Silent::start();
    let gateway = service.gateway();
    assert_eq!(gateway.post("/pay", &key("first"), "x").status, 201);
    gateway.post("/pay", &key("lost"), "x").is(504, "upstream-timeout");
    for _ in 0..5 {
        assert_eq!(gateway.post("/pay", &key("found"), "x").status, 201);
    }
    assert_eq!(service.connections.load(Ordering::SeqCst), 2);
}

#[test]
fn an_http2_connection_that_idled_is_not_used_for_a_call_with_a_key() {
    let service = Silent::start();
    let gateway = service.gateway();
    assert_eq!(gateway.post("/pay", &key("first"), "x").status, 201);
    // Longer than what is kept for calls with a key.
    std::thread::sleep(Duration::from_millis(2_500));
    for _ in 0..5 {
        assert_eq!(gateway.post("/pay", &key("later"), "x").status, 201);
    }
}

/// A service that speaks HTTP/2 on one connection only, allows one stream at a time, and never ends the answer to a GET.
fn one_stream_at_a_time(runtime: &Runtime) -> SocketAddr {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection =
            h2::server::Builder::new().max_concurrent_streams(1).handshake(socket).await.unwrap();
        let mut open = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let is_last = request.method() == http::Method::POST;
            let answer = Response::builder().status(201).body(()).unwrap();
            let _ = respond
                .send_response(answer, is_last)
                .map(|stream: h2::SendStream<bytes::Bytes>| open.push(stream));
        }
        // Whoever else connects hears nothing.
        drop(listener);
    });
    address
}

#[test]
fn a_call_for_which_an_http2_upstream_has_no_stream_was_never_sent_and_may_run_again() {
    let runtime = runtime();
    let upstream = format!("h2c://{}", one_stream_at_a_time(&runtime));
    let setup = Setup::new("memory:", &Upstream::start()).with(&["--upstream", &upstream]);
    let gateway = setup.with(&["--connect-timeout", "300ms"]).with(&["--response-timeout", "1s"]).start();
    // The first request tells how many streams there may be.
    assert_eq!(gateway.post("/pay", &key("before"), "x").status, 201);
    let endless = runtime.block_on(async {
        let sender = crate::limits::connect(gateway.address, 1 << 20).await.unwrap();
        let mut ready = sender.ready().await.unwrap();
        let request = http::Request::get("http://x/endless").body(()).unwrap();
        let (answer, _) = ready.send_request(request, true).unwrap();
        (answer.await.unwrap(), ready)
    });
    let queued = key("queued");
    gateway.post("/pay", &queued, "x").is(502, "upstream-unreachable");
    drop(endless);
    assert_eq!(gateway.post("/pay", &queued, "x").status, 201);
}

#[test]
fn callers_that_do_not_read_do_not_use_up_the_connection_to_an_http2_upstream() {
    let upstream = Upstream::start();
    let inner = Setup::new("memory:", &upstream).with(&["--scope", "none"]).start();
    let outer =
        Setup::new("memory:", &upstream).with(&["--upstream", &format!("h2c://{}", inner.address)]).start();
    let runtime = runtime();
    let _held = runtime.block_on(async {
        let mut held = Vec::new();
        let sender = crate::limits::connect(outer.address, 0).await.unwrap();
        for _ in 0..20 {
            let mut ready = sender.clone().ready().await.unwrap();
            let request = http::Request::get("http://x/large/3000000").body(()).unwrap();
            let (answer, _) = ready.send_request(request, true).unwrap();
            held.push((answer.await.unwrap(), sender.clone()));
        }
        held
    });
    for _ in 0..5 {
        let answer = outer.post("/large/500000", &key("beside"), "x");
        assert_eq!((answer.status, answer.body.len()), (201, 500_000));
    }
}
