//! The admin API and `onlyonce records`.

use std::os::unix::fs::PermissionsExt;

use crate::client::{Request, raw};
use crate::frameworks::{install, workshop};
use crate::program::{Gateway, Setup, eventually, onlyonce};
use crate::stores::{key, on_every_store};
use crate::upstream::Upstream;

fn unknown(gateway: &Gateway, name: &str) -> (String, String) {
    let key = key(name);
    assert_eq!(gateway.post("/status/500", &key, "x").status, 500);
    let id = gateway.post("/status/500", &key, "x").json()["record"].as_str().unwrap().to_owned();
    (key, id)
}

on_every_store! {
    fn an_unknown_outcome_is_found_and_resolved_with_an_answer(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let (key, id) = unknown(&gateway, "resolve");
        let found = gateway.admin("GET", &format!("/api/records?state=unknown&q={key}&scope=a"), "").json();
        assert_eq!(found["records"][0]["id"], id.as_str(), "{found}");
        assert_eq!(gateway.admin("GET", &format!("/api/records?q={key}&scope=b"), "").json()["records"].as_array().unwrap().len(), 0);
        let shown = gateway.admin("GET", &format!("/api/records/{id}"), "").json();
        assert_eq!((&shown["state"], &shown["answer"]["status"]), (&"unknown".into(), &500.into()));
        let path = format!("/api/records/{id}/resolve");
        assert_eq!(gateway.admin("POST", &path, "{\"outcome\":\"completed\",\"reason\":\"\"}").status, 400);
        let decision = "{\"outcome\":\"completed\",\"status\":201,\"headers\":{\"location\":\"/orders/7\"},\"body\":\"receipt 7\",\"reason\":\"found it\"}";
        assert_eq!(gateway.admin("POST", &path, decision).status, 200);
        assert_eq!(gateway.admin("POST", &path, decision).status, 409);
        let replay = gateway.post("/status/500", &key, "x");
        assert!(replay.is_replayed() && replay.status == 201 && replay.text() == "receipt 7", "{replay:?}");
        assert_eq!(replay.header("location"), Some("/orders/7"));
        assert_eq!(upstream.effects(), 1);
    }

    fn what_did_not_happen_runs_again_and_what_is_forgotten_too(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let (key, id) = unknown(&gateway, "release");
        let stale = "{\"reason\":\"r\",\"fence\":1}";
        assert_eq!(gateway.admin("POST", &format!("/api/records/{id}/release"), stale).status, 409);
        assert_eq!(gateway.admin("POST", &format!("/api/records/{id}/release"), "{\"reason\":\"not in the ledger\"}").status, 200);
        assert_eq!(gateway.post("/status/500", &key, "x").status, 500);
        assert_eq!(upstream.effects_of(&key), 2);
        assert_eq!(gateway.admin("DELETE", &format!("/api/records/{id}"), "").status, 400, "why?");
        assert_eq!(gateway.admin("DELETE", &format!("/api/records/{id}?reason=r"), "").status, 200);
        assert_eq!(gateway.admin("DELETE", &format!("/api/records/{id}?reason=r"), "").status, 404);
        assert_eq!(gateway.post("/status/500", &key, "y").status, 500);
        assert_eq!(upstream.effects_of(&key), 3);
    }

    fn records_are_listed_shown_and_changed_in_bulk_from_the_terminal(store: &str) {
        let upstream = Upstream::start();
        let route = format!("POST /status/{{code}}/{}/1", key("x-route"));
        let path = route.replace("POST ", "").replace("{code}", "500");
        let gateway = Setup::new(store, &upstream).config(&format!("[[route]]\nmatch = \"{route}\"\n")).start();
        let keys: Vec<String> = (0..5).map(|_| key("bulk")).collect();
        for key in &keys {
            gateway.post(&path, key, "x");
        }
        let (code, said) = gateway.records(&["list", "--route", &route, "--status", "unknown"]);
        assert_eq!((code, said.matches(" unknown ").count()), (0, 5), "{said}");
        let (code, said) = gateway.records(&["list", "--route", &route, "--since", "1h", "--json"]);
        let listed: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        assert_eq!((code, listed.len()), (0, 5));
        let id = listed[0]["id"].as_str().unwrap();
        let (code, said) = gateway.records(&["show", id]);
        assert!(code == 0 && said.contains("unknown for") && said.contains("effect"), "{said}");
        let (code, said) = gateway.records(&["resolve", id, "--completed", "--answer-status", "201", "--body", "done", "--reason", "seen"]);
        assert!(code == 0 && said.contains("resolve: 1 record"), "{said}");
        let (code, said) = gateway.records(&["release", "--route", &route, "--reason", "outage"]);
        assert!(code == 2 && said.contains("4 records") && said.contains("--yes"), "{said}");
        let (code, said) = gateway.records(&["release", "--route", &route, "--reason", "outage", "--yes", "--json"]);
        assert!(code == 0 && said.contains("\"done\":4"), "{said}");
        let (code, said) = gateway.records(&["purge", "--route", &route, "--reason", "over", "--yes"]);
        assert!(code == 0 && said.contains("forget: 5 records"), "{said}");
        assert!(gateway.records(&["list", "--route", &route]).1.contains("no records"));
        let audit = std::fs::read_to_string(gateway.token_file().parent().unwrap().join(if store.starts_with("embedded") { "audit.log" } else { "onlyonce-audit.log" })).unwrap();
        assert_eq!(audit.matches("\"result\":\"done\"").count(), 10, "{audit}");
        assert!(audit.contains("\"why\":\"outage\"") && audit.contains("\"who\":"), "{audit}");
    }
}

