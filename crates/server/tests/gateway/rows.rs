//! Every row of the HTTP behaviour, through the binary, on every store.

use std::thread;

use crate::client::Request;
use crate::program::{Setup, eventually, post};
use crate::stores::{key, on_every_store};
use crate::upstream::Upstream;

on_every_store! {
    fn only_post_and_patch_are_protected_and_others_pass(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).config("[[route]]\nmatch = \"DELETE /orders/{id}\"\n").start();
        let key = key("methods");
        let send = |method: &str, path: &str| {
            Request::new(method, path).header("x-tenant", "a").header("idempotency-key", &key).send(gateway.address)
        };
        for (method, path, protected) in
            [("POST", "/pay", true), ("PATCH", "/pay", true), ("PUT", "/pay", false), ("DELETE", "/pay", false), ("DELETE", "/orders/7", true)]
        {
            send(method, path);
            assert_eq!(send(method, path).is_replayed(), protected, "{method} {path}");
        }
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(!send(method, "/pay").is_replayed());
        }
    }

    fn a_key_may_be_quoted_bare_or_have_parameters(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("syntax");
        gateway.post("/pay", &key, "x");
        for same in [format!("\"{key}\""), format!("\"{key}\";p=1")] {
            assert!(gateway.post("/pay", &same, "x").is_replayed(), "{same}");
        }
        assert_eq!(upstream.effects(), 1);
    }

    fn a_malformed_key_is_refused(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        for wrong in ["\"\"", "a b", "a,b", "\"open", &"k".repeat(256)] {
            gateway.post("/pay", wrong, "x").is(400, "key-invalid");
        }
        post("/pay", "one", "x").header("idempotency-key", "two").send(gateway.address).is(400, "key-invalid");
        Request::new("POST", "/pay").header("x-tenant", "a").header("idempotency-key", "").send(gateway.address).is(400, "key-invalid");
        assert_eq!(upstream.effects(), 0);
    }

    fn a_missing_key_passes_or_is_refused_as_the_route_says(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).config("[[route]]\nmatch = \"POST /strict\"\nmissing = \"reject\"\n").start();
        assert_eq!(gateway.post("/pay", "", "x").status, 201);
        gateway.post("/strict", "", "x").is(400, "key-missing");
        assert_eq!(upstream.effects(), 1);
    }

    fn keys_are_found_in_json_forms_and_queries(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).config("\
            [[route]]\nmatch = \"POST /json\"\nkey = \"json:/order_id\"\n\
            [[route]]\nmatch = \"POST /form\"\nkey = \"form:_once\"\n\
            [[route]]\nmatch = \"POST /query\"\nkey = \"query:request_id\"\n\
            [[route]]\nmatch = \"POST /custom\"\nkey = \"header:x-once\"\n\
            [[route]]\nmatch = \"POST /counted\"\nkey = \"sequence\"\n").start();
        let key = key("places");
        let json = post("/json", "", &format!("{{\"order_id\":\"{key}\"}}"));
        let form = Request::new("POST", "/form").header("x-tenant", "a");
        let form = form.header("content-type", "application/x-www-form-urlencoded").body(format!("_once={key}"));
        let query = post(&format!("/query?request_id={key}"), "", "x");
        let custom = post("/custom", "", "x").header("x-once", &key);
        for request in [json, form, query, custom] {
            assert!(!request.send(gateway.address).is_replayed());
            assert!(request.send(gateway.address).is_replayed());
        }
    }

    fn two_tenants_with_the_same_key_never_share_an_answer(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("tenants");
        let mine = gateway.post("/pay", &key, "x");
        let theirs = Request::new("POST", "/pay").header("x-tenant", "b").header("idempotency-key", &key).header("content-type", "application/json").body("x");
        let first = theirs.send(gateway.address);
        assert!(!first.is_replayed() && first.body != mine.body);
        assert_eq!(theirs.send(gateway.address).body, first.body);
        let nobody = Request::new("POST", "/pay").header("idempotency-key", &key).body("x");
        nobody.send(gateway.address).is(400, "scope-missing");
        nobody.header("x-tenant", "a").header("x-tenant", "b").send(gateway.address).is(400, "scope-missing");
        assert_eq!(upstream.effects(), 2);
    }

    fn tenants_that_have_only_cookies_are_told_apart(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--scope", "cookie:sid"]).start();
        let key = key("cookies");
        let send = |cookie: &str| {
            Request::new("POST", "/pay").header("cookie", cookie).header("idempotency-key", &key).body("x").send(gateway.address)
        };
        let one = send("theme=dark; sid=1");
        assert!(!send("sid=2").is_replayed());
        let again = send("sid=1; theme=light");
        assert!(again.is_replayed() && again.body == one.body);
        send("theme=dark").is(400, "scope-missing");
    }

    fn another_method_or_path_is_another_call(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("paths");
        gateway.post("/a", &key, "x");
        assert!(!gateway.post("/b", &key, "x").is_replayed());
        let patch = Request::new("PATCH", "/a").header("x-tenant", "a").header("idempotency-key", &key).header("content-type", "application/json").body("x");
        assert!(!patch.send(gateway.address).is_replayed());
        assert_eq!(upstream.effects(), 3);
    }

    fn another_payload_is_refused_in_flight_and_after(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("mismatch");
        let (address, running) = (gateway.address, post("/gated", &key, "x"));
        let first = thread::spawn(move || running.send(address));
        eventually(|| upstream.effects() == 1);
        gateway.post("/gated", &key, "y").is(422, "payload-mismatch");
        upstream.open();
        assert_eq!(first.join().unwrap().status, 201);
        gateway.post("/gated", &key, "y").is(422, "payload-mismatch");
        gateway.post("/gated?q=1", &key, "x").is(422, "payload-mismatch");
        let key = crate::stores::key("released");
        gateway.post("/status/429", &key, "x");
        gateway.post("/status/429", &key, "y").is(422, "payload-mismatch");
    }

    fn a_duplicate_in_flight_is_told_to_come_back(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("flight");
        let (address, running) = (gateway.address, post("/gated", &key, "x"));
        let first = thread::spawn(move || running.send(address));
        eventually(|| upstream.effects() == 1);
        let told = gateway.post("/gated", &key, "x");
        told.is(409, "in-progress");
        assert!(told.header("retry-after").is_some() && told.json()["retryable"] == true);
        assert!(gateway.outcome("/gated", &key).text().contains("in_progress"));
        upstream.open();
        assert_eq!(first.join().unwrap().status, 201);
        assert_eq!(upstream.effects(), 1);
    }

    fn with_wait_duplicates_get_the_answer_of_the_first(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--wait", "30s"]).start();
        let (key, address) = (key("wait"), gateway.address);
        let calls: Vec<_> = (0..20).map(|_| {
            let request = post("/slow/300", &key, "x");
            thread::spawn(move || request.send(address))
        }).collect();
        let answers: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        assert!(answers.iter().all(|answer| answer.status == 201 && answer.body == answers[0].body), "{answers:?}");
        assert_eq!(upstream.effects(), 1);
    }

    fn a_replay_has_the_same_status_bytes_and_stored_headers(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("replay");
        let first = gateway.post("/headers", &key, "x");
        assert_eq!(first.header("set-cookie"), Some("s=secret"));
        assert_eq!(first.header("x-hop"), None, "named in Connection");
        let again = gateway.post("/headers", &key, "x");
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert!(again.is_replayed() && !first.is_replayed());
        assert_eq!(again.header("idempotency-key"), Some(key.as_str()));
        assert!(again.header("idempotency-expires").is_some());
        assert_eq!(again.header("location"), Some("/orders/7"));
        let links: Vec<_> = again.headers.iter().filter(|(name, _)| name == "link").map(|(_, value)| value.as_str()).collect();
        assert_eq!(links, ["a", "b"]);
        assert!(again.header("set-cookie").is_none() && again.header("x-request-id").is_none());
        assert_eq!(upstream.effects(), 1);
    }

    fn in_reject_mode_every_duplicate_is_refused(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--mode", "reject"]).start();
        let key = key("reject");
        assert_eq!(gateway.post("/pay", &key, "x").status, 201);
        gateway.post("/pay", &key, "x").is(409, "duplicate");
        assert_eq!(upstream.effects(), 1);
    }

    fn answers_are_kept_released_or_unknown_by_their_status(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        for status in [200, 202, 204, 301, 303, 400, 402, 404, 409, 410, 422] {
            let (path, key) = (format!("/status/{status}"), key("kept"));
            let first = gateway.post(&path, &key, "x");
            let again = gateway.post(&path, &key, "x");
            assert!(again.is_replayed() && again.status == status && again.body == first.body, "{status}: {again:?}");
        }
        for path in ["401", "403", "407", "408", "425", "429", "501", "503/retry-after/1"] {
            let (path, key) = (format!("/status/{path}"), key("released"));
            gateway.post(&path, &key, "x");
            assert!(!gateway.post(&path, &key, "x").is_replayed(), "{path}");
            assert_eq!(upstream.effects_of(&key), 2, "{path}");
        }
        for status in [500, 502, 503, 504, 507] {
            let (path, key) = (format!("/status/{status}"), key("unknown"));
            assert_eq!(gateway.post(&path, &key, "x").status, status);
            let again = gateway.post(&path, &key, "x");
            again.is(409, "outcome-unknown");
            assert_eq!((&again.json()["first_status"], &again.json()["retryable"]), (&status.into(), &false.into()));
            assert_eq!(upstream.effects_of(&key), 1, "{status}");
        }
    }

    fn a_500_means_what_the_route_says(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--on-500", "release"])
            .config("[[route]]\nmatch = \"POST /status/500/x-kept/1\"\non_500 = \"keep\"\n").start();
        let (released, kept) = (key("released"), key("kept"));
        gateway.post("/status/500", &released, "x");
        gateway.post("/status/500", &released, "x");
        assert_eq!(upstream.effects_of(&released), 2);
        gateway.post("/status/500/x-kept/1", &kept, "x");
        assert!(gateway.post("/status/500/x-kept/1", &kept, "x").is_replayed());
    }

    fn what_was_sent_and_not_answered_whole_is_unknown(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--response-timeout", "500ms"]).start();
        for (path, status, problem) in
            [("/reset", 502, "upstream-failed"), ("/truncated", 502, "upstream-failed"), ("/slow/3000", 504, "upstream-timeout")]
        {
            let key = key("unknown");
            gateway.post(path, &key, "x").is(status, problem);
            gateway.post(path, &key, "x").is(409, "outcome-unknown");
            assert_eq!(upstream.effects_of(&key), 1, "{path}");
            assert!(gateway.outcome(path, &key).text().contains("\"unknown\""));
        }
    }

    fn what_was_never_sent_is_released(store: &str) {
        let upstream = Upstream::start();
        let nobody = format!("127.0.0.1:{}", onlyonce_testkit::free_port());
        let gateway = Setup::new(store, &upstream)
            .config(&format!("[[forward]]\npath = \"/dead\"\nupstream = \"http://{nobody}\"\n\
                              [[forward]]\npath = \"/nameless\"\nupstream = \"http://no-such-host.invalid\"\n")).start();
        for path in ["/dead", "/nameless"] {
            let key = key("never");
            let told = gateway.post(path, &key, "x");
            told.is(502, "upstream-unreachable");
            assert_eq!(told.json()["retryable"], true);
            assert!(gateway.outcome(path, &key).text().contains("\"failed\""));
            gateway.post(path, &key, "x").is(502, "upstream-unreachable");
        }
    }

    fn an_idle_connection_that_the_upstream_closed_does_not_cost_an_outcome(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        for n in 0..10 {
            // The upstream closes every connection without a word after "close".
            assert_eq!(gateway.post("/status/200/connection/close", &key("idle"), "x").status, 200, "{n}");
            assert_eq!(gateway.post("/pay", &key("idle"), "x").status, 201, "{n}");
        }
    }

    fn the_upstream_has_the_last_word_and_it_stays_between_the_two(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let said = |status: u16, word: &str| {
            let (path, key) = (format!("/status/{status}/onlyonce-outcome/{word}"), key("word"));
            let first = gateway.post(&path, &key, "x");
            assert_eq!((first.status, first.header("onlyonce-outcome")), (status, None));
            (gateway.post(&path, &key, "x"), upstream.effects_of(&key))
        };
        assert!(said(500, "keep").0.is_replayed());
        assert_eq!(said(201, "release").1, 2);
        said(201, "unknown").0.is(409, "outcome-unknown");
        let fence = upstream.seen()[0].header("onlyonce-fence").unwrap().parse::<u64>().unwrap();
        assert!(fence > 0);
        let forged = post("/echo", &key("forged"), "x").header("onlyonce-fence", "1").header("onlyonce-outcome", "keep");
        forged.send(gateway.address);
        let seen = upstream.seen();
        let last = seen.last().unwrap();
        assert_ne!(last.header("onlyonce-fence"), Some("1"));
        assert_eq!(last.header("onlyonce-outcome"), None);
    }

    fn a_lapsed_call_is_asked_about_with_the_headers_of_the_retry(store: &str) {
        let upstream = Upstream::start();
        let route = |path: &str, ask: &str| {
            format!("[[route]]\nmatch = \"POST {path}\"\non_lapse = \"ask\"\nask = \"GET {ask}\"\nask_after = \"1ms\"\n")
        };
        let gateway = Setup::new(store, &upstream)
            .config(&(route("/status/500", "/by-key/{key}") + &route("/status/502", "/gone/{key}") + &route("/status/504", "/unsure/{key}")))
            .start();
        let odd = format!("\"a/b ?{}\"", key("ask"));
        gateway.post("/status/500", &odd, "x");
        // ask_after is counted by the store's clock.
        let patience = std::time::Duration::from_millis(50);
        thread::sleep(patience);
        let found = post("/status/500", &odd, "x").header("authorization", "Bearer fresh").send(gateway.address);
        assert!(found.is_replayed() && found.status == 200 && found.text().starts_with("found a%2Fb%20%3F"), "{found:?}");
        let asked = upstream.seen().into_iter().find(|seen| seen.method == "GET").unwrap();
        assert_eq!(asked.header("authorization"), Some("Bearer fresh"));
        assert!(asked.header("onlyonce-fence").is_some() && asked.body.is_empty() && asked.header("content-type").is_none());
        assert_eq!(gateway.post("/status/500", &odd, "x").body, found.body, "what was found is kept");

        let gone = key("gone");
        gateway.post("/status/502", &gone, "x");
        thread::sleep(patience);
        assert_eq!(gateway.post("/status/502", &gone, "x").status, 502);
        assert_eq!(upstream.effects_of(&gone), 2, "it can no longer happen, so it ran again");

        let unsure = key("unsure");
        gateway.post("/status/504", &unsure, "x");
        thread::sleep(patience);
        gateway.post("/status/504", &unsure, "x").is(409, "outcome-unknown");
        assert_eq!(upstream.effects_of(&unsure), 1);
    }

    fn a_client_that_goes_away_stops_nothing(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("away");
        let request = post("/slow/400", &key, "x");
        let mut socket = std::net::TcpStream::connect(gateway.address).unwrap();
        std::io::Write::write_all(&mut socket, &request.bytes()).unwrap();
        eventually(|| upstream.effects() == 1);
        drop(socket);
        eventually(|| gateway.outcome("/slow/400", &key).text().contains("completed"));
        // A slow store may have the answer before it has said so to the gateway, which until then says "in progress".
        eventually(|| gateway.post("/slow/400", &key, "x").is_replayed());
        assert_eq!(upstream.effects(), 1);
    }

    fn a_request_over_the_limit_is_refused_and_never_bypasses(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--max-request", "1KiB"]).start();
        let told = gateway.post("/pay", &key("large"), &"x".repeat(2000));
        told.is(413, "request-too-large");
        assert_eq!(gateway.post("/pay", "", &"x".repeat(2000)).status, 201, "without a key it streams");
        assert_eq!(upstream.effects(), 1);
    }

    fn an_answer_over_the_limit_or_a_stream_is_passed_on_and_leaves_a_tombstone(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--max-response", "1KiB"]).start();
        let large = key("large");
        let first = gateway.post("/large/50000", &large, "x");
        assert_eq!((first.status, first.body.len()), (201, 50_000));
        let again = gateway.post("/large/50000", &large, "x");
        again.is(409, "response-not-retained");
        assert_eq!(again.json()["original_status"], 201);
        assert_eq!(again.header("location"), Some("/orders/7"));
        let stream = key("stream");
        assert_eq!(gateway.post("/stream", &stream, "x").text(), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
        gateway.post("/stream", &stream, "x").is(409, "response-not-retained");
        assert_eq!(upstream.effects(), 2);
    }

    fn what_has_expired_runs_again(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--retain", "300ms"]).start();
        let key = key("expiry");
        gateway.post("/pay", &key, "x");
        eventually(|| upstream.effects() == 2 || !gateway.post("/pay", &key, "x").is_replayed());
        assert_eq!(upstream.effects(), 2);
    }

    fn only_the_members_that_the_route_names_make_two_payloads_differ(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream)
            .config("[[route]]\nmatch = \"POST /pay\"\nfingerprint = [\"/amount\", \"/order/id\"]\n").start();
        let key = key("members");
        let first = gateway.post("/pay", &key, "{\"amount\":1,\"order\":{\"id\":7},\"sent\":\"now\"}");
        assert_eq!(first.status, 201);
        let again = gateway.post("/pay", &key, "{ \"sent\":\"later\", \"order\":{\"id\":7}, \"amount\":1 }");
        assert!(again.is_replayed() && again.body == first.body, "{again:?}");
        gateway.post("/pay", &key, "{\"amount\":2,\"order\":{\"id\":7}}").is(422, "payload-mismatch");
        gateway.post("/pay", &key, "{\"amount\":1,\"order\":{\"id\":8}}").is(422, "payload-mismatch");
        gateway.post("/pay", &key, "not JSON").is(400, "body-invalid");
        assert_eq!(upstream.effects(), 1);
    }

    fn headers_are_kept_and_dropped_as_the_route_says(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream)
            .config("[[route]]\nmatch = \"POST /headers\"\nkeep_headers = [\"x-request-id\"]\ndrop_headers = [\"location\"]\n").start();
        let key = key("headers");
        let first = gateway.post("/headers", &key, "x");
        assert!(first.header("location").is_some() && first.header("x-request-id").is_some());
        let again = gateway.post("/headers", &key, "x");
        assert!(again.is_replayed());
        assert_eq!((again.header("x-request-id"), again.header("location")), (Some("1"), None));
        assert_eq!(again.header("set-cookie"), None, "what is never kept is not kept either");
    }

    fn a_call_that_takes_longer_than_its_lease_keeps_it(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--lease", "2s"]).with(&["--max-run", "60s"]).start();
        let (key, address) = (key("renewed"), gateway.address);
        let running = post("/gated", &key, "x");
        let first = thread::spawn(move || running.send(address));
        eventually(|| upstream.effects() == 1);
        // Twice the lease: without renewal it would be over, and the outcome unknown.
        for _ in 0..8 {
            thread::sleep(std::time::Duration::from_millis(500));
            gateway.post("/gated", &key, "x").is(409, "in-progress");
        }
        upstream.open();
        let answer = first.join().unwrap();
        assert_eq!((answer.status, answer.header("idempotency-stored")), (201, None));
        assert_eq!(gateway.post("/gated", &key, "x").body, answer.body);
        assert_eq!(upstream.effects(), 1);
    }

    fn problems_are_documents_in_the_language_of_the_caller(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let told = gateway.post("/pay", "a b", "x");
        let problem = told.json();
        for member in ["type", "title", "detail", "status", "instance", "retryable"] {
            assert!(!problem[member].is_null(), "{member}");
        }
        assert!(problem["instance"].as_str().unwrap().starts_with("urn:uuid:"));
        assert!(told.header("link").unwrap().contains("describedby"));
        assert!(gateway.log().contains(problem["instance"].as_str().unwrap()), "the occurrence is in the log");
        let chinese = post("/pay", "a b", "x").header("accept-language", "zh-CN").send(gateway.address);
        assert!(chinese.text().contains("幂等键无效"), "{}", chinese.text());
    }

    fn the_outcome_can_be_asked_for_by_the_same_caller_only(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("outcome");
        gateway.outcome("/pay", &key).is(404, "outcome-not-found");
        gateway.post("/pay", &key, "x");
        let told = gateway.outcome("/pay", &key).json();
        assert_eq!((&told["state"], &told["status"], &told["attempt"]), (&"completed".into(), &201.into(), &1.into()));
        let other = Request::new("GET", "/_onlyonce/outcome?path=/pay").header("x-tenant", "b").header("idempotency-key", &key);
        other.send(gateway.address).is(404, "outcome-not-found");
    }

    fn a_form_that_is_submitted_twice_lands_on_the_same_page(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let key = key("form");
        gateway.post("/form", &key, "x");
        let again = gateway.post("/form", &key, "x");
        assert_eq!((again.status, again.header("location")), (303, Some("/done")));
        assert!(again.is_replayed());
    }

    fn a_process_that_dies_half_way_leaves_an_unknown_outcome(store: &str) {
        if store == "memory:" {
            return; // It forgets with the process, as it says.
        }
        let upstream = Upstream::start();
        let home = tempfile::tempdir().unwrap();
        let setup = || Setup::new(store, &upstream).with(&["--lease", "1s"]).with(&["--max-run", "2s"]).home(home.path());
        let mut gateway = setup().start();
        let (key, address) = (key("dies"), gateway.address);
        let running = post("/gated", &key, "x");
        let first = thread::spawn(move || running.try_send(address).is_err());
        eventually(|| upstream.effects() == 1);
        gateway.kill();
        assert!(first.join().unwrap());
        let gateway = setup().start();
        // A store on a server knows when the lease is over; the embedded one knows at once.
        eventually(|| gateway.post("/gated", &key, "x").problem() == "outcome-unknown");
        assert_eq!(upstream.effects(), 1);
    }

    fn a_lapsed_call_runs_again_where_the_route_says_that_this_is_harmless(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).with(&["--on-lapse", "rerun"]).start();
        let key = key("rerun");
        gateway.post("/status/500", &key, "x");
        gateway.post("/status/500", &key, "x");
        assert_eq!(upstream.effects_of(&key), 2);
        let fences: Vec<u64> = upstream.seen().iter().map(|seen| seen.header("onlyonce-fence").unwrap().parse().unwrap()).collect();
        assert!(fences[0] < fences[1], "{fences:?}");
    }

    fn raw_keys_and_secrets_reach_neither_log_nor_metrics(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).start();
        let secret = key("canary");
        let request = post("/echo", &secret, "body-canary").header("authorization", "Bearer token-canary").header("cookie", "c=cookie-canary");
        request.send(gateway.address);
        request.send(gateway.address);
        gateway.post("/echo", &secret, "other").is(422, "payload-mismatch");
        gateway.post("/reset", &secret, "body-canary");
        let metrics = Request::new("GET", "/metrics").send(gateway.admin.unwrap()).text();
        assert!(metrics.contains("onlyonce_requests_total"));
        let listed = gateway.admin("GET", "/api/records", "").text();
        for (place, text) in [("log", gateway.log()), ("metrics", metrics), ("api", listed)] {
            for canary in [&secret, "body-canary", "token-canary", "cookie-canary"] {
                assert!(!text.contains(canary), "{canary} is in the {place}");
            }
        }
    }
}

#[test]
fn a_store_that_is_down_lets_nothing_run_unless_failing_open_was_asked_for() {
    let upstream = Upstream::start();
    let mut redis = crate::faults::Redis::start();
    let gateway = Setup::new(&redis.url(), &upstream)
        .config("[[route]]\nmatch = \"POST /open\"\nfail_open = true\n")
        .start();
    assert_eq!(gateway.post("/pay", &key("up"), "x").status, 201);
    let running = post("/slow/1000", &key("settle"), "x");
    let address = gateway.address;
    let first = thread::spawn(move || running.send(address));
    eventually(|| upstream.effects() == 2);
    redis.stop();
    let unstored = first.join().unwrap();
    assert_eq!((unstored.status, unstored.header("idempotency-stored")), (201, Some("false")));
    let told = gateway.post("/pay", &key("down"), "x");
    told.is(503, "store-unavailable");
    assert!(told.header("retry-after").is_some());
    assert_eq!(upstream.effects(), 2);
    let open = gateway.post("/open", &key("open"), "x");
    assert_eq!((open.status, open.header("onlyonce-fail-open")), (201, Some("true")));
    let ready = Request::new("GET", "/readyz").send(gateway.admin.unwrap());
    assert_eq!(ready.status, 503);
}
