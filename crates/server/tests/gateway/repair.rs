//! Repair by people: nothing is changed that was not meant, and what was changed is on record.

use std::io::Write;
use std::process::{Command, Stdio};

use onlyonce::{Key, RecordId, Scope};
use rustix::process::Signal;
use serde_json::Value;

use crate::client::Request;
use crate::program::{Gateway, Setup, eventually, onlyonce};
use crate::stores::{key, on_every_store};
use crate::upstream::Upstream;

/// A call whose outcome nobody knows: its key and its id.
fn unknown(gateway: &Gateway, path: &str) -> (String, String) {
    let key = key("unknown");
    gateway.post(path, &key, "x");
    let id = gateway.post(path, &key, "x").json()["record"].as_str().unwrap().to_owned();
    (key, id)
}

fn ids(listing: &Value) -> Vec<String> {
    let records = listing["records"].as_array().unwrap_or_else(|| panic!("{listing}"));
    records.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect()
}

fn found(gateway: &Gateway, query: &str) -> Vec<String> {
    ids(&gateway.admin("GET", &format!("/api/records?{query}"), "").json())
}

fn audit(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.home.join("onlyonce-audit.log")).unwrap()
}

#[test]
fn an_empty_word_is_refused_and_forgets_nothing() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for _ in 0..3 {
        gateway.post("/pay", &key("kept"), "x");
    }
    for filter in ["--key", "--route", "--scope", "--since", "--state"] {
        for action in ["purge", "forget"] {
            let (code, said) = gateway.records(&[action, filter, "", "--reason", "r", "--yes"]);
            assert_eq!(code, 2, "{action} {filter}: {said}");
            // Beside another filter as well: it would be wider than it was meant.
            let (code, said) =
                gateway.records(&[action, "--since", "1h", filter, "", "--reason", "r", "--yes"]);
            assert_eq!(code, 2, "{action} {filter}: {said}");
        }
        assert_eq!(gateway.records(&["list", filter, ""]).0, 2, "{filter}");
    }
    for parameter in ["q", "route", "scope", "since", "state", "cursor", "limit"] {
        let answer = gateway.admin("GET", &format!("/api/records?{parameter}="), "");
        assert_eq!(answer.status, 400, "{parameter}: {}", answer.text());
    }
    let nobody = Request::new("DELETE", &format!("/api/records/{}?reason=r", found(&gateway, "")[0]))
        .header("authorization", &format!("Bearer {}", gateway.token()))
        .header("onlyonce-actor", "");
    assert_eq!(nobody.send(gateway.admin.unwrap()).status, 400, "who?");
    assert_eq!(found(&gateway, "").len(), 3);
}

#[test]
fn all_records_are_changed_only_by_a_word_of_its_own() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for _ in 0..3 {
        gateway.post("/pay", &key("all"), "x");
    }
    let (_, id) = unknown(&gateway, "/status/500");
    for wrong in [
        &["purge", "--reason", "r", "--yes"][..],
        &["purge", "--all", "--state", "completed", "--reason", "r", "--yes"],
        &["purge", "--all", &id, "--reason", "r", "--yes"],
        &["purge", "--all", "--reason", "r"],
    ] {
        let (code, said) = gateway.records(wrong);
        assert!(code == 2, "{wrong:?}: {said}");
    }
    assert_eq!(found(&gateway, "").len(), 4);
    let (code, said) = gateway.records(&["release", "--all", "--reason", "r", "--yes"]);
    assert!(code == 0 && said.contains("release: 1 record"), "{said}");
    let (code, said) = gateway.records(&["purge", "--all", "--reason", "r", "--yes"]);
    assert!(code == 0 && said.contains("forget: 4 records"), "{said}");
}

#[test]
fn a_state_that_can_not_be_decided_is_refused_and_not_replaced() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let (_, id) = unknown(&gateway, "/status/500");
    gateway.post("/pay", &key("done"), "x");
    for state in ["completed", "failed", "in_progress"] {
        let (code, said) = gateway.records(&["release", "--state", state, "--reason", "r", "--yes"]);
        assert!(code == 2 && said.contains("only unknown outcomes"), "{state}: {said}");
        let words = ["resolve", "--not-done", "--state", state, "--reason", "r", "--yes"];
        assert_eq!(gateway.records(&words).0, 2, "{state}");
    }
    let (code, said) = gateway.records(&["purge", "--state", "in_progress", "--reason", "r", "--yes"]);
    assert!(code == 2 && said.contains("in progress"), "{said}");
    assert_eq!(found(&gateway, "state=unknown"), [id]);
    let (code, said) = gateway.records(&["release", "--state", "unknown", "--reason", "r", "--yes"]);
    assert!(code == 0 && said.contains("release: 1 record"), "{said}");
}

