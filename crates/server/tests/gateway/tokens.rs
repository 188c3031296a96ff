//! Routes whose calls need a one-time token, and calls that are numbered.

use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use crate::client::{Answer, Request};
use crate::program::{Gateway, Setup, eventually, post};
use crate::stores::{key, on_every_store, url_in};
use crate::upstream::Upstream;

const NEEDED: &str = "[[route]]\nmatch = \"POST /order\"\nkey = \"token\"\n";
const REJECTED: &str = "[[route]]\nmatch = \"POST /once\"\nkey = \"token\"\nmode = \"reject\"\n";
const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn token(gateway: &Gateway, tenant: &str, path: &str) -> String {
    let ask = Request::new("POST", &format!("/_onlyonce/tokens?method=POST&path={path}"));
    let told = ask.header("x-tenant", tenant).send(gateway.address);
    assert_eq!(told.status, 200, "{}", told.text());
    told.json()["token"].as_str().unwrap().to_owned()
}

fn submit(gateway: &Gateway, path: &str, token: &str, body: &str) -> Answer {
    post(path, "", body).header("onlyonce-token", token).send(gateway.address)
}

on_every_store! {
    fn a_token_is_good_for_one_call_of_one_caller_and_one_action(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).config(&format!("{NEEDED}{REJECTED}")).start();
        submit(&gateway, "/order", "", "x").is(403, "token-refused");
        post("/order", "a-key-is-no-token", "x").send(gateway.address).is(400, "token-missing");
        let mine = token(&gateway, "a", "/order");
        let first = submit(&gateway, "/order", &mine, "x");
        assert_eq!(first.status, 201, "{}", first.text());
        let again = submit(&gateway, "/order", &mine, "x");
        assert!(again.is_replayed() && again.body == first.body, "{again:?}");
        submit(&gateway, "/order", &mine, "y").is(422, "payload-mismatch");
        // Another user's, another form's, a changed and an invented one are refused alike.
        let (theirs, elsewhere) = (token(&gateway, "b", "/order"), token(&gateway, "a", "/once"));
        let changed = format!("{}{}", &mine[..mine.len() - 1], if mine.ends_with('0') { '1' } else { '0' });
        for wrong in [theirs.as_str(), &elsewhere, &changed, &"00".repeat(78), "nonsense"] {
            submit(&gateway, "/order", wrong, "x").is(403, "token-refused");
        }
        // Where duplicates are refused.
        let once = token(&gateway, "a", "/once");
        assert_eq!(submit(&gateway, "/once", &once, "x").status, 201);
        submit(&gateway, "/once", &once, "x").is(409, "duplicate");
        assert_eq!(upstream.effects(), 2);
        assert!(!gateway.log().contains(&mine), "a token is a secret");
    }

    fn of_many_racers_with_one_token_one_runs(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).config(REJECTED).start();
        let (token, address) = (token(&gateway, "a", "/once"), gateway.address);
        let racers: Vec<_> = (0..40)
            .map(|_| {
                let request = post("/once", "", "x").header("onlyonce-token", &token);
                thread::spawn(move || request.send(address).status)
            })
            .collect();
        let statuses: Vec<u16> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [201, 409].contains(status)), "{statuses:?}");
        assert_eq!(upstream.effects(), 1);
    }

    fn numbered_calls_run_once_each_and_in_order_where_that_is_asked_for(store: &str) {
        let upstream = Upstream::start();
        let gateway = Setup::new(store, &upstream).config("\
            [[route]]\nmatch = \"POST /any\"\nkey = \"sequence\"\nmissing = \"reject\"\n\
            [[route]]\nmatch = \"POST /rising\"\nkey = \"sequence\"\norder = \"increasing\"\n").start();
        let tenant = key("numbers");
        let send = |path: &str, number: &str| {
            let request = Request::new("POST", path).header("x-tenant", &tenant).body("x");
            request.header("onlyonce-sequence", number).send(gateway.address)
        };
        for number in ["5", "3", "4"] {
            assert_eq!(send("/any", number).status, 201);
        }
        assert!(send("/any", "3").is_replayed() && send("/any", "003").is_replayed());
        send("/any", "-1").is(400, "key-invalid");
        post("/any", "", "x").send(gateway.address).is(400, "key-missing");
        for number in ["1", "9"] {
            assert_eq!(send("/rising", number).status, 201);
        }
        let told = send("/rising", "7");
        told.is(409, "out-of-order");
        assert_eq!(told.json()["last"], 9);
        assert!(send("/rising", "1").is_replayed());
        assert_eq!(upstream.effects(), 5);
    }
}

#[test]
fn a_form_carries_its_token_in_a_field_and_a_query_in_a_parameter() {
    let upstream = Upstream::start();
    let own = "[[route]]\nmatch = \"POST /own\"\nkey = \"token:ticket\"\n";
    let gateway = Setup::new("memory:", &upstream).config(&format!("{NEEDED}{own}")).start();
    let form = |path: &str, body: String| {
        let request = Request::new("POST", path).header("x-tenant", "a");
        request.header("content-type", "application/x-www-form-urlencoded").body(body).send(gateway.address)
    };
    let ours = token(&gateway, "a", "/order");
    let body = format!("item=7&_once={ours}");
    assert_eq!(form("/order", body.clone()).status, 201);
    assert!(form("/order", body).is_replayed());
    form("/order", "item=7".into()).is(400, "token-missing");
    let named = token(&gateway, "a", "/own");
    assert_eq!(form(&format!("/own?ticket={named}"), "x=1".into()).status, 201);
    form(&format!("/own?ticket={named}"), format!("ticket={named}")).is(403, "token-refused");
    assert_eq!(upstream.effects(), 2);
}

