//! Routes that need a one-time token: every state has its status, and what must look alike does.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post as handles;
use onlyonce_core::token::{TokenKeys, Tokens};
use onlyonce_core::{
    Idempotency, Inspect, ManualClock, MemoryStore, Mode, Operation, Resolution, Scope, Settings, Settled,
    Store,
};
use onlyonce_http::{IdempotencyLayer, Ids, KeyFrom, Options, SCRIPT, ScopeFrom, StoredAnswer, TokenRule};
use onlyonce_testkit::{Fault, FaultyStore, Ledger, Op};
use tokio::net::TcpListener;

use crate::support::{Answer, Client, Gate, Setup, post};

const MINUTE: Duration = Duration::from_secs(60);
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

struct Shop {
    client: Client,
    ledger: Ledger,
    clock: ManualClock,
    tokens: Tokens,
}

impl Shop {
    async fn open(tokens: impl FnOnce(Idempotency) -> Tokens) -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
        Self::open_on(store, clock, tokens).await
    }

    async fn open_on(
        store: Arc<dyn Store>,
        clock: ManualClock,
        tokens: impl FnOnce(Idempotency) -> Tokens,
    ) -> Self {
        Self::serve(store, clock, tokens, None).await
    }

    async fn serve(
        store: Arc<dyn Store>,
        clock: ManualClock,
        tokens: impl FnOnce(Idempotency) -> Tokens,
        gate: Option<Gate>,
    ) -> Self {
        let once = Idempotency::builder_shared(store).clock(clock.clone()).build().unwrap();
        let tokens = tokens(once.clone());
        let ledger = Ledger::in_memory();
        let log = ledger.clone();
        let order = async move |body: String| {
            if let Some(gate) = &gate {
                gate.pass().await;
            }
            log.record("order", &body).unwrap();
            (StatusCode::SEE_OTHER, [("location", format!("/orders/{}", log.effects().unwrap().len()))])
        };
        let rule = || Some(TokenRule::new(tokens.clone()));
        let layer = IdempotencyLayer::builder(once, ScopeFrom::header("x-user"))
            .route("POST /orders", Options { token: rule(), ..Options::default() })
            .route("POST /refunds", Options { token: rule(), ..Options::default() })
            .ids(Ids::uuid())
            .build()
            .unwrap();
        let app = Router::new()
            .route("/orders", handles(order.clone()))
            .route("/refunds", handles(order))
            .layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { client, ledger, clock, tokens }
    }

    async fn token(&self, user: &str, path: &str) -> String {
        let action = Operation::http("POST", path);
        self.tokens.issue(&Scope::new(user).unwrap(), &action).await.unwrap().as_str().to_owned()
    }

    async fn send(&self, user: &str, path: &str, token: &str, body: &str) -> Answer {
        let ask = post(path).header("x-user", user).header("onlyonce-token", token);
        self.client.send(ask.body(body.to_owned())).await
    }

    fn effects(&self) -> usize {
        self.ledger.effects().unwrap().len()
    }
}

fn signed(once: Idempotency) -> Tokens {
    Tokens::signed(once, TokenKeys::new(1, [7; 32]).unwrap())
}

#[tokio::test]
async fn the_first_use_runs_and_a_retry_gets_the_stored_answer_or_a_refusal() {
    for kind in [signed, Tokens::stored as fn(Idempotency) -> Tokens] {
        let shop = Shop::open(|once| kind(once).mode(Mode::Replay)).await;
        let token = shop.token("ann", "/orders").await;
        let first = shop.send("ann", "/orders", &token, "a=1").await;
        assert_eq!((first.status.as_u16(), first.header("location")), (303, Some("/orders/1")));
        let again = shop.send("ann", "/orders", &token, "a=1").await;
        assert_eq!(
            (again.status.as_u16(), again.header("location")),
            (303, Some("/orders/1")),
            "the same page"
        );
        assert!(again.is_replay());
        shop.send("ann", "/orders", &token, "a=2").await.assert_problem(422, "payload-mismatch");
        let capitals = shop.send("ann", "/orders", &token.to_uppercase(), "a=1").await;
        assert!(capitals.is_replay(), "the same token in capitals is the same token");
        assert_eq!(shop.effects(), 1);

        let shop = Shop::open(|once| kind(once).mode(Mode::Reject)).await;
        let token = shop.token("ann", "/orders").await;
        assert_eq!(shop.send("ann", "/orders", &token, "a=1").await.status, 303);
        shop.send("ann", "/orders", &token, "a=1").await.assert_problem(409, "duplicate");
        assert_eq!(shop.effects(), 1);
    }
}

