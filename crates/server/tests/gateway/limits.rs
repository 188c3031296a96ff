//! Limits on what can grow, and time-outs on what can wait: bodies, answers, heads. On HTTP/1.1 and HTTP/2.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request as HttpRequest, StatusCode};
use tokio::runtime::Runtime;

use crate::client::{Request, raw};
use crate::program::{Setup, eventually, post};
use crate::stores::key;
use crate::upstream::Upstream;

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// An HTTP/2 connection whose streams may have `window` bytes each before somebody takes them.
pub(crate) async fn connect(address: SocketAddr, window: u32) -> Result<SendRequest<Bytes>, h2::Error> {
    let socket = tokio::net::TcpStream::connect(address).await.map_err(|_| h2::Reason::CONNECT_ERROR)?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(1 << 30);
    let (sender, connection) = builder.handshake(socket).await?;
    tokio::spawn(connection);
    Ok(sender)
}

pub(crate) fn keyed(path: &str, key: &str) -> HttpRequest<()> {
    let request = HttpRequest::post(format!("http://shop.example{path}")).header("x-tenant", "a");
    if key.is_empty() { request.body(()) } else { request.header("idempotency-key", key).body(()) }.unwrap()
}

/// Sends a request, and returns its status and as much of the answer as comes.
pub(crate) async fn ask(
    sender: &SendRequest<Bytes>,
    request: HttpRequest<()>,
    body: &'static [u8],
) -> (StatusCode, usize) {
    let mut ready = sender.clone().ready().await.unwrap();
    let (answer, mut stream) = ready.send_request(request, false).unwrap();
    stream.send_data(body.into(), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    let mut length = 0;
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        length += piece.len();
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    (head.status, length)
}

#[test]
fn a_reader_of_http2_that_opens_no_window_is_cut_off_and_the_other_streams_go_on() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--body-timeout", "1s"]).start();
    runtime().block_on(async {
        let sender = connect(gateway.address, 1000).await.unwrap();
        let key = key("unread");
        // An answer that is in memory, and one that is relayed.
        for key in [key.as_str(), ""] {
            let mut ready = sender.clone().ready().await.unwrap();
            let (answer, _) = ready.send_request(keyed("/large/300000", key), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            assert_eq!(body.data().await.unwrap().unwrap().len(), 1000);
            let cut = body.data().await.expect("the end must be seen").expect_err("nothing more may come");
            assert!(cut.is_reset(), "{cut}");
        }
        // Answers that are read come whole, however small the window is, on the same connection.
        assert_eq!(ask(&sender, keyed("/large/300000", &key), b"").await, (StatusCode::CREATED, 300_000));
        assert_eq!(ask(&sender, keyed("/large/300000", ""), b"").await, (StatusCode::CREATED, 300_000));
        assert_eq!(upstream.effects_of(&key), 1);
    });
}

#[test]
fn hundreds_of_replays_at_once_do_not_wait_in_memory_beside_the_budget() {
    let upstream = Upstream::start();
    let gateway = Setup::new("embedded:./data", &upstream).with(&["--memory", "16MiB"]).start();
    let runtime = runtime();
    let stored = key("replayed");
    let (mut most, mut held) = (0, Vec::new());
    runtime.block_on(async {
        let sender = connect(gateway.address, 1 << 20).await.unwrap();
        assert_eq!(
            ask(&sender, keyed("/large/1000000", &stored), b"").await,
            (StatusCode::CREATED, 1_000_000)
        );
        let before = gateway.memory();
        for _ in 0..3 {
            let sender = connect(gateway.address, 0).await.unwrap();
            for _ in 0..190 {
                let Ok(mut ready) = sender.clone().ready().await else { break };
                let Ok((answer, _)) = ready.send_request(keyed("/large/1000000", &stored), true) else {
                    break;
                };
                held.push(tokio::spawn(answer));
            }
        }
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            most = most.max(gateway.memory().saturating_sub(before) / 1024);
        }
    });
    assert_eq!(gateway.post("/pay", &key("honest"), "x").status, 201);
    assert!(most < 100, "{most} MiB more than before, of a budget of 16");
}

#[test]
fn a_reader_of_http1_that_does_not_read_is_cut_off() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--body-timeout", "1s"]).start();
    for key in [key("unread"), String::new()] {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.write_all(&post("/large/30000000", &key, "x").bytes()).unwrap();
        let connections = |count: &str| {
            let metrics = gateway.admin("GET", "/metrics", "").text();
            metrics.contains(&format!("onlyonce_connections {count}\n"))
        };
        eventually(|| connections("1"));
        eventually(|| connections("0"));
        // What was in the buffers of the system comes, and then the end, before the whole answer.
        let (mut length, mut buffer) = (0, [0; 65536]);
        while let Ok(read @ 1..) = socket.read(&mut buffer) {
            length += read;
        }
        assert!(length < 30_000_000, "{length}");
    }
}

