//! What protects reads as the laxest service behind it: what two of them could read differently is refused, on HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Uri, Version};
use serde_json::Value;

use crate::client::{Request, raw};
use crate::program::{Gateway, Setup, post};
use crate::stores::key;
use crate::upstream::{Seen, Upstream};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
const BOTH: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

/// A POST that can be sent in either version, with whatever bytes it has.
#[derive(Clone)]
struct Ask {
    method: &'static str,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    host: Option<&'static str>,
}

/// What came back.
#[derive(Debug)]
struct Told {
    status: u16,
    replayed: bool,
    problem: Value,
}

impl Told {
    fn detail(&self) -> &str {
        self.problem["detail"].as_str().unwrap_or_default()
    }

    fn problem(&self) -> &str {
        self.problem["type"].as_str().unwrap_or_default().trim_start_matches("urn:onlyonce:problem:")
    }

    #[track_caller]
    fn is(&self, status: u16, problem: &str, what: &str) -> &Self {
        assert_eq!((self.status, self.problem()), (status, problem), "{what}: {self:?}");
        self
    }
}

fn ask(path: &str) -> Ask {
    Ask { method: "POST", target: path.into(), headers: Vec::new(), host: Some("shop.example") }
}

/// A call of tenant a.
fn pay(path: &str, key: &str) -> Ask {
    ask(path).with("x-tenant", "a").with("idempotency-key", key)
}

impl Ask {
    fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    fn host(mut self, host: Option<&'static str>) -> Self {
        self.host = host;
        self
    }

    fn send(&self, to: SocketAddr, version: Version) -> Told {
        if version == Version::HTTP_2 { self.send_2(to) } else { self.send_1(to) }
    }

    fn send_1(&self, to: SocketAddr) -> Told {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        let mut line = |name: &str, value: &[u8]| {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        };
        if let Some(host) = self.host {
            line("host", host.as_bytes());
        }
        let closes = |(name, _): &(String, Vec<u8>)| name.eq_ignore_ascii_case("connection");
        if !self.headers.iter().any(closes) {
            line("connection", b"close");
        }
        self.headers.iter().for_each(|(name, value)| line(name, value));
        line("content-length", b"1");
        bytes.extend(b"\r\nx");
        let patience =
            if self.headers.iter().any(closes) { std::time::Duration::from_millis(700) } else { PATIENCE };
        let answer = raw(to, &bytes, patience);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Told {
            status: head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default(),
            replayed: head.contains("idempotent-replayed: true"),
            problem: serde_json::from_str(body).unwrap_or_default(),
        }
    }

    fn send_2(&self, to: SocketAddr) -> Told {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sent = async {
            let socket = tokio::net::TcpStream::connect(to).await.unwrap();
            let (sender, connection) = h2::client::handshake(socket).await.unwrap();
            let driver = tokio::spawn(connection);
            let mut request = http::Request::new(());
            // A request of HTTP/2 has a host in its target, says the client.
            *request.version_mut() = if self.host.is_some() { Version::HTTP_2 } else { Version::HTTP_11 };
            *request.method_mut() = Method::from_bytes(self.method.as_bytes()).unwrap();
            let mut uri = http::uri::Parts::default();
            if let Some(host) = self.host {
                uri.scheme = Some(http::uri::Scheme::HTTP);
                uri.authority = Some(host.parse().unwrap());
            }
            uri.path_and_query = Some(self.target.parse().unwrap());
            *request.uri_mut() = Uri::from_parts(uri).unwrap();
            for (name, value) in &self.headers {
                let name: HeaderName = name.parse().unwrap();
                request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
            }
            let mut sender = sender.ready().await.unwrap();
            let (response, mut body) = sender.send_request(request, false).unwrap();
            body.send_data(Bytes::from_static(b"x"), true).unwrap();
            let told = match response.await {
                Err(_) => Told { status: 0, replayed: false, problem: Value::Null },
                Ok(response) => {
                    let (head, mut body) = response.into_parts();
                    let mut bytes = Vec::new();
                    while let Some(Ok(data)) = body.data().await {
                        bytes.extend_from_slice(&data);
                    }
                    Told {
                        status: head.status.as_u16(),
                        replayed: head.headers.contains_key("idempotent-replayed"),
                        problem: serde_json::from_slice(&bytes).unwrap_or_default(),
                    }
                }
            };
            driver.abort();
            told
        };
        runtime.block_on(sent)
    }
}