#[test]
fn without_the_right_token_there_is_nothing_to_see() {
    let upstream = Upstream::start();
    let gateway = Setup::new("embedded:./data", &upstream).start();
    let admin = gateway.admin.unwrap();
    let mode = std::fs::metadata(gateway.token_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = gateway.token();
    for path in
        ["/api/records", "/api/stats", "/api/config", "/api/events", "/api/openapi.json", "/api/nothing"]
    {
        let ask = |token: Option<&str>| {
            let request = Request::new("GET", path);
            token.map_or(request.clone(), |token| request.header("authorization", token)).send(admin).status
        };
        assert_eq!(ask(None), 401, "{path}");
        for wrong in [
            "Bearer ",
            "Bearer wrong",
            &token,
            &format!("Basic {token}"),
            &format!("Bearer {token}x"),
            &format!("Bearer {}", &token[1..]),
        ] {
            assert_eq!(ask(Some(wrong)), 401, "{path} {wrong}");
        }
    }
    for path in ["/api/records", "/api/stats", "/api/config", "/api/openapi.json", "/api/attention"] {
        assert_eq!(gateway.admin("GET", path, "").status, 200, "{path}");
    }
    let health = Request::new("GET", "/healthz").send(admin);
    assert_eq!((health.status, Request::new("GET", "/readyz").send(admin).status), (200, 200));
    assert!(!gateway.log().contains(&token));
}

#[test]
fn the_token_outlives_a_restart_and_may_be_given() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let setup = || Setup::new("embedded:./data", &upstream).home(home.path());
    let first = setup().start().token();
    assert_eq!(setup().start().token(), first);
    let given = setup().with(&["--admin-token", "given-and-long-enough"]).start();
    let ask = Request::new("GET", "/api/stats").header("authorization", "Bearer given-and-long-enough");
    assert_eq!(ask.send(given.admin.unwrap()).status, 200);
    assert_eq!(given.admin("GET", "/api/stats", "").status, 401);
}

#[test]
fn statistics_metrics_and_events_tell_what_happens() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).config("[[route]]\nmatch = \"POST /pay\"\n").start();
    let key = key("stats");
    gateway.post("/pay", &key, "x");
    gateway.post("/pay", &key, "x");
    let stats = gateway.admin("GET", "/api/stats", "").json();
    assert_eq!(stats["routes"]["POST /pay"]["executed"], 1, "{stats}");
    assert_eq!(stats["requests"]["replayed"], 1);
    assert_eq!(stats["records"]["completed"], 1);
    let metrics = Request::new("GET", "/metrics").send(gateway.admin.unwrap()).text();
    for line in [
        "onlyonce_requests_total{route=\"POST /pay\",result=\"replayed\"} 1",
        "onlyonce_request_seconds_count{route=\"POST /pay\",result=\"executed\"} 1",
        "onlyonce_store_seconds_count{operation=\"settle\",result=\"ok\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let ask =
        Request::new("GET", "/api/events").header("authorization", &format!("Bearer {}", gateway.token()));
    let (_, id) = unknown(&gateway, "event");
    let admin = gateway.admin.unwrap();
    let listening =
        std::thread::spawn(move || raw(admin, &ask.bytes(), std::time::Duration::from_millis(2500)));
    std::thread::sleep(std::time::Duration::from_millis(700));
    gateway.admin("POST", &format!("/api/records/{id}/release"), "{\"reason\":\"told\"}");
    // The stream has a figure every second, so it is never silent: closing the gateway ends it.
    std::thread::sleep(std::time::Duration::from_millis(700));
    drop(gateway);
    let told = listening.join().unwrap();
    assert!(told.contains("event: stats") && told.contains("event: change") && told.contains(&id), "{told}");
}

