//! Everything that is not about keys: streaming, upgrades, HTTP/2, TLS, forwarding, headers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::client::{Request, raw};
use crate::program::{Setup, post};
use crate::stores::key;
use crate::upstream::Upstream;

#[test]
fn unkeyed_traffic_streams_both_ways() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--max-request", "1KiB"])
        .with(&["--max-response", "1KiB"])
        .start();
    let big = "x".repeat(5 << 20);
    let echoed = Request::new("POST", "/echo").body(&big).send(gateway.address);
    assert_eq!(echoed.body.len(), big.len());
    // The first piece comes before the last was sent.
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
        .write_all(b"POST /stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    while !seen.contains("data: 0") {
        let read = socket.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    assert!(!seen.contains("data: 2"), "{seen}");
    socket.read_to_string(&mut seen).unwrap();
    assert!(seen.contains("data: 2"));
    let chunked = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert!(
        crate::client::raw(gateway.address, chunked.as_bytes(), Duration::from_secs(10)).contains("abcde")
    );
}

#[test]
fn an_unkeyed_body_over_its_limit_is_refused() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--max-body", "1KiB"]).start();
    Request::new("POST", "/echo").body("x".repeat(2000)).send(gateway.address).is(413, "request-too-large");
    assert_eq!(Request::new("POST", "/echo").body("x".repeat(1000)).send(gateway.address).status, 201);
}

#[test]
fn a_websocket_is_passed_through() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.write_all(b"GET /ws HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: k\r\n\r\n").unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("upgrade: websocket"), "{head}");
    for word in [b"hello", b"again"] {
        socket.write_all(word).unwrap();
        let mut echo = [0; 5];
        socket.read_exact(&mut echo).unwrap();
        assert_eq!(&echo, word);
    }
}

#[test]
fn the_upstream_learns_who_called_and_nothing_of_the_connection() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let request = Request::new("GET", "/who?q=1")
        .header("x-forwarded-for", "1.2.3.4")
        .header("x-forwarded-for", "5.6.7.8")
        .header("x-forwarded-proto", "https");
    let request = request
        .header("keep-alive", "5")
        .header("te", "trailers, deflate")
        .header("proxy-authorization", "x");
    request.header("x-hop", "1").header("connection", "x-hop").send(gateway.address);
    let seen = upstream.seen().remove(0);
    assert_eq!((seen.path.as_str(), seen.header("host")), ("/who?q=1", Some("shop.example")));
    assert_eq!(seen.header("x-forwarded-for"), Some("1.2.3.4, 5.6.7.8, 127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"), "a caller's own word is not believed");
    assert_eq!(seen.header("x-forwarded-host"), Some("shop.example"));
    for name in ["keep-alive", "te", "proxy-authorization", "x-hop", "connection"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    let answer = raw(gateway.address, b"GET /old HTTP/1.0\r\n\r\n", Duration::from_secs(10));
    assert!(answer.starts_with("HTTP/1.0 201"), "{answer}");
    let seen = upstream.seen().remove(1);
    assert!(
        seen.header("host").is_some(),
        "a caller of HTTP/1.0 names no host, but an upstream of 1.1 wants one"
    );
}

#[test]
fn an_answer_may_have_many_headers() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let answer = gateway.post("/many-headers/200", &key("headers"), "x");
    assert_eq!((answer.status, answer.header("x-199")), (201, Some("y")));
    gateway.post("/many-headers/300", &key("headers"), "x").is(502, "upstream-failed");
}

#[test]
fn only_websockets_are_tunnelled() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let ask = |head: &str| {
        let request = format!("{head}host: x\r\nx-tenant: a\r\ncontent-length: 0\r\n");
        let request = format!(
            "{request}connection: close, Upgrade, HTTP2-Settings\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n"
        );
        crate::client::raw(gateway.address, request.as_bytes(), Duration::from_secs(60))
    };
    let key = key("upgrade");
    for head in [
        "GET /x HTTP/1.1\r\nupgrade: h2c\r\n",
        "POST /x HTTP/1.1\r\nupgrade: foo\r\n",
        &format!("POST /pay HTTP/1.1\r\nupgrade: websocket\r\nidempotency-key: {key}\r\n"),
    ] {
        let answer = ask(head);
        assert!(answer.starts_with("HTTP/1.1 201"), "{head}: {answer}");
        let seen = upstream.seen().pop().unwrap();
        let left = ["upgrade", "http2-settings"].map(|name| seen.header(name).map(str::to_owned));
        assert_eq!(left, [None, None], "{head}: {seen:?}");
    }
    assert!(gateway.outcome("/pay", &key).text().contains("\"completed\""));
}

