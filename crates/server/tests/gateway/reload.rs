//! SIGHUP: what was changed counts at once, what can't is named, and nothing is said to be in force that is not.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::{Request, raw};
use crate::program::{Gateway, Setup, eventually};
use crate::stores::key;
use crate::traffic::{certify, curl};
use crate::upstream::Upstream;

/// Writes the file and waits until it was read; returns what was logged meanwhile.
fn reload(gateway: &Gateway, toml: &str) -> String {
    fs::write(gateway.home.join("gateway.toml"), toml).unwrap();
    let before = gateway.log().len();
    gateway.signal(Signal::HUP);
    eventually(|| {
        let log = gateway.log();
        log[before..].contains("the configuration was reloaded")
            || log[before..].contains("the old one stays")
    });
    gateway.log()[before..].to_owned()
}

/// A POST of tenant a to a host.
fn pay(gateway: &Gateway, host: &str, path: &str, key: &str) -> String {
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nx-tenant: a\r\nidempotency-key: {key}\r\ncontent-length: 1\r\n\r\nx"
    );
    raw(gateway.address, request.as_bytes(), Duration::from_secs(60))
}

fn is_replayed(answer: &str) -> bool {
    answer.contains("idempotent-replayed: true")
}

#[test]
fn a_host_that_gets_an_upstream_leaves_the_calls_to_others_as_they_were() {
    let (usual, other) = (Upstream::start(), Upstream::start());
    let gateway = Setup::new("memory:", &usual).config("# nothing\n").start();
    let key = key("host");
    assert!(pay(&gateway, "a.example", "/pay", &key).starts_with("HTTP/1.1 201"));
    let said = reload(
        &gateway,
        &format!("[[forward]]\nhost = \"*.b.example\"\npath = \"/pay\"\nupstream = \"{}\"\n", other.url()),
    );
    assert!(said.contains("WARN") && said.contains("the hosts of [[forward]]"), "{said}");
    for host in ["a.example", "A.example", "a.example:80", "a.example:8443", "elsewhere"] {
        assert!(is_replayed(&pay(&gateway, host, "/pay", &key)), "{host}");
    }
    assert_eq!((usual.effects(), other.effects()), (1, 0));
    // The host that has an upstream of its own is told from the others, and is one host however it is spelled.
    assert!(!is_replayed(&pay(&gateway, "x.b.example", "/pay", &key)));
    for host in ["x.b.example", "X.B.Example", "x.b.example.", "x.b.example:80", "x.b.example:8080"] {
        assert!(is_replayed(&pay(&gateway, host, "/pay", &key)), "{host}");
    }
    assert!(!is_replayed(&pay(&gateway, "y.b.example", "/pay", &key)));
    assert_eq!((usual.effects(), other.effects()), (1, 2));
    // A question finds the call that it is about.
    let ask = format!(
        "GET /_onlyonce/outcome?method=POST&path=/pay HTTP/1.1\r\nhost: X.b.example:80\r\nconnection: close\r\nx-tenant: a\r\nidempotency-key: {key}\r\n\r\n"
    );
    let answer = raw(gateway.address, ask.as_bytes(), Duration::from_secs(60));
    assert!(answer.contains("\"state\":\"completed\""), "{answer}");
}

#[test]
fn a_reload_after_which_calls_are_not_recognised_says_so() {
    let upstream = Upstream::start();
    let config = |scope: &str, rest: &str| {
        format!("store = \"memory:\"\nupstream = \"{}\"\n[scope]\nfrom = {scope}\n{rest}", upstream.url())
    };
    let gateway = Setup::bare().config(&config("\"header:x-tenant\"", "")).start();
    let said = reload(&gateway, &config("[\"header:x-tenant\"]", "[defaults]\nwait = \"1s\"\n"));
    assert!(!said.contains("WARN") && said.contains("reloaded: defaults.wait"), "{said}");
    let again = "a retry of them runs again";
    let said = reload(&gateway, &config("[\"header:x-tenant\", \"cookie:sid\"]", ""));
    assert!(said.contains("WARN") && said.contains("scope.from was [\"header:x-tenant\"]"), "{said}");
    assert!(said.contains("cookie:sid") && said.contains(again), "{said}");
    let both = "[\"header:x-tenant\", \"cookie:sid\"]";
    let said = reload(&gateway, &config(both, "[defaults]\nmethods = [\"PUT\"]\n"));
    assert!(said.contains("POST is protected on declared routes only") && said.contains(again), "{said}");
    assert!(said.contains("methods leaves out POST"), "{said}");
    let said = reload(&gateway, &config(both, "[[route]]\nmatch = \"post /pay\"\nkey = \"json:/id\"\n"));
    assert!(!said.contains("the key of"), "POST was not protected before: {said}");
    let said = reload(&gateway, &config(both, "[[route]]\nmatch = \"POST /pay\"\nkey = \"query:id\"\n"));
    assert!(said.contains("the key of POST /pay was \"json:/id\" and is \"query:id\""), "{said}");
    let said = reload(&gateway, &config(both, ""));
    assert!(said.contains("the key of POST /pay was \"query:id\" and is \"header\""), "{said}");
}

