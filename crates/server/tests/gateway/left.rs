//! Callers that leave: what they began goes on, and is paid for as long as it does.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::limits::{connect, keyed, runtime};
use crate::program::{Gateway, Setup, eventually, post};
use crate::stores::key;
use crate::upstream::Upstream;

fn used(gateway: &Gateway) -> f64 {
    let metrics = gateway.admin("GET", "/metrics", "").text();
    let line = metrics.lines().find(|line| line.starts_with("onlyonce_memory_bytes ")).unwrap().to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn streams_that_are_reset_do_not_multiply_the_calls_of_one_connection() {
    let upstream = Upstream::start();
    // Enough memory for all of them.
    let gateway = Setup::new("memory:", &upstream).start();
    runtime().block_on(async {
        let sender = connect(gateway.address, 65_535).await.unwrap();
        for _ in 0..600 {
            let Ok(mut ready) = sender.clone().ready().await else { break };
            let (answer, mut body) = ready.send_request(keyed("/gated", &key("reset")), false).unwrap();
            body.send_data("x".into(), true).unwrap();
            tokio::time::sleep(Duration::from_millis(3)).await;
            body.send_reset(h2::Reason::CANCEL);
            drop(answer);
        }
    });
    std::thread::sleep(Duration::from_millis(500));
    let running = upstream.effects();
    assert!((150..=300).contains(&running), "{running} calls run");
    // Others are let in, and in the end so is this one.
    assert_eq!(gateway.post("/pay", &key("other"), "x").status, 201);
    upstream.open();
    eventually(|| used(&gateway) < 100_000.0);
}

#[test]
fn calls_whose_callers_left_are_paid_from_the_budget_until_they_are_answered() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--memory", "8MiB"]).start();
    let padding = "p".repeat(40_000);
    for n in 0..300 {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        let request = post("/gated", &key("left"), "x").header("x-padding", &padding);
        socket.write_all(&request.bytes()).unwrap();
        // It is read, and runs or is refused.
        let before = upstream.effects();
        for _ in 0..20 {
            if upstream.effects() > before {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        drop((socket, n));
    }
    std::thread::sleep(Duration::from_millis(500));
    // Three quarters of the budget are for calls, each of which takes its head and 16 KiB.
    let (running, most) = (upstream.effects(), 6 * (1 << 20) / (40_000 + (16 << 10)) + 1);
    assert!(running > most / 2 && running <= most, "{running} of at most {most} calls run");
    assert!(used(&gateway) > 3_000_000.0, "{}", used(&gateway));
    upstream.open();
    eventually(|| used(&gateway) < 100_000.0);
    assert_eq!(gateway.post("/pay", &key("after"), "x").status, 201);
}
