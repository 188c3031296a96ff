//! What people who operate a gateway, and callers in doubt, are told.

use std::thread;

use crate::client::Request;
use crate::program::{Gateway, Setup, eventually, onlyonce, post};
use crate::stores::key;
use crate::upstream::Upstream;

fn metrics(gateway: &Gateway) -> String {
    Request::new("GET", "/metrics").send(gateway.admin.unwrap()).text()
}

/// The figure of a series, if it is there.
fn figure(gateway: &Gateway, series: &str) -> Option<f64> {
    let text = metrics(gateway);
    let line =
        text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The lines of the log with this in them, and how many times they stand for.
fn told(gateway: &Gateway, words: &str) -> (usize, u64) {
    let log = gateway.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(words)).collect();
    let times = |line: &&str| {
        let rest = line.split("times=").nth(1)?;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    (lines.len(), lines.iter().filter_map(times).sum())
}

#[test]
fn a_caller_in_doubt_is_told_what_its_route_will_do() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .with(&["--response-timeout", "300ms"])
        .config(
            "[[route]]\nmatch = \"POST /reset\"\non_lapse = \"ask\"\nask = \"GET /by-key/{key}\"\nask_after = \"60s\"\n\
             [[route]]\nmatch = \"POST /truncated\"\non_lapse = \"rerun\"\n",
        )
        .start();
    let chinese =
        |path: &str, key: &str| post(path, key, "x").header("accept-language", "zh").send(gateway.address);

    let asked = key("ask");
    for (status, problem) in [(502, "upstream-failed"), (409, "outcome-unknown")] {
        let answer = gateway.post("/reset", &asked, "x");
        let document = answer.is(status, problem).json();
        let detail = document["detail"].as_str().unwrap();
        assert_eq!(document["retryable"], true, "{document}");
        let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&after), "{after}");
        assert!(detail.contains("with the same key") && detail.contains("Retry-After"), "{detail}");
        assert!(!detail.contains("operator") && !detail.contains("not tried again"), "{detail}");
        assert!(!detail.contains("on_500"), "{detail}");
    }
    assert!(chinese("/reset", &asked).text().contains("查明"));

    let rerun = gateway.post("/truncated", &key("rerun"), "x");
    let document = rerun.is(502, "upstream-failed").json();
    assert_eq!(document["retryable"], true, "{document}");
    assert!(document["detail"].as_str().unwrap().contains("run again"), "{document}");

    let held = key("hold");
    for (status, problem) in [(504, "upstream-timeout"), (409, "outcome-unknown")] {
        let answer = gateway.post("/slow/2000", &held, "x");
        let document = answer.is(status, problem).json();
        let detail = document["detail"].as_str().unwrap();
        assert_eq!(
            (&document["retryable"], answer.header("retry-after")),
            (&false.into(), None),
            "{document}"
        );
        assert!(detail.contains("not tried again") && detail.contains("operator"), "{detail}");
    }
    assert!(chinese("/slow/2000", &held).text().contains("联系运维"));

    // There is no record of a call without a key, and nobody to resolve it.
    let unkeyed = gateway.post("/reset", "", "x");
    let detail = unkeyed.is(502, "upstream-failed").json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("before you send it again") && !detail.contains("operator"), "{detail}");
}

#[test]
fn the_word_about_a_500_is_for_operators_and_only_where_it_applies() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for (status, applies) in [(500, true), (503, false)] {
        let (path, key) = (format!("/status/{status}"), key("hint"));
        gateway.post(&path, &key, "x");
        for language in ["en", "zh"] {
            let retry = post(&path, &key, "x").header("accept-language", language).send(gateway.address);
            assert!(!retry.text().contains("on_500"), "{}", retry.text());
        }
        let id = gateway.post(&path, &key, "x").json()["record"].as_str().unwrap().to_owned();
        let (_, said) = gateway.records(&["show", &id]);
        assert_eq!(said.contains("on_500"), applies, "{said}");
    }
}

#[test]
fn many_refusals_are_a_few_lines_of_the_log_that_count_them_all() {
    let upstream = Upstream::start();
    let [quiet, verbose] =
        ["info", "debug"].map(|level| Setup::new("memory:", &upstream).variable("RUST_LOG", level).start());
    for _ in 0..200 {
        for gateway in [&quiet, &verbose] {
            gateway.post("/pay", "a b", "x").is(400, "key-invalid");
        }
    }
    let refused = "problem=\"key-invalid\"";
    let (lines, _) = told(&quiet, refused);
    assert!((1..=20).contains(&lines), "{lines} lines");
    assert!(told(&verbose, refused).0 >= 200);
    // What is left of the storm is told without another one.
    eventually(|| told(&quiet, refused).1 == 200);
}