#[test]
fn the_openapi_document_names_every_path() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let document = gateway.admin("GET", "/api/openapi.json", "").json();
    for path in [
        "/api/records",
        "/api/records/{id}",
        "/api/records/{id}/resolve",
        "/api/records/{id}/release",
        "/api/stats",
        "/api/events",
        "/api/config",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}

#[test]
fn strange_requests_to_the_admin_api_are_refused_and_never_a_5xx() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let id = "0".repeat(64);
    for (method, path, body) in [
        ("GET", "/api/records?state=nonsense".to_owned(), ""),
        ("GET", "/api/records?limit=0".to_owned(), ""),
        ("GET", "/api/records?limit=99999999999".to_owned(), ""),
        ("GET", "/api/records?cursor=%00%FF".to_owned(), ""),
        ("GET", "/api/records?since=soon".to_owned(), ""),
        ("GET", "/api/records?colour=red".to_owned(), ""),
        ("GET", "/api/records?q=".to_owned() + &"k".repeat(300), ""),
        ("GET", "/api/records/nonsense".to_owned(), ""),
        ("GET", format!("/api/records/{id}"), ""),
        ("PUT", format!("/api/records/{id}"), ""),
        ("POST", format!("/api/records/{id}/resolve"), "{"),
        ("POST", format!("/api/records/{id}/resolve"), "{\"outcome\":\"perhaps\",\"reason\":\"r\"}"),
        (
            "POST",
            format!("/api/records/{id}/resolve"),
            "{\"outcome\":\"completed\",\"status\":99,\"reason\":\"r\"}",
        ),
        (
            "POST",
            format!("/api/records/{id}/resolve"),
            "{\"outcome\":\"completed\",\"headers\":{\"a\":\"b\\r\\nset-cookie: x\"},\"reason\":\"r\"}",
        ),
        ("POST", format!("/api/records/{id}/release"), "[]"),
        ("DELETE", format!("/api/records/{id}?reason=r&fence=-1"), ""),
    ] {
        let answer = gateway.admin(method, &path, body);
        assert!((400..500).contains(&answer.status), "{method} {path}: {answer:?}");
    }
}

/// Requests of every kind, made from the description itself. Two things are left out: that whatever fits the description is accepted
/// (an answer for what did not happen fits it, and is refused), and the endless stream of events.
#[test]
fn the_admin_api_is_as_its_description_says_and_never_answers_5xx() {
    let folder = workshop("schemathesis");
    install(&folder, "schemathesis", "schemathesis==4.32.5");
    let upstream = Upstream::start();
    let gateway = Setup::new("embedded:./data", &upstream).start();
    for _ in 0..5 {
        unknown(&gateway, "described");
    }
    let document = gateway.home.join("openapi.json");
    std::fs::write(&document, gateway.admin("GET", "/api/openapi.json", "").body).unwrap();
    let done = std::process::Command::new(folder.join("venv/bin/schemathesis"))
        .arg("run")
        .arg(&document)
        .args(["--url", &format!("http://{}", gateway.admin.unwrap())])
        .args(["-H", &format!("Authorization: Bearer {}", gateway.token())])
        .args(["--exclude-checks", "positive_data_acceptance", "--exclude-path", "/api/events"])
        .args(["--max-examples", "12", "--seed", "7", "--request-timeout", "60", "--no-color"])
        .current_dir(&gateway.home)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("Tested: 9"), "{said}");
    assert_eq!(Request::new("GET", "/healthz").send(gateway.admin.unwrap()).status, 200);
}

#[test]
fn records_can_be_repaired_straight_on_a_store() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let mut gateway = Setup::new("embedded:./data", &upstream).home(home.path()).start();
    let (key, id) = unknown(&gateway, "store");
    let records =
        |words: &[&str]| onlyonce(home.path(), &[&["records", "--store", "embedded:./data"], words].concat());
    let (code, said) = records(&["list"]);
    assert!(code == 1 && said.contains("in use"), "{said}");
    gateway.terminate();
    let (code, said) = records(&["list", "--state", "unknown"]);
    assert!(code == 0 && said.contains(&id), "{said}");
    let (code, said) = records(&["release", &id, "--reason", "r"]);
    assert!(code == 0, "{said}");
    let gateway = Setup::new("embedded:./data", &upstream).home(home.path()).start();
    assert_eq!(gateway.post("/status/500", &key, "x").status, 500);
    assert_eq!(upstream.effects_of(&key), 2);
}

