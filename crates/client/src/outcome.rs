//! Asks the server what became of a call.

use form_urlencoded::Serializer;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{Extensions, Method, StatusCode};
use reqwest::Request;
use reqwest_middleware::Next;
use serde_json::Value;

use crate::unknown::ServerSays;

/// `GET path?method=…&path=…` with the headers of the call. `None` if the server has no such query, or does not answer.
pub(crate) async fn ask(
    call: &Request,
    path: &str,
    extensions: &mut Extensions,
    next: Next<'_>,
) -> Option<ServerSays> {
    let mut url = call.url().clone();
    let query = Serializer::new(String::new())
        .append_pair("method", call.method().as_str())
        .append_pair("path", call.url().path())
        .finish();
    url.set_path(path);
    url.set_query(Some(&query));
    let mut question = Request::new(Method::GET, url);
    *question.headers_mut() = call.headers().clone();
    for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, TRANSFER_ENCODING] {
        question.headers_mut().remove(name);
    }
    let answer = next.run(question, extensions).await.ok()?;
    let status = answer.status();
    let document: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    let member = |name: &str| document.get(name).and_then(Value::as_str);
    match (status, member("state")) {
        (StatusCode::OK, Some("in_progress")) => Some(ServerSays::InProgress),
        (StatusCode::OK, Some("completed")) => Some(ServerSays::Completed),
        (StatusCode::OK, Some("failed")) => Some(ServerSays::Failed),
        (StatusCode::OK, Some("unknown")) => Some(ServerSays::Unknown),
        (StatusCode::NOT_FOUND, _) if member("type") == Some("urn:onlyonce:problem:outcome-not-found") => {
            Some(ServerSays::NotSeen)
        }
        _ => None,
    }
}
