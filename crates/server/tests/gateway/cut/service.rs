//! A service that ends its answers as its paths say: `/SHAPE/END`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::line::{Close, Line, acceptor};

/// How it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Speech {
    pub(super) http2: bool,
    pub(super) tls: bool,
}

/// The answers that are held back, and those that are passed on.
pub(super) const SHAPES: [&str; 4] = ["small", "large", "events", "slow"];

/// For how long a slow answer stands still; longer than the gateway holds it back.
pub(super) const PAUSE: Duration = Duration::from_millis(600);
pub(super) const HELD_BACK: &str = "200ms";

pub(super) struct Service {
    pub(super) address: SocketAddr,
    _runtime: Runtime,
}

impl Service {
    pub(super) fn start(speech: Speech, home: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let protocol: &[u8] = if speech.http2 { b"h2" } else { b"http/1.1" };
        let tls = speech.tls.then(|| acceptor(home, protocol));
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    let line = Line::accept(socket, tls.as_ref()).await?;
                    if speech.http2 { serve_http2(line).await } else { serve_http1(line).await }
                });
            }
        });
        Self { address, _runtime: runtime }
    }
}

/// The ends that come too early.
pub(super) fn ends(speech: Speech) -> Vec<String> {
    if speech.http2 {
        let resets = (0..=0xd).flat_map(|code| [format!("reset-{code}"), format!("length-reset-{code}")]);
        let resets = resets.chain([0, 2, 8].map(|code| format!("full-reset-{code}")));
        let resets = resets.chain([0, 2, 8].map(|code| format!("empty-reset-{code}")));
        return resets.chain(["eof".into(), "go-away".into(), "too-short".into()]).collect();
    }
    let mut ends = Vec::new();
    for close in ["fin", "rst", "silent"] {
        for framing in ["length", "chunk", "no-last", "last", "trailer", "close"] {
            // Without a length a proper end of the connection is the end.
            let is_cut = framing != "close" || close == "rst" || (close == "silent" && speech.tls);
            if is_cut && (close != "silent" || speech.tls) {
                ends.push(format!("{framing}-{close}"));
            }
        }
    }
    ends
}

/// The ends that are none too early.
pub(super) fn whole_ends(speech: Speech) -> Vec<String> {
    let ends: &[&str] = if speech.http2 {
        &["whole", "trailers", "full-whole", "full-trailers", "empty-whole", "empty-trailers"]
    } else {
        &["whole-length", "whole-chunks", "close-fin"]
    };
    ends.iter().map(ToString::to_string).collect()
}

fn half(shape: &str) -> Bytes {
    if shape == "large" { "x".repeat(5000).into() } else { Bytes::from_static(b"half") }
}

fn content(shape: &str) -> &'static str {
    if shape == "events" { "text/event-stream" } else { "text/plain" }
}

async fn serve_http1(mut line: Line) -> Option<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if line.io().read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let path = text.split(' ').nth(1)?;
    let (shape, end) = path.trim_start_matches('/').split_once('/')?;
    let (framing, close) = end.split_once('-')?;
    let half = String::from_utf8(half(shape).to_vec()).ok()?;
    let (size, kind) = (half.len(), content(shape));
    let chunk = format!("{size:x}\r\n{half}\r\n");
    let (framed, first, rest) = match (framing, close) {
        ("length", _) => (format!("content-length: {}\r\n", size + 1), half, String::new()),
        ("close", _) => (String::new(), half, String::new()),
        ("whole", "length") => {
            let (first, rest) = half.split_at(size - 1);
            (format!("content-length: {size}\r\n"), first.to_owned(), rest.to_owned())
        }
        ("whole", _) => ("transfer-encoding: chunked\r\n".into(), chunk, "0\r\n\r\n".into()),
        (cut, _) => {
            let (first, rest) = match cut {
                "chunk" => (format!("{:x}\r\n{half}", size + 1), ""),
                "no-last" | "no" => (chunk, ""),
                "last" => (chunk, "0\r\n"),
                _ => (chunk, "0\r\nx-sum: 7"),
            };
            ("transfer-encoding: chunked\r\ntrailer: x-sum\r\n".into(), first, rest.into())
        }
    };
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\n{framed}\r\n");
    line.io().write_all(format!("{head}{first}").as_bytes()).await.ok()?;
    line.io().flush().await.ok()?;
    // What was sent is to arrive before the end; a reset would overtake it.
    let pause = if shape == "slow" { PAUSE } else { Duration::from_millis(30) };
    tokio::time::sleep(pause).await;
    line.io().write_all(rest.as_bytes()).await.ok()?;
    let close = if end.ends_with("rst") {
        Close::Reset
    } else if end.ends_with("silent") {
        Close::Silently
    } else {
        Close::Properly
    };
    line.end(close).await;
    Some(())
}

async fn serve_http2(line: Line) -> Option<()> {
    let mut connection = h2::server::handshake(line.into_io()).await.ok()?;
    let (hang_up, mut hung_up) = tokio::sync::mpsc::channel(1);
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted?,
            politely = hung_up.recv() => {
                if politely? {
                    connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                    let _ = connection.accept().await;
                }
                return None;
            }
        };
        let (request, mut respond) = accepted.ok()?;
        let hang_up = hang_up.clone();
        tokio::spawn(async move {
            let (shape, end) = request.uri().path().trim_start_matches('/').split_once('/')?;
            if request.method() == http::Method::HEAD {
                let head = Response::builder().header("content-length", 5).body(()).ok()?;
                // The end comes apart from the head.
                let mut body = respond.send_response(head, false).ok()?;
                tokio::time::sleep(Duration::from_millis(30)).await;
                if let Some(code) = end.strip_prefix("reset-") {
                    body.send_reset(code.parse::<u32>().ok()?.into());
                    return Some(());
                }
                return body.send_data(Bytes::new(), true).ok();
            }
            let empty = end.starts_with("empty");
            let half = if empty { Bytes::new() } else { half(shape) };
            // `/204/END` and the like: a status that has no content, with some nevertheless.
            let status = shape.parse().unwrap_or(200);
            let mut head = Response::builder().status(status).header("content-type", content(shape));
            if end.starts_with("length") || end == "too-short" {
                head = head.header("content-length", half.len() + 1);
            }
            // All of the length comes, and the end of the stream apart from it or never.
            if end.starts_with("full") || empty {
                head = head.header("content-length", half.len());
            }
            let mut body = respond.send_response(head.body(()).ok()?, false).ok()?;
            if !empty {
                body.send_data(half, false).ok()?;
            }
            tokio::time::sleep(if shape == "slow" { PAUSE } else { Duration::from_millis(30) }).await;
            match end {
                "whole" | "full-whole" | "empty-whole" | "too-short" => {
                    body.send_data(Bytes::new(), true).ok()?
                }
                "trailers" | "full-trailers" | "empty-trailers" => {
                    body.send_trailers(http::HeaderMap::new()).ok()?
                }
                "eof" | "go-away" => hang_up.send(end == "go-away").await.ok()?,
                reset => body.send_reset(reset.rsplit('-').next()?.parse::<u32>().ok()?.into()),
            }
            Some(())
        });
    }
}