#[test]
fn requests_go_to_the_upstream_of_their_host_path_and_method() {
    let (usual, by_host, by_path, by_method) =
        (Upstream::start(), Upstream::start(), Upstream::start(), Upstream::start());
    let config = format!(
        "[[forward]]\nhost = \"api.example\"\nupstream = \"{}\"\n[[forward]]\npath = \"/v2\"\nupstream = \"{}/base\"\n[[forward]]\nmethod = [\"PUT\"]\nupstream = \"{}\"\n",
        by_host.url(),
        by_path.url(),
        by_method.url()
    );
    let gateway = Setup::new("memory:", &usual).config(&config).start();
    let at = |method: &str, path: &str, host: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        crate::client::raw(gateway.address, request.as_bytes(), Duration::from_secs(10))
    };
    at("GET", "/", "api.example");
    at("GET", "/v2/x", "other.example");
    at("GET", "/%762/x", "other.example");
    at("GET", "/v22", "other.example");
    at("PUT", "/", "other.example");
    assert_eq!(by_path.seen()[0].path, "/base/v2/x");
    assert_eq!(
        (by_host.seen().len(), by_path.seen().len(), by_method.seen().len(), usual.seen().len()),
        (1, 2, 1, 1)
    );
    // The same path and key on two hosts that have upstreams of their own is not the same call.
    let key = key("hosts");
    let pay = |host: &str| {
        let request = format!(
            "POST /pay HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nx-tenant: a\r\nidempotency-key: {key}\r\ncontent-length: 1\r\n\r\nx"
        );
        crate::client::raw(gateway.address, request.as_bytes(), Duration::from_secs(10))
    };
    pay("api.example");
    assert!(!pay("other.example").contains("idempotent-replayed"));
    assert!(pay("api.example").contains("idempotent-replayed"));
}

pub(crate) fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-s", "-i", "--max-time", "20"])
        .args(arguments)
        .output()
        .expect("curl is needed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn http2_is_spoken_by_prior_knowledge() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let (url, key) = (format!("http://{}/pay", gateway.address), format!("idempotency-key: {}", key("h2")));
    let pay = || curl(&["--http2-prior-knowledge", "-H", "x-tenant: a", "-H", &key, "-d", "x", &url]);
    assert!(pay().starts_with("HTTP/2 201"), "{}", pay());
    assert!(pay().contains("idempotent-replayed: true"));
    assert_eq!(upstream.effects(), 1);
}

#[test]
fn http2_is_spoken_to_an_upstream() {
    // A gateway is a service that speaks HTTP/2, too.
    let upstream = Upstream::start();
    let inner = Setup::new("memory:", &upstream).with(&["--scope", "none"]).start();
    let outer =
        Setup::new("memory:", &upstream).with(&["--upstream", &format!("h2c://{}", inner.address)]).start();
    let (get, big) = (Request::new("GET", "/x?y=1").send(outer.address), "x".repeat(1 << 20));
    assert_eq!(get.status, 201);
    assert_eq!(Request::new("POST", "/echo").body(&big).send(outer.address).body.len(), big.len());
    let key = key("h2-upstream");
    let first = outer.post("/pay", &key, "x");
    assert_eq!((first.status, outer.post("/pay", &key, "x").is_replayed()), (201, true));
    let seen = upstream.seen();
    assert_eq!((seen[0].path.as_str(), seen[0].header("host")), ("/x?y=1", Some("shop.example")));
    assert_eq!(upstream.effects_of(&key), 1);
    // An upstream that is gone is never sent to.
    drop(inner);
    std::thread::sleep(Duration::from_millis(300));
    let refused = post("/pay", &crate::stores::key("h2-gone"), "x").send(outer.address);
    refused.is(502, "upstream-unreachable");
}

