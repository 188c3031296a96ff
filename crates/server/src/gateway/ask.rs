//! Asking the upstream what became of an attempt that ended without a word.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use onlyonce::http::{Question, Recover};
use onlyonce::{Class, Recovery};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::headers;
use super::live::Limit;
use super::outgoing::Outgoing;
use super::proxy::aim;
use super::routing::Routing;
use super::upstream::Keyed;

/// A key is one segment of a path, whatever is in it.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A hook that asks at `path`, with the headers of the retry.
pub(crate) fn hook(routing: Arc<Routing>, path: String, limit: Limit) -> Recover {
    let path: Arc<str> = path.into();
    Recover::new(move |question| {
        let (routing, path, limit) = (Arc::clone(&routing), Arc::clone(&path), limit.clone());
        async move {
            let record = question.permit.record_id();
            let found = ask(&routing, &path, question, limit).await;
            found.unwrap_or_else(|why| {
                tracing::warn!(%record, why, "asking the upstream led to nothing");
                Recovery::Unknown
            })
        }
    })
}

/// The path with the key in it.
pub(crate) fn fill(path: &str, key: &str) -> String {
    let encoded = utf8_percent_encode(key, SEGMENT).to_string();
    // A segment of dots alone would be taken for a step upwards.
    let encoded = if matches!(key, "." | "..") { key.replace('.', "%2E") } else { encoded };
    path.replace("{key}", &encoded)
}

async fn ask(
    routing: &Routing,
    path: &str,
    question: Question,
    limit: Limit,
) -> Result<Recovery<Response<Bytes>>, String> {
    let Question { request: mut parts, key, permit } = question;
    let upstream = routing.find(&parts).ok_or("the route has no upstream")?;
    let upstream = Arc::clone(upstream);
    parts.method = Method::GET;
    headers::name_host(&mut parts);
    parts.uri = fill(path, key.as_str()).parse().map_err(|_| "the path can't be made")?;
    for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING] {
        parts.headers.remove(name);
    }
    headers::prepare(&mut parts, &limit.peer, false);
    headers::insert_fence(&mut parts.headers, &permit);
    aim(&mut parts, &upstream);
    parts.extensions.clear();
    let request = Request::from_parts(parts, Outgoing::empty());
    // Not sent twice by accident, and harmless if it were.
    let sent = upstream.send(request, Keyed::Yes).await;
    let mut response = sent.map_err(|_| "the upstream did not answer")?;
    let word = headers::take_outcome(response.headers_mut());
    headers::strip_hop_by_hop(response.headers_mut());
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(limit.patience, Limited::new(body, limit.bytes).collect()).await;
    let body = body.map_err(|_| "the answer did not come in time")?.map_err(|error| error.to_string())?;
    Ok(match (word, head.status) {
        (Some(Class::Release), _) => Recovery::NotDone,
        (Some(Class::Keep) | None, StatusCode::OK) => {
            Recovery::Done(Response::from_parts(head, body.to_bytes()))
        }
        _ => Recovery::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_within_its_segment() {
        for (key, path) in [
            ("a/b", "/x/a%2Fb"),
            ("../admin", "/x/..%2Fadmin"),
            ("..", "/x/%2E%2E"),
            ("a?b#c%", "/x/a%3Fb%23c%25"),
            ("ok-1._~", "/x/ok-1._~"),
        ] {
            assert_eq!(fill("/x/{key}", key), path);
        }
    }
}
