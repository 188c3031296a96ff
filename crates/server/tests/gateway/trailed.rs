//! Trailers of requests: what is in them comes behind the head that everything was judged by.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use onlyonce_testkit::frames;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::client::raw;
use crate::limits::{connect, keyed, runtime};
use crate::program::{Gateway, Setup};
use crate::stores::key;
use crate::upstream::Upstream;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// What belongs to the head, by all names that some services can't tell apart.
const COUNTING: [&str; 24] = [
    "onlyonce-fence",
    "onlyonce_fence",
    "onlyonce-outcome",
    "x-tenant",
    "x_tenant",
    "x.tenant",
    "idempotency-key",
    "idempotency_key",
    "authorization",
    "cookie",
    "host",
    "content-type",
    "content-length",
    "x-forwarded-for",
    "if-match",
    "if_match",
    "if-none-match",
    "if-unmodified-since",
    "range",
    "x-http-method-override",
    "x_http_method_override",
    "x-method-override",
    "x-original-url",
    "x_rewrite_url",
];
const FREE: [&str; 2] = ["content-digest", "x-checksum"];

/// A service of HTTP/2 that remembers the trailers that came, by name.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Vec<String>>>>,
    _runtime: Runtime,
}

impl Service {
    pub(crate) fn start() -> Self {
        let runtime = runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
        let noted = Arc::clone(&seen);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let noted = Arc::clone(&noted);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(socket).await.unwrap();
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        let noted = Arc::clone(&noted);
                        tokio::spawn(async move {
                            let mut body = request.into_body();
                            while let Some(Ok(_)) = body.data().await {}
                            let Ok(trailers) = body.trailers().await else { return };
                            let trailers = trailers.unwrap_or_default();
                            noted.lock().unwrap().push(trailers.keys().map(ToString::to_string).collect());
                            respond
                                .send_response(Response::builder().status(201).body(()).unwrap(), true)
                                .unwrap();
                        });
                    }
                });
            }
        });
        Self { address, seen, _runtime: runtime }
    }
}

fn all() -> Vec<&'static str> {
    COUNTING.into_iter().chain(FREE).collect()
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

fn send_1(gateway: &Gateway, key: &str, declared: bool) {
    let key = if key.is_empty() { String::new() } else { format!("idempotency-key: {key}\r\n") };
    let declared = if declared { format!("trailer: {}\r\n", all().join(", ")) } else { String::new() };
    let trailers: String = all().iter().map(|name| format!("{name}: 7\r\n")).collect();
    let request = format!(
        "POST /pay HTTP/1.1\r\nhost: x\r\nx-tenant: a\r\nconnection: close\r\n{key}{declared}transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{trailers}\r\n"
    );
    let answer = raw(gateway.address, request.as_bytes(), PATIENCE);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn send_2(gateway: &Gateway, key: &str, declared: bool) {
    runtime().block_on(async {
        let mut sender = connect(gateway.address, 65_535).await.unwrap().ready().await.unwrap();
        let mut request = keyed("/pay", key);
        if declared {
            request.headers_mut().insert("trailer", HeaderValue::from_str(&all().join(", ")).unwrap());
        }
        let (answer, mut body) = sender.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"x"), false).unwrap();
        let trailer = |name: &str| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("7"));
        body.send_trailers(all().into_iter().map(trailer).collect::<HeaderMap>()).unwrap();
        assert_eq!(answer.await.unwrap().status(), 201);
    });
}

#[test]
fn nothing_that_counts_comes_in_a_trailer() {
    let (upstream, service) = (Upstream::start(), Service::start());
    let direct = Setup::new("memory:", &upstream).start();
    let to_http2 =
        Setup::new("memory:", &upstream).with(&["--upstream", &format!("h2c://{}", service.address)]).start();
    for send in [send_1, send_2] {
        for key in [key("trailed"), String::new()] {
            for declared in [true, false] {
                let key = if key.is_empty() { String::new() } else { format!("{key}-{declared}") };
                send(&direct, &key, declared);
                let seen = upstream.seen().pop().unwrap().trailers.into_iter().map(|(name, _)| name);
                let seen = sorted(seen.collect());
                // HTTP/1.1 has no room for trailers that its head did not announce. A body with a key is read before that goes out.
                let announced = declared || !key.is_empty();
                assert_eq!(seen.as_slice(), if announced { &FREE[..] } else { &[] }, "{key}");
                let key = if key.is_empty() { key } else { format!("{key}-2") };
                send(&to_http2, &key, declared);
                assert_eq!(sorted(service.seen.lock().unwrap().pop().unwrap()), FREE, "{key}");
            }
        }
    }
}

#[test]
fn what_begins_with_a_colon_in_a_trailer_reaches_nobody() {
    let (upstream, service) = (Upstream::start(), Service::start());
    let direct = Setup::new("memory:", &upstream).start();
    let to_http2 =
        Setup::new("memory:", &upstream).with(&["--upstream", &format!("h2c://{}", service.address)]).start();
    for gateway in [&direct, &to_http2] {
        for trailers in [
            &[(":path", "/admin"), ("x-checksum", "7")][..],
            &[(":status", "200"), ("x-checksum", "7")],
            &[(":method", "DELETE"), (":authority", "evil.example"), ("x-checksum", "7")],
        ] {
            let head = [
                (":method", "POST"),
                (":scheme", "http"),
                (":authority", "shop.example"),
                (":path", "/pay"),
                ("trailer", "x-checksum"),
            ];
            let request = [
                frames::opening(),
                frames::head(1, &head, false),
                frames::data(1, b"x", false),
                frames::head(1, trailers, true),
                frames::ping(),
            ];
            runtime().block_on(async {
                let mut socket = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
                socket.write_all(&request.concat()).await.unwrap();
                // It is answered, or reset; this is only for a fault to show.
                let mut told = Vec::new();
                let read = socket.read_to_end(&mut told);
                let _ = tokio::time::timeout(std::time::Duration::from_millis(300), read).await;
            });
        }
    }
    for seen in upstream.seen() {
        assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/pay"));
        assert_eq!(seen.trailers, [("x-checksum".to_owned(), "7".to_owned())]);
    }
    for seen in &*service.seen.lock().unwrap() {
        assert_eq!(seen, &["x-checksum"]);
    }
    // The library that HTTP/2 is read by drops them without a word; nobody behind sees them.
    assert_eq!((upstream.seen().len(), service.seen.lock().unwrap().len()), (3, 3));
}