#[test]
fn long_work_shows_how_far_it_is_on_a_terminal_and_only_there() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let fill = || (0..60).for_each(|_| drop(gateway.post("/pay", &key("many"), "x")));
    let (admin, token) = (format!("http://{}", gateway.admin.unwrap()), gateway.token_file());
    let purge = |more: &str| {
        fill();
        let binary = env!("CARGO_BIN_EXE_onlyonce");
        let token = token.display();
        let command = format!(
            "{binary} records --admin {admin} --token-file {token} purge --state completed --reason over --yes{more}"
        );
        // `script` gives it a terminal.
        let done = std::process::Command::new("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .env("TERM", "xterm")
            .current_dir(&gateway.home)
            .output()
            .expect("script is needed; `cargo xtask test` installs it");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{said}");
        said
    };
    let said = purge("");
    assert!(said.contains("/60 records") && said.contains("forget: 60 records"), "{said}");
    // The answer for programs is by itself where it is piped to one.
    let said = purge(" --json 2>/dev/null");
    assert_eq!(said.trim(), "{\"action\":\"forget\",\"done\":60,\"failed\":[]}");
    fill();
    let (code, said) = gateway.records(&["purge", "--state", "completed", "--reason", "over", "--yes"]);
    assert_eq!((code, said.as_str()), (0, "forget: 60 records\n"));
    fill();
    // Nobody is at the keyboard: nothing happens without a word of assent.
    let (code, said) = gateway.records(&["purge", "--state", "completed", "--reason", "over"]);
    assert!(code == 2 && said.contains("60 records") && said.contains("--yes"), "{said}");
    assert_eq!(gateway.admin("GET", "/api/stats", "").json()["records"]["completed"], 60);
}

#[test]
fn wrong_words_for_records_are_usage_errors() {
    const ID: &str = "0000000000000000000000000000000000000000000000000000000000000000";
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    drop(Setup::new("embedded:./store", &upstream).home(home.path()).start());
    for (words, hint) in [
        (&["records", "list"][..], "--token-file"),
        (&["records", "--store", "embedded:store", "release", "--reason", "r"], "which records?"),
        (&["records", "--store", "memory:", "show", "nonsense"], "64 hexadecimal digits"),
        (&["records", "--store", "nosuch:", "list"], "there are memory:"),
        (&["records", "--store", "memory:", "resolve", ID, "--reason", "r"], "--completed"),
        (&["records", "--store", "embedded:store", "list", "--token-file", "t"], "leave it out"),
        (&["records", "--store", "embedded:store", "list", "--admin", "http://h"], "name one of them"),
        (&["records", "--audit-log", "a.log", "list"], "--audit-log is for changes straight on a store"),
        (
            &[
                "records",
                "--store",
                "embedded:store",
                "resolve",
                ID,
                "--not-done",
                "--answer-status",
                "201",
                "--reason",
                "r",
            ],
            "has no answer",
        ),
    ] {
        let (code, said) = onlyonce(home.path(), words);
        assert!(code == 2 && said.contains(hint), "{words:?}: {code} {said}");
    }
}

#[test]
fn what_is_typed_wrongly_ends_with_2() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for (words, hint) in [
        (&["list", "--since", "xx"][..], "is not a duration"),
        (&["list", "--limit", "0"], "--limit"),
        (&["show", "zz"], "hexadecimal"),
        (&["forget", "zz", "--reason", "r"], "hexadecimal"),
        (&["--as", "", "list"], "printable"),
    ] {
        let (code, said) = gateway.records(words);
        assert!(code == 2 && said.contains(hint), "{words:?} {code} {said}");
    }
    let bad = gateway.admin("GET", "/api/records?cursor=xx", "");
    assert!(bad.status == 400 && bad.text().contains("take it from `next`"), "{}", bad.text());
}

