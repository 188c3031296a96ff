//! A form that places one order however often it is submitted: hidden token, stored 303, and `once.js` for comfort.
//!
//! ```text
//! cargo run -p onlyonce-examples --bin order_form
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Router};
use onlyonce::http::{IdempotencyLayer, Options, ScopeFrom, TokenRule};
use onlyonce::token::{TokenKeys, Tokens};
use onlyonce::{Idempotency, InputError, MemoryStore, Operation, Scope, Settings};

#[derive(Template)]
#[template(
    ext = "html",
    source = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Order</title><script src="/_onlyonce/once.js" defer></script></head>
<body><h1>Order</h1>
<form method="post" action="/orders" data-once>
  {{ hidden_field|safe }}
  <label>Item <input name="item" value="tea"></label>
  <button>Order</button>
</form></body></html>"#
)]
struct FormPage {
    hidden_field: String,
}

#[derive(Template)]
#[template(
    ext = "html",
    source = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Order {{ number }}</title></head>
<body><h1>Order {{ number }}</h1><p id="item">{{ item }}</p><a href="/">Another one</a></body></html>"#
)]
struct OrderPage<'a> {
    number: usize,
    item: &'a str,
}

#[derive(serde::Deserialize)]
struct Order {
    item: String,
}

/// What the pages share.
#[derive(Debug, Clone)]
pub struct Shop {
    tokens: Tokens,
    rule: TokenRule,
    /// The items that were ordered.
    pub orders: Arc<Mutex<Vec<String>>>,
}

/// Who submits: a visitor is known by a cookie.
fn visitor(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get(COOKIE)?.to_str().ok()?;
    cookies.split("; ").find_map(|cookie| cookie.strip_prefix("visitor="))
}

async fn form(State(shop): State<Shop>, headers: HeaderMap) -> Result<Response, StatusCode> {
    let known = visitor(&headers).map(str::to_owned);
    let name = known.clone().unwrap_or_else(onlyonce::id::key);
    let scope = Scope::new(&name).map_err(|_| StatusCode::BAD_REQUEST)?;
    let token = shop.tokens.issue(&scope, &Operation::http("POST", "/orders")).await;
    let token = token.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let page = FormPage { hidden_field: shop.rule.hidden_field(&token) }.render();
    // Not `no-store`: after the back button the browser must show the form that it had, with its token.
    let mut response = page.map(Html).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?.into_response();
    response.headers_mut().insert(CACHE_CONTROL, "private, max-age=0".parse().expect("it is a header"));
    if known.is_none() {
        let cookie = format!("visitor={name}; Path=/; HttpOnly; SameSite=Lax");
        response.headers_mut().insert(SET_COOKIE, cookie.parse().expect("a UUID is a header"));
    }
    Ok(response)
}

async fn order(State(shop): State<Shop>, Form(order): Form<Order>) -> Redirect {
    tokio::time::sleep(Duration::from_millis(400)).await; // long enough for a second click
    let mut orders = shop.orders.lock().expect("nobody panicked");
    orders.push(order.item);
    Redirect::to(&format!("/orders/{}", orders.len()))
}

async fn show(State(shop): State<Shop>, Path(number): Path<usize>) -> Result<Html<String>, StatusCode> {
    let orders = shop.orders.lock().expect("nobody panicked");
    let item = number.checked_sub(1).and_then(|at| orders.get(at)).ok_or(StatusCode::NOT_FOUND)?;
    OrderPage { number, item }.render().map(Html).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// The same form on a page that no server has rendered: `once.js` gets the token.
const STATIC_FORM: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Order</title><script src="/_onlyonce/once.js" defer></script></head>
<body><form method="post" action="/orders" data-once><input name="item" value="coffee"><button>Order</button></form></body></html>"#;

/// The service, and a look behind the counter.
///
/// # Errors
/// If the layer can't be set up.
pub fn app() -> Result<(Router, Shop), InputError> {
    let once = Idempotency::new(MemoryStore::new());
    let tokens = Tokens::signed(once.clone(), TokenKeys::random());
    let rule = TokenRule::new(tokens.clone());
    let scope = ScopeFrom::with(|parts: &Parts| {
        visitor(&parts.headers).and_then(|visitor| Scope::new(visitor).ok()).into()
    });
    // A second submit waits for the answer of the first, and is sent to the same page.
    let settings = Some(Settings { wait: Duration::from_secs(10), ..Settings::default() });
    let layer = IdempotencyLayer::builder(once, scope)
        .route("POST /orders", Options { token: Some(rule.clone()), settings, ..Options::default() })
        .build()?;
    let shop = Shop { tokens, rule, orders: Arc::default() };
    let app = Router::new()
        .route("/", get(form))
        .route("/static", get(async || Html(STATIC_FORM)))
        .route("/orders", post(order))
        .route("/orders/{number}", get(show))
        .with_state(shop.clone())
        .layer(layer);
    Ok((app, shop))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (app, _) = app()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