fn strict(upstream: &Upstream) -> Gateway {
    Setup::new("memory:", upstream)
        .config("[[route]]\nmatch = \"POST /pay\"\nmissing = \"reject\"\n[[route]]\nmatch = \"PUT /pay\"\nmissing = \"reject\"\n")
        .start()
}

#[test]
fn a_method_that_differs_in_case_gets_past_nothing() {
    let upstream = Upstream::start();
    let gateway = strict(&upstream);
    for version in BOTH {
        for method in ["post", "Post", "pOsT", "patch", "Patch", "put", "Put"] {
            let key = key("case");
            for ask in [pay("/pay", &key), ask("/pay")] {
                let told = ask.method(method).send(gateway.address, version);
                told.is(400, "request-ambiguous", method);
                assert!(told.detail().contains(&method.to_uppercase()), "{told:?}");
            }
        }
        assert_eq!(upstream.effects(), 0);
    }
    // What only looks alike, and methods that nobody protects, are the service's business.
    for (n, method) in ["PROPFIND", "MKCOL", "REPORT", "POSTS", "get", "delete", "purge"].iter().enumerate() {
        assert_eq!(ask("/pay").method(method).send(gateway.address, BOTH[n % 2]).status, 201, "{method}");
        assert_eq!(upstream.seen().last().unwrap().method, *method);
    }
}

#[test]
fn a_method_or_path_in_a_header_gets_past_no_rule() {
    let upstream = Upstream::start();
    let gateway = strict(&upstream);
    for version in BOTH {
        for name in ["x-http-method-override", "x-http-method", "x-method-override", "x_http_method_override"]
        {
            for (method, path, word) in
                [("GET", "/pay", "POST"), ("GET", "/pay", "post"), ("POST", "/other", "PATCH")]
            {
                let told = ask(path).method(method).with(name, word).send(gateway.address, version);
                let expected = if path == "/pay" { (400, "request-ambiguous") } else { (201, "") };
                told.is(expected.0, expected.1, &format!("{method} {path} {name}: {word}"));
            }
        }
        for name in ["x-original-url", "x-rewrite-url"] {
            let told = ask("/other").with(name, "/pay?x=1").send(gateway.address, version);
            told.is(400, "request-ambiguous", name);
            assert_eq!(ask("/other").with(name, "/else").send(gateway.address, version).status, 201);
            let told = ask("/other").with(name, "https://shop/pay?x=1").send(gateway.address, version);
            told.is(400, "request-ambiguous", "an absolute URL");
            let same = pay("/pay", &key("absolute")).with(name, "https://shop/pay?x=1");
            assert_eq!(same.send(gateway.address, version).status, 201, "it names the same path");
        }
    }
}

#[test]
fn spellings_that_every_service_reads_alike_are_one_path() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for version in BOTH {
        for spellings in [
            &["/caf\u{e9}", "/caf%C3%A9", "/caf%c3%a9", "/%63af\u{e9}"][..],
            &["/\u{65e5}\u{672c}/%7e", "/%E6%97%A5%E6%9C%AC/~", "/./\u{65e5}%e6%9c%AC/~"],
            &["/a|b", "/a%7Cb", "/a%7cb"],
            &["/a\"b{c}^[d]", "/a%22b%7Bc%7D%5E%5Bd%5D"],
            &["/user@x.example:1", "/user%40x.example%3A1", "/user%40x.example%3a1"],
            &["/a!$&'()*+,=b", "/a%21%24%26%27%28%29%2A%2B%2C%3Db"],
            &["/x/../pay", "/pay", "/x/%2e%2E/pay", "/./pay"],
        ] {
            let (key, before) = (key("path"), upstream.effects());
            for (n, spelling) in spellings.iter().enumerate() {
                let told = pay(spelling, &key).send(gateway.address, version);
                assert_eq!((told.status, told.replayed), (201, n > 0), "{spelling} {version:?}: {told:?}");
            }
            assert_eq!(upstream.effects(), before + 1, "{spellings:?}");
        }
    }
}

