//! Answers that do not say how long they are, and answers that were cut off: over HTTP/2 that can look like an end.
#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use onlyonce_client::{Builder, OnlyOnce, OutcomeUnknown, ServerSays};
use onlyonce_testkit::frames;
use reqwest_middleware::ClientBuilder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer as _, ServiceExt as _};

/// How a call is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Reqwest,
    Tower,
}

const BOTH: [By; 2] = [By::Reqwest, By::Tower];

fn once() -> Builder {
    let fast = Duration::from_millis(5);
    OnlyOnce::builder().pauses(fast, 10 * fast).attempts(3).attempt_timeout(Duration::from_secs(5))
}

/// An answer, or why there is none.
async fn pay(by: By, address: SocketAddr, http2: bool) -> Result<(StatusCode, Bytes), OutcomeUnknown> {
    let (url, once) = (format!("http://{address}/pay"), once().build().unwrap());
    if by == By::Reqwest {
        let http = onlyonce_client::http().no_proxy();
        let http = if http2 { http.http2_prior_knowledge() } else { http }.build().unwrap();
        let client = ClientBuilder::new(http).with(once).build();
        return match client.post(url).body("7").send().await {
            Ok(answer) => Ok((answer.status(), answer.bytes().await.unwrap())),
            Err(reqwest_middleware::Error::Middleware(error)) => Err(error.downcast().unwrap()),
            Err(error) => panic!("{error:?}"),
        };
    }
    let http = Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
    let call = Request::post(url).body(Full::<Bytes>::from("7")).unwrap();
    match once.layer(http).oneshot(call).await {
        Ok(answer) => Ok((answer.status(), answer.into_body().collect().await.unwrap().to_bytes())),
        Err(error) => Err(*error.downcast().unwrap()),
    }
}

async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// A body of unknown length.
fn unsized_body(chunks: impl IntoIterator<Item = Bytes, IntoIter: Send + 'static>) -> Body {
    let chunks = chunks.into_iter().map(Ok::<_, std::io::Error>);
    Body::from_stream(futures_util::stream::iter(chunks))
}

#[tokio::test]
async fn what_a_refusal_says_is_read_whether_or_not_it_says_how_long_it_is() {
    let unknown = r#"{"type":"urn:onlyonce:problem:outcome-unknown","retryable":false}"#;
    let answer = async move || {
        let pieces = [&unknown[..20], &unknown[20..]].map(|piece| Bytes::from_static(piece.as_bytes()));
        (StatusCode::CONFLICT, unsized_body(pieces))
    };
    let address = listen(Router::new().route("/pay", post(answer))).await;
    for by in BOTH {
        let error = pay(by, address, false).await.unwrap_err();
        assert_eq!((error.attempts(), error.server_says()), (1, Some(ServerSays::Unknown)), "{by:?}");
    }
}

#[tokio::test]
async fn a_long_refusal_is_given_back_as_it_came() {
    let pieces = || (0..48_u8).map(|n| Bytes::from(vec![n; 1 << 16]));
    let answer = async move || (StatusCode::BAD_REQUEST, unsized_body(pieces()));
    let address = listen(Router::new().route("/pay", post(answer))).await;
    let wanted = pieces().collect::<Vec<_>>().concat();
    for by in BOTH {
        let (status, body) = pay(by, address, false).await.unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{by:?}");
        assert!(body == wanted, "{by:?}: {} bytes", body.len());
    }
}

#[tokio::test]
async fn no_more_than_a_little_is_read_of_what_became_of_a_call() {
    let sent = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&sent);
    let outcome = async move || {
        let sent = Arc::clone(&counted);
        unsized_body((0..10_000).map(move |_| {
            sent.fetch_add(1, Ordering::SeqCst);
            Bytes::from_static(&[b' '; 1 << 16])
        }))
    };
    let broken = post(async || StatusCode::INTERNAL_SERVER_ERROR);
    let app = Router::new().route("/pay", broken).route("/_onlyonce/outcome", get(outcome));
    let address = listen(app).await;
    for by in BOTH {
        assert_eq!(pay(by, address, false).await.unwrap_err().server_says(), None, "{by:?}");
        // What is on its way when the client hangs up is a few MiB.
        let sent = sent.swap(0, Ordering::SeqCst);
        assert!(sent < 1_000, "{by:?}: {sent} pieces of 64 KiB");
    }
}

/// How the first answer breaks off.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Reset { length: Option<&'static str> },
    GoAway,
}

/// Answers the first call with a piece, and all others in full.
async fn cuts(cut: Cut) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, calls) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer(socket, cut, Arc::clone(&counted)));
        }
    });
    (address, calls)
}

async fn answer(mut socket: TcpStream, cut: Cut, calls: Arc<AtomicU32>) -> std::io::Result<()> {
    const PREFACE: usize = 24;
    socket.read_exact(&mut [0; PREFACE]).await?;
    socket.write_all(&frames::opening()[PREFACE..]).await?;
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        socket.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await?;
        // The last piece of a request: a head or data, and the end of its stream.
        if kind > 1 || flags & 1 == 0 {
            continue;
        }
        let stream = u32::from_be_bytes(stream);
        let whole = calls.fetch_add(1, Ordering::SeqCst) > 0;
        let status = (":status", "201");
        let answer = match cut {
            _ if whole => {
                [frames::head(stream, &[status], false), frames::data(stream, b"paid 7", true)].concat()
            }
            Cut::Reset { length } => {
                let mut fields = vec![status];
                fields.extend(length.map(|length| ("content-length", length)));
                let (head, data) =
                    (frames::head(stream, &fields, false), frames::data(stream, b"paid", false));
                [head, data, frames::reset(stream, 0)].concat()
            }
            Cut::GoAway => {
                let head = frames::head(stream, &[status, ("content-length", "6")], false);
                [head, frames::data(stream, b"paid", false), frames::go_away(stream, 0)].concat()
            }
        };
        socket.write_all(&answer).await?;
        if !whole && matches!(cut, Cut::GoAway) {
            return socket.shutdown().await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_fetched_again() {
    for by in BOTH {
        for cut in [Cut::Reset { length: Some("6") }, Cut::GoAway] {
            let (address, calls) = cuts(cut).await;
            let (status, body) = pay(by, address, true).await.unwrap();
            let seen = calls.load(Ordering::SeqCst);
            assert_eq!((status.as_u16(), &body[..], seen), (201, &b"paid 7"[..], 2), "{by:?} {cut:?}");
        }
    }
}

/// Nothing says how long it is, so it is given on as it comes; its end is missing, and it ends with an error.
#[tokio::test]
async fn an_answer_of_unknown_length_that_was_cut_off_does_not_end_well() {
    let (address, _) = cuts(Cut::Reset { length: None }).await;
    let http = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let client = once().build().unwrap().layer(http);
    let call = || Request::post(format!("http://{address}/pay")).body(Full::<Bytes>::from("7")).unwrap();
    let cut = client.clone().oneshot(call()).await.unwrap().into_body().collect().await;
    assert!(cut.unwrap_err().to_string().contains("cut off"));
    let whole = client.oneshot(call()).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(whole.to_bytes(), "paid 7");
}