#[test]
fn every_other_filter_counts_beside_the_id_of_a_record() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let (key, id) = unknown(&gateway, "/status/500");
    for narrow in ["state=completed", "route=POST%20/other", "scope=b"] {
        assert_eq!(found(&gateway, &format!("q={id}&{narrow}")), [""; 0], "{narrow}");
    }
    assert_eq!(found(&gateway, &format!("q={id}&state=unknown&scope=a&since=1h")), [id.as_str()]);
    for narrow in [["--state", "completed"], ["--route", "POST /other"], ["--scope", "b"]] {
        let words = [&["purge", "--key", &id, "--reason", "r", "--yes"][..], &narrow].concat();
        let (code, said) = gateway.records(&words);
        assert!(code == 0 && said.contains("forget: 0 records"), "{said}");
    }
    gateway.post("/status/500", &key, "x").is(409, "outcome-unknown");
    assert_eq!(upstream.effects_of(&key), 1);
}

on_every_store! {
    fn keys_and_scopes_of_hexadecimal_digits_are_found(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        // No store is asked twice for the same: a UUID without dashes, and two of them.
        let digits = |n: usize| -> String {
            let hex: String = key("hex").bytes().map(|byte| format!("{byte:02x}")).collect();
            hex.chars().rev().cycle().take(n).collect()
        };
        for (name, scope) in [(digits(32), "a".to_owned()), (digits(64), digits(32)), (key("plain"), digits(64))] {
            let call = Request::new("POST", "/pay").header("x-tenant", &scope).header("idempotency-key", &name).body("x");
            call.send(gateway.address);
            let listed = gateway.admin("GET", &format!("/api/records?q={name}&scope={scope}"), "").json();
            assert_eq!(ids(&listed).len(), 1, "{name} {scope}: {listed}");
            let (code, said) = gateway.records(&["list", "--key", &name, "--json"]);
            let listed: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
            let record = &listed[0];
            assert!(code == 0 && record["id"].is_string(), "{said}");
            // By their digests, which look the same.
            let (key, scope) = (record["key_hash"].as_str().unwrap(), record["scope_hash"].as_str().unwrap());
            let again = found(&gateway, &format!("q={key}&scope={scope}"));
            assert_eq!(again, [record["id"].as_str().unwrap()]);
        }
    }

    fn an_id_may_be_typed_by_its_beginning(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let (_, id) = unknown(&gateway, "/status/500");
        for beginning in [&id[..16], &id[..63], &id[..16].to_uppercase()] {
            let shown = gateway.admin("GET", &format!("/api/records/{beginning}"), "").json();
            assert_eq!(shown["id"], id.as_str(), "{beginning}: {shown}");
            let (code, said) = gateway.records(&["show", beginning]);
            assert!(code == 0 && said.contains(&id), "{beginning}: {said}");
        }
        let path = format!("/api/records/{}/release", &id[..16]);
        assert_eq!(gateway.admin("POST", &path, "{\"reason\":\"r\"}").status, 200);
        let (code, said) = gateway.records(&["forget", &id[..16], &id, "--reason", "r"]);
        assert!(code == 0 && said.contains("forget: 1 record"), "{said}");
        assert_eq!(gateway.admin("GET", &format!("/api/records/{}", &id[..16]), "").status, 404);
    }
}

#[test]
fn a_beginning_of_several_ids_is_refused_with_the_candidates() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let id_of = |key: &str| {
        RecordId::of_http(&Scope::new("a").unwrap(), "POST", "/pay", &Key::new(key).unwrap()).to_string()
    };
    let first = key("first");
    let wanted = id_of(&first);
    let second = (0..).map(|n| format!("{first}-{n}")).find(|key| id_of(key)[..4] == wanted[..4]).unwrap();
    gateway.post("/pay", &first, "x");
    assert_eq!(gateway.records(&["show", &wanted[..4]]).0, 0);
    gateway.post("/pay", &second, "x");
    let answer = gateway.admin("GET", &format!("/api/records/{}", &wanted[..4]), "");
    assert_eq!(answer.status, 400);
    for action in [&["show"][..], &["forget", "--reason", "r"]] {
        let (code, said) = gateway.records(&[action, &[&wanted[..4]]].concat());
        assert_eq!(code, 2, "{said}");
        for candidate in [&wanted, &id_of(&second)] {
            assert!(said.contains(candidate) && answer.text().contains(candidate), "{said}");
        }
    }
    assert_eq!(found(&gateway, "").len(), 2);
    assert_eq!(gateway.admin("GET", &format!("/api/records/{}", &wanted[..3]), "").status, 400);
}