/// Writes a new certificate for localhost and its key; returns where the certificate is.
pub(crate) fn certify(home: &std::path::Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(home.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(home.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    home.join("cert.pem").to_str().unwrap().to_owned()
}

#[test]
fn tls_is_spoken_on_both_sides() {
    let home = tempfile::tempdir().unwrap();
    let cert = &certify(home.path());
    let upstream = Upstream::start();
    let inner_home = home.path().join("inner");
    std::fs::create_dir(&inner_home).unwrap();
    let inner = Setup::new("memory:", &upstream)
        .home(&inner_home)
        .with(&["--tls-cert", cert])
        .with(&["--tls-key", home.path().join("key.pem").to_str().unwrap()])
        .start();
    let port = inner.address.port();
    let url = format!("https://localhost:{port}/pay");
    let resolve = format!("localhost:{port}:127.0.0.1");
    for (flag, head) in [("--http1.1", "HTTP/1.1 201"), ("--http2", "HTTP/2 201")] {
        let answer = curl(&[
            flag,
            "--cacert",
            cert,
            "--resolve",
            &resolve,
            "-H",
            "x-tenant: a",
            "-H",
            &format!("idempotency-key: {}", key("tls")),
            "-d",
            "x",
            &url,
        ]);
        assert!(answer.starts_with(head), "{answer}");
    }
    assert_eq!(upstream.seen()[0].header("x-forwarded-proto"), Some("https"));
    let outer = |ca: &[&str]| {
        Setup::new("memory:", &upstream)
            .with(&["--upstream", &format!("https://localhost:{port}")])
            .with(ca)
            .start()
    };
    let trusted = outer(&["--upstream-ca", cert]);
    assert_eq!(trusted.post("/pay", &key("tls"), "x").status, 201);
    let untrusted = outer(&["--connect-timeout", "5s"]);
    untrusted.post("/pay", &key("tls"), "x").is(502, "upstream-unreachable");
    assert!(untrusted.log().contains("certificate"), "{}", untrusted.log());
}

#[test]
fn log_lines_for_machines_are_json_and_name_the_record() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--log", "json"]).start();
    let key = key("log");
    gateway.post("/reset", &key, "x").is(502, "upstream-failed");
    let id = gateway.post("/reset", &key, "x").json()["record"].as_str().unwrap().to_owned();
    let lines: Vec<serde_json::Value> = gateway
        .log()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect();
    let about = |words: &str| {
        let line = lines.iter().find(|line| line["fields"]["message"] == words);
        line.unwrap_or_else(|| panic!("nothing says {words:?}: {lines:?}"))
    };
    assert!(about("the upstream did not answer").to_string().contains(&id), "the record is on the line");
    assert!(about("refused").to_string().contains(&id));
}

#[test]
fn an_upstream_always_hears_a_host() {
    let home = tempfile::tempdir().unwrap();
    let cert = &certify(home.path());
    let upstream = Upstream::start();
    let inner_home = home.path().join("inner");
    std::fs::create_dir(&inner_home).unwrap();
    // It offers HTTP/2, and is asked by it.
    let inner = Setup::new("memory:", &upstream)
        .home(&inner_home)
        .with(&["--tls-cert", cert])
        .with(&["--tls-key", home.path().join("key.pem").to_str().unwrap()])
        .start();
    let only_1 = TlsOverOne::start(home.path(), upstream.address);
    for port in [inner.address.port(), only_1] {
        let outer = Setup::new("memory:", &upstream)
            .with(&["--upstream", &format!("https://localhost:{port}")])
            .with(&["--upstream-ca", cert])
            .start();
        let request = format!(
            "POST /pay HTTP/1.0\r\nx-tenant: a\r\nidempotency-key: {}\r\ncontent-length: 1\r\n\r\nx",
            key("old")
        );
        let answer = raw(outer.address, request.as_bytes(), Duration::from_secs(20));
        assert_eq!(answer.get(8..12), Some(" 201"), "{answer}");
        assert_eq!(upstream.seen().pop().unwrap().header("host"), Some(format!("localhost:{port}").as_str()));
        assert_eq!(outer.post("/pay", &key("new"), "x").status, 201);
        assert_eq!(upstream.seen().pop().unwrap().header("host"), Some("shop.example"));
    }
}

/// A server that speaks TLS and only HTTP/1.1, and hands the bytes on as they are.
struct TlsOverOne;

impl TlsOverOne {
    fn start(home: &std::path::Path, to: std::net::SocketAddr) -> u16 {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let certs = vec![CertificateDer::from_pem_file(home.join("cert.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(home.join("key.pem")).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut config = config.with_no_client_auth().with_single_cert(certs, key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((socket, _)) = listener.accept().await {
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        let mut caller = acceptor.accept(socket).await.unwrap();
                        let mut service = tokio::net::TcpStream::connect(to).await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut caller, &mut service).await;
                    });
                }
            });
        });
        port
    }
}

#[test]
fn a_path_that_does_not_fit_behind_its_base_is_not_sent_without_it() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--upstream", &format!("{}/base", upstream.url())])
        .with(&["--max-head", "128KiB"])
        .start();
    let path = |length: usize| format!("/{}", "x".repeat(length - 1));
    let (fits, key) = (gateway.post(&path(65_529), &key("long"), "x"), key("longer"));
    assert_eq!(fits.status, 201);
    assert_eq!(upstream.seen().pop().unwrap().path.len(), 65_534);
    for _ in 0..2 {
        let refused = gateway.post(&path(65_530), &key, "x");
        assert!(!refused.is(414, "target-too-long").is_replayed(), "nothing was done, and nothing is kept");
    }
    assert_eq!(upstream.seen().len(), 1);
}