#[test]
fn looking_at_records_makes_no_store() {
    let home = tempfile::tempdir().unwrap();
    let list = |url: &str| onlyonce(home.path(), &["records", "--store", url, "list"]);
    for (url, hint) in [
        ("embedded:typo", "there is no store in typo"),
        ("sqlite:typo.db", "there is no database"),
        ("sqlite://typo.db?mode=rwc", "there is no database"),
        ("memory:", "within the gateway's own process"),
        ("redis://h:x", "host, port"),
    ] {
        let (code, said) = list(url);
        assert!(code == 2 && said.contains(hint), "{url}: {code} {said}");
    }
    std::fs::write(home.path().join("empty.db"), "").unwrap();
    let (code, said) = list("sqlite:empty.db");
    assert!(code == 2 && said.contains("a gateway makes at its first start"), "{code} {said}");
    let left: Vec<_> =
        std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("typo")), "{left:?}");
}

#[test]
fn the_audit_log_has_the_name_that_was_given_and_else_that_of_the_user() {
    let upstream = Upstream::start();
    let gateway = Setup::new("embedded:./data", &upstream).start();
    let (_, id) = unknown(&gateway, "who");
    assert_eq!(gateway.records(&["--as", "J\u{fc}rgen", "release", &id, "--reason", "r"]).0, 0);
    assert_eq!(gateway.records(&["forget", &id, "--reason", "r"]).0, 0);
    let audit = std::fs::read_to_string(gateway.home.join("data/audit.log")).unwrap();
    assert_eq!(audit.matches("\"who\":\"J\u{fc}rgen\"").count(), 2, "{audit}");
    assert!(!audit.contains("\"who\":\"terminal\"") && !audit.contains("\"who\":\"admin\""), "{audit}");
}

#[test]
fn a_fingerprint_is_shown_as_it_is() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let (_, id) = unknown(&gateway, "fingerprint");
    let shown = gateway.admin("GET", &format!("/api/records/{id}"), "").json();
    assert!(shown["fingerprint"].as_str().unwrap().starts_with("v1:"), "{shown}");
    let (_, said) = gateway.records(&["show", &id]);
    assert!(said.contains("expires in   30d"), "{said}");
}

#[test]
fn a_key_is_found_as_it_stands_in_its_header() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream)
        .config("[[route]]\nmatch = \"POST /j\"\nkey = \"json:/k\"\n")
        .start();
    assert_eq!(gateway.post("/pay", "\"u0\"", "{}").status, 201);
    assert_eq!(gateway.post("/pay", "\"a, \\\"b\\\"\"", "{}").status, 201);
    let found = |words: &str| {
        let (code, said) = gateway.records(&["list", "--key", words, "--json"]);
        assert_eq!(code, 0, "{said}");
        let listed: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
        let encoded: String = words.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let page = gateway.admin("GET", &format!("/api/records?q={encoded}"), "").json();
        assert_eq!(page["records"].as_array().unwrap().len(), listed.len(), "{page}");
        listed.len()
    };
    for words in ["u0", "\"u0\"", "\"u0\";p=1", " \"u0\" ", "a, \"b\"", "\"a, \\\"b\\\"\""] {
        assert_eq!(found(words), 1, "{words}");
    }
    for words in ["\"u1\"", "\"u0", "u0\""] {
        assert_eq!(found(words), 0, "{words}");
    }
    // A body may have a key with quotes of its own: it is found too.
    assert_eq!(gateway.post("/j", "", r#"{"k":"\"u0\""}"#).status, 201);
    assert_eq!((found("\"u0\""), found("u0")), (2, 1));
}

#[test]
fn sixteen_may_listen_to_events_and_a_place_is_free_again_when_one_leaves() {
    use std::io::{Read, Write};

    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    let listen = || {
        let mut socket = std::net::TcpStream::connect(gateway.admin.unwrap()).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let ask = format!(
            "GET /api/events HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {}\r\n\r\n",
            gateway.token()
        );
        socket.write_all(ask.as_bytes()).unwrap();
        let mut head = [0; 1024];
        let read = socket.read(&mut head).unwrap();
        (socket, String::from_utf8_lossy(&head[..read]).into_owned())
    };
    let mut listening: Vec<_> = (0..16).map(|_| listen()).collect();
    for (_, head) in &listening {
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
    let (_, refused) = listen();
    assert!(
        refused.starts_with("HTTP/1.1 503 ") && refused.contains("16 listen to events already"),
        "{refused}"
    );
    // Others find a place.
    assert_eq!(gateway.admin("GET", "/api/stats", "").status, 200);
    drop(listening.pop());
    eventually(|| listen().1.starts_with("HTTP/1.1 200 "));
}