#[test]
fn the_secret_is_made_once_for_its_owner_only_and_tokens_outlive_a_restart() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let start = || Setup::new("embedded:./data", &upstream).home(home.path()).config(NEEDED).start();
    let mut gateway = start();
    let file = home.path().join("data/token.secret");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(&file).unwrap();
    let (used, fresh) = (token(&gateway, "a", "/order"), token(&gateway, "a", "/order"));
    let first = submit(&gateway, "/order", &used, "x");
    gateway.kill();
    let gateway = start();
    assert_eq!(submit(&gateway, "/order", &used, "x").body, first.body);
    assert_eq!(submit(&gateway, "/order", &fresh, "x").status, 201);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), secret);
    assert!(!gateway.log().contains(secret.trim().trim_start_matches("1:")));
    assert_eq!(upstream.effects(), 2);
    // Where no route needs tokens, nothing is made.
    let plain = Setup::new("embedded:./data", &upstream).start();
    assert!(!plain.home.join("data/token.secret").exists());
    assert!(!token(&plain, "a", "/pay").is_empty());
}

#[test]
fn gateways_with_the_same_secrets_accept_each_others_tokens_and_keys_can_be_changed() {
    let upstream = Upstream::start();
    let store = url_in("ONLYONCE_TEST_REDIS_URL");
    let (old, new) = (format!("1:{SECRET}"), format!("2:{SECRET}-new"));
    let start = |secrets: &str| {
        Setup::new(&store, &upstream).config(NEEDED).with(&["--token-secret", secrets]).start()
    };
    let (before, between, after) = (start(&old), start(&format!("{new},{old}")), start(&new));
    let made_before = token(&before, "a", "/order");
    let first = submit(&before, "/order", &made_before, "x");
    let elsewhere = submit(&between, "/order", &made_before, "x");
    assert!(elsewhere.is_replayed() && elsewhere.body == first.body, "{elsewhere:?}");
    submit(&after, "/order", &made_before, "x").is(403, "token-refused");
    let made_between = token(&between, "a", "/order");
    assert_eq!(submit(&after, "/order", &made_between, "x").status, 201);
    submit(&before, "/order", &made_between, "x").is(403, "token-refused");
    assert_eq!(upstream.effects(), 2);
    for gateway in [&before, &between, &after] {
        let shown = gateway.admin("GET", "/api/config", "").text();
        assert!(shown.contains(":***") && !shown.contains(SECRET), "{shown}");
        assert!(!gateway.log().contains(SECRET));
    }
}

#[test]
fn an_expired_token_starts_nothing_and_still_has_the_answer_of_its_call() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).config(NEEDED).with(&["--token-ttl", "1s"]).start();
    let mut used = None;
    // On a slow machine one may have expired before it is used.
    eventually(|| {
        let mine = token(&gateway, "a", "/order");
        let answer = submit(&gateway, "/order", &mine, "x");
        used = (answer.status == 201).then_some((mine, answer.body));
        used.is_some()
    });
    let (used, answer) = used.unwrap();
    let unused = token(&gateway, "a", "/order");
    thread::sleep(Duration::from_millis(1200));
    let effects = upstream.effects();
    submit(&gateway, "/order", &unused, "x").is(410, "token-expired");
    let again = submit(&gateway, "/order", &used, "x");
    assert!(again.is_replayed() && again.body == answer, "{again:?}");
    assert_eq!(upstream.effects(), effects);
}

#[test]
fn stored_tokens_and_those_that_are_deleted_first_are_good_once() {
    for kind in ["stored", "delete_first"] {
        let upstream = Upstream::start();
        let gateway = Setup::new("memory:", &upstream).config(REJECTED).with(&["--token-kind", kind]).start();
        let mine = token(&gateway, "a", "/once");
        assert_eq!(submit(&gateway, "/once", &mine, "x").status, 201, "{kind}");
        submit(&gateway, "/once", &mine, "x").is(409, "duplicate");
        let (status, problem) = if kind == "stored" { (403, "token-refused") } else { (409, "duplicate") };
        submit(&gateway, "/once", &token(&gateway, "b", "/once"), "x").is(status, problem);
        assert_eq!(upstream.effects(), 1, "{kind}");
    }
}

#[test]
fn wrong_secrets_are_told_and_not_shown() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("secrets"), format!("1:{SECRET}\n1:{SECRET}\n")).unwrap();
    let setup = || Setup::new("memory:", &upstream).home(home.path());
    for (words, hint) in [
        (["--token-secret", "1:hunter2"], "at least 32"),
        (["--token-secret-file", "secrets"], "two token keys with the id 1"),
        (["--token-ttl", "0s"], "between 1s and 1d"),
        (["--token-kind", "sealed"], "there are signed, stored, delete_first"),
    ] {
        let (code, said) = setup().with(&words).fails();
        assert!(
            code == 2 && said.contains(hint) && !said.contains("hunter2") && !said.contains(SECRET),
            "{said}"
        );
    }
    let (code, said) = setup().config("[[route]]\nmatch = \"POST /x\"\norder = \"increasing\"\n").fails();
    assert!(code == 2 && said.contains("key = \"sequence\""), "{said}");
}