#[test]
fn rules_of_a_route_hold_for_every_spelling_that_some_service_takes_for_it() {
    let upstream = Upstream::start();
    let gateway = strict(&upstream);
    for version in BOTH {
        for path in [
            "/pay/",
            "//pay",
            "/PAY",
            "/Pay/",
            "/pay;v=1",
            "/pay;/",
            "/pay%2F",
            "/pay%2f",
            "/;x/pay",
            "/pay%3Bx",
            "/%2Fpay",
            "/p%41y",
            "/.//pay",
            "/pay\\",
            "/pay%5C",
            "/pay.",
            "/pay.json",
            "/pay%00x",
        ] {
            ask(path).send(gateway.address, version).is(400, "key-missing", path);
        }
        for path in ["/pays", "/pay/7", "/x/pay", "/pa"] {
            assert_eq!(ask(path).send(gateway.address, version).status, 201, "{path}");
        }
    }
}

#[test]
fn a_step_upwards_that_only_some_services_see_is_refused() {
    let upstream = Upstream::start();
    let gateway =
        Setup::new("memory:", &upstream).with(&["--upstream", &format!("{}/base", upstream.url())]).start();
    for version in BOTH {
        for path in
            ["/x/..;/pay", "/..%2Fpay", "/x/..%2fpay", "/..\\pay", "/%2e%2e%5Cpay", "/.%2e;a=1/pay", "/..;"]
        {
            pay(path, &key("up")).send(gateway.address, version).is(400, "request-ambiguous", path);
        }
    }
    assert_eq!(upstream.seen().len(), 0);
    // What all see is taken, and goes out as it was taken.
    for (path, sent) in [
        ("/../pay", "/base/pay"),
        ("/x/../pay?a=../b", "/base/pay?a=../b"),
        ("/%2e%2e/%70ay", "/base/%70ay"),
        ("/a/./b/..", "/base/a/"),
        ("/...", "/base/..."),
        ("/a..b/%2e%2e.", "/base/a..b/%2e%2e."),
    ] {
        assert_eq!(pay(path, &key("dots")).send(gateway.address, Version::HTTP_11).status, 201);
        assert_eq!(upstream.seen().last().unwrap().path, sent, "{path}");
    }
}

const CONFIG: &str = "\
[[route]]\nmatch = \"POST /by-header\"\nkey = \"header:x-request-number\"\n\
[[route]]\nmatch = \"POST /counted\"\nkey = \"sequence\"\n\
[[route]]\nmatch = \"POST /token\"\nkey = \"token\"\n";

#[test]
fn what_identity_and_routing_rest_on_can_not_be_struck_out_by_connection() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .config(CONFIG)
        .with(&["--scope", "header:x-tenant,cookie:sid"])
        .start();
    for named in [
        "host",
        "x-tenant",
        "X-Tenant",
        "cookie",
        "authorization",
        "idempotency-key",
        "x-request-number",
        "onlyonce-sequence",
        "onlyonce-token",
        "onlyonce-fence",
        "content-type",
        "content-length",
        "content-encoding",
        "x-forwarded-for",
        "x-forwarded-host",
        "if-match",
        "if_match",
        "range",
        "max-forwards",
        "x-http-method-override",
        "x_tenant",
        "forwarded",
    ] {
        for value in [
            named.to_owned(),
            format!("close, {named}"),
            format!("close,\t{named} ,x-hop"),
            format!("\"{named}\""),
        ] {
            for keyed in [pay("/pay", &key("hop")), ask("/pay")] {
                let told = keyed
                    .with("connection", &value)
                    .with("cookie", "sid=1")
                    .send(gateway.address, Version::HTTP_11);
                told.is(400, "request-ambiguous", &value);
            }
        }
    }
    assert_eq!(upstream.seen().len(), 0);
    // HTTP/2 knows no such header, and a request with it is malformed.
    for named in ["host", "x-tenant", "close"] {
        connection_over_2(gateway.address, named);
    }
    assert_eq!(upstream.seen().len(), 0);
    let fine = pay("/pay", &key("hop")).with("connection", "close, x-hop, te, keep-alive").with("x-hop", "1");
    assert_eq!(fine.send(gateway.address, Version::HTTP_11).status, 201);
    assert_eq!(upstream.seen()[0].header("x-hop"), None);
}

