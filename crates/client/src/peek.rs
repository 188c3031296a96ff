//! Reads an answer of `reqwest` whole where it is small: so that it can be judged, and so that one which breaks off half-way is noticed
//! here.

use http::Method;
use reqwest::{Body, Response, ResponseBuilderExt};

use crate::body::{BoxError, Ends, Head, Passed, Read};

/// The answer again, and its bytes if it is small. Large ones and streams are passed on as they come.
pub(crate) async fn whole(
    response: Response,
    method: &Method,
) -> Result<(Response, Option<Vec<u8>>), BoxError> {
    let (url, answer) = (response.url().clone(), http::Response::<Body>::from(response));
    let (mut head, body) = answer.into_parts();
    let (passed, is_read) = passed(&head, body, method);
    let (body, bytes) = match if is_read { passed.read().await? } else { Read::Large(passed) } {
        Read::Whole(bytes) => (Body::from(bytes.clone()), Some(bytes.to_vec())),
        Read::Large(rest) => (Body::wrap(rest), None),
    };
    // The builder is the only way to say where it came from.
    let mut rebuilt = http::Response::builder().url(url);
    if let Some(extensions) = rebuilt.extensions_mut() {
        head.extensions.extend(std::mem::take(extensions));
    }
    Ok((http::Response::from_parts(head, body).into(), bytes))
}

/// The bytes of an answer that can't be large.
pub(crate) async fn small(response: Response) -> Option<Vec<u8>> {
    let (head, body) = http::Response::<Body>::from(response).into_parts();
    match passed(&head, body, &Method::GET).0.read().await.ok()? {
        Read::Whole(bytes) => Some(bytes.to_vec()),
        Read::Large(_) => None,
    }
}

/// The body, and whether it is to be read.
fn passed(head: &http::response::Parts, body: Body, method: &Method) -> (Passed<Body>, bool) {
    let (status, version, headers) = (head.status, head.version, &head.headers);
    let head = Head { method, status, version, headers };
    let is_read = head.is_read(&http_body::Body::size_hint(&body));
    // What decodes bodies within the client does not pass on that it has seen their end.
    (Passed::new(body, &head, Ends::Counted), is_read)
}