#[test]
fn a_new_admin_token_counts_at_once_and_the_old_one_no_longer() {
    let upstream = Upstream::start();
    let gateway = Setup::new("embedded:./data", &upstream).config("# nothing\n").start();
    let old = gateway.token();
    let stats = |token: &str| {
        let request = Request::new("GET", "/api/stats").header("authorization", &format!("Bearer {token}"));
        request.send(gateway.admin.unwrap()).status
    };
    let events = format!(
        "GET /api/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {old}\r\n\r\n"
    );
    let mut listener = TcpStream::connect(gateway.admin.unwrap()).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    listener.write_all(events.as_bytes()).unwrap();
    let mut first = [0; 12];
    listener.read_exact(&mut first).unwrap();
    assert_eq!((&first, stats(&old)), (b"HTTP/1.1 200", 200));
    reload(&gateway, "admin_token = \"rotated-rotated-rotated\"\n");
    assert_eq!((stats(&old), stats("rotated-rotated-rotated")), (401, 200));
    let mut rest = String::new();
    listener.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "who came with the old token is shown out: {rest}");
    // A file is read again as well.
    fs::write(gateway.home.join("other.token"), "another-token-of-mine\n").unwrap();
    reload(&gateway, "admin_token_file = \"other.token\"\naudit_log = \"other.log\"\n");
    assert_eq!((stats("rotated-rotated-rotated"), stats("another-token-of-mine")), (401, 200));
    fs::write(gateway.home.join("other.token"), "and-yet-another-token\n").unwrap();
    reload(&gateway, "admin_token_file = \"other.token\"\naudit_log = \"other.log\"\n");
    assert_eq!((stats("another-token-of-mine"), stats("and-yet-another-token")), (401, 200));
    assert!(gateway.home.join("other.log").exists());
    // One that can be guessed changes nothing.
    fs::write(gateway.home.join("other.token"), "short\n").unwrap();
    assert!(reload(&gateway, "admin_token_file = \"other.token\"\n").contains("the old one stays"));
    assert_eq!(stats("and-yet-another-token"), 200);
}

#[test]
fn time_outs_and_limits_count_from_the_next_connection_on() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).config("[limits]\nheader_timeout = \"10m\"\n").start();
    // The connection to the upstream is known, and its time-out is another one all the same.
    assert_eq!(gateway.post("/pay", &key("before"), "x").status, 201);
    reload(&gateway, "[limits]\nresponse_timeout = \"300ms\"\n");
    gateway.post("/gated", &key("late"), "x").is(504, "upstream-timeout");
    upstream.open();
    let long = |bytes: usize| {
        let head =
            format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-pad: {}\r\n\r\n", "y".repeat(bytes));
        raw(gateway.address, head.as_bytes(), Duration::from_secs(60))
    };
    assert!(long(20_000).starts_with("HTTP/1.1 201"));
    reload(&gateway, "[limits]\nmax_head = \"8KiB\"\n");
    assert!(long(20_000).starts_with("HTTP/1.1 431"));
    reload(&gateway, "[limits]\nheader_timeout = \"500ms\"\n");
    let mut slow = TcpStream::connect(gateway.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    slow.write_all(b"POST / HT").unwrap();
    // With the first time-out this would take ten minutes.
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    let shown = gateway.admin("GET", "/api/config", "").json()["toml"].as_str().unwrap().to_owned();
    assert!(
        shown.contains("header_timeout = \"500ms\"") && shown.contains("response_timeout = \"60s\""),
        "{shown}"
    );
}

#[test]
fn what_waits_for_the_next_start_is_named_and_not_shown_as_in_force() {
    let upstream = Upstream::start();
    let config = |rest: &str| {
        format!("upstream = \"{}\"\n{rest}[scope]\nfrom = \"header:x-tenant\"\n", upstream.url())
    };
    let gateway = Setup::bare().config(&config("store = \"memory:\"\n")).start();
    let said = reload(&gateway, &config("store = \"embedded:./elsewhere\"\ntrust_forwarded = true\n"));
    assert!(
        said.contains("store (\"memory:\" stays in force)") && said.contains("next start only"),
        "{said}"
    );
    assert!(!said.contains("listen") && said.contains("reloaded: trust_forwarded"), "{said}");
    let shown = gateway.admin("GET", "/api/config", "").json()["toml"].as_str().unwrap().to_owned();
    assert!(shown.contains("store = \"memory:\"") && shown.contains("trust_forwarded = true"), "{shown}");
    assert!(!gateway.home.join("elsewhere").exists());
    let said = reload(&gateway, &config("store = \"memory:\"\ntrust_forwarded = true\n"));
    assert!(!said.contains("WARN") && said.contains("nothing changed"), "{said}");
    assert!(
        reload(&gateway, &config("store = \"nonsense\"\n")).contains("there is no store"),
        "told also now"
    );
}

#[test]
fn a_renewed_certificate_is_served_after_a_reload() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let first = certify(home.path());
    let gateway = Setup::new("memory:", &upstream)
        .home(home.path())
        .config("# nothing\n")
        .with(&["--tls-cert", "cert.pem"])
        .with(&["--tls-key", "key.pem"])
        .start();
    let port = gateway.address.port();
    let (url, resolve) = (format!("https://localhost:{port}/"), format!("localhost:{port}:127.0.0.1"));
    let trusting = |authority: &str| curl(&["--cacert", authority, "--resolve", &resolve, &url]);
    let old = home.path().join("old.pem");
    fs::copy(&first, &old).unwrap();
    assert!(trusting(old.to_str().unwrap()).contains(" 201"));
    let renewed = certify(home.path());
    reload(&gateway, "# nothing\n");
    assert!(trusting(&renewed).contains(" 201"));
    assert!(!trusting(old.to_str().unwrap()).contains(" 201"));
}