/// Sends a request with `connection` over HTTP/2, frame by frame, because no client would, and waits for the end of its stream.
fn connection_over_2(to: SocketAddr, named: &str) {
    use std::io::{Read, Write};
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/pay"),
        (":authority", "shop.example"),
        ("x-tenant", "a"),
        ("idempotency-key", "over-2"),
        ("connection", named),
    ] {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    bytes.extend([0, 0, block.len() as u8, 1, 0b101, 0, 0, 0, 1]);
    bytes.extend(block);
    let mut socket = std::net::TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&bytes).unwrap();
    loop {
        let mut head = [0; 9];
        // A connection that is closed is as good an end.
        let Ok(()) = socket.read_exact(&mut head) else { return };
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        socket.read_exact(&mut payload).unwrap();
        // RST_STREAM, or a frame that ends the stream.
        if head[8] == 1 && (head[3] == 3 || (head[3] < 2 && head[4] & 1 == 1)) {
            return;
        }
    }
}

fn cookies(seen: &Seen) -> Vec<&str> {
    seen.headers.iter().filter(|(name, _)| name == "cookie").map(|(_, value)| value.as_str()).collect()
}

#[test]
fn cookies_reach_the_service_as_one_line_and_a_caller_has_one_session() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--scope", "cookie:sid"]).start();
    let call = |key: &str, lines: &[&[u8]], version| {
        let call = ask("/pay").with("idempotency-key", key);
        lines.iter().fold(call, |call, line| call.with("cookie", line)).send(gateway.address, version)
    };
    for version in BOTH {
        // Split or not, beside whatever bytes, it is one session, and one line.
        let key = key("cookies");
        for (n, lines) in [
            &[&b"a=1; sid=s; b=2"[..]][..],
            &[b"a=1", b"sid=s", b"b=2"],
            &[b"lang=caf\xc3\xa9; sid=s"],
            &[b"lang=caf\xe9", b"sid=s"],
            &[b"sid=s;x=\xff\xfe"],
            &[b"sid=s", b""],
        ]
        .into_iter()
        .enumerate()
        {
            let told = call(&key, lines, version);
            assert_eq!((told.status, told.replayed), (201, n > 0), "{lines:?} {version:?}: {told:?}");
        }
        let told = call(&crate::stores::key("split"), &[b"a=1", b"sid=s", b"b=2"], version);
        assert_eq!(told.status, 201);
        assert_eq!(cookies(upstream.seen().last().unwrap()), ["a=1; sid=s; b=2"], "{version:?}");
        // Somebody else has another session.
        assert!(!call(&key, &[b"sid=t"], version).replayed);
        let before = upstream.seen().len();
        for hidden in [
            &[&b"sid=s; sid=t"[..]][..],
            &[b"sid=s", b"sid=t"],
            &[b"sid=s; x=\xff; sid=t"],
            &[b"sid=s", b"x=\xe9; sid=t"],
            &[b"sid=s; x=\xe9;sid =t"],
            &[b"sid=s,sid=t"],
            &[b"x=\"a; sid=t\"; sid=s"],
            &[b"sid=s; $Path=/; SID=t"],
            &[b"sid=s;\tsid=t"],
            &[b"sid=s; s%69d=t"],
            &[b"sid=s; sid"],
            &[b"sid=s; \"sid\"=t"],
            &[b"sid=\xff"],
        ] {
            let told = call(&crate::stores::key("hidden"), hidden, version);
            told.is(
                400,
                "scope-missing",
                &format!(
                    "{:?} {version:?}",
                    hidden.iter().map(|line| String::from_utf8_lossy(line)).collect::<Vec<_>>()
                ),
            );
            assert!(told.detail().contains("cookie sid"), "{told:?}");
        }
        assert_eq!(upstream.seen().len(), before);
    }
}

