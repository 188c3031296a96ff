//! Upstreams that fall silent in the middle of an answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::limits::{connect, keyed, runtime};
use crate::program::{Gateway, Setup, post};
use crate::stores::key;
use crate::upstream::Upstream;

fn gateway(upstream: &Upstream, more: &[&[&str]]) -> Gateway {
    let setup = Setup::new("memory:", upstream)
        .with(&["--response-timeout", "1s"])
        .with(&["--buffer-response", "200ms"]);
    more.iter().fold(setup, |setup, words| setup.with(words)).start()
}

/// What comes on a connection until it ends, which it must within this time.
fn until_end(gateway: &Gateway, path: &str, key: &str, limit: Duration) -> String {
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    let begun = Instant::now();
    socket.write_all(&post(path, key, "x").bytes()).unwrap();
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => all.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{path} {key:?} hangs: {error}"),
        }
    }
    assert!(begun.elapsed() < limit, "{path} {key:?}");
    String::from_utf8_lossy(&all).into_owned()
}

const SOON: Duration = Duration::from_secs(8);

#[test]
fn an_answer_that_falls_silent_is_cut_off_and_unknown() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, &[]);
    for key in [key("silent"), String::new()] {
        let got = until_end(&gateway, "/stalls/plain", &key, SOON);
        // Cut off: fewer than its hundred bytes came.
        assert!(got.contains("content-length: 100") && got.ends_with("\r\n\r\n0123456789"), "{got}");
        if !key.is_empty() {
            gateway.post("/stalls/plain", &key, "x").is(409, "outcome-unknown");
            assert_eq!(upstream.effects_of(&key), 1);
        }
        runtime().block_on(async {
            let sender = connect(gateway.address, 65_535).await.unwrap();
            let key = if key.is_empty() { String::new() } else { crate::stores::key("silent") };
            let mut ready = sender.ready().await.unwrap();
            let (answer, _) = ready.send_request(keyed("/stalls/plain", &key), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            let cut = async { while let Some(Ok(_)) = body.data().await {} };
            tokio::time::timeout(SOON, cut).await.expect("it ends");
        });
    }
}

#[test]
fn an_answer_that_is_held_back_and_falls_silent_is_unknown() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, &[&["--buffer-response", "30s"]]);
    let key = key("held");
    let got = until_end(&gateway, "/stalls/plain", &key, SOON);
    assert!(got.starts_with("HTTP/1.1 502") && got.contains("upstream-failed"), "{got}");
    gateway.post("/stalls/plain", &key, "x").is(409, "outcome-unknown");
}

#[test]
fn an_answer_that_comes_slowly_and_an_event_stream_that_pauses_are_whole() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, &[]);
    for path in ["/drips/plain/6/400", "/drips/event-stream/1/2500"] {
        for key in [key("drips"), String::new()] {
            let got = until_end(&gateway, path, &key, Duration::from_secs(20));
            assert!(got.ends_with("0\r\n\r\n"), "{path}: {got}");
        }
    }
}

#[test]
fn an_event_stream_whose_call_has_lost_its_lease_and_that_is_silent_does_not_hang_for_ever() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, &[&["--lease", "1s"], &["--max-run", "2s"]]);
    let key = key("lost");
    let got = until_end(&gateway, "/stalls/event-stream", &key, Duration::from_secs(20));
    assert!(got.ends_with("0123456789"), "{got}");
    gateway.post("/stalls/event-stream", &key, "x").is(409, "outcome-unknown");
}

#[test]
fn an_http2_upstream_that_falls_silent_within_an_answer_is_noticed() {
    let upstream = Upstream::start();
    // The inner one waits for longer than the outer one, and passes on what it has.
    let inner = Setup::new("memory:", &upstream).with(&["--scope", "none"]);
    let inner = inner.with(&["--buffer-response", "0s"]).start();
    let outer = Setup::new("memory:", &upstream)
        .with(&["--upstream", &format!("h2c://{}", inner.address)])
        .with(&["--response-timeout", "1s"])
        .with(&["--buffer-response", "200ms"])
        .start();
    let key = key("inner");
    let got = until_end(&outer, "/stalls/plain", &key, SOON);
    assert!(got.ends_with("0123456789"), "{got}");
    outer.post("/stalls/plain", &key, "x").is(409, "outcome-unknown");
}