#[tokio::test]
async fn a_duplicate_while_the_first_runs_is_told_so() {
    let gate = Gate::new();
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let shop = Arc::new(Shop::serve(store, clock, signed, Some(gate.clone())).await);
    let token = shop.token("ann", "/orders").await;
    let (other, copy) = (Arc::clone(&shop), token.clone());
    let first = tokio::spawn(async move { other.send("ann", "/orders", &copy, "a=1").await });
    gate.arrival().await;
    shop.send("ann", "/orders", &token, "a=1").await.assert_problem(409, "in-progress");
    gate.open(1);
    assert_eq!(first.await.unwrap().status, 303);
    assert_eq!(shop.effects(), 1);
}

#[tokio::test]
async fn expired_is_410_but_what_was_done_before_still_has_its_answer() {
    for kind in [signed, Tokens::stored as fn(Idempotency) -> Tokens] {
        let shop = Shop::open(|once| kind(once).ttl(5 * MINUTE)).await;
        let (used, unused) = (shop.token("ann", "/orders").await, shop.token("ann", "/orders").await);
        assert_eq!(shop.send("ann", "/orders", &used, "a=1").await.status, 303);
        shop.clock.advance(6 * MINUTE);
        shop.send("ann", "/orders", &unused, "a=1").await.assert_problem(410, "token-expired");
        assert!(shop.send("ann", "/orders", &used, "a=1").await.is_replay());
        shop.send("bob", "/orders", &unused, "a=1").await.assert_problem(403, "token-refused");
        assert_eq!(shop.effects(), 1);
    }
}

#[tokio::test]
async fn the_record_lives_at_least_as_long_as_its_token() {
    let week = Duration::from_secs(7 * 86_400);
    let shop = Shop::open(|once| signed(once).ttl(week)).await;
    let token = shop.token("ann", "/orders").await;
    assert_eq!(shop.send("ann", "/orders", &token, "a=1").await.status, 303);
    // The engine keeps answers for a day.
    shop.clock.advance(week - MINUTE);
    assert!(shop.send("ann", "/orders", &token, "a=1").await.is_replay());
    assert_eq!(shop.effects(), 1);
}

#[tokio::test]
async fn forged_damaged_unknown_and_other_peoples_tokens_look_the_same() {
    for kind in [signed, Tokens::stored as fn(Idempotency) -> Tokens] {
        let shop = Shop::open(kind).await;
        let token = shop.token("ann", "/orders").await;
        let flipped = {
            let last = if token.ends_with('0') { "1" } else { "0" };
            format!("{}{last}", &token[..token.len() - 1])
        };
        let stranger = Tokens::signed(Idempotency::new(MemoryStore::new()), TokenKeys::random());
        let forged =
            stranger.issue(&Scope::new("ann").unwrap(), &Operation::http("POST", "/orders")).await.unwrap();
        let mut answers = Vec::new();
        for (user, path, token) in [
            ("ann", "/orders", &flipped),
            ("ann", "/orders", &token[..40].to_owned()),
            ("ann", "/orders", &format!("{token}00")),
            ("ann", "/orders", &"rubbish".to_owned()),
            ("ann", "/orders", &forged.as_str().to_owned()),
            ("bob", "/orders", &token),
            ("ann", "/refunds", &token),
        ] {
            let answer = shop.send(user, path, token, "a=1").await;
            let mut problem = answer.assert_problem(403, "token-refused");
            problem.as_object_mut().unwrap().remove("instance");
            answers.push((problem, answer.headers.len()));
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "they differ: {answers:?}");
        assert_eq!(shop.effects(), 0);
        assert_eq!(shop.send("ann", "/orders", &token, "a=1").await.status, 303, "the token is still good");
    }
}

