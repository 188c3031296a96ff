//! Requests that end too early.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use onlyonce_testkit::frames;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::line::{Close, Line};
use super::{certified, run_all};
use crate::client::Answer;
use crate::program::{Gateway, Setup};
use crate::stores::key;
use crate::upstream::Upstream;

/// A request that ends too early.
#[derive(Debug, Clone)]
struct Cut {
    name: String,
    /// HTTP/2.
    frames: bool,
    bytes: Vec<u8>,
    close: Close,
}

/// The head of a request in HTTP/1.1 and HTTP/2, with this key or none.
fn heads(case: &str, keyed: bool, more: &[(&str, &str)]) -> (String, Vec<u8>) {
    let mut fields = vec![("x-tenant", "a"), ("x-case", case)];
    if keyed {
        fields.push(("idempotency-key", case));
    }
    fields.extend_from_slice(more);
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let pseudo =
        [(":method", "POST"), (":scheme", "http"), (":authority", "shop.example"), (":path", "/pay")];
    let fields = [&pseudo[..], &fields].concat();
    let frame = [frames::opening(), frames::head(1, &fields, false)].concat();
    (format!("POST /pay HTTP/1.1\r\nhost: shop.example\r\n{lines}"), frame)
}

/// Everything that can be wrong with the end of a body of so many bytes.
fn cuts(case: &str, keyed: bool, size: usize, tls: bool) -> Vec<Cut> {
    let (head, _) = heads(case, keyed, &[]);
    let body = "x".repeat(size);
    let chunk = format!("transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n{size:x}\r\n{body}");
    let ways = [
        ("length", format!("content-length: {}\r\n\r\n{body}", size + 1)),
        ("chunk", chunk[..chunk.len() - 1].to_owned()),
        ("no last chunk", format!("{chunk}\r\n")),
        ("last chunk", format!("{chunk}\r\n0\r\n")),
        ("trailer", format!("{chunk}\r\n0\r\nx-sum: 7")),
    ];
    let closes: &[Close] = if tls {
        &[Close::Properly, Close::Reset, Close::Silently]
    } else {
        &[Close::Properly, Close::Reset]
    };
    let mut cuts = Vec::new();
    for (name, rest) in ways {
        for close in closes {
            let (name, bytes) = (format!("{name} {close:?}"), format!("{head}{rest}").into_bytes());
            cuts.push(Cut { name, frames: false, bytes, close: *close });
        }
    }
    let length = (size + 1).to_string();
    let lengths = [None, Some(("content-length", length.as_str()))];
    let pieces: Vec<u8> =
        body.as_bytes().chunks(16_000).flat_map(|piece| frames::data(1, piece, false)).collect();
    for length in lengths {
        let (_, head) = heads(case, keyed, length.as_slice());
        let name = |what: &str| format!("{what}, length {length:?}");
        let mut push = |what: &str, rest: Vec<u8>, close| {
            let bytes = [head.clone(), pieces.clone(), rest].concat();
            cuts.push(Cut { name: name(what), frames: true, bytes, close });
        };
        for code in 0..=0xd {
            push(&format!("reset {code:x}"), frames::reset(1, code), Close::Properly);
        }
        push("go away", frames::go_away(0, 0), Close::Properly);
        push("half a frame", frames::data(1, b"more", false)[..11].to_vec(), Close::Properly);
        for close in closes {
            push(&format!("{close:?}"), Vec::new(), *close);
        }
        if length.is_some() {
            push("too short", frames::data(1, b"", true), Close::Properly);
        }
    }
    // What a service of HTTP/1 would take for whole: all that was announced came, and then a reset instead of the end, or more.
    let whole = size.to_string();
    let short = (size - 1).to_string();
    for (name, length, pieces, rest) in [
        ("whole length, reset 0", whole.as_str(), &pieces[..], frames::reset(1, 0)),
        ("whole length, reset 8", &whole, &pieces, frames::reset(1, 8)),
        ("length 0, reset 0", "0", b"", frames::reset(1, 0)),
        ("length 0, reset 8", "0", b"", frames::reset(1, 8)),
        ("length 0, more", "0", &pieces, frames::data(1, b"", true)),
        ("length 0, more at once", "0", b"", frames::data(1, b"hidden", true)),
        ("longer than its length", &short, &pieces, frames::data(1, b"", true)),
    ] {
        // The same length may be said twice.
        for times in [1, 2] {
            let (_, head) = heads(case, keyed, &vec![("content-length", length); times]);
            let (name, bytes) = (format!("{name}, said {times} times"), [&head, pieces, &rest].concat());
            cuts.push(Cut { name, frames: true, bytes, close: Close::Properly });
        }
    }
    cuts
}

/// Where a gateway is, and the folder of its certificate if it speaks TLS.
#[derive(Clone)]
struct Place {
    address: SocketAddr,
    tls: Option<PathBuf>,
}