#[test]
fn half_read_bodies_give_way_to_modest_callers_and_what_runs_is_finished() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--memory", "8MiB"]).start();
    let running = {
        let (address, key) = (gateway.address, key("running"));
        std::thread::spawn(move || post("/gated", &key, &"r".repeat(100_000)).send(address))
    };
    eventually(|| upstream.effects() == 1);
    let used = || {
        let metrics = gateway.admin("GET", "/metrics", "").text();
        let line =
            metrics.lines().find(|line| line.starts_with("onlyonce_memory_bytes ")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let runtime = runtime();
    let (refused, _streams) = runtime.block_on(async {
        let sender = connect(gateway.address, 1000).await.unwrap();
        let (mut refused, mut streams) = (Vec::new(), Vec::new());
        for n in 0..100 {
            let mut ready = sender.clone().ready().await.unwrap();
            let (answer, mut stream) =
                ready.send_request(keyed("/pay", &key(&format!("half-{n}"))), false).unwrap();
            refused.push(tokio::spawn(answer));
            // It may have been refused before.
            let _ = stream.send_data(vec![b'x'; 900_000].into(), false);
            streams.push((stream, sender.clone()));
        }
        (refused, streams)
    });
    eventually(|| refused.iter().any(|answer| answer.is_finished()));
    assert!(used() <= 8_388_608.0, "{}", used());
    // Whoever wants less than the greedy connection holds is let in, with a small body and with a large one.
    for (n, size) in [10, 100_000, 900_000, 10].into_iter().enumerate() {
        let answer = gateway.post("/pay", &key("modest"), &"x".repeat(size));
        assert_eq!(answer.status, 201, "{n}: {}", answer.text());
    }
    upstream.open();
    assert_eq!(running.join().unwrap().status, 201);
    runtime.block_on(async {
        let mut told = 0;
        for answer in refused.into_iter().filter(|answer| answer.is_finished()) {
            let answer = answer.await.unwrap().unwrap();
            assert_eq!(answer.status(), 503);
            assert_eq!(answer.headers()["retry-after"], "1");
            told += 1;
        }
        assert!(told > 0);
    });
    assert_eq!(upstream.effects(), 5, "nothing of what was refused ran");
    drop((_streams, runtime));
    eventually(|| used() < 1_000_000.0);
}

#[test]
fn heads_whose_bodies_never_come_give_way_to_modest_callers() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--memory", "8MiB"]).start();
    let runtime = runtime();
    let (answers, _streams) = runtime.block_on(async {
        let (mut answers, mut streams) = (Vec::new(), Vec::new());
        for connection in 0..3 {
            let sender = connect(gateway.address, 1000).await.unwrap();
            for n in 0..100 {
                let mut ready = sender.clone().ready().await.unwrap();
                let mut request = keyed("/pay", &key(&format!("head-{connection}-{n}")));
                request.headers_mut().insert("x-large", "x".repeat(24_000).parse().unwrap());
                let (answer, stream) = ready.send_request(request, false).unwrap();
                answers.push(tokio::spawn(answer));
                streams.push((stream, sender.clone()));
            }
        }
        (answers, streams)
    });
    // Three hundred heads are more than there is room for.
    eventually(|| answers.iter().any(|answer| answer.is_finished()));
    for _ in 0..5 {
        let key = key("modest");
        let modest = || gateway.post("/pay", &key, &"x".repeat(100_000));
        // Whoever was asked to give way may not have done so yet: then a caller comes again, as it is told.
        let tries = (0..10).map(|_| modest()).inspect(|answer| {
            if answer.status == 503 {
                answer.is(503, "overloaded");
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        let answered = tries.map(|answer| answer.status).find(|status| *status != 503);
        assert_eq!(answered, Some(201));
    }
    assert_eq!(upstream.effects(), 5, "nothing of what was refused ran");
}

#[test]
fn more_than_100_headers_are_refused_on_both_protocols_and_cookies_count_once() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let many = |count: usize| (0..count).map(|n| (format!("x-{n}"), "y"));
    let over_http1 = |count: usize| {
        let lines: String = many(count).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{lines}\r\n");
        raw(gateway.address, request.as_bytes(), Duration::from_secs(10))
    };
    assert!(over_http1(90).starts_with("HTTP/1.1 201"), "{}", over_http1(90));
    assert!(over_http1(101).starts_with("HTTP/1.1 431"), "{}", over_http1(101));
    let effects = upstream.seen().len();
    runtime().block_on(async {
        let sender = connect(gateway.address, 65_535).await.unwrap();
        let with = |headers: Vec<(String, &'static str)>| {
            let mut request = keyed("/pay", &key("headers"));
            for (name, value) in headers {
                let name = http::HeaderName::try_from(name).unwrap();
                request.headers_mut().append(name, http::HeaderValue::from_static(value));
            }
            ask(&sender, request, b"x")
        };
        assert_eq!(with(many(101).collect()).await.0, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert_eq!(upstream.seen().len(), effects, "it went no further");
        assert_eq!(with(many(90).collect()).await.0, StatusCode::CREATED);
        let crumbs = (0..120).map(|_| ("cookie".to_owned(), "crumb=1"));
        assert_eq!(with(many(90).chain(crumbs).collect()).await.0, StatusCode::CREATED);
    });
}

#[test]
fn the_budget_must_be_large_enough_for_the_largest_body() {
    let upstream = Upstream::start();
    let (code, said) = Setup::new("memory:", &upstream)
        .with(&["--memory", "16MiB"])
        .with(&["--max-request", "13MiB"])
        .fails();
    assert_eq!(code, 2);
    assert!(said.contains("limits.memory") && said.contains("at least 18MiB"), "{said}");
    let (code, said) = Setup::new("memory:", &upstream)
        .with(&["--memory", "16MiB"])
        .with(&["--max-response", "13MiB"])
        .fails();
    assert!(code == 2 && said.contains("max_response") && said.contains("at least 18MiB"), "{said}");
    let (code, said) = Setup::new("memory:", &upstream).with(&["--memory", "1MiB"]).fails();
    assert!(code == 2 && said.contains("below 8MiB"), "{said}");
    let gateway = Setup::new("memory:", &upstream).start();
    let metrics = gateway.admin("GET", "/metrics", "").text();
    assert!(metrics.contains("onlyonce_memory_limit_bytes 268435456"), "{metrics}");
    assert_eq!(Request::new("GET", "/").send(gateway.address).status, 201);
}
