//! Records that can't be read, and what must never be in one.

use std::path::Path;

use crate::client::Request;
use crate::faults::Redis;
use crate::program::{Gateway, Setup, post};
use crate::stores::{key, url_in};
use crate::upstream::Upstream;

/// Where the version of the fingerprint is, in a record on a Redis.
const FINGERPRINT: usize = 65;

/// Makes a call, and changes its record from the position that is chosen by the record's length. Says the key of the call.
fn damaged(redis: &Redis, gateway: &Gateway, position: impl Fn(usize) -> usize, bytes: &str) -> String {
    redis.told("FLUSHALL\n");
    let key = key("damaged");
    assert_eq!(gateway.post("/pay", &key, "x").status, 201);
    let names = redis.told("KEYS *\n");
    // Redis answers `1) "name"` to a person, and the name alone to a pipe.
    let name = names.lines().find(|name| !name.ends_with("open")).unwrap().to_owned();
    let length = redis.told(&format!("STRLEN \"{name}\"\n")).trim().parse().unwrap();
    assert!(length > FINGERPRINT);
    redis.told(&format!("SETRANGE \"{name}\" {} \"{bytes}\"\n", position(length)));
    key
}

#[test]
fn an_answer_that_was_changed_where_it_is_kept_is_not_given_to_anybody() {
    let (upstream, redis) = (Upstream::start(), Redis::start());
    let gateway = Setup::new(&redis.url(), &upstream).start();
    // The last byte of the checksum, of the body, and something before it.
    for from_the_end in [1, 9, 12] {
        let key = damaged(&redis, &gateway, |length| length - from_the_end, "\\x07");
        let before = upstream.effects();
        gateway.post("/pay", &key, "x").is(503, "record-unreadable");
        assert_eq!(upstream.effects(), before);
    }
}

#[test]
fn a_record_that_can_not_be_read_lets_nothing_run_and_is_told() {
    let (upstream, redis) = (Upstream::start(), Redis::start());
    let gateway = Setup::new(&redis.url(), &upstream).start();
    for (position, byte, what) in [
        (0, "XX", "the mark of a record"),
        (2, "?", "the state"),
        (FINGERPRINT, "\\x09", "a fingerprint of a later release"),
    ] {
        let key = damaged(&redis, &gateway, |_| position, byte);
        let before = upstream.effects();
        let told = gateway.post("/pay", &key, "x");
        told.is(503, "record-unreadable");
        assert_eq!(told.json()["retryable"], false, "{what}: trying again does not mend it");
        // Another payload is not let in either.
        gateway.post("/pay", &key, "y").is(503, "record-unreadable");
        assert_eq!(upstream.effects(), before, "{what}");
        assert!(gateway.log().contains("ERROR"), "somebody must hear of {what}");
    }
}

/// Everything in a directory.
fn bytes_in(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(bytes_in(&path));
        } else if !path.ends_with("admin.token") && !path.ends_with("gateway.toml") && !path.ends_with("log")
        {
            bytes.extend(std::fs::read(&path).unwrap());
        }
    }
    bytes
}

fn holds(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

/// Looks for what a canary request brought in the bytes that a store has written.
fn keeps_no_secret(store: &str, written: impl Fn(&Path) -> Vec<u8>) {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let mut gateway = Setup::new(store, &upstream).home(home.path()).start();
    let (secret, kept) = (key("key-canary"), key("answer-canary"));
    let call = |path: &str, body: &str| {
        Request::new("POST", path)
            .header("x-tenant", "tenant-canary")
            .header("idempotency-key", &secret)
            .header("authorization", "Bearer token-canary")
            .header("cookie", "c=cookie-canary")
            .header("content-type", "text/plain")
            .body(body)
    };
    // The answer is the body, and is kept: the search finds what is there.
    assert_eq!(call("/echo", &kept).send(gateway.address).status, 201);
    assert_eq!(call("/headers?q=query-canary", "body-canary").send(gateway.address).status, 201);
    assert!(call("/headers?q=query-canary", "body-canary").send(gateway.address).is_replayed());
    call("/headers", "other-canary").send(gateway.address).is(422, "payload-mismatch");
    assert_eq!(call("/reset", "reset-canary").send(gateway.address).status, 502);
    assert_eq!(call("/truncated", "half-canary").send(gateway.address).status, 502);
    let id =
        call("/reset", "reset-canary").send(gateway.address).json()["record"].as_str().unwrap().to_owned();
    let (code, said) = gateway.records(&["release", &id, "--reason", "reason-canary"]);
    assert_eq!(code, 0, "{said}");
    let log = gateway.log();
    gateway.terminate();
    let written = written(home.path());
    assert!(holds(&written, &kept), "the answer is in the store");
    let canaries = [
        &secret,
        "tenant-canary",
        "token-canary",
        "cookie-canary",
        "query-canary",
        "body-canary",
        "other-canary",
        "reset-canary",
        "half-canary",
        "s=secret",
    ];
    for canary in canaries {
        assert!(!holds(&written, canary), "{canary} is in the store");
        assert!(!log.contains(canary), "{canary} is in the log: {log}");
    }
    assert!(!log.contains(&kept), "an answer is in the log");
}

#[test]
fn no_secret_of_a_request_is_in_the_bytes_of_the_embedded_store() {
    keeps_no_secret("embedded:./data", bytes_in);
}

#[test]
fn no_secret_of_a_request_is_in_the_bytes_of_a_sqlite_file() {
    keeps_no_secret("sqlite:./records.db", bytes_in);
}

#[test]
fn no_secret_of_a_request_is_in_what_a_redis_has_written() {
    let redis = Redis::start();
    keeps_no_secret(&redis.url(), |_| bytes_in(redis.folder()));
}

#[test]
fn the_primary_of_a_redis_with_sentinels_is_found() {
    let upstream = Upstream::start();
    let store = url_in("ONLYONCE_TEST_REDIS_SENTINEL_URL");
    let gateways = [Setup::new(&store, &upstream).start(), Setup::new(&store, &upstream).start()];
    let key = key("sentinel");
    let first = gateways[0].post("/pay", &key, "x");
    assert_eq!(first.status, 201);
    let again = gateways[1].post("/pay", &key, "x");
    assert!(again.is_replayed() && again.body == first.body, "{again:?}");
    post("/pay", &key, "y").send(gateways[1].address).is(422, "payload-mismatch");
    assert_eq!(upstream.effects(), 1);
}