#[test]
fn a_header_that_some_services_can_not_tell_from_one_that_counts_is_refused() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).config(CONFIG).start();
    let twins = [
        "onlyonce_fence",
        "onlyonce_outcome",
        "onlyonce_token",
        "onlyonce_sequence",
        "onlyonce.fence",
        "x_tenant",
        "x.tenant",
        "x~tenant",
        "idempotency_key",
        "idempotency.key",
        "x_request_number",
        "x_request-number",
        "content_type",
        "content_length",
        "transfer_encoding",
        "x_forwarded_for",
        "x_forwarded_host",
        "x_forwarded_proto",
        "if_match",
        "if-none_match",
        "if_none_match",
        "if_modified_since",
        "if.unmodified.since",
        "if_range",
        "content_range",
        "max_forwards",
    ];
    for version in BOTH {
        for twin in twins {
            for call in [pay("/pay", &key("twin")), ask("/pay")] {
                let told = call.with(twin, "7").send(gateway.address, version);
                told.is(400, "request-ambiguous", twin);
                assert!(told.detail().contains(twin), "{told:?}");
            }
        }
    }
    assert_eq!(upstream.seen().len(), 0);
    // Ours are taken out, the attempt's own fence is put in; what resembles nothing passes.
    for version in BOTH {
        let call = pay("/pay", &key("fence")).with("onlyonce-fence", "99999999999999").with("x_other", "1");
        assert_eq!(call.send(gateway.address, version).status, 201);
        let seen = upstream.seen().pop().unwrap();
        assert_ne!(seen.header("onlyonce-fence"), Some("99999999999999"));
        assert_eq!(seen.header("x_other"), Some("1"));
        assert_eq!(ask("/pay").with("onlyonce-fence", "7").send(gateway.address, version).status, 201);
        assert_eq!(upstream.seen().pop().unwrap().header("onlyonce-fence"), None);
    }
}

#[test]
fn a_host_is_a_host_or_the_request_is_refused() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for host in [
        "a b",
        "a/b",
        "u@a",
        "u:p@a",
        "a,b",
        "a:b",
        "a:99999",
        "a:80:80",
        "a:-1",
        "a:+80",
        "[::1",
        "::1",
        "[::1]x",
        "[::1]:x",
        "[x]",
        "[]",
        ":80",
        "a..b",
        ".a",
        "a\\b",
        "a%2eb",
        "a;b",
        "a\"b",
        "<a>",
        "caf\u{e9}",
        "a\u{1}b",
        "@",
        "a?b",
        "a#b",
        ".",
        "a b:80",
        "[1.2.3.4]",
    ] {
        for (target, version) in [("/pay", "1.1"), ("/pay", "1.0"), ("http://shop.example/pay", "1.1")] {
            let request = format!(
                "POST {target} HTTP/{version}\r\nhost: {host}\r\nconnection: close\r\nx-tenant: a\r\nidempotency-key: {}\r\ncontent-length: 1\r\n\r\nx",
                key("host")
            );
            let answer = raw(gateway.address, request.as_bytes(), PATIENCE);
            assert!(answer.get(8..12) == Some(" 400"), "{host:?} {target} {version}: {answer}");
        }
        for target in ["http", "https"] {
            let request = format!(
                "POST {target}://{host}/pay HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx"
            );
            let leads_elsewhere = host.contains(['/', '?', '#']);
            if !leads_elsewhere {
                let answer = raw(gateway.address, request.as_bytes(), PATIENCE);
                assert!(answer.starts_with("HTTP/1.1 400"), "{request}: {answer}");
            }
        }
    }
    for host in ["u@shop.example", "u:p@shop.example", "shop.example:99999", "shop.example:x", "a..b", "[x]"]
    {
        let told = pay("/pay", &key("host")).host(Some(host)).send(gateway.address, Version::HTTP_2);
        assert!(told.status == 400 || told.status == 0, "{host}: {told:?}");
        let told =
            pay("/pay", &key("host")).host(None).with("host", host).send(gateway.address, Version::HTTP_2);
        assert!(told.status == 400 || told.status == 0, "{host}: {told:?}");
    }
    for target in ["shop.example:80", "pay", "*"] {
        let request = format!(
            "POST {target} HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx"
        );
        assert!(raw(gateway.address, request.as_bytes(), PATIENCE).starts_with("HTTP/1.1 400"), "{target}");
    }
    assert_eq!(upstream.seen().len(), 0);
    for host in [
        "shop.example",
        "SHOP.example:8080",
        "a_b.example.",
        "127.0.0.1:80",
        "[::1]:80",
        "[2001:db8::1]",
        "a:",
        "xn--caf-dma.example",
        "a-b",
    ] {
        let request = Request::new("POST", "/pay").without_host().header("host", host).body("x");
        assert_eq!(request.send(gateway.address).status, 201, "{host}");
        assert_eq!(upstream.seen().pop().unwrap().header("host"), Some(host));
    }
    let target = "POST http://Other.example:81/pay HTTP/1.1\r\nhost: other.EXAMPLE:81\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx";
    assert!(raw(gateway.address, target.as_bytes(), PATIENCE).starts_with("HTTP/1.1 201"));
    assert_eq!(upstream.seen().pop().unwrap().header("host"), Some("Other.example:81"));
}

