//! Upstreams that speak HTTP/2 and end a stream without an answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use h2::Reason;
use http::Response;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::program::{Gateway, Setup};
use crate::stores::key;
use crate::upstream::Upstream;

/// A service that ends the first streams with a reason, and answers all others.
struct Service {
    address: SocketAddr,
    answered: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Service {
    fn start(reason: Reason, times: usize) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (left, answered) = (Arc::new(AtomicUsize::new(times)), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&answered);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (left, counted) = (Arc::clone(&left), Arc::clone(&counted));
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(socket).await.unwrap();
                    while let Some(Ok((_request, mut respond))) = connection.accept().await {
                        let one_less = |left: usize| left.checked_sub(1);
                        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                            respond.send_reset(reason);
                            continue;
                        }
                        let effects = counted.fetch_add(1, Ordering::SeqCst) + 1;
                        let answer = Response::builder().status(201).body(()).unwrap();
                        let mut body = respond.send_response(answer, false).unwrap();
                        body.send_data(format!("effect {effects}").into(), true).unwrap();
                    }
                });
            }
        });
        Self { address, answered, _runtime: runtime }
    }

    fn gateway(&self) -> Gateway {
        let setup = Setup::new("memory:", &Upstream::start());
        setup.with(&["--upstream", &format!("h2c://{}", self.address)]).start()
    }
}

#[test]
fn a_refused_stream_was_never_processed_and_is_released() {
    let service = Service::start(Reason::REFUSED_STREAM, 2);
    let gateway = service.gateway();
    let key = key("refused");
    for _ in 0..2 {
        let told = gateway.post("/pay", &key, "x");
        told.is(502, "upstream-unreachable");
        assert_eq!(told.json()["retryable"], true);
        assert!(gateway.outcome("/pay", &key).text().contains("\"failed\""));
    }
    let answer = gateway.post("/pay", &key, "x");
    assert_eq!((answer.status, answer.text().as_str()), (201, "effect 1"));
    assert!(gateway.post("/pay", &key, "x").is_replayed());
    assert_eq!(service.answered.load(Ordering::SeqCst), 1);
}

#[test]
fn a_stream_that_ends_for_any_other_reason_may_have_been_processed_and_is_unknown() {
    for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM] {
        let service = Service::start(reason, 1);
        let gateway = service.gateway();
        let key = key("reset");
        gateway.post("/pay", &key, "x").is(502, "upstream-failed");
        gateway.post("/pay", &key, "x").is(409, "outcome-unknown");
        assert!(gateway.outcome("/pay", &key).text().contains("\"unknown\""), "{reason:?}");
        assert_eq!(service.answered.load(Ordering::SeqCst), 0);
    }
}

/// A service whose answers have so many headers, each of so many bytes, as its paths say: `/COUNT/SIZE`.
fn wordy() -> (SocketAddr, Arc<AtomicUsize>, Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&answered);
    runtime.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let path = request.uri().path().trim_start_matches('/');
                    let (count, size) = path.split_once('/').unwrap();
                    let (count, value) = (count.parse().unwrap(), "y".repeat(size.parse().unwrap()));
                    let answer = Response::builder().status(201);
                    let answer =
                        (0..count).fold(answer, |answer, n: u32| answer.header(format!("x-{n}"), &value));
                    let _ = respond.send_response(answer.body(()).unwrap(), true);
                }
            });
        }
    });
    (address, answered, runtime)
}

#[test]
fn an_answer_of_http2_with_too_many_headers_or_too_large_a_head_is_broken_and_not_unsent() {
    let (address, answered, _runtime) = wordy();
    let setup = Setup::new("memory:", &Upstream::start());
    let gateway = setup.with(&["--upstream", &format!("h2c://{address}")]).start();
    for (path, fits) in [
        ("/200/1", true),
        ("/256/1", true),
        ("/257/1", false),
        ("/1500/1", false),
        ("/9/10000", false),
        ("/200/3000", false),
    ] {
        let (before, key) = (answered.load(Ordering::SeqCst), key("wordy"));
        for key in [&key[..], ""] {
            let answer = gateway.post(path, key, "x");
            if fits {
                assert_eq!(answer.status, 201, "{path} {key}: {}", answer.text());
            } else {
                answer.is(502, "upstream-failed");
            }
        }
        let again = gateway.post(path, &key, "x");
        if fits {
            assert!(again.is_replayed(), "{path}");
        } else {
            again.is(409, "outcome-unknown");
        }
        assert_eq!(answered.load(Ordering::SeqCst) - before, 2, "{path}");
    }
}
