//! Requests and answers that move at the same time: the silence of one is no fault while the other moves.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::client::Answer;
use crate::limits::{connect, runtime};
use crate::program::{Gateway, Setup};
use crate::upstream::Upstream;

const TICK: Duration = Duration::from_millis(300);

/// A service of HTTP/2: `/drips/N` answers at once, with N pieces, whatever comes; all else is answered when all of it has come.
fn service() -> (SocketAddr, Runtime) {
    let runtime = runtime();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    tokio::spawn(async move {
                        let pieces: Option<u32> =
                            request.uri().path().strip_prefix("/drips/").map(|count| count.parse().unwrap());
                        let (kind, mut body) =
                            (request.headers().get("content-type").cloned(), request.into_body());
                        let mut head = Response::builder().status(201);
                        head = kind.into_iter().fold(head, |head, kind| head.header("content-type", kind));
                        if let Some(pieces) = pieces {
                            let mut answer = respond.send_response(head.body(()).unwrap(), false).ok()?;
                            for _ in 0..pieces {
                                sleep(TICK).await;
                                answer.send_data(Bytes::from_static(b"drip"), false).ok()?;
                            }
                            return answer.send_data(Bytes::new(), true).ok();
                        }
                        let mut came = 0;
                        while let Some(piece) = body.data().await {
                            came += piece.ok()?.len();
                        }
                        let mut answer = respond.send_response(head.body(()).unwrap(), false).ok()?;
                        answer.send_data(format!("{came} bytes").into(), true).ok()
                    });
                }
            });
        }
    });
    (address, runtime)
}

/// Every time that is looked at is a second.
fn before(url: &str) -> Gateway {
    let setup = Setup::new("memory:", &Upstream::start()).with(&["--upstream", url]);
    setup.with(&["--body-timeout", "1s"]).with(&["--response-timeout", "1s"]).start()
}

/// Sends a piece every tick, or `quiet` for so many of them, and returns the status and the answer.
async fn talk(
    address: SocketAddr,
    path: &str,
    kind: &str,
    pieces: usize,
    quiet: u32,
) -> Result<(u16, String), h2::Error> {
    let mut sender = connect(address, 65_535).await?.ready().await?;
    let request = Request::post(format!("http://x{path}")).header("content-type", kind).body(()).unwrap();
    let (answer, mut body) = sender.send_request(request, false)?;
    let talking = async {
        for _ in 0..pieces {
            body.send_data(Bytes::from_static(b"talk"), false)?;
            sleep(TICK).await;
        }
        sleep(TICK * quiet).await;
        // An answer that is whole needs no more of it.
        let _ = body.send_data(Bytes::new(), true);
        Ok::<(), h2::Error>(())
    };
    let listening = async {
        let (head, mut body) = answer.await?.into_parts();
        let mut text = Vec::new();
        while let Some(piece) = body.data().await {
            text.extend_from_slice(&piece?);
        }
        Ok::<_, h2::Error>((head.status.as_u16(), String::from_utf8(text).unwrap()))
    };
    let (_, told) = tokio::join!(talking, listening);
    told
}

#[test]
fn an_upload_that_goes_on_may_take_longer_than_an_answer() {
    let (address, _service) = service();
    for url in [Upstream::start().url(), format!("h2c://{address}")] {
        let gateway = before(&url);
        let told = runtime().block_on(talk(gateway.address, "/pay", "text/plain", 8, 0)).unwrap();
        assert!(told.0 == 201 && told.1.contains("32 bytes"), "{url}: {told:?}");
    }
}

#[test]
fn a_caller_that_listens_need_not_talk() {
    let (address, _service) = service();
    let gateway = before(&format!("h2c://{address}"));
    let told = runtime().block_on(talk(gateway.address, "/drips/8", "text/plain", 1, 8));
    assert_eq!(told.unwrap(), (201, "drip".repeat(8)));
}

#[test]
fn a_stream_of_grpc_may_be_silent_on_both_sides() {
    let (address, _service) = service();
    let gateway = before(&format!("h2c://{address}"));
    let told = runtime().block_on(talk(gateway.address, "/pay", "application/grpc+proto", 1, 8));
    assert_eq!(told.unwrap(), (201, "4 bytes".into()));
}

#[test]
fn a_caller_that_falls_silent_is_still_timed_out() {
    let (address, _service) = service();
    for url in [Upstream::start().url(), format!("h2c://{address}")] {
        let gateway = before(&url);
        let begun = Instant::now();
        let told = runtime().block_on(talk(gateway.address, "/pay", "text/plain", 4, 8)).unwrap();
        assert!(told.0 == 408, "{url}: {told:?}");
        assert!(begun.elapsed() < TICK * 20, "{:?}", begun.elapsed());
    }
}

