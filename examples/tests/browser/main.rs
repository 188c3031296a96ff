//! The order form in a real Chromium, by people who are in a hurry: one order each.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that includes a program")]

#[path = "../../src/bin/order_form.rs"]
#[allow(dead_code, reason = "the test drives the app without its main")]
mod order_form;
mod webdriver;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::COOKIE;
use axum::middleware::{self, Next};
use http_body_util::BodyExt;
use order_form::Shop;
use serde_json::{Value, json};
use tower::ServiceExt;
use webdriver::{Browser, Scripts};

const BUTTON: &str = "form button";
const FIELD: &str = "input[name=item]";

/// The shop, and a browser that shows its form.
async fn visit(scripts: Scripts) -> (Browser, Shop, String) {
    let (app, shop) = order_form::app().unwrap();
    let (browser, address) = open(app, scripts).await;
    (browser, shop, address)
}

async fn open(app: Router, scripts: Scripts) -> (Browser, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let browser = Browser::start(scripts).await;
    browser.go(&format!("{address}/")).await;
    (browser, address)
}

/// How often the form was posted, counted before anything looks at it.
#[derive(Clone, Default)]
struct Posts(Arc<AtomicUsize>);

impl Posts {
    /// No post is answered before there are two, so that the second is made while the first is under way; and a browser that
    /// no longer waits for the first can't undo it.
    fn held(&self, app: Router) -> Router {
        let posts = self.clone();
        app.layer(middleware::from_fn(move |request: Request, next: Next| {
            let posts = posts.clone();
            async move {
                if request.method() != "POST" {
                    return next.run(request).await;
                }
                posts.0.fetch_add(1, Ordering::SeqCst);
                let answer = async move {
                    eventually("a second post", || posts.0.load(Ordering::SeqCst) >= 2).await;
                    next.run(request).await
                };
                tokio::spawn(answer).await.unwrap()
            }
        }))
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came true: {what}");
}

/// The shop with its check undone: every post is given a token of its own.
fn careless(app: Router) -> Router {
    let issuer = app.clone();
    app.layer(middleware::from_fn(move |mut request: Request, next: Next| {
        let issuer = issuer.clone();
        async move {
            if request.method() == "POST" {
                let cookie = request.headers()[COOKIE].clone();
                let ask = Request::post("/_onlyonce/tokens?method=POST&path=/orders").header(COOKIE, cookie);
                let given = issuer.oneshot(ask.body(Body::empty()).unwrap()).await.unwrap();
                let given = given.into_body().collect().await.unwrap().to_bytes();
                let token =
                    serde_json::from_slice::<Value>(&given).unwrap()["token"].as_str().unwrap().parse();
                request.headers_mut().insert("onlyonce-token", token.unwrap());
            }
            next.run(request).await
        }
    }))
}

fn orders(shop: &Shop) -> usize {
    shop.orders.lock().unwrap().len()
}

#[tokio::test]
async fn a_double_click_places_one_order() {
    let (browser, shop, address) = visit(Scripts::On).await;
    browser.double_click(BUTTON).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    assert_eq!(orders(&shop), 1);
}

#[tokio::test]
async fn the_button_is_disabled_and_the_form_busy_until_the_answer() {
    let (browser, shop, address) = visit(Scripts::On).await;
    let seen = "
        const form = document.querySelector('form');
        const state = () => `${form.querySelector('button').disabled} ${form.hasAttribute('aria-busy')}`;
        const before = state();
        form.requestSubmit();
        return new Promise((done) => setTimeout(() => done(`${before} ${state()}`), 50));";
    assert_eq!(browser.run(seen).await, json!("false false true true"));
    browser.arrive(&format!("{address}/orders/1")).await;
    assert_eq!(orders(&shop), 1);
}

#[tokio::test]
async fn enter_pressed_twice_places_one_order() {
    let (browser, shop, address) = visit(Scripts::On).await;
    browser.enter_twice(FIELD).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    assert_eq!(orders(&shop), 1);
}

#[tokio::test]
async fn going_back_and_submitting_again_leads_to_the_same_order() {
    let (browser, shop, address) = visit(Scripts::On).await;
    browser.click(BUTTON).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    for _ in 0..2 {
        browser.back().await;
        browser.arrive(&format!("{address}/")).await;
        browser.click(BUTTON).await;
        browser.arrive(&format!("{address}/orders/1")).await;
    }
    assert_eq!(orders(&shop), 1);
}

#[tokio::test]
async fn two_tabs_are_two_forms_with_one_order_each() {
    let (browser, shop, address) = visit(Scripts::On).await;
    let first = browser.tab().await;
    let second = browser.new_tab().await;
    browser.go(&format!("{address}/")).await;
    browser.double_click(BUTTON).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    browser.switch(&first).await;
    browser.double_click(BUTTON).await;
    browser.arrive(&format!("{address}/orders/2")).await;
    browser.switch(&second).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    assert_eq!(orders(&shop), 2);
}

#[tokio::test]
async fn without_javascript_impatience_places_one_order_too() {
    let (browser, shop, address) = visit(Scripts::Off).await;
    browser.double_click(BUTTON).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    browser.back().await;
    browser.arrive(&format!("{address}/")).await;
    browser.enter_twice(FIELD).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    assert_eq!(orders(&shop), 1);
}

#[tokio::test]
async fn without_javascript_a_second_click_is_a_second_post_and_only_the_token_makes_it_one_order() {
    for checked in [true, false] {
        let (app, shop) = order_form::app().unwrap();
        let posts = Posts::default();
        let app = posts.held(if checked { app } else { careless(app) });
        let (browser, address) = open(app, Scripts::Off).await;
        browser.clicks(BUTTON, 3, 1_000).await;
        eventually("two posts", || posts.0.load(Ordering::SeqCst) >= 2).await;
        if checked {
            browser.arrive(&format!("{address}/orders/1")).await;
            assert_eq!(orders(&shop), 1);
        } else {
            eventually("two orders", || orders(&shop) >= 2).await;
        }
    }
}

#[tokio::test]
async fn a_static_page_gets_its_token_from_the_server_and_fetch_gets_a_key() {
    let (browser, shop, address) = visit(Scripts::On).await;
    browser.go(&format!("{address}/static")).await;
    browser.double_click(BUTTON).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    assert_eq!(shop.orders.lock().unwrap()[..], ["coffee"]);
    browser.go(&format!("{address}/static")).await;
    let keys = "
        const sent = [];
        window.fetch = async (call) => sent.push(call.headers.get('Idempotency-Key'));
        await once.fetch('/x', { method: 'POST' });
        await once.fetch('/x', { method: 'POST' });
        await once.fetch('/x', { method: 'POST', once: 'mine' });
        return [new Set(sent).size, sent[0].length, sent[2]];";
    assert_eq!(browser.run(&format!("return (async () => {{ {keys} }})()")).await, json!([3, 32, "mine"]));
}

#[tokio::test]
async fn fetch_keeps_all_that_a_request_has() {
    let (browser, _shop, address) = visit(Scripts::On).await;
    browser.go(&format!("{address}/static")).await;
    let sent = "
        const sent = [];
        window.fetch = async (call) => {
            const headers = ['Idempotency-Key', 'X-Tenant', 'Content-Type'].map((name) => call.headers.get(name));
            sent.push([call.method, new URL(call.url).pathname, ...headers, await call.text()].join(' '));
        };
        const json = { 'X-Tenant': 'a', 'Content-Type': 'application/json' };
        const keyed = new Request('/x', { method: 'POST', headers: { ...json, 'Idempotency-Key': 'mine' }, body: '{}' });
        const bare = () => new Request('/x', { method: 'PUT', headers: json, body: '{}' });
        await once.fetch(keyed);
        await once.fetch(bare(), { once: 'other' });
        await once.fetch(bare());
        await once.fetch('/x', { method: 'POST', headers: json, body: '1', once: 'third' });
        await once.fetch('/x', { method: 'POST', headers: { 'Idempotency-Key': 'fourth' } });
        const refused = await once.fetch('http://[', {}).then(() => 'no', () => 'refused');
        return [...sent.map((line, n) => n === 2 ? line.replace(/[0-9a-f]{32}/, 'made') : line), refused];";
    let expected = json!([
        "POST /x mine a application/json {}",
        "PUT /x other a application/json {}",
        "PUT /x made a application/json {}",
        "POST /x third a application/json 1",
        "POST /x fourth   ",
        "refused",
    ]);
    assert_eq!(browser.run(&format!("return (async () => {{ {sent} }})()")).await, expected);
}

#[tokio::test]
async fn a_token_that_comes_late_does_not_replace_the_one_that_was_sent() {
    let (browser, _shop, address) = visit(Scripts::On).await;
    browser.go(&format!("{address}/static")).await;
    let script = "
        const form = document.querySelector('form');
        const token = () => form.querySelector('input[name=_once]');
        const until = async (holds) => { while (!holds()) await new Promise((next) => setTimeout(next, 5)); };
        await until(() => token() && token().value);
        token().value = '';
        const real = window.fetch;
        let release, arrived = 0, asked = 0;
        const held = new Promise((done) => { release = done; });
        window.fetch = async (...call) => {
            if (++asked === 1) await held;
            const answer = await real(...call);
            const json = answer.json.bind(answer);
            answer.json = async () => { const issued = await json(); arrived++; return issued; };
            return answer;
        };
        dispatchEvent(new Event('pageshow'));
        let sent;
        form.addEventListener('submit', (event) => {
            if (!token().value) return;
            event.preventDefault();
            sent = token().value;
        });
        form.requestSubmit();
        await until(() => sent);
        release();
        await until(() => arrived === 2);
        await new Promise((next) => setTimeout(next));
        return [asked, token().value === sent];";
    assert_eq!(browser.run(&format!("return (async () => {{ {script} }})()")).await, json!([2, true]));
}

#[tokio::test]
async fn fields_that_are_named_like_parts_of_a_form_do_not_get_in_the_way() {
    let (browser, shop, address) = visit(Scripts::On).await;
    browser.go(&format!("{address}/static")).await;
    let names = "
        const form = document.querySelector('form');
        for (const name of ['action', 'method', 'elements', 'dataset', 'matches', 'append', 'requestSubmit', 'apply'])
            form.insertAdjacentHTML('beforeend', `<input type=hidden name=${name} value=x>`);
        dispatchEvent(new Event('pageshow'));";
    browser.run(names).await;
    browser.double_click(BUTTON).await;
    browser.arrive(&format!("{address}/orders/1")).await;
    assert_eq!(orders(&shop), 1);
}
