//! The demo as a person and a curl see it: through the binary, over its socket.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop there")]

mod program;

use std::fs;
use std::net::TcpListener;

use program::{Demo, get, onlyonce, pay};
use tempfile::TempDir;

#[test]
fn a_duplicate_gets_the_same_receipt_and_the_bank_charges_once() {
    let data = TempDir::new().unwrap();
    let demo = Demo::start(data.path());
    let first = pay(demo.address, "k", 450);
    assert!(first.head.starts_with("HTTP/1.1 201"), "{}", first.head);
    let again = pay(demo.address, "k", 450);
    assert!(again.head.contains("idempotent-replayed: true"), "{}", again.head);
    assert_eq!(again.body, first.body);
    assert!(pay(demo.address, "k", 999).head.starts_with("HTTP/1.1 422"));
    assert!(get(demo.address, "/demo/charges").body.contains("\"count\":1"));
}

#[test]
fn fifty_at_once_are_one_charge() {
    let data = TempDir::new().unwrap();
    let demo = Demo::start(data.path());
    let address = demo.address;
    let calls: Vec<_> = (0..50).map(|_| std::thread::spawn(move || pay(address, "k", 450))).collect();
    let bodies: Vec<_> = calls.into_iter().map(|call| call.join().unwrap().body).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0] && body.contains("R-000001")), "{bodies:?}");
    assert!(get(address, "/demo/charges").body.contains("\"count\":1"));
}

#[test]
fn a_declined_card_is_an_answer_and_a_missing_key_is_refused() {
    let data = TempDir::new().unwrap();
    let demo = Demo::start(data.path());
    assert!(pay(demo.address, "k", 100_001).head.starts_with("HTTP/1.1 402"));
    assert!(pay(demo.address, "k", 100_001).head.contains("idempotent-replayed: true"));
    assert!(pay(demo.address, "", 450).head.starts_with("HTTP/1.1 400"));
    assert!(get(demo.address, "/demo/charges").body.contains("\"count\":0"));
}

#[test]
fn an_answer_survives_kill_9() {
    let data = TempDir::new().unwrap();
    let mut demo = Demo::start(data.path());
    let first = pay(demo.address, "k", 450);
    demo.kill();
    let demo = Demo::start(data.path());
    let again = pay(demo.address, "k", 450);
    assert!(again.head.contains("idempotent-replayed: true"), "{}", again.head);
    assert_eq!(again.body, first.body);
    assert!(get(demo.address, "/demo/charges").body.contains("\"count\":1"));
}

#[test]
fn a_call_killed_half_way_is_unknown_and_never_charged_again() {
    let data = TempDir::new().unwrap();
    let mut demo = Demo::start(data.path());
    let address = demo.address;
    let call = std::thread::spawn(move || std::panic::catch_unwind(|| pay(address, "k", 450)).is_ok());
    let running = "\"state\":\"in_progress\"";
    program::eventually(|| program::outcome(address, "k").body.contains(running));
    demo.kill();
    drop(call.join());
    let demo = Demo::start(data.path());
    let retry = pay(demo.address, "k", 450);
    assert!(retry.head.starts_with("HTTP/1.1 409") && retry.body.contains("outcome-unknown"), "{retry:?}");
    assert!(program::outcome(demo.address, "k").body.contains("\"state\":\"unknown\""));
}

#[test]
fn ctrl_c_waits_for_what_is_under_way() {
    let data = TempDir::new().unwrap();
    let mut demo = Demo::start(data.path());
    let address = demo.address;
    let call = std::thread::spawn(move || pay(address, "k", 450));
    program::eventually(|| program::outcome(address, "k").body.contains("in_progress"));
    let printed = demo.interrupt();
    assert!(call.join().unwrap().head.starts_with("HTTP/1.1 201"));
    assert!(printed.contains("every call is settled"), "{printed}");
    let demo = Demo::start(data.path());
    assert!(pay(demo.address, "k", 450).head.contains("idempotent-replayed: true"));
}

#[test]
fn the_page_comes_with_everything_it_needs_and_a_strict_policy() {
    let data = TempDir::new().unwrap();
    let demo = Demo::start(data.path());
    let page = get(demo.address, "/");
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    for part in ["/demo/style.css", "/demo/page.js", "/favicon.ico"] {
        assert!(page.body.contains(part), "the page does not use {part}");
        assert!(get(demo.address, part).head.starts_with("HTTP/1.1 200"), "{part}");
    }
    assert!(get(demo.address, "/demo/words.js").head.starts_with("HTTP/1.1 200"));
    assert!(!page.body.contains("http://") && !page.body.contains("https://"), "an outside asset");
}

#[test]
fn a_port_in_use_says_so_and_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let data = TempDir::new().unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = onlyonce(&["demo", "--listen", &address, "--data", data.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(said.contains("is in use") && said.contains("--listen"), "{said}");
}

#[test]
fn a_data_directory_that_can_not_be_used_says_why() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let demo_on = |data: &std::path::Path| {
        onlyonce(&["demo", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()])
    };
    let (code, said) = demo_on(&file);
    assert_eq!(code, 1);
    assert!(said.contains("file") && said.contains("directory"), "{said}");

    let data = folder.path().join("data");
    let _running = Demo::start(&data);
    let (code, said) = demo_on(&data);
    assert_eq!(code, 1);
    assert!(said.contains("in use") || said.contains("another process"), "{said}");
}

#[test]
fn wrong_words_are_usage_errors_and_help_shows_examples() {
    for wrong in [&["dmeo"][..], &["demo", "--listen", "nonsense"], &["demo", "--prot", "1"], &[]] {
        let (code, said) = onlyonce(wrong);
        assert_eq!(code, 2, "{wrong:?}: {said}");
    }
    for help in [&["--help"][..], &["demo", "--help"]] {
        let (code, said) = onlyonce(help);
        assert_eq!(code, 0);
        assert!(said.contains("Examples:") && said.contains("onlyonce demo"), "{said}");
    }
}
