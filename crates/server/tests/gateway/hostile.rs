//! A minute of connections that take all they can get, beside callers who want nothing but their answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request as HttpRequest;

use crate::client::Request;
use crate::faults::Redis;
use crate::limits::{connect, keyed, runtime};
use crate::program::{Setup, post};
use crate::stores::key;
use crate::upstream::Upstream;

const BUDGET_MIB: u64 = 64;
const MINUTE: Duration = Duration::from_secs(60);

/// What a hostile connection does with its streams.
#[derive(Clone, Copy)]
enum Attack {
    /// Bodies that never end.
    HalfBodies,
    /// Answers of calls with a key that nobody reads.
    UnreadAnswers,
    /// The same again and again, from the store.
    UnreadReplays,
    /// Relayed answers that nobody reads.
    UnreadRelays,
    /// Bodies of one byte a frame.
    TinyFrames,
}

const ATTACKS: [Attack; 5] = [
    Attack::HalfBodies,
    Attack::UnreadAnswers,
    Attack::UnreadReplays,
    Attack::UnreadRelays,
    Attack::TinyFrames,
];

/// Opens as many streams as it may, until the connection or the time is over.
async fn attack(address: SocketAddr, attack: Attack, until: Instant) -> Result<(), h2::Error> {
    let sender = connect(address, 0).await?;
    let (mut held, replayed) = (Vec::new(), key("replayed"));
    while Instant::now() < until {
        let mut ready = sender.clone().ready().await?;
        let fresh = key("hostile");
        let (request, body): (_, Option<Bytes>) = match attack {
            Attack::HalfBodies => (keyed("/pay", &fresh), Some(vec![b'x'; 1_000_000].into())),
            Attack::TinyFrames => (keyed("/pay", &fresh), Some(Bytes::from_static(b"x"))),
            Attack::UnreadAnswers => (keyed("/large/1000000", &fresh), None),
            Attack::UnreadReplays => (keyed("/large/1000000", &replayed), None),
            Attack::UnreadRelays => {
                (HttpRequest::get("http://shop.example/large/5000000").body(()).unwrap(), None)
            }
        };
        let (answer, mut stream) = ready.send_request(request, body.is_none())?;
        if let Some(body) = body {
            let times = if matches!(attack, Attack::TinyFrames) { 2000 } else { 1 };
            for _ in 0..times {
                stream.send_data(body.clone(), false)?;
            }
        }
        // Answers whose heads have come are held on to, with all that waits behind them.
        held.push((tokio::spawn(answer), stream));
        // They are after memory, not after the store or the processor.
        let pause = match attack {
            Attack::UnreadAnswers | Attack::UnreadReplays => 300,
            _ => 20,
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if held.len() >= 190 {
            held.drain(..5);
        }
    }
    Ok(())
}

#[test]
fn ten_hostile_connections_take_no_more_than_the_budget_and_good_callers_are_answered_all_the_time() {
    let upstream = Upstream::start();
    // A store whose memory is not the gateway's, and which does not wait for a disk that others use too.
    let redis = Redis::start();
    let gateway =
        Setup::new(&redis.url(), &upstream).with(&["--memory", &format!("{BUDGET_MIB}MiB")]).start();
    for n in 0..20 {
        assert_eq!(gateway.post("/pay", &key("warm"), &n.to_string()).status, 201);
    }
    let (before, address) = (gateway.memory(), gateway.address);
    let until = Instant::now() + MINUTE;
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = [10, 20_000]
        .into_iter()
        .map(|size| {
            let (over, answered) = (Arc::clone(&over), Arc::clone(&answered));
            std::thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    let key = key("good");
                    let first = post("/pay", &key, &"g".repeat(size)).send(address);
                    assert_eq!(first.status, 201, "{}", first.text());
                    assert!(post("/pay", &key, &"g".repeat(size)).send(address).is_replayed());
                    assert_eq!(Request::new("GET", "/").send(address).status, 201);
                    answered.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(50));
                }
            })
        })
        .collect();
    let runtime = runtime();
    for n in 0..10 {
        runtime.spawn(async move {
            while Instant::now() < until {
                // Whoever is thrown out comes back.
                let _ = attack(address, ATTACKS[n % ATTACKS.len()], until).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let (mut most, mut slowest, mut last) = (0, 0, (0, Instant::now()));
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
        most = most.max(gateway.memory());
        let count = answered.load(Ordering::SeqCst);
        if count > last.0 {
            last = (count, Instant::now());
        }
        slowest = slowest.max(last.1.elapsed().as_millis());
    }
    over.store(true, Ordering::SeqCst);
    drop(runtime);
    callers.into_iter().for_each(|caller| caller.join().expect("good callers are answered"));
    let grown = most.saturating_sub(before) / 1024;
    let answered = answered.load(Ordering::SeqCst);
    println!(
        "{grown} MiB more than before at most, {answered} rounds of good callers, {slowest} ms without one at most"
    );
    // Beside the budget there are buffers of connections, the store's own, and what the allocator keeps.
    assert!(grown < 2 * BUDGET_MIB, "{grown} MiB more than before, of a budget of {BUDGET_MIB}");
    assert!(answered > 60 && slowest < 20_000, "{answered} rounds, {slowest} ms without an answer");
}
