//! Asking the upstream what became of an attempt that ended without a word.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use onlyonce::http::{Account, NotRetained, Question, Recover, Reservation, has_hidden_steps};
use onlyonce::{Class, Key, Recovery, SequenceKey};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::answer::Answer;
use super::headers;
use super::live::Limit;
use super::names::misleads;
use super::outgoing::Outgoing;
use super::proxy::aim;
use super::routing::Routing;
use super::upstream::Keyed;
use crate::config::TooLong;

/// A key is one segment of a path, whatever is in it.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How often an escaped path is decoded, at the most, to see what it might mean.
const DECODINGS: usize = 4;

/// A hook that asks at `path`, with the headers of the retry.
pub(crate) fn hook(routing: Arc<Routing>, path: String, limit: Limit) -> Recover {
    let path: Arc<str> = path.into();
    let (template, numbered) = (Arc::clone(&path), limit.numbered);
    let hook = Recover::new(move |question| {
        let (routing, path, limit) = (Arc::clone(&routing), Arc::clone(&path), limit.clone());
        async move {
            let record = question.permit.record_id();
            let found = ask(&routing, &path, question, limit).await;
            found.unwrap_or_else(|why| {
                onlyonce::seldom!(warn, %record, why, "asking the upstream led to nothing");
                Recovery::Unknown
            })
        }
    });
    hook.only_for(move |key| !leads_elsewhere(&filled(&template, key, numbered)))
}

/// The path to ask at.
fn filled(path: &str, key: &Key, numbered: bool) -> String {
    let number = if numbered { number_of(key) } else { None };
    fill(path, number.as_deref().unwrap_or(key.as_str()))
}

/// The number that a key stands for: outside nobody knows another name for it.
fn number_of(key: &Key) -> Option<String> {
    let number: u64 = key.as_str().rsplit(' ').next()?.parse().ok()?;
    (SequenceKey::key_of(number) == *key).then(|| number.to_string())
}

/// The path with the key in it.
pub(crate) fn fill(path: &str, key: &str) -> String {
    let encoded = utf8_percent_encode(key, SEGMENT).to_string();
    // A segment of dots alone would be taken for a step upwards.
    let encoded = if matches!(key, "." | "..") { key.replace('.', "%2E") } else { encoded };
    path.replace("{key}", &encoded)
}

/// Whether some service would see a step to the same place or upwards in a path that was filled, however often it decodes it: it
/// would speak of something else.
fn leads_elsewhere(path: &str) -> bool {
    let (mut seen, mut path) = (0, path.to_owned());
    loop {
        // Before it is spelled: that would take the steps.
        let lax = path.to_ascii_uppercase();
        if has_hidden_steps(&lax) || has_hidden_steps(&lax.replace("%2E", ".")) {
            return true;
        }
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded == path || seen == DECODINGS {
            return false;
        }
        (seen, path) = (seen + 1, decoded);
    }
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
    let path = filled(path, &key, limit.numbered);
    parts.uri = path.parse().map_err(|_| "the path can't be made")?;
    let misleading: Vec<HeaderName> = parts.headers.keys().filter(|name| misleads(name)).cloned().collect();
    for name in misleading {
        parts.headers.remove(name);
    }
    headers::prepare(&mut parts, &limit.peer, false);
    headers::insert_fence(&mut parts.headers, &permit);
    aim(&mut parts, &upstream).map_err(|TooLong| "the path is too long")?;
    let account = parts.extensions.remove::<Account>();
    parts.extensions.clear();
    let request = Request::from_parts(parts, Outgoing::empty());
    // Not sent twice by accident, and harmless if it were.
    let sent = upstream.send(request, Keyed::Yes).await;
    let mut response = sent.map_err(|_| "the upstream did not answer")?;
    response.body_mut().keyed = Keyed::Yes;
    let word = headers::take_outcome(response.headers_mut());
    headers::strip_hop_by_hop(response.headers_mut());
    let (mut head, body) = response.into_parts();
    let body = tokio::time::timeout(limit.patience, read(body, limit.bytes, account)).await;
    let body = body.map_err(|_| "the answer did not come in time")??;
    let body = body.unwrap_or_else(|TooLarge| {
        // It will be as large the next time: whoever asked for it would hear "unknown" for ever, of a call that is known to be done.
        head.extensions.insert(NotRetained);
        Bytes::new()
    });
    Ok(match (word, head.status) {
        (Some(Class::Release), _) => Recovery::NotDone,
        (Some(Class::Keep) | None, StatusCode::OK) => Recovery::Done(Response::from_parts(head, body)),
        _ => Recovery::Unknown,
    })
}

/// An answer that can't be kept.
#[derive(Debug)]
struct TooLarge;

/// Reads an answer, which is paid for as long as it is there.
async fn read(
    mut body: Answer,
    limit: usize,
    account: Option<Account>,
) -> Result<Result<Bytes, TooLarge>, String> {
    let mut reserved = account.map(|account| account.nothing());
    // It is read for a call that may have run, and does not give way.
    reserved.iter_mut().for_each(Reservation::keep);
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Ok(Err(TooLarge));
        }
        if reserved.as_mut().is_some_and(|reserved| !reserved.grow(data.len())) {
            return Err("limits.memory has no room for the answer".into());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Ok(Bytes::from_owner(Paid { bytes: bytes.freeze(), _reserved: reserved })))
}

/// An answer, and what pays for it.
struct Paid {
    bytes: Bytes,
    _reserved: Option<Reservation>,
}

impl AsRef<[u8]> for Paid {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use onlyonce::http::MemoryBudget;

    use super::*;

    #[test]
    fn a_key_that_is_a_step_asks_nobody() {
        for key in [".", "..", "%2e", "%2E%2e", "%252E.", "../admin", "..\\x", "a/..", "..;x"] {
            assert!(leads_elsewhere(&fill("/by-key/{key}", key)), "{key}");
        }
        for key in
            ["a", "...", "a.b", "a..b", "1.5", "%", "a/b", "100%25", "8e03978e-40d5-43e8-bc93-6894a57f9324"]
        {
            assert!(!leads_elsewhere(&fill("/by-key/{key}?q=1", key)), "{key}");
        }
        assert!(leads_elsewhere(&fill("/by-key/.{key}", ".")));
    }

    #[tokio::test]
    async fn an_answer_is_paid_for_as_long_as_it_is_there_and_refused_where_there_is_no_room() {
        let budget = MemoryBudget::new(4000);
        let answer = || Answer::own(Bytes::from_static(&[b'x'; 2000]));
        let first = read(answer(), 2000, Some(budget.account())).await.unwrap().unwrap();
        assert_eq!((first.len(), budget.used()), (2000, 2000));
        // A quarter is a reserve.
        assert!(read(answer(), 2000, Some(budget.account())).await.unwrap_err().contains("no room"));
        assert!(matches!(read(answer(), 1999, None).await, Ok(Err(TooLarge))));
        drop(first);
        assert_eq!(budget.used(), 0);
    }

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
