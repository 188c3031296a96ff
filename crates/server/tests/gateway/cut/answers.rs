//! Answers that end too early.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::service::{HELD_BACK, SHAPES, Service, Speech, ends, whole_ends};
use super::{certified, run_all};
use crate::client::Answer;
use crate::program::{Gateway, Setup, post};
use crate::stores::key;
use crate::upstream::Upstream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// Its answers may end with the connection.
    Http10,
    Http11,
    Http2,
}

/// What a caller got.
#[derive(Debug)]
enum Got {
    Whole(u16, String),
    Cut,
}

impl Got {
    /// The problem, or nothing.
    fn problem(&self) -> &str {
        match self {
            Self::Whole(_, text) => text
                .split("urn:onlyonce:problem:")
                .nth(1)
                .map_or("", |rest| rest.split('"').next().unwrap_or_default()),
            Self::Cut => "",
        }
    }
}

async fn call(caller: Caller, address: SocketAddr, path: &str, key: &str) -> Got {
    let mut socket = TcpStream::connect(address).await.unwrap();
    if caller == Caller::Http2 {
        return call_http2(socket, path, key).await;
    }
    let version = if caller == Caller::Http10 { "1.0" } else { "1.1" };
    let key = if key.is_empty() { String::new() } else { format!("idempotency-key: {key}\r\n") };
    let request = format!(
        "POST {path} HTTP/{version}\r\nhost: shop.example\r\nx-tenant: a\r\nconnection: close\r\n{key}content-length: 1\r\n\r\nx"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    if socket.read_to_end(&mut bytes).await.is_err() {
        return Got::Cut;
    }
    match Answer::parse(&bytes, false) {
        Some(answer) => Got::Whole(answer.status, answer.text()),
        None => Got::Cut,
    }
}

async fn call_http2(socket: TcpStream, path: &str, key: &str) -> Got {
    let request = Request::post(format!("http://shop.example{path}")).header("x-tenant", "a");
    let request = if key.is_empty() { request } else { request.header("idempotency-key", key) };
    send_http2(socket, request.body(()).unwrap()).await
}

async fn send_http2(socket: TcpStream, request: Request<()>) -> Got {
    let (sender, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let (response, mut body) = sender.ready().await.unwrap().send_request(request, false).unwrap();
    body.send_data("x".into(), true).unwrap();
    let Ok(response) = response.await else { return Got::Cut };
    let status = response.status().as_u16();
    let (mut body, mut text) = (response.into_body(), Vec::new());
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else { return Got::Cut };
        let _ = body.flow_control().release_capacity(piece.len());
        text.extend_from_slice(&piece);
    }
    match body.trailers().await {
        Ok(_) => Got::Whole(status, String::from_utf8_lossy(&text).into_owned()),
        Err(_) => Got::Cut,
    }
}

/// What must be true of one answer that ends like this.
async fn cut(caller: Caller, address: SocketAddr, path: String, key: String) -> Result<(), String> {
    let mut first = call(caller, address, &path, &key).await;
    // Others end the connections that all share: what the service has not looked at was never sent, and may be.
    for _ in 0..10 {
        if first.problem() == "upstream-unreachable" {
            first = call(caller, address, &path, &key).await;
        }
    }
    let told = |what: &str, got: &Got| Err(format!("{caller:?} {path} {key}: {what}: {got:?}"));
    match &first {
        Got::Cut => {}
        // Nothing of it went out: it was held back, or a reset overtook its head.
        Got::Whole(502, _) if first.problem() == "upstream-failed" => {}
        got => return told("it was given as whole", got),
    }
    if key.is_empty() {
        return Ok(());
    }
    let again = call(Caller::Http11, address, &path, &key).await;
    if again.problem() == "outcome-unknown" { Ok(()) } else { told("the retry", &again) }
}

async fn whole(caller: Caller, address: SocketAddr, path: String, key: String) -> Result<(), String> {
    let first = call(caller, address, &path, &key).await;
    let told = |what: &str, got: &Got| Err(format!("{caller:?} {path} {key}: {what}: {got:?}"));
    let Got::Whole(200, text) = &first else { return told("it was not given whole", &first) };
    if key.is_empty() {
        return Ok(());
    }
    let again = call(Caller::Http11, address, &path, &key).await;
    let kept = path.starts_with("/small") || path.contains("/empty");
    match &again {
        Got::Whole(200, same) if kept && same == text => Ok(()),
        Got::Whole(409, _) if !kept && again.problem() == "response-not-retained" => Ok(()),
        got => told("the retry", got),
    }
}

fn gateway(service: &Service, speech: Speech, home: &Path) -> Gateway {
    let (scheme, host) = match (speech.tls, speech.http2) {
        (true, _) => ("https", format!("localhost:{}", service.address.port())),
        (false, true) => ("h2c", service.address.to_string()),
        (false, false) => ("http", service.address.to_string()),
    };
    Setup::new("memory:", &Upstream::start())
        .with(&["--upstream", &format!("{scheme}://{host}")])
        .with(&["--upstream-ca", home.join("cert.pem").to_str().unwrap()])
        .with(&["--max-response", "1KiB"])
        // Slow is what takes longer than this; anything else may take its time on a busy machine.
        .config(&format!("[[route]]\nmatch = \"POST /slow/{{end}}\"\nbuffer_response = \"{HELD_BACK}\"\n"))
        .start()
}

fn every_end(http2: bool, tls: bool) {
    let speech = Speech { http2, tls };
    let home = tempfile::tempdir().unwrap();
    certified(home.path());
    let service = Service::start(speech, home.path());
    let gateway = gateway(&service, speech, home.path());
    let address = gateway.address;
    let (mut cuts, mut wholes) = (Vec::new(), Vec::new());
    for shape in SHAPES {
        for caller in [Caller::Http10, Caller::Http11, Caller::Http2] {
            for keyed in [true, false] {
                let key = || if keyed { key("answer") } else { String::new() };
                for end in ends(speech) {
                    cuts.push(cut(caller, address, format!("/{shape}/{end}"), key()));
                }
                for end in whole_ends(speech) {
                    wholes.push(whole(caller, address, format!("/{shape}/{end}"), key()));
                }
            }
        }
    }
    run_all(cuts);
    run_all(wholes);
}

#[test]
fn an_answer_that_was_cut_off_is_unknown_over_http1() {
    every_end(false, false);
}

#[test]
fn an_answer_that_was_cut_off_is_unknown_over_http1_and_tls() {
    every_end(false, true);
}

#[test]
fn an_answer_that_was_cut_off_is_unknown_over_http2() {
    every_end(true, false);
}

#[test]
fn an_answer_that_was_cut_off_is_unknown_over_http2_and_tls() {
    every_end(true, true);
}

#[test]
fn what_comes_behind_an_answer_without_content_reaches_nobody() {
    let speech = Speech { http2: true, tls: false };
    let home = tempfile::tempdir().unwrap();
    certified(home.path());
    let service = Service::start(speech, home.path());
    let gateway = gateway(&service, speech, home.path());
    let address = gateway.address;
    let mut cases = Vec::new();
    for caller in [Caller::Http10, Caller::Http11, Caller::Http2] {
        for status in ["204", "304"] {
            for keyed in [true, false] {
                let key = if keyed { key("bodiless") } else { String::new() };
                cases.push(async move {
                    for (end, broken) in [("whole", false), ("reset-0", true), ("reset-8", true)] {
                        let (path, key) =
                            (format!("/{status}/{end}"), format!("{key}{}", if keyed { end } else { "" }));
                        // The second time over HTTP/2: bytes that were stored would come now.
                        for caller in [caller, Caller::Http2] {
                            match call(caller, address, &path, &key).await {
                                Got::Whole(told, text)
                                    if !broken && told.to_string() == status && text.is_empty() => {}
                                Got::Whole(502 | 409, _) if broken => {}
                                got => return Err(format!("{caller:?} {path} {key}: {got:?}")),
                            }
                        }
                    }
                    Ok(())
                });
            }
        }
    }
    run_all(cases);
}

#[test]
fn an_answer_to_head_has_a_length_and_no_body() {
    let speech = Speech { http2: true, tls: false };
    let home = tempfile::tempdir().unwrap();
    certified(home.path());
    let service = Service::start(speech, home.path());
    let gateway = gateway(&service, speech, home.path());
    let address = gateway.address;
    for (end, status) in [("whole", 200), ("reset-0", 502), ("reset-8", 502)] {
        let head = format!("HEAD /small/{end} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let told = crate::client::raw(address, head.as_bytes(), std::time::Duration::from_secs(10));
        assert!(told.starts_with(&format!("HTTP/1.1 {status}")), "{end}: {told}");
    }
    run_all(vec![async move {
        let socket = TcpStream::connect(address).await.unwrap();
        let request = Request::head("http://shop.example/small/whole").body(()).unwrap();
        match send_http2(socket, request).await {
            Got::Whole(200, body) if body.is_empty() => Ok(()),
            got => Err(format!("{got:?}")),
        }
    }]);
}

#[test]
fn a_gateway_that_is_killed_within_a_stream_leaves_it_unknown_and_one_that_leaves_finishes_it() {
    let home = tempfile::tempdir().unwrap();
    let service = Service::start(Speech { http2: false, tls: false }, home.path());
    let start = || {
        Setup::new("embedded:./data", &Upstream::start())
            .with(&["--upstream", &format!("http://{}", service.address)])
            .with(&["--buffer-response", "0s"])
            .home(home.path())
            .start()
    };
    let begin = |gateway: &Gateway, key: &str| {
        let mut socket = std::net::TcpStream::connect(gateway.address).unwrap();
        socket.write_all(&post("/slow/whole-chunks", key, "x").bytes()).unwrap();
        let (mut seen, mut buffer) = (Vec::new(), [0; 1024]);
        while !seen.ends_with(b"half\r\n") {
            let read = socket.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..read]);
        }
        socket
    };
    let (killed, left) = (key("killed"), key("left"));
    let mut gateway = start();
    let _cut = begin(&gateway, &killed);
    gateway.kill();
    let mut gateway = start();
    gateway.post("/slow/whole-chunks", &killed, "x").is(409, "outcome-unknown");
    let mut whole = begin(&gateway, &left);
    let (code, _) = gateway.terminate();
    let mut rest = String::new();
    whole.read_to_string(&mut rest).unwrap();
    assert_eq!((code, rest.as_str()), (0, "0\r\n\r\n"));
    start().post("/slow/whole-chunks", &left, "x").is(409, "response-not-retained");
}