impl Place {
    async fn line(&self, protocol: &'static [u8]) -> Line {
        Line::connect(self.address, self.tls.as_deref().map(|home| (home, protocol))).await
    }

    async fn send(&self, cut: &Cut) {
        let mut line = self.line(if cut.frames { b"h2" } else { b"http/1.1" }).await;
        let _ = line.io().write_all(&cut.bytes).await;
        if cut.frames && cut.close == Close::Properly {
            // The pong says that all before was read; so does a connection that ends. Half a frame gets neither.
            let _ = line.io().write_all(&frames::ping()).await;
            let (mut seen, mut buffer) = (Vec::new(), [0; 1024]);
            while !seen.windows(17).any(|window| window == frames::pong()) {
                match tokio::time::timeout(Duration::from_millis(300), line.io().read(&mut buffer)).await {
                    Ok(Ok(read @ 1..)) => seen.extend_from_slice(&buffer[..read]),
                    _ => break,
                }
            }
        }
        line.end(cut.close).await;
        // Nothing answers to a reset; this is only for a fault to show.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    /// The whole request, and its answer.
    async fn send_whole(&self, case: &str, keyed: bool) -> Answer {
        let (head, _) = heads(case, keyed, &[]);
        let mut line = self.line(b"http/1.1").await;
        let request = format!("{head}connection: close\r\ncontent-length: 9\r\n\r\namount=10");
        line.io().write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = line.io().read_to_end(&mut answer).await;
        Answer::parse(&answer, false).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&answer)))
    }
}

/// All cases before one gateway.
fn cases(
    place: &Place,
    upstream: &Upstream,
    label: &'static str,
) -> Vec<impl Future<Output = Result<(), String>> + Send + 'static> {
    let mut cases = Vec::new();
    for (keyed, size) in [(true, 9), (true, 40_000), (false, 9), (false, 40_000)] {
        let count = cuts("", keyed, size, place.tls.is_some()).len();
        for n in 0..count {
            let (place, upstream, case) = (place.clone(), upstream.clone(), key("cut"));
            let cut = cuts(&case, keyed, size, place.tls.is_some()).swap_remove(n);
            cases.push(async move {
                let told = |what: &str| format!("{label}, keyed {keyed}, {size} bytes, {}: {what}", cut.name);
                let seen =
                    || upstream.seen().iter().filter(|seen| seen.header("x-case") == Some(&case)).count();
                place.send(&cut).await;
                if seen() != 0 {
                    return Err(told("it ran"));
                }
                let whole = place.send_whole(&case, keyed).await;
                if whole.status != 201 || whole.is_replayed() {
                    return Err(told(&format!("the whole one got {} {}", whole.status, whole.text())));
                }
                if seen() != 1 { Err(told("it ran late")) } else { Ok(()) }
            });
        }
    }
    cases
}

fn start(upstream: &Upstream, words: &[&[&str]]) -> Gateway {
    words.iter().fold(Setup::new("memory:", upstream), |setup, words| setup.with(words)).start()
}

#[test]
fn a_request_that_was_cut_off_does_not_run_and_burns_no_key() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let cert = certified(home.path());
    let key = home.path().join("key.pem");
    let plain = start(&upstream, &[&["--max-request", "1KiB"]]);
    let tls = start(
        &upstream,
        &[&["--max-request", "1KiB"], &["--tls-cert", &cert], &["--tls-key", key.to_str().unwrap()]],
    );
    // What is cut off before the first gateway must be so before the second, over HTTP/2.
    let chained = start(&upstream, &[&["--upstream", &format!("h2c://{}", plain.address)]]);
    let place = |gateway: &Gateway, tls: bool| Place {
        address: gateway.address,
        tls: tls.then(|| home.path().to_owned()),
    };
    let mut all = cases(&place(&plain, false), &upstream, "plain");
    all.extend(cases(&place(&tls, true), &upstream, "TLS"));
    all.extend(cases(&place(&chained, false), &upstream, "over HTTP/2"));
    run_all(all);
}

#[test]
fn within_tls_too_a_caller_that_sends_no_more_gets_its_answer() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let cert = certified(home.path());
    let key = home.path().join("key.pem");
    let gateway = start(&upstream, &[&["--tls-cert", &cert], &["--tls-key", key.to_str().unwrap()]]);
    let place = Place { address: gateway.address, tls: Some(home.path().to_owned()) };
    run_all(vec![async move {
        let mut line = place.line(b"http/1.1").await;
        let request = "POST /slow/300 HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx";
        line.io().write_all(request.as_bytes()).await.unwrap();
        line.io().shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = line.io().read_to_end(&mut answer).await;
        if answer.starts_with(b"HTTP/1.1 201") {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&answer).into())
        }
    }]);
}