#[tokio::test]
async fn keys_are_changed_without_refusing_what_the_old_one_signed() {
    let old = Shop::open(|once| Tokens::signed(once, TokenKeys::new(1, [1; 32]).unwrap())).await;
    let token = old.token("ann", "/orders").await;
    let both = || TokenKeys::new(2, [2; 32]).unwrap().also(1, [1; 32]).unwrap();
    let rotated = Shop::open(|once| Tokens::signed(once, both())).await;
    assert_eq!(rotated.send("ann", "/orders", &token, "a=1").await.status, 303);
    let newer = rotated.token("ann", "/orders").await;
    old.send("ann", "/orders", &newer, "a=1").await.assert_problem(403, "token-refused");
    let dropped = Shop::open(|once| Tokens::signed(once, TokenKeys::new(2, [2; 32]).unwrap())).await;
    dropped.send("ann", "/orders", &token, "a=1").await.assert_problem(403, "token-refused");
}

#[tokio::test]
async fn a_token_comes_in_the_header_the_form_or_the_query_and_only_once() {
    let shop = Shop::open(signed).await;
    let send = async |query: String, body: String, header: Option<&str>| {
        let ask = post(&format!("/orders{query}")).header("x-user", "ann").header(FORM.0, FORM.1).body(body);
        let ask = header.into_iter().fold(ask, |ask, token| ask.header("onlyonce-token", token));
        shop.client.send(ask).await
    };
    send(String::new(), "a=1".into(), None).await.assert_problem(400, "token-missing");
    let token = shop.token("ann", "/orders").await;
    assert_eq!(send(String::new(), format!("a=1&_once={token}"), None).await.status, 303);
    let token = shop.token("ann", "/orders").await;
    assert_eq!(send(format!("?_once={token}"), "a=1".into(), None).await.status, 303);
    let token = shop.token("ann", "/orders").await;
    assert_eq!(send(String::new(), "a=1".into(), Some(&token)).await.status, 303);
    let twice = format!("_once={token}&_once={token}");
    send(String::new(), twice, None).await.assert_problem(403, "token-refused");
    let nobody = post("/orders").header("onlyonce-token", token);
    shop.client.send(nobody).await.assert_problem(400, "scope-missing");
    assert_eq!(shop.effects(), 3);
}

#[tokio::test]
async fn delete_first_is_the_literal_flow() {
    let shop = Shop::open(Tokens::delete_first).await;
    let token = shop.token("ann", "/orders").await;
    shop.send("bob", "/orders", &token, "a=1").await.assert_problem(409, "duplicate");
    assert_eq!(shop.send("ann", "/orders", &token, "a=1").await.status, 303);
    shop.send("ann", "/orders", &token, "a=1").await.assert_problem(409, "duplicate");
    shop.send("ann", "/orders", "rubbish", "a=1").await.assert_problem(409, "duplicate");
    let late = shop.token("ann", "/orders").await;
    shop.clock.advance(6 * MINUTE);
    shop.send("ann", "/orders", &late, "a=1").await.assert_problem(409, "duplicate");
    assert_eq!(shop.effects(), 1);
}