#[test]
fn a_host_that_is_named_twice_is_named_alike_or_the_request_is_refused() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for (host, version) in [("shop.example", "1.1"), ("shop.example:81", "1.1"), ("", "1.1"), ("b", "1.0")] {
        let request = format!(
            "POST http://other.example/pay HTTP/{version}\r\nhost: {host}\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx"
        );
        let answer = raw(gateway.address, request.as_bytes(), PATIENCE);
        assert!(
            answer.get(8..12) == Some(" 400") && answer.contains("request-ambiguous"),
            "{host}: {answer}"
        );
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[test]
fn a_scope_that_is_the_host_is_the_host_that_the_service_gets() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--scope", "header:host"]).start();
    let key = key("hosts");
    let call = |target: &str, host: &'static str, version| {
        ask(target).host(Some(host)).with("idempotency-key", &key).send(gateway.address, version)
    };
    let mut first = true;
    for host in ["a.example", "b.example"] {
        for version in BOTH {
            let told = call("/pay", host, version);
            assert_eq!((told.status, told.replayed), (201, !first), "{host} {version:?}: {told:?}");
            assert_eq!(upstream.seen().last().unwrap().header("host"), Some(host));
            first = false;
        }
        let absolute = call(&format!("http://{host}/pay"), host, Version::HTTP_11);
        assert!(absolute.replayed, "{absolute:?}");
        first = true;
    }
    let other = call("http://b.example/pay", "a.example", Version::HTTP_11);
    other.is(400, "request-ambiguous", "one host in the target, another beside it");
    assert_eq!(upstream.effects_of(&key), 2);
}

#[test]
fn a_cookie_that_some_service_takes_for_the_one_of_the_scope_is_its_twin() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--scope", "cookie:session_id"]).start();
    for version in BOTH {
        for twin in [
            "session.id",
            "session id",
            "session[id",
            "session_id[0]",
            "session_id[]",
            "session%2Eid",
            "session%20id",
            "SESSION.ID",
            "session-id",
        ] {
            for cookies in [
                format!("session_id=a; {twin}=b"),
                format!("{twin}=b; session_id=a"),
                format!("x=1, {twin}=b; session_id=a"),
            ] {
                let call = ask("/pay").with("idempotency-key", key("twin")).with("cookie", &cookies);
                call.send(gateway.address, version).is(400, "scope-missing", &cookies);
            }
        }
        for fine in [
            "session_id=a; session=b",
            "session_id=a; id=b",
            "a=session.id; session_id=a",
            "xsession.id=1; session_id=a",
        ] {
            let call = ask("/pay").with("idempotency-key", key("twin")).with("cookie", fine);
            assert_eq!(call.send(gateway.address, version).status, 201, "{fine}");
        }
    }
}

