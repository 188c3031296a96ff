//! What is said of a store's URL, what of it is shown, and which stores are refused.

use crate::program::{Setup, onlyonce};
use crate::stores::url_in;
use crate::upstream::Upstream;

fn check(more: &[&str]) -> (i32, String) {
    let home = tempfile::tempdir().unwrap();
    let words = ["gateway", "--check", "--scope", "none", "--upstream", "http://h"];
    onlyonce(home.path(), &[&words, more].concat())
}

#[test]
fn a_password_in_a_parameter_of_a_url_is_shown_nowhere() {
    for url in [
        "postgres://h/db?user=ann&password=hunter2",
        "postgres://ann@h/db?password=hunter2",
        "redis-sentinel://h:1/main?sentinel_user=sam&sentinel_password=hunter2",
        "redis+unix:///run/redis.sock?pass=hunter2",
    ] {
        let (code, said) = check(&["--store", url]);
        assert!(code == 0 && said.contains("***") && !said.contains("hunter2"), "{url}: {code} {said}");
    }
    // The test server asks for none, and takes any.
    let url = format!("{}?password=hunter2", url_in("ONLYONCE_TEST_POSTGRES_URL"));
    let upstream = Upstream::start();
    let mut gateway = Setup::new(&url, &upstream).start();
    let shown = gateway.admin("GET", "/api/config", "").text();
    assert!(shown.contains("password=***") && !shown.contains("hunter2"), "{shown}");
    assert_eq!(gateway.post("/pay", &crate::stores::key("masked"), "{}").status, 201);
    let log = gateway.log();
    let (_, said) = gateway.terminate();
    assert!(!log.contains("hunter2") && !said.contains("hunter2"), "{log} {said}");
}

/// Drivers pass over them, or write them to the log as they are.
#[test]
fn an_unknown_parameter_of_a_url_is_refused_by_its_name_alone() {
    let home = tempfile::tempdir().unwrap();
    for (url, hint) in [
        ("postgres://h/db?pasword=hunter2", "\"pasword\""),
        ("mysql://h/db?password=hunter2", "USER:PASSWORD@HOST"),
        ("sqlite:./a.db?key=hunter2", "\"key\""),
        ("redis://h?password=hunter2", "unknown parameter"),
        ("redis-sentinel://h:1/main?pasword=hunter2", "sentinel_password"),
    ] {
        let (code, said) = check(&["--store", url]);
        assert!(code == 2 && said.contains(hint) && !said.contains("hunter2"), "{url}: {code} {said}");
        let (code, said) = onlyonce(home.path(), &["records", "--store", url, "list"]);
        assert!(code == 2 && said.contains(hint) && !said.contains("hunter2"), "{url}: {code} {said}");
    }
}

#[test]
fn a_sqlite_that_ends_with_the_process_is_refused() {
    let upstream = Upstream::start();
    for url in [
        "sqlite:",
        "sqlite://",
        "sqlite:?table=x",
        "sqlite::memory:",
        "sqlite://:memory:",
        "sqlite:a.db?mode=memory",
        "sqlite:%3Amemory%3A",
        "sqlite:file::memory:",
    ] {
        for (code, said) in [check(&["--store", url]), Setup::new(url, &upstream).fails()] {
            assert!(code == 2 && said.contains("sqlite:./records.db"), "{url}: {code} {said}");
        }
    }
}

#[test]
fn strict_refuses_a_store_that_may_lose_records() {
    let upstream = Upstream::start();
    // The test server writes nothing to disk.
    let redis = url_in("ONLYONCE_TEST_REDIS_URL");
    Setup::new(&redis, &upstream).start();
    let by_file = format!(
        "store = {redis:?}\nstrict = true\nupstream = {:?}\n[scope]\nfrom = \"none\"\n",
        upstream.url()
    );
    for setup in [
        Setup::new(&redis, &upstream).with(&["--strict", "true"]),
        Setup::new(&redis, &upstream).variable("ONLYONCE_STRICT", "true"),
        Setup::bare().config(&by_file),
    ] {
        let (code, said) = setup.fails();
        assert!(code == 1 && said.contains("appendonly yes"), "{code} {said}");
    }
    let (code, said) = check(&["--store", "memory:", "--strict", "true"]);
    assert!(code == 2 && said.contains("memory: forgets every record"), "{code} {said}");
    let (code, said) = check(&["--store", "sqlite:a.db", "--strict", "true"]);
    assert!(code == 0 && said.contains("strict = true") && said.contains("# --strict"), "{code} {said}");
    for durable in ["embedded:./data", "sqlite:./records.db"] {
        let gateway = Setup::new(durable, &upstream).with(&["--strict", "true"]).start();
        assert_eq!(gateway.post("/pay", "strict", "{}").status, 201, "{durable}");
    }
}
