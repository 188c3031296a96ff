//! A connection of HTTP/2 to an upstream that goes away, and what it never looked at.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_testkit::frames;

use crate::client::Answer;
use crate::program::{Gateway, Setup, eventually, post};
use crate::stores::key;
use crate::upstream::Upstream;

/// What becomes of the stream that a connection which goes away has begun to work on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Answered,
    Cut,
}

/// A service whose first connection works on its first stream, and goes away at the second, which it has not looked at.
fn goes_away(begun: Begun, code: u32) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, looked_at) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&looked_at);
    std::thread::spawn(move || {
        for (n, mut socket) in listener.incoming().flatten().enumerate() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || -> Option<()> {
                // The settings, without what a client says before them.
                socket.write_all(&frames::opening()[24..]).ok()?;
                socket.read_exact(&mut [0; 24]).ok()?;
                let mut heads = 0;
                loop {
                    let mut head = [0; 9];
                    socket.read_exact(&mut head).ok()?;
                    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                    socket.read_exact(&mut vec![0; length]).ok()?;
                    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                    if head[3] != 1 {
                        continue;
                    }
                    heads += 1;
                    let answer = frames::head(stream, &[(":status", "201")], true);
                    match (n, heads) {
                        (0, 1) => drop(count.fetch_add(1, Ordering::SeqCst)),
                        (0, 2) => {
                            socket.write_all(&frames::go_away(1, code)).ok()?;
                            std::thread::sleep(Duration::from_millis(300));
                            if begun == Begun::Cut {
                                return None;
                            }
                            socket.write_all(&frames::head(1, &[(":status", "201")], true)).ok()?;
                        }
                        (0, _) => {}
                        _ => {
                            count.fetch_add(1, Ordering::SeqCst);
                            socket.write_all(&answer).ok()?;
                        }
                    }
                }
            });
        }
    });
    (address, looked_at)
}

/// A gateway before a service that speaks HTTP/2.
pub(crate) fn before(address: SocketAddr, more: &[&[&str]]) -> Gateway {
    let setup = Setup::new("memory:", &Upstream::start()).with(&["--upstream", &format!("h2c://{address}")]);
    more.iter().fold(setup, |setup, words| setup.with(words)).start()
}

#[test]
fn a_call_that_a_connection_which_goes_away_never_looked_at_was_never_sent() {
    for (begun, code) in [(Begun::Answered, 0), (Begun::Cut, 0), (Begun::Cut, 2), (Begun::Answered, 11)] {
        let (address, looked_at) = goes_away(begun, code);
        let gateway = before(address, &[&["--response-timeout", "5s"]]);
        let (at_or_below, above) = (key("at-or-below"), key("above"));
        let first: std::thread::JoinHandle<Answer> = {
            let (to, key) = (gateway.address, at_or_below.clone());
            std::thread::spawn(move || post("/pay", &key, "x").send(to))
        };
        eventually(|| looked_at.load(Ordering::SeqCst) == 1);
        let told = gateway.post("/pay", &above, "x");
        assert!(told.status == 201 || told.problem() == "upstream-unreachable", "{}", told.text());
        assert_eq!(gateway.post("/pay", &above, "x").status, 201, "it may run");
        let first = first.join().unwrap();
        match begun {
            Begun::Answered => assert_eq!(first.status, 201, "{}", first.text()),
            Begun::Cut => {
                first.is(502, "upstream-failed");
                gateway.post("/pay", &at_or_below, "x").is(409, "outcome-unknown");
            }
        }
        assert_eq!(looked_at.load(Ordering::SeqCst), 2, "each of them once");
    }
}