#[test]
fn an_upstream_that_takes_nothing_or_says_nothing_is_still_timed_out() {
    for reads in [true, false] {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let gateway = before(&format!("http://{}", listener.local_addr().unwrap()));
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 20];
                    while reads && socket.read(&mut buffer).is_ok_and(|read| read > 0) {}
                    std::thread::sleep(Duration::from_secs(60));
                });
            }
        });
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let length = 32 << 20;
        write!(
            socket,
            "POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        )
        .unwrap();
        let mut sent = socket.try_clone().unwrap();
        std::thread::spawn(move || sent.write_all(&vec![b'x'; length]));
        let (begun, mut answer) = (Instant::now(), Vec::new());
        let _ = socket.read_to_end(&mut answer);
        Answer::parse(&answer, false).unwrap().is(504, "upstream-timeout");
        assert!(begun.elapsed() < Duration::from_secs(15), "reads {reads}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_request_that_only_calls_itself_an_event_stream_has_the_time_outs_of_all_others() {
    let (address, _service) = service();
    let gateway = before(&format!("h2c://{address}"));
    let told = runtime().block_on(talk(gateway.address, "/pay", "text/event-stream", 1, 20)).unwrap();
    assert_eq!(told.0, 408, "{told:?}");
    // Nobody speaks gRPC over HTTP/1.1.
    for kind in ["text/event-stream", "application/grpc"] {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let head = format!(
            "POST /pay HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        Answer::parse(&answer, false)
            .unwrap_or_else(|| panic!("{kind}: no answer"))
            .is(408, "request-timeout");
    }
}

/// Opens streams of gRPC on one connection, and says nothing more on any of them.
async fn quiet_streams(
    address: SocketAddr,
    count: usize,
) -> Vec<(h2::client::ResponseFuture, h2::SendStream<Bytes>)> {
    let mut sender = connect(address, 65_535).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..count {
        sender = sender.ready().await.unwrap();
        let request =
            Request::post("http://x/pay").header("content-type", "application/grpc").body(()).unwrap();
        streams.push(sender.send_request(request, false).unwrap());
    }
    streams
}

#[test]
fn a_crowd_of_quiet_streams_of_grpc_leaves_places_to_others() {
    let (address, _service) = service();
    for (connections, streams) in [(4, 20), (1, 100)] {
        let setup =
            Setup::new("memory:", &Upstream::start()).with(&["--upstream", &format!("h2c://{address}")]);
        let gateway = setup.with(&["--connections", "4"]).with(&["--body-timeout", "1s"]).start();
        let runtime = runtime();
        let mut held = Vec::new();
        for _ in 0..connections {
            held.extend(runtime.block_on(quiet_streams(gateway.address, streams)));
        }
        let begun = Instant::now();
        let told = runtime.block_on(talk(gateway.address, "/pay", "text/plain", 1, 0)).unwrap();
        assert_eq!(told.0, 201, "{told:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        // Half as many as there are places may be quiet, whoever they belong to.
        runtime.block_on(async { sleep(Duration::from_secs(2)).await });
        let mut quiet = 0;
        for (answer, _) in &mut held {
            let ended =
                runtime.block_on(async { tokio::time::timeout(Duration::from_millis(1), answer).await });
            quiet += usize::from(ended.is_err());
        }
        assert_eq!(quiet, 2, "{connections} connections with {streams} streams each");
    }
}

#[test]
fn what_is_left_of_a_request_of_grpc_behind_its_answer_has_its_time() {
    let (address, _service) = service();
    let gateway = before(&format!("h2c://{address}"));
    runtime().block_on(async {
        let mut sender = connect(gateway.address, 65_535).await.unwrap().ready().await.unwrap();
        let request =
            Request::post("http://x/drips/1").header("content-type", "application/grpc").body(()).unwrap();
        let (answer, mut rest) = sender.send_request(request, false).unwrap();
        let mut body = answer.await.unwrap().into_body();
        while let Some(piece) = body.data().await {
            piece.unwrap();
        }
        // The gateway takes no more of it, and says so when it has thrown away what came meanwhile.
        let reset =
            tokio::time::timeout(Duration::from_secs(25), std::future::poll_fn(|cx| rest.poll_reset(cx)));
        reset.await.expect("it is not kept for ever").unwrap();
    });
}
