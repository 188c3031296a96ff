//! Asking the server what became of a call.

use form_urlencoded::Serializer;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

use crate::call::Way;
use crate::unknown::ServerSays;

/// Where to ask.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Target {
    /// About the call with this method and path.
    pub(crate) fn about(at: &str, method: &Method, path: &str) -> Self {
        let query = Serializer::new(String::new())
            .append_pair("method", method.as_str())
            .append_pair("path", path)
            .finish();
        Self { path: at.to_owned(), query }
    }
}

/// The headers of a call, without those of its body.
pub(crate) fn without_body(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers
}

/// `None` if the server has no such query, or does not answer.
pub(crate) async fn ask<W: Way>(way: &mut W, target: &Target) -> Option<ServerSays> {
    let (status, body) = way.ask(target).await?;
    let document: Value = serde_json::from_slice(&body).ok()?;
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