#[test]
fn what_the_upstream_says_about_a_lapsed_call_counts_only_if_it_is_whole() {
    for (http2, ends) in [
        (false, ["length-fin", "trailer-fin", "whole-chunks"]),
        (true, ["reset-0", "length-reset-0", "whole"]),
    ] {
        let speech = Speech { http2, tls: false };
        let home = tempfile::tempdir().unwrap();
        certified(home.path());
        let service = Service::start(speech, home.path());
        let scheme = if http2 { "h2c" } else { "http" };
        let broken = if http2 { "reset-2" } else { "length-rst" };
        let routes = SHAPES.iter().zip(ends).map(|(shape, end)| {
            format!("[[route]]\nmatch = \"POST /{shape}/{{end}}\"\non_lapse = \"ask\"\nask = \"GET /small/{end}?k={{key}}\"\nask_after = \"1ms\"\n")
        });
        let gateway = Setup::new("memory:", &Upstream::start())
            .with(&["--upstream", &format!("{scheme}://{}", service.address)])
            .config(&routes.collect::<String>())
            .start();
        for (shape, end) in SHAPES.iter().zip(ends) {
            let (path, key) = (format!("/{shape}/{broken}"), key("asked"));
            let _ = post(&path, &key, "x").try_send(gateway.address);
            std::thread::sleep(std::time::Duration::from_millis(20));
            let found = gateway.post(&path, &key, "x");
            if end.starts_with("whole") {
                assert_eq!((found.status, found.text().as_str()), (200, "half"), "{end}");
            } else {
                found.is(409, "outcome-unknown");
            }
        }
    }
}