#[test]
fn a_store_that_is_down_does_not_drown_the_log() {
    let upstream = Upstream::start();
    let mut redis = crate::faults::Redis::start();
    let gateway = Setup::new(&redis.url(), &upstream).start();
    assert_eq!(gateway.post("/pay", &key("up"), "x").status, 201);
    redis.stop();
    let before = gateway.log().lines().count();
    let address = gateway.address;
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let request = post("/pay", &key("down"), "x");
            thread::spawn(move || request.send(address).status)
        })
        .collect();
    let answers: Vec<u16> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    assert!(answers.iter().all(|status| *status == 503), "{answers:?}");
    let log = gateway.log();
    let lines: Vec<&str> = log.lines().skip(before).collect();
    assert!(lines.iter().any(|line| line.contains("ERROR") && line.contains("the store failed")), "{log}");
    assert!(lines.len() <= 40, "{} lines: {log}", lines.len());
}

#[test]
fn what_needs_a_person_is_measured() {
    let upstream = Upstream::start();
    for store in ["memory:", "embedded:./data", "sqlite:./records.db"] {
        let gateway = Setup::new(store, &upstream).start();
        eventually(|| figure(&gateway, "onlyonce_unknown_outcomes") == Some(0.0));
        assert_eq!(figure(&gateway, "onlyonce_unknown_oldest_seconds"), Some(0.0));
        for _ in 0..3 {
            gateway.post("/status/500", &key("measured"), "x");
        }
        eventually(|| figure(&gateway, "onlyonce_unknown_outcomes") == Some(3.0));
        assert!(figure(&gateway, "onlyonce_unknown_oldest_seconds") > Some(0.0));
        assert_eq!(gateway.records(&["release", "--all", "--reason", "r", "--yes"]).0, 0);
        eventually(|| figure(&gateway, "onlyonce_unknown_outcomes") == Some(0.0));
        assert_eq!(figure(&gateway, "onlyonce_left_behind_total"), Some(0.0), "nothing crashed");
    }
}

#[test]
fn writes_without_a_key_on_declared_routes_are_counted() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .config("[[route]]\nmatch = \"POST /pay\"\n[[route]]\nmatch = \"POST /json\"\nkey = \"json:/id\"\n")
        .start();
    gateway.post("/pay", &key("keyed"), "x");
    gateway.post("/pay", "", "x");
    gateway.post("/pay", "", "x");
    gateway.post("/json", "", "{}");
    gateway.post("/undeclared", "", "x");
    let text = metrics(&gateway);
    assert!(text.contains("onlyonce_unkeyed_total{route=\"POST /pay\"} 2"), "{text}");
    assert!(text.contains("onlyonce_unkeyed_total{route=\"POST /json\"} 1"), "{text}");
    assert_eq!(text.matches("onlyonce_unkeyed_total{").count(), 2, "{text}");
}

#[test]
fn what_a_crash_left_behind_is_told_at_the_next_start() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let setup = || Setup::new("embedded:./data", &upstream).home(home.path());
    let mut gateway = setup().start();
    let (address, running) = (gateway.address, post("/gated", &key("crash"), "x"));
    let caller = thread::spawn(move || running.try_send(address));
    eventually(|| upstream.effects() == 1);
    gateway.kill();
    assert!(caller.join().unwrap().is_err());
    let again = setup().start();
    eventually(|| figure(&again, "onlyonce_left_behind_total") == Some(1.0));
    eventually(|| told(&again, "left behind without a word").0 == 1);
    assert_eq!(figure(&again, "onlyonce_unknown_outcomes"), Some(1.0));
    upstream.open();
}

#[test]
fn the_help_about_the_log_names_one_default() {
    let home = tempfile::tempdir().unwrap();
    let (code, said) = onlyonce(home.path(), &["records", "--help"]);
    let about = said.split("--log <LOG>").nth(1).unwrap().split("\n  -").next().unwrap();
    let about = about.split("\n      --").next().unwrap();
    assert_eq!((code, about.matches("[default:").count()), (0, 1), "{about}");
}
