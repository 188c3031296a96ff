//! The examples for consumers print what their texts promise.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::process::Command;

fn run(variable: &str) {
    let url = std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    });
    let output = Command::new(env!("CARGO_BIN_EXE_order_paid")).arg(url).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        printed.trim(),
        "10 in stock, 2 and 3 taken, 11 refused: 5 left",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn an_order_paid_twice_takes_from_the_stock_once_on_rabbitmq() {
    run("ONLYONCE_TEST_AMQP_URL");
}

#[test]
fn an_order_paid_twice_takes_from_the_stock_once_on_nats() {
    run("ONLYONCE_TEST_NATS_URL");
}

#[test]
fn a_chain_over_an_outbox_has_one_effect_at_its_end() {
    let url = std::env::var("ONLYONCE_TEST_NATS_URL").expect("run `cargo xtask test`, which sets it");
    let output = Command::new(env!("CARGO_BIN_EXE_outbox")).arg(url).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        printed.trim(),
        "6 requests, 3 orders, 6 messages, 7 of 10 left in stock",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
