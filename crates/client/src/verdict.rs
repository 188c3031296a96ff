//! What an answer means for a call. Pure.

use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The answer to the call.
    Answer,
    /// About the caller or the address and not about the call, which did not run this time: it settles nothing if an earlier attempt
    /// is in doubt.
    Refused,
    /// Not now; this attempt has had no effect.
    Later,
    /// Nobody knows whether this attempt, or an earlier one, has had its effect; the same key again may tell.
    Doubt,
    /// The server says that nobody knows, and that asking again won't help.
    Unknown,
    /// Nobody knows, and it is not sent again: it went where it was not sent, or another middleware had the last word.
    Astray,
}

impl Verdict {
    /// Whether the effect may have happened.
    pub(crate) fn doubts(self) -> bool {
        matches!(self, Self::Doubt | Self::Unknown | Self::Astray)
    }

    /// Whether nothing is gained by sending it again.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Answer | Self::Refused | Self::Unknown | Self::Astray)
    }
}

/// Judges an answer. `body` is there if it is small.
pub(crate) fn judge(status: StatusCode, headers: &HeaderMap, body: Option<&[u8]>) -> Verdict {
    let body: Option<Value> = body.and_then(|body| serde_json::from_slice(body).ok());
    let problem = body.as_ref().and_then(problem);
    let says = |name: &str| problem.is_some_and(|(found, _)| found == name);
    // Stripe's word about its own answers.
    let should_retry = headers.get("stripe-should-retry").and_then(|value| value.to_str().ok());
    match status.as_u16() {
        409 if says("outcome-unknown") => match problem {
            Some((_, true)) => Verdict::Doubt,
            _ => Verdict::Unknown,
        },
        409 if says("in-progress") => Verdict::Doubt,
        409 if problem.is_some() || should_retry == Some("false") => Verdict::Answer,
        409 if body.as_ref().is_some_and(key_in_use) || should_retry == Some("true") => Verdict::Doubt,
        // Without a word, only a server that says when to come back means "in progress"; else it is a conflict in business.
        409 if headers.contains_key(http::header::RETRY_AFTER) => Verdict::Doubt,
        // To a login page, or to another address: about the call only if it is what was answered the first time.
        301 | 302 | 307 | 308 if !headers.contains_key("idempotent-replayed") => Verdict::Refused,
        401 | 403 | 407 => Verdict::Refused,
        408 | 425 | 429 => Verdict::Later,
        501 => Verdict::Answer,
        503 if says("store-unavailable") => Verdict::Later,
        500.. => Verdict::Doubt,
        _ => Verdict::Answer,
    }
}

/// The name of an onlyonce problem, and whether sending the same request again may help.
fn problem(body: &Value) -> Option<(&str, bool)> {
    let name = body.get("type")?.as_str()?.strip_prefix("urn:onlyonce:problem:")?;
    Some((name, body.get("retryable").and_then(Value::as_bool).unwrap_or(false)))
}

/// Stripe-like: the same key is in use by a request that still runs.
fn key_in_use(body: &Value) -> bool {
    let error = body.get("error").unwrap_or(body);
    let member = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    member("code") == "idempotency_key_in_use" || member("type") == "idempotency_error"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge_json(status: u16, body: &str) -> Verdict {
        judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), Some(body.as_bytes()))
    }

    #[test]
    fn statuses_mean_what_the_design_says() {
        for (status, verdict) in [
            (200, Verdict::Answer),
            (303, Verdict::Answer),
            (302, Verdict::Refused),
            (307, Verdict::Refused),
            (400, Verdict::Answer),
            (401, Verdict::Refused),
            (403, Verdict::Refused),
            (404, Verdict::Answer),
            (408, Verdict::Later),
            (409, Verdict::Answer),
            (410, Verdict::Answer),
            (422, Verdict::Answer),
            (429, Verdict::Later),
            (500, Verdict::Doubt),
            (502, Verdict::Doubt),
            (503, Verdict::Doubt),
            (504, Verdict::Doubt),
        ] {
            assert_eq!(judge_json(status, "{}"), verdict, "{status}");
        }
    }

    #[test]
    fn a_409_is_read_before_it_is_believed() {
        let problem = |name: &str, retryable: bool| {
            judge_json(409, &format!(r#"{{"type":"urn:onlyonce:problem:{name}","retryable":{retryable}}}"#))
        };
        assert_eq!(problem("in-progress", true), Verdict::Doubt);
        assert_eq!(problem("duplicate", false), Verdict::Answer);
        assert_eq!(problem("response-not-retained", false), Verdict::Answer);
        assert_eq!(problem("outcome-unknown", false), Verdict::Unknown);
        assert_eq!(problem("outcome-unknown", true), Verdict::Doubt);
        assert_eq!(judge_json(409, r#"{"error":{"type":"idempotency_error"}}"#), Verdict::Doubt);
        assert_eq!(judge_json(409, r#"{"error":{"code":"idempotency_key_in_use"}}"#), Verdict::Doubt);
        assert_eq!(judge_json(409, r#"{"error":"out of stock"}"#), Verdict::Answer);
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "1".parse().unwrap());
        assert_eq!(judge(StatusCode::CONFLICT, &headers, None), Verdict::Doubt);
        assert_eq!(judge(StatusCode::CONFLICT, &HeaderMap::new(), None), Verdict::Answer);
    }

    #[test]
    fn a_redirect_that_was_stored_is_the_answer() {
        let mut headers = HeaderMap::new();
        headers.insert("idempotent-replayed", "true".parse().unwrap());
        assert_eq!(judge(StatusCode::FOUND, &headers, None), Verdict::Answer);
    }

    #[test]
    fn a_store_that_is_down_has_let_nothing_run() {
        let body = r#"{"type":"urn:onlyonce:problem:store-unavailable","retryable":true}"#;
        assert_eq!(judge_json(503, body), Verdict::Later);
    }
}