#[tokio::test]
async fn a_lost_reply_of_the_consuming_call_is_resolved_and_the_winners_retry_is_told_so() {
    for kind in [signed, Tokens::stored as fn(Idempotency) -> Tokens] {
        for mode in [Mode::Replay, Mode::Reject] {
            let clock = ManualClock::new();
            let memory: Arc<dyn Store> = Arc::new(MemoryStore::new().with_clock(clock.clone()));
            let faulty = Arc::new(FaultyStore::new(memory));
            let shop = Shop::open_on(faulty.clone(), clock.clone(), |once| kind(once).mode(mode)).await;
            let token = shop.token("ann", "/orders").await;
            faulty.next(Op::Begin, Fault::ReplyLost, 1);
            let pauses = tokio::spawn(async move {
                loop {
                    clock.advance(Duration::from_millis(50));
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            let winner = shop.send("ann", "/orders", &token, "a=1").await;
            assert_eq!(winner.status, 303, "it recognised its own begin");
            let again = shop.send("ann", "/orders", &token, "a=1").await;
            match mode {
                Mode::Replay => assert!(again.is_replay()),
                Mode::Reject => drop(again.assert_problem(409, "duplicate")),
            }
            assert_eq!(shop.effects(), 1);
            pauses.abort();
        }
    }
}

#[tokio::test]
async fn a_lost_reply_of_deleting_first_runs_nothing_and_a_retry_is_told_duplicate() {
    for fault in [Fault::ReplyLost, Fault::Unavailable] {
        let clock = ManualClock::new();
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new().with_clock(clock.clone()));
        let faulty = Arc::new(FaultyStore::new(memory));
        let shop = Shop::open_on(faulty.clone(), clock, Tokens::delete_first).await;
        let token = shop.token("ann", "/orders").await;
        faulty.next(Op::Forget, fault, 1);
        shop.send("ann", "/orders", &token, "a=1").await.assert_problem(503, "store-unavailable");
        assert_eq!(shop.effects(), 0, "nobody knows whose the token is now, so nothing runs");
        let again = shop.send("ann", "/orders", &token, "a=1").await;
        match fault {
            // It was deleted, and its one use is gone: the price of the literal flow.
            Fault::ReplyLost => drop(again.assert_problem(409, "duplicate")),
            _ => assert_eq!(again.status, 303, "it was not deleted"),
        }
        assert_eq!(shop.effects(), usize::from(again.status == 303));
        shop.send("ann", "/orders", &token, "a=1").await.assert_problem(409, "duplicate");
    }
}

#[tokio::test]
async fn the_layer_gives_out_tokens_ids_and_the_script() {
    let shop = Shop::open(signed).await;
    let ask = async |path: &str| shop.client.send(post(path).header("x-user", "ann").body("")).await;
    let given = ask("/_onlyonce/tokens?method=POST&path=/orders").await;
    assert_eq!((given.status.as_u16(), given.header("cache-control")), (200, Some("no-store")));
    let given = given.json();
    assert_eq!((given["expires_in"].as_u64(), given["field"].as_str()), (Some(300), Some("_once")));
    let token = given["token"].as_str().unwrap();
    assert_eq!(shop.send("ann", "/orders", token, "a=1").await.status, 303);
    ask("/_onlyonce/tokens?method=POST&path=/elsewhere").await.assert_problem(400, "query-invalid");
    shop.client
        .send(post("/_onlyonce/tokens?path=/orders").body(""))
        .await
        .assert_problem(400, "scope-missing");

    let ids = ask("/_onlyonce/ids?count=3").await.json();
    assert_eq!(ids["ids"].as_array().unwrap().len(), 3);
    assert_eq!(ask("/_onlyonce/ids").await.json()["ids"].as_array().unwrap().len(), 1);
    for wrong in ["0", "1001", "x", ""] {
        ask(&format!("/_onlyonce/ids?count={wrong}")).await.assert_problem(400, "query-invalid");
    }
    let script = shop.client.get("/_onlyonce/once.js", &[]).await;
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(script.body, SCRIPT.as_bytes());
    assert!(SCRIPT.len() < 3000, "{} bytes", SCRIPT.len());
}

#[tokio::test]
async fn a_token_asks_what_became_of_its_call_and_is_not_used_up_by_asking() {
    const QUERY: &str = "/_onlyonce/outcome?method=POST&path=/orders";
    for kind in [signed, Tokens::stored as fn(Idempotency) -> Tokens] {
        let shop = Shop::open(kind).await;
        let token = shop.token("ann", "/orders").await;
        let ask = async |user: &str| {
            shop.client.get(QUERY, &[("x-user", user), ("onlyonce-token", token.as_str())]).await
        };
        ask("ann").await.assert_problem(404, "outcome-not-found");
        assert_eq!(shop.send("ann", "/orders", &token, "a=1").await.status, 303);
        let outcome = ask("ann").await.json();
        assert_eq!((outcome["state"].as_str(), outcome["status"].as_u64()), (Some("completed"), Some(303)));
        ask("bob").await.assert_problem(403, "token-refused");
        let in_query = format!("{QUERY}&_once={token}");
        assert_eq!(shop.client.get(&in_query, &[("x-user", "ann")]).await.json()["state"], "completed");
        shop.client.get(QUERY, &[("x-user", "ann")]).await.assert_problem(400, "token-missing");
    }
    let shop = Shop::open(Tokens::delete_first).await;
    let token = shop.token("ann", "/orders").await;
    let asked = shop.client.get(QUERY, &[("x-user", "ann"), ("onlyonce-token", token.as_str())]).await;
    asked.assert_problem(400, "query-invalid");
    assert_eq!(shop.send("ann", "/orders", &token, "a=1").await.status, 303, "it was not used up");
}

#[tokio::test]
async fn a_token_is_issued_only_where_it_is_looked_for_and_says_where_that_is() {
    let key = |from| Options { key: from, ..Options::default() };
    let service = Setup::new()
        .layer(move |layer| {
            let once = Idempotency::new(MemoryStore::new());
            layer
                .tokens(signed(once))
                .route("POST /form", key(KeyFrom::Form("_once".into())))
                .route("POST /json", key(KeyFrom::Json("/id".into())))
        })
        .counting()
        .await;
    let ask =
        async |words: &str| service.client.send(post(&format!("/_onlyonce/tokens?{words}")).body("")).await;
    let plain = ask("path=/plain").await.json();
    assert_eq!((plain["header"].as_str(), plain["field"].as_str()), (Some("idempotency-key"), None));
    let form = ask("path=/form").await.json();
    assert_eq!((form["header"].as_str(), form["field"].as_str()), (None, Some("_once")));
    let body = format!("_once={}", form["token"].as_str().unwrap());
    for _ in 0..2 {
        service.client.send(post("/form").header(FORM.0, FORM.1).body(body.clone())).await;
    }
    assert_eq!(service.effects(), 1);
    for nowhere in ["path=/json", "method=DELETE&path=/plain", "method=GET&path=/plain"] {
        ask(nowhere).await.assert_problem(400, "query-invalid");
    }
}

#[tokio::test]
async fn a_browser_that_shows_the_answer_gets_a_page() {
    let shop = Shop::open(|once| signed(once).ttl(MINUTE)).await;
    let token = shop.token("ann", "/orders").await;
    shop.clock.advance(2 * MINUTE);
    let ask = post("/orders").header("x-user", "ann").header("accept-language", "zh-CN");
    let ask = ask.header("accept", "text/html,application/xhtml+xml,*/*;q=0.8").header(FORM.0, FORM.1);
    let page = shop.client.send(ask.body(format!("_once={token}"))).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (410, Some("text/html; charset=utf-8")));
    let text = std::str::from_utf8(&page.body).unwrap();
    assert!(text.contains("lang=\"zh-CN\"") && text.contains("表单已过期"), "{text}");
}

#[tokio::test]
async fn an_outcome_that_a_person_resolved_outlives_the_token_of_its_call() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let short = Settings { retain: 60 * MINUTE, retain_unsettled: 60 * MINUTE, ..Settings::default() };
    let once =
        Idempotency::builder_shared(store.clone()).clock(clock.clone()).settings(short).build().unwrap();
    let tokens = signed(once.clone()).ttl(600 * MINUTE);
    let ledger = Ledger::in_memory();
    let log = ledger.clone();
    let pay = async move || {
        log.record("paid", "1").unwrap();
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let layer = IdempotencyLayer::builder(once, ScopeFrom::header("x-user"))
        .route("POST /pay", Options { token: Some(TokenRule::new(tokens.clone())), ..Options::default() })
        .build()
        .unwrap();
    let app = Router::new().route("/pay", handles(pay)).layer(layer.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let shop = Shop { client, ledger, clock, tokens };
    let token = shop.token("ann", "/pay").await;
    shop.send("ann", "/pay", &token, "").await;
    let unknown = store.lapsed(1).await.unwrap().remove(0);
    let receipt = StoredAnswer::whole(axum::http::Response::new("receipt".into())).encode();
    let engine = layer.engine_of(&unknown.snapshot.label.route);
    let resolved = engine.resolve(&unknown.id, unknown.snapshot.fence, Resolution::Happened(receipt)).await;
    assert_eq!(resolved.unwrap(), Settled::Applied);
    // The token is good for longer than records of calls without one are kept.
    shop.clock.advance(590 * MINUTE);
    let again = shop.send("ann", "/pay", &token, "").await;
    assert_eq!((again.status.as_u16(), shop.effects()), (200, 1), "it would be paid twice");
    assert!(again.is_replay());
}
