//! The fault proxy before an echo server: each fault does what it says, and nothing else.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_testkit::{FaultProxy, NetFault};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

/// Long enough that what has not come by then does not come.
const QUIET: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that says everything again, a proxy before it, and what the server was told, connection by connection.
struct World {
    proxy: FaultProxy,
    told: Arc<Mutex<Vec<String>>>,
}

impl World {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = told.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(echo(connection, hears.clone()));
            }
        });
        Self { proxy: FaultProxy::start(address).await.unwrap(), told }
    }

    async fn client(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.unwrap()
    }

    /// Waits until the server was told that.
    async fn hears(&self, words: &str) {
        let is_told = || self.told.lock().iter().any(|told| told == words);
        let wait = async {
            while !is_told() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("told: {:?}", self.told.lock()));
    }
}

/// An `.` stands for the end of what the client sends.
async fn echo(mut connection: TcpStream, hears: Arc<Mutex<Vec<String>>>) {
    let mut buffer = [0; 1024];
    while let Ok(n) = connection.read(&mut buffer).await {
        let words = if n == 0 { "." } else { std::str::from_utf8(&buffer[..n]).unwrap() };
        hears.lock().push(words.to_owned());
        if n == 0 || connection.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

async fn say(client: &mut TcpStream, words: &str) {
    client.write_all(words.as_bytes()).await.unwrap();
}

/// What comes next; empty at the end of the stream.
async fn heard(client: &mut TcpStream) -> Result<String, ErrorKind> {
    let mut buffer = [0; 1024];
    let read = timeout(PATIENCE, client.read(&mut buffer)).await.expect("something comes");
    read.map(|n| String::from_utf8(buffer[..n].to_vec()).unwrap()).map_err(|error| error.kind())
}

async fn is_quiet(client: &mut TcpStream) -> bool {
    timeout(QUIET, client.read(&mut [0; 1])).await.is_err()
}

#[tokio::test]
async fn without_faults_everything_passes_and_is_counted() {
    let world = World::new().await;
    let mut client = world.client().await;
    for words in ["one", "three"] {
        say(&mut client, words).await;
        assert_eq!(heard(&mut client).await.unwrap(), words);
    }
    let traffic = world.proxy.traffic();
    assert_eq!((traffic.connections, traffic.exchanges, traffic.faults), (1, 2, 0));
    assert_eq!((traffic.to_server, traffic.to_client), (8, 8));
    client.shutdown().await.unwrap();
    world.hears(".").await;
    assert_eq!(heard(&mut client).await.unwrap(), "", "the end passes too");
}

#[tokio::test]
async fn a_dropped_request_and_all_after_it_never_arrive() {
    let world = World::new().await;
    let (mut lossy, mut other) = (world.client().await, world.client().await);
    world.proxy.next(NetFault::DropRequest, 1);
    say(&mut lossy, "lost").await;
    assert!(is_quiet(&mut lossy).await);
    say(&mut lossy, "after").await;
    say(&mut other, "other").await;
    assert_eq!(heard(&mut other).await.unwrap(), "other");
    assert!(is_quiet(&mut lossy).await);
    assert_eq!(*world.told.lock(), ["other"]);
}

#[tokio::test]
async fn a_dropped_reply_was_a_request_that_arrived() {
    let world = World::new().await;
    let mut client = world.client().await;
    world.proxy.next(NetFault::DropReply, 1);
    say(&mut client, "done").await;
    world.hears("done").await;
    assert!(is_quiet(&mut client).await);
    say(&mut client, "after").await;
    world.hears("after").await;
    assert!(is_quiet(&mut client).await);
    world.proxy.heal().await;
    assert!(heard(&mut client).await.is_err(), "a connection that lost bytes is reset by healing");
}

#[tokio::test]
async fn in_a_black_hole_nobody_hears_that_the_other_side_has_closed() {
    let world = World::new().await;
    let mut client = world.client().await;
    say(&mut client, "before").await;
    assert_eq!(heard(&mut client).await.unwrap(), "before");
    world.proxy.black_hole();
    client.shutdown().await.unwrap();
    assert!(is_quiet(&mut client).await, "the server would close in its turn");
    assert_eq!(*world.told.lock(), ["before"]);
    world.proxy.heal().await;
    assert!(heard(&mut client).await.is_err(), "a connection that lost its end is reset by healing");
}

#[tokio::test]
async fn a_delayed_request_arrives_even_if_its_sender_has_gone() {
    let world = World::new().await;
    let mut client = world.client().await;
    world.proxy.next(NetFault::DelayRequest(QUIET), 1);
    say(&mut client, "late").await;
    drop(client);
    assert_eq!(world.told.lock().len(), 0);
    world.hears("late").await;
}

#[tokio::test]
async fn delays_take_at_least_that_long_in_either_direction() {
    let world = World::new().await;
    for fault in [NetFault::DelayRequest(QUIET), NetFault::DelayReply(QUIET)] {
        let mut client = world.client().await;
        world.proxy.next(fault, 1);
        let clock = Instant::now();
        say(&mut client, "slow").await;
        assert_eq!(heard(&mut client).await.unwrap(), "slow");
        assert!(clock.elapsed() >= QUIET, "{fault:?}");
    }
}

#[tokio::test]
async fn a_reset_lets_so_many_bytes_through_and_no_more() {
    let world = World::new().await;
    let mut client = world.client().await;
    world.proxy.next(NetFault::ResetRequest { after: 3 }, 1);
    say(&mut client, "abcdef").await;
    assert_eq!(heard(&mut client).await, Err(ErrorKind::ConnectionReset));
    world.hears("abc").await;

    let mut client = world.client().await;
    world.proxy.next(NetFault::ResetReply { after: 0 }, 1);
    say(&mut client, "whole").await;
    assert_eq!(heard(&mut client).await, Err(ErrorKind::ConnectionReset));
    world.hears("whole").await;

    let before = world.proxy.traffic().to_client;
    let mut client = world.client().await;
    world.proxy.next(NetFault::ResetReply { after: 2 }, 1);
    say(&mut client, "half").await;
    // The reset may overtake the bytes in the receiving system.
    let mut got = heard(&mut client).await;
    if got.is_ok() {
        assert_eq!(got.unwrap(), "ha");
        got = heard(&mut client).await;
    }
    assert_eq!(got, Err(ErrorKind::ConnectionReset));
    assert_eq!(world.proxy.traffic().to_client - before, 2);
}

#[tokio::test]
async fn half_a_connection_can_be_closed() {
    let world = World::new().await;
    let mut client = world.client().await;
    world.proxy.next(NetFault::HalfCloseRequest, 1);
    say(&mut client, "last").await;
    world.hears(".").await;
    assert_eq!(heard(&mut client).await.unwrap(), "last", "the reply still comes");

    let mut client = world.client().await;
    world.proxy.next(NetFault::HalfCloseReply, 1);
    say(&mut client, "asked").await;
    assert_eq!(heard(&mut client).await.unwrap(), "");
    say(&mut client, "still heard").await;
    world.hears("still heard").await;
}

#[tokio::test]
async fn a_request_is_found_by_its_bytes() {
    let world = World::new().await;
    let mut client = world.client().await;
    world.proxy.when(b"COMMIT", NetFault::ResetReply { after: 0 });
    say(&mut client, "BEGIN").await;
    assert_eq!(heard(&mut client).await.unwrap(), "BEGIN");
    say(&mut client, "a COMMIT;").await;
    assert_eq!(heard(&mut client).await, Err(ErrorKind::ConnectionReset));
    world.hears("a COMMIT;").await;
    let mut again = world.client().await;
    say(&mut again, "COMMIT").await;
    assert_eq!(heard(&mut again).await.unwrap(), "COMMIT", "only the first");
}

#[tokio::test]
async fn a_server_that_refuses_is_found_again_at_the_same_port() {
    let world = World::new().await;
    let mut client = world.client().await;
    say(&mut client, "a").await;
    heard(&mut client).await.unwrap();
    for _ in 0..3 {
        world.proxy.refuse().await;
        assert!(heard(&mut client).await.is_err(), "open connections are reset");
        let refused = TcpStream::connect(world.proxy.address()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        world.proxy.heal().await;
        client = world.client().await;
        say(&mut client, "b").await;
        assert_eq!(heard(&mut client).await.unwrap(), "b");
    }
}

#[tokio::test]
async fn a_black_hole_takes_everything_and_tells_nobody() {
    let world = World::new().await;
    let mut old = world.client().await;
    say(&mut old, "a").await;
    heard(&mut old).await.unwrap();
    world.proxy.black_hole();
    let mut new = world.client().await;
    for client in [&mut old, &mut new] {
        say(client, "nobody hears").await;
        assert!(is_quiet(client).await);
    }
    assert_eq!(*world.told.lock(), ["a"]);
    world.proxy.heal().await;
    let mut client = world.client().await;
    say(&mut client, "b").await;
    assert_eq!(heard(&mut client).await.unwrap(), "b");
}

#[tokio::test]
async fn faults_at_random_come_about_as_often_as_told() {
    let world = World::new().await;
    world.proxy.at_random(7, 300, &[NetFault::ResetRequest { after: 0 }, NetFault::ResetReply { after: 0 }]);
    let mut failed = 0;
    for _ in 0..200 {
        let mut client = world.client().await;
        say(&mut client, "x").await;
        failed += u64::from(heard(&mut client).await.is_err());
    }
    let traffic = world.proxy.traffic();
    assert_eq!(traffic.faults, failed);
    assert!((30..100).contains(&failed), "{failed} of 200 at a rate of 300 in 1000");
    let executed = world.told.lock().iter().filter(|told| *told == "x").count() as u64;
    assert!(executed > 200 - failed, "some of the failed were executed");
    assert!(executed < 200, "and some were not");
}