#[test]
fn a_content_type_that_is_there_twice_is_refused() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for version in BOTH {
        let twice = pay("/pay", &key("types"))
            .with("content-type", "text/plain")
            .with("content-type", "application/json");
        twice.send(gateway.address, version).is(400, "request-ambiguous", "twice");
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[test]
fn whatever_is_unclear_in_the_services_own_word_is_unknown() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let call =
        |path: &str, key: &str, says: &str| post(path, key, "x").header("x-says", says).send(gateway.address);
    for odd in [
        "onlyonce-outcome: keep|onlyonce-outcome: release",
        "onlyonce-outcome: release|onlyonce-outcome: keep",
        "onlyonce-outcome: release, keep",
        "onlyonce-outcome: Unknown",
        "onlyonce-outcome: UNKNOWN",
        "onlyonce-outcome: Release",
        "onlyonce-outcome: released",
        "onlyonce-outcome:",
        "onlyonce-outcome: \"release\"",
        "onlyonce-outcome: release;q=1",
        "onlyonce-outcome: \u{fc}",
        "onlyonce_outcome: release",
        "onlyonce-outcome: keep|onlyonce_outcome: release",
    ] {
        let key = key("odd");
        let first = call("/says", &key, odd);
        assert!(!first.headers.iter().any(|(name, _)| name.starts_with("onlyonce")), "{odd}: {first:?}");
        call("/says", &key, odd).is(409, "outcome-unknown");
        assert!(gateway.outcome("/says", &key).text().contains("\"unknown\""), "{odd}");
        assert_eq!(upstream.effects_of(&key), 1, "{odd}");
    }
    for (clear, state) in [
        ("onlyonce-outcome: keep", "completed"),
        ("onlyonce-outcome: release", "failed"),
        ("onlyonce-outcome: unknown", "unknown"),
        ("onlyonce-outcome: keep|onlyonce-outcome: keep", "completed"),
    ] {
        let key = key("clear");
        call("/says", &key, clear);
        assert!(gateway.outcome("/says", &key).text().contains(&format!("\"{state}\"")), "{clear}");
    }
    // A word behind the answer comes too late to be sure of.
    for trailer in ["onlyonce-outcome: release", "onlyonce-outcome: keep", "onlyonce_outcome: release"] {
        let key = key("trails");
        call("/trails", &key, trailer);
        call("/trails", &key, trailer).is(409, "outcome-unknown");
        assert_eq!(upstream.effects_of(&key), 1, "{trailer}");
        // Without a key nobody is told of it.
        let request = format!(
            "POST /trails HTTP/1.1\r\nhost: x\r\nte: trailers\r\nconnection: close, te\r\nx-says: {trailer}\r\ncontent-length: 0\r\n\r\n"
        );
        let passed = raw(gateway.address, request.as_bytes(), PATIENCE);
        assert!(passed.starts_with("HTTP/1.1 201") && !passed.to_lowercase().contains("release"), "{passed}");
    }
}

#[test]
fn a_request_that_may_not_be_forwarded_is_answered_here() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for version in BOTH {
        for (path, method, status) in [("/x", "OPTIONS", 200), ("*", "OPTIONS", 200), ("/x", "TRACE", 405)] {
            if path == "*" && version == Version::HTTP_2 {
                continue;
            }
            for zero in ["0", "00"] {
                let told = ask(path).method(method).with("max-forwards", zero).send(gateway.address, version);
                assert_eq!(told.status, status, "{method} {path} {version:?}");
            }
            for odd in ["x", "-1", "0, 5", "+0", ""] {
                let told = ask(path).method(method).with("max-forwards", odd).send(gateway.address, version);
                told.is(400, "request-ambiguous", odd);
            }
            let twice = ask(path).method(method).with("max-forwards", "5").with("max-forwards", "0");
            twice.send(gateway.address, version).is(400, "request-ambiguous", "twice");
        }
    }
    assert_eq!(upstream.seen().len(), 0);
    for (given, sent) in [("1", "0"), ("70", "69"), ("99999999999999999999999", "18446744073709551614")] {
        assert_eq!(
            ask("/x")
                .method("OPTIONS")
                .with("max-forwards", given)
                .send(gateway.address, Version::HTTP_11)
                .status,
            201
        );
        assert_eq!(upstream.seen().pop().unwrap().header("max-forwards"), Some(sent));
    }
    // To other methods it says nothing.
    assert_eq!(ask("/x").with("max-forwards", "0").send(gateway.address, Version::HTTP_11).status, 201);
    assert_eq!(upstream.seen().pop().unwrap().header("max-forwards"), Some("0"));
}

#[test]
fn who_is_not_known_hears_what_is_missing_or_unclear() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--scope", "header:x-tenant"]).start();
    for version in BOTH {
        let key = key("tenant");
        let call = |tenants: &[&[u8]]| {
            let call = ask("/pay").with("idempotency-key", &key);
            tenants
                .iter()
                .fold(call, |call, tenant| call.with("x-tenant", tenant))
                .send(gateway.address, version)
        };
        for (tenants, words) in [
            (&[][..], "the header x-tenant is missing"),
            (&[&b""[..]], "the header x-tenant is empty"),
            (&[b"a", b"b"], "the header x-tenant is there more than once"),
            (&[b"caf\xe9"], "the header x-tenant is not visible ASCII"),
            (&["caf\u{e9}".as_bytes()], "the header x-tenant is not visible ASCII"),
        ] {
            let told = call(tenants);
            assert!(told.is(400, "scope-missing", words).detail().contains(words), "{told:?}");
        }
        assert_eq!(call(&[b"caf%C3%A9"]).status, 201);
        assert!(call(&[b"caf%C3%A9"]).replayed && !call(&[b"cafe"]).replayed);
    }
}
