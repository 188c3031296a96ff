//! A crowd of calls whose answers are large, beside callers that want little: whoever wants little is answered.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Answer;
use crate::limits::{connect, keyed, runtime};
use crate::program::{Setup, post};
use crate::upstream::Upstream;

/// How many want a large answer at the same time, again and again.
const CROWD: usize = 200;
const LARGE: usize = 1_000_000;
/// How long a caller of a small call goes on.
const CALLER_TIMEOUT: Duration = Duration::from_secs(30);
/// How many answers of the crowd are asked for again.
const SAMPLE: usize = 40;

/// The answer to a key that was used before, from a caller that comes again until there is one.
fn retried(address: SocketAddr, path: &str, key: &str, body: &str) -> Answer {
    for _ in 0..200 {
        match post(path, key, body).try_send(address) {
            Ok(answer) if ["overloaded", "in-progress"].contains(&answer.problem().as_str()) => {}
            Ok(answer) => return answer,
            // It was cut off, because it held the most.
            Err(_) => {}
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{key} is not answered again");
}

/// Whoever was answered is answered with the same bytes again.
fn is_kept(address: SocketAddr, path: &str, key: &str, length: usize) {
    let answer = retried(address, path, key, "1");
    assert!(answer.is_replayed() && answer.body == vec![b'x'; length], "{key}: {}", answer.text());
}

fn crowd(address: SocketAddr, path: &str, number: usize, over: &AtomicBool, served: &Mutex<Vec<String>>) {
    for call in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("large-{number}-{call}");
        match post(path, &key, "1").try_send(address) {
            Ok(answer) if answer.status == 201 => {
                assert_eq!(answer.body.len(), LARGE);
                served.lock().unwrap().push(key);
            }
            // It is told before it begins, and comes again.
            Ok(answer) => {
                answer.is(503, "overloaded");
                thread::sleep(Duration::from_millis(100));
            }
            Err(_) => {}
        }
    }
}

#[test]
fn small_calls_are_answered_beside_a_crowd_of_large_answers() {
    let upstream = Upstream::start();
    let gateway = Setup::new("embedded:data", &upstream)
        .with(&["--memory", "16MiB"])
        .with(&["--retain", "10m"])
        .start();
    let (over, served) = (AtomicBool::new(false), Mutex::default());
    let path = format!("/large/{LARGE}");
    let mut waited = Vec::new();
    thread::scope(|scope| {
        for number in 0..CROWD {
            let (over, served, path) = (&over, &served, &path);
            scope.spawn(move || crowd(gateway.address, path, number, over, served));
        }
        let began = Instant::now();
        for call in 0.. {
            let sent = Instant::now();
            // As it is told to: refused before it begins, it comes again a second later.
            while gateway.post("/orders", &format!("small-{call}"), "1").status != 201
                && sent.elapsed() < CALLER_TIMEOUT
            {
                thread::sleep(Duration::from_secs(1));
            }
            waited.push(sent.elapsed());
            if began.elapsed() > Duration::from_secs(8) {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let keys = served.into_inner().unwrap();
    let served = keys.len();
    let late = waited.iter().filter(|waited| **waited >= CALLER_TIMEOUT).count();
    println!("{served} large answers; small ones took {waited:?}");
    assert!(served > 20, "the crowd goes on: {served}");
    assert_eq!(late, 0, "of {} small calls", waited.len());
    keys.iter().step_by(served.div_ceil(SAMPLE)).for_each(|key| is_kept(gateway.address, &path, key, LARGE));
}

#[test]
fn the_answers_of_others_survive_a_burst_of_one_connection_that_reads_nothing() {
    const VICTIMS: usize = 15;
    const SIZE: usize = 300_000;
    const BURST: usize = 190;
    let upstream = Upstream::start();
    let gateway = Setup::new("embedded:data", &upstream)
        .with(&["--memory", "16MiB"])
        .with(&["--buffer-response", "1s"])
        .start();
    let address = gateway.address;
    let path = format!("/large/{SIZE}/after/1500");
    let victim = |number: usize| {
        let answer = retried(address, &path, &format!("victim-{number}"), "1");
        assert_eq!((answer.status, answer.body.len()), (201, SIZE), "{}", answer.text());
    };
    let runtime = runtime();
    thread::scope(|scope| {
        let victim = &victim;
        (0..VICTIMS).for_each(|number| drop(scope.spawn(move || victim(number))));
        thread::sleep(Duration::from_millis(800));
        let burst = runtime.block_on(async {
            let mut sender = connect(address, 0).await.unwrap();
            let mut streams = Vec::new();
            for number in 0..BURST {
                sender = sender.ready().await.unwrap();
                let mut burst = keyed("/large/900000", &format!("burst-{number}"));
                burst.headers_mut().insert("content-type", "application/json".parse().unwrap());
                streams.push(sender.send_request(burst, true).unwrap());
            }
            (sender, streams)
        });
        // Nobody reads it until the others have their answers.
        scope.spawn(move || {
            thread::sleep(Duration::from_secs(8));
            drop(burst);
        });
    });
    for number in 0..VICTIMS {
        is_kept(address, &path, &format!("victim-{number}"), SIZE);
        assert_eq!(upstream.effects_of(&format!("victim-{number}")), 1);
    }
    // Nor has the burst lost what it was not there to read.
    for number in 0..BURST {
        let key = format!("burst-{number}");
        let answer = retried(address, "/large/900000", &key, "");
        assert_eq!((answer.status, answer.body.len()), (201, 900_000), "{key}: {}", answer.text());
        assert_eq!(upstream.effects_of(&key), 1);
    }
}
