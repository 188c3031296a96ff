//! What is asked about a call that ended without a word, and of whom.

use std::time::Duration;

use crate::program::{Gateway, Setup, post};
use crate::stores::key;
use crate::upstream::Upstream;

fn route(more: &str) -> String {
    format!(
        "[[route]]\nmatch = \"POST /status/500\"\non_lapse = \"ask\"\nask = \"GET /by-key/{{key}}\"\nask_after = \"1ms\"\n{more}"
    )
}

fn gateway(upstream: &Upstream, more: &str) -> Gateway {
    Setup::new("memory:", upstream).config(&route(more)).start()
}

#[test]
fn a_question_carries_nothing_that_makes_it_another_question() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let key = key("asked");
    let names = [
        ("x-http-method-override", "POST"),
        ("x-http-method", "POST"),
        ("x-method-override", "POST"),
        ("x-original-url", "/status/500"),
        ("x-rewrite-url", "/status/500"),
        ("if-none-match", "\"a\""),
        ("if-match", "\"a\""),
        ("if-modified-since", "Tue, 17 Nov 2026 00:00:00 GMT"),
        ("if-range", "\"a\""),
        ("range", "bytes=0-1"),
    ];
    let call = || {
        let call = post("/status/500", &key, "x").header("authorization", "Bearer fresh");
        names.iter().fold(call, |call, (name, value)| call.header(name, value)).send(gateway.address)
    };
    call();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(call().status, 200);
    let seen = upstream.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(names.iter().all(|(name, _)| seen[0].header(name).is_some()), "the call itself keeps them");
    assert_eq!(seen[1].header("authorization"), Some("Bearer fresh"));
    for (name, _) in names {
        assert_eq!(seen[1].header(name), None, "{name}");
    }
}

#[test]
fn a_numbered_call_is_asked_about_by_its_number() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "key = \"sequence\"\n");
    let call = || post("/status/500", "", "x").header("onlyonce-sequence", "0042").send(gateway.address);
    call();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(call().text(), "found 42");
    assert_eq!(upstream.seen().last().unwrap().path, "/by-key/42");
}

#[test]
fn nobody_can_be_asked_about_a_token_that_only_the_gateway_knows() {
    for token in ["token", "token:_once"] {
        let (code, said) = Setup::new("memory:", &Upstream::start())
            .with(&["--check"])
            .config(&route(&format!("key = \"{token}\"\n")))
            .fails();
        assert!(code == 2 && said.contains("ask") && said.contains("token"), "{said}");
        assert!(said.contains("gateway.toml:4: "), "{said}");
    }
}

#[test]
fn an_answer_that_is_too_large_to_keep_says_that_it_happened_once_and_for_all() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "max_response = \"4B\"\n");
    let key = key("large");
    let call = || post("/status/500", &key, "x").send(gateway.address);
    call();
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..2 {
        let told = call();
        told.is(409, "response-not-retained");
        assert_eq!(told.json()["retryable"], false, "{}", told.text());
        assert_eq!(told.json()["original_status"], 200, "{}", told.text());
    }
    // Asked once: what is known is not asked again.
    assert_eq!(upstream.seen().len(), 2);
}

#[test]
fn a_call_that_nobody_can_be_asked_about_is_not_said_to_be_found_out_later() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let call = |key: &str| post("/status/500", key, "x").send(gateway.address);
    for _ in 0..2 {
        call("..");
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = call("..");
    told.is(409, "outcome-unknown");
    assert_eq!(told.json()["retryable"], false, "{}", told.text());
    assert_eq!(told.header("retry-after"), None, "{}", told.text());
    assert_eq!(upstream.seen().len(), 1);
}
