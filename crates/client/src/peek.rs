//! Reads an answer whole where it is small: so that it can be judged, and so that one which breaks off half-way is noticed here.

use http::header::CONTENT_LENGTH;
use reqwest::{Response, ResponseBuilderExt};

/// The largest answer that is read whole.
pub(crate) const SMALL: u64 = 1 << 20;

/// The answer again, and its bytes if it is small. Large ones and streams are passed on as they come.
pub(crate) async fn whole(response: Response) -> Result<(Response, Option<Vec<u8>>), reqwest::Error> {
    let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_none_or(|length: u64| length > SMALL) {
        return Ok((response, None));
    }
    let url = response.url().clone();
    let (status, version) = (response.status(), response.version());
    let (headers, extensions) = (response.headers().clone(), response.extensions().clone());
    let bytes = response.bytes().await?;
    let body = bytes.to_vec();
    let mut rebuilt = http::Response::builder().status(status).version(version).url(url);
    if let Some(found) = rebuilt.headers_mut() {
        *found = headers;
    }
    if let Some(found) = rebuilt.extensions_mut() {
        found.extend(extensions);
    }
    let rebuilt = rebuilt.body(bytes).expect("it was a response before");
    Ok((rebuilt.into(), Some(body)))
}