#[test]
fn a_store_is_searched_by_digests_and_ids_too() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let mut gateway = Setup::new("embedded:./data", &upstream).home(home.path()).start();
    let (key, id) = unknown(&gateway, "/status/500");
    gateway.post("/pay", &crate::stores::key("other"), "x");
    let shown = gateway.admin("GET", &format!("/api/records/{id}"), "").json();
    gateway.terminate();
    let place = ["records", "--store", "embedded:./data", "list", "--json"];
    let list = |words: &[&str]| {
        let (code, said) = onlyonce(home.path(), &[&place, words].concat());
        let listed: Vec<Value> = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{code} {said}"));
        listed.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (key_hash, scope_hash) = (shown["key_hash"].as_str().unwrap(), shown["scope_hash"].as_str().unwrap());
    for words in [["--key", key_hash], ["--key", &key], ["--key", &id]] {
        assert_eq!(list(&words), [id.as_str()], "{words:?}");
    }
    for words in [["--scope", scope_hash], ["--scope", "a"]] {
        assert_eq!(list(&words).len(), 2, "{words:?}");
    }
    assert_eq!(list(&["--scope", "b"]), [""; 0]);
    assert_eq!(list(&["--key", &id, "--state", "completed"]), [""; 0]);
    let show = onlyonce(home.path(), &["records", "--store", "embedded:./data", "show", &id[..16]]);
    assert!(show.0 == 0 && show.1.contains(&id), "{}", show.1);
    assert!(!home.path().join("onlyonce-audit.log").exists(), "looking leaves nothing behind");
}

#[test]
fn an_answer_set_by_a_person_is_kept_as_its_route_says_now() {
    const ROUTES: &str =
        "[defaults]\nretain = \"60s\"\n[[route]]\nmatch = \"POST /status/{code}\"\nretain = \"30d\"\n";
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).config(ROUTES).start();
    let decide = |id: &str| {
        let decision = "{\"outcome\":\"completed\",\"status\":201,\"reason\":\"r\"}";
        assert_eq!(gateway.admin("POST", &format!("/api/records/{id}/resolve"), decision).status, 200);
        gateway.admin("GET", &format!("/api/records/{id}"), "").json()["expires_in"].as_f64().unwrap()
    };
    let days = |expires_in: f64| (expires_in / 86_400.0).round();
    assert_eq!(days(decide(&unknown(&gateway, "/status/500").1)), 30.0);
    // It was called otherwise when the call came; what counts is what it falls under now.
    let (_, id) = unknown(&gateway, "/status/500/x-late/1");
    let later = ROUTES.replace("30d", "60d")
        + "[[route]]\nmatch = \"POST /status/{code}/x-late/{n}\"\nretain = \"90d\"\n";
    std::fs::write(gateway.home.join("gateway.toml"), later).unwrap();
    gateway.signal(Signal::HUP);
    eventually(|| gateway.log().contains("the configuration was reloaded"));
    assert_eq!(days(decide(&id)), 90.0);
    assert_eq!(days(decide(&unknown(&gateway, "/status/500").1)), 60.0);
    let (_, id) = unknown(&gateway, "/status/500/x-else/1");
    assert!(decide(&id) <= 60.0, "no route says more");
}

#[test]
fn a_decision_on_a_store_never_shortens_the_life_of_a_record() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let mut gateway = Setup::new("embedded:./data", &upstream).home(home.path()).start();
    let (_, id) = unknown(&gateway, "/status/500");
    gateway.terminate();
    let records =
        |words: &[&str]| onlyonce(home.path(), &[&["records", "--store", "embedded:./data"], words].concat());
    let (code, said) = records(&["resolve", &id, "--completed", "--answer-status", "201", "--reason", "r"]);
    assert!(code == 0, "{said}");
    let (_, said) = records(&["show", &id]);
    assert!(said.contains("expires in   30d") && said.contains("completed"), "{said}");
}

#[test]
fn the_audit_log_says_which_way_an_outcome_was_decided() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let [done, not_done, released] = [(); 3].map(|()| unknown(&gateway, "/status/500").1);
    let words = ["resolve", &done, "--completed", "--answer-status", "202", "--reason", "r"];
    assert_eq!(gateway.records(&words).0, 0);
    assert_eq!(gateway.records(&["resolve", &not_done, "--not-done", "--reason", "r"]).0, 0);
    assert_eq!(gateway.records(&["release", &released, "--reason", "r"]).0, 0);
    let lines: Vec<Value> = audit(&gateway).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6);
    for (lines, (action, outcome, status)) in lines.chunks(2).zip([
        ("resolve", "completed", Value::from(202)),
        ("resolve", "not_done", Value::Null),
        ("release", "not_done", Value::Null),
    ]) {
        for (line, result) in lines.iter().zip(["begun", "done"]) {
            assert_eq!((&line["action"], &line["outcome"]), (&action.into(), &outcome.into()), "{line}");
            assert_eq!((&line["status"], &line["result"]), (&status, &result.into()), "{line}");
            assert_eq!(line["was"], "unknown");
        }
    }
}

