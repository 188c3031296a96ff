//! The page and its parts, from within the binary: no outside assets, no inline script.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(async || asset("text/html; charset=utf-8", include_str!("assets/index.html"))))
        .route(
            "/demo/style.css",
            get(async || asset("text/css; charset=utf-8", include_str!("assets/style.css"))),
        )
        .route(
            "/demo/page.js",
            get(async || asset("text/javascript; charset=utf-8", include_str!("assets/page.js"))),
        )
        .route(
            "/demo/words.js",
            get(async || asset("text/javascript; charset=utf-8", include_str!("assets/words.js"))),
        )
        .route("/favicon.ico", get(async || asset("image/svg+xml", include_str!("assets/icon.svg"))))
}

fn asset(content_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text).into_response()
}