#[test]
fn an_answer_is_stored_only_with_a_status_and_is_shown_before() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let (key, id) = unknown(&gateway, "/status/500");
    for more in [&[][..], &["--yes"]] {
        let words = [&["resolve", &id, "--completed", "--reason", "r"][..], more].concat();
        let (code, said) = gateway.records(&words);
        assert!(code == 2 && said.contains("--answer-status"), "{said}");
    }
    let bare = "{\"outcome\":\"completed\",\"reason\":\"r\"}";
    assert_eq!(gateway.admin("POST", &format!("/api/records/{id}/resolve"), bare).status, 400);
    let (code, said) =
        gateway.records(&["resolve", &id, "--not-done", "--answer-status", "201", "--reason", "r"]);
    assert!(code == 2 && said.contains("has no answer"), "{said}");
    // At a terminal it is asked for, shown, and stored after a yes only.
    let at_terminal = |typed: &str| {
        let (binary, token) = (env!("CARGO_BIN_EXE_onlyonce"), gateway.token_file());
        let (admin, token) = (gateway.admin.unwrap(), token.display());
        let command = format!(
            "{binary} records --admin http://{admin} --token-file {token} resolve {id} --completed --body paid --reason r"
        );
        let mut process = Command::new("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir(&gateway.home)
            .spawn()
            .expect("script is needed; `cargo xtask test` installs it");
        process.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        let done = process.wait_with_output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let (done, said) = at_terminal("201\nno\n");
    assert!(
        !done && said.contains("retries will get: 201") && said.contains("nothing was changed"),
        "{said}"
    );
    gateway.post("/status/500", &key, "x").is(409, "outcome-unknown");
    let (done, said) = at_terminal("201\nyes\n");
    assert!(done && said.contains("4 bytes: paid"), "{said}");
    assert_eq!(gateway.post("/status/500", &key, "x").status, 201);
}

#[test]
fn forgetting_calls_does_not_forget_the_highest_number_of_a_sequence() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .config("[[route]]\nmatch = \"POST /counted\"\nkey = \"sequence\"\norder = \"increasing\"\n")
        .start();
    let call = |number: u32| {
        let request = Request::new("POST", "/counted").header("x-tenant", "a").body("x");
        request.header("onlyonce-sequence", &number.to_string()).send(gateway.address)
    };
    assert_eq!(call(5).status, 201);
    for filter in [["--since", "1h"], ["--scope", "a"], ["--state", "failed"]] {
        let words = [&["purge", "--reason", "r", "--yes"][..], &filter].concat();
        assert_eq!(gateway.records(&words).0, 0, "{filter:?}");
        call(4).is(409, "out-of-order");
    }
    assert_eq!(gateway.records(&["purge", "--all", "--reason", "r", "--yes"]).0, 0);
    assert_eq!(call(4).status, 201);
}

#[test]
fn an_answer_that_could_not_be_given_as_it_was_typed_is_refused() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let (_, id) = unknown(&gateway, "/status/500");
    let said = ["resolve", &id, "--completed", "--reason", "r", "--answer-status"];
    for wrong in [
        &["204", "--body", "x"][..],
        &["99"],
        &["600"],
        &["200", "--header", "link: a", "--header", "Link: b"],
        &["200", "--header", "upgrade: h2c"],
        &["200", "--header", "set-cookie: a=b"],
        &["200", "--header", "Onlyonce-Outcome: release"],
        &["200", "--header", "onlyonce_outcome: release"],
        &["200", "--header", "onlyonce-fence: 7"],
        &["200", "--header", "idempotency-stored: false"],
        &["200", "--header", "transfer_encoding: chunked"],
        &["200", "--header", "nonsense"],
    ] {
        let (code, told) = gateway.records(&[&said[..], wrong].concat());
        assert_eq!(code, 2, "{wrong:?}: {told}");
    }
    let twice =
        "{\"outcome\":\"completed\",\"status\":200,\"headers\":{\"a\":\"1\",\"A\":\"2\"},\"reason\":\"r\"}";
    let own = "{\"outcome\":\"completed\",\"status\":200,\"headers\":{\"Onlyonce-Outcome\":\"keep\"},\"reason\":\"r\"}";
    let told = gateway.admin("POST", &format!("/api/records/{id}/resolve"), own);
    assert!(told.status == 400 && told.text().contains("onlyonce-outcome can't be part of"), "{told:?}");
    let answer = gateway.admin("POST", &format!("/api/records/{id}/resolve"), twice);
    assert!((400..500).contains(&answer.status), "{answer:?}");
    assert_eq!(found(&gateway, "state=unknown"), [id]);
}
