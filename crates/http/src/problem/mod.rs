//! Refusals, as `application/problem+json` (RFC 9457) that says what to do next.
//!
//! Every problem has `type` (`urn:onlyonce:problem:<name>`), `title`, `status`, `detail`, `retryable`, and `instance`,
//! which also stands in the log at debug level. A browser that shows the answer gets the same as a page. `retryable` says whether sending the same request again, unchanged, may help.
//!
//! ## key-missing
//! 400: the route needs a key.
//! ## key-invalid
//! 400: the key can't be used.
//! ## token-missing
//! 400: the route needs a one-time token.
//! ## token-refused
//! 403: the token is not good for this: unknown, damaged, or somebody else's.
//! ## token-expired
//! 410: the token's time is over, and it was not used before.
//! ## scope-missing
//! 400: the request does not say who calls.
//! ## scope-denied
//! 401: the credentials do not hold.
//! ## body-invalid
//! 400: the body can't be read, or is not what the route needs.
//! ## query-invalid
//! 400: a parameter of the query is missing or wrong.
//! ## request-ambiguous
//! 400: two servers could read the request differently, for instance by a length and by chunks.
//! ## outcome-not-found
//! 404: no such call is known to this caller.
//! ## request-timeout
//! 408: the body did not come in time.
//! ## in-progress
//! 409: the same call runs, or it is done and there is no memory to send its answer at the moment.
//! ## duplicate
//! 409: the call was made before, and duplicates are refused.
//! ## out-of-order
//! 409: calls are numbered in rising order, and a higher number came before.
//! ## outcome-unknown
//! 409: nobody knows whether the call had its effect.
//! ## response-not-retained
//! 409: the call was done, but its answer was too large to keep.
//! ## request-too-large
//! 413: the body is too large.
//! ## head-too-large
//! 431: the request has too many headers.
//! ## payload-mismatch
//! 422: the key was used with another payload.
//! ## handler-failed
//! 500: the handler failed in a way that leaves doubt.
//! ## rolled-back
//! 500: the handler failed, and all that it did was undone with the record.
//! ## store-unavailable
//! 503: the store does not answer; nothing ran.
//! ## record-unreadable
//! 503: the record of this call can't be read; nothing ran.
//! ## overloaded
//! 503: there is no memory left to take the request in; nothing ran.
//! ## draining
//! 503: the server is about to stop and takes no new calls; nothing ran.
//! ## upstream-unreachable
//! 502: the upstream was not reached; nothing was sent.
//! ## upstream-failed
//! 502: the request was sent, and the upstream did not answer it whole.
//! ## upstream-timeout
//! 504: the request was sent, and the upstream did not answer in time.
//! ## not-found
//! 404: nothing is served there.
//! ## method-refused
//! 405: this method is refused here; those that are not are in `Allow`.
//! ## target-too-long
//! 414: the path can't be sent on with what the gateway puts before it.

mod page;
mod texts;

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderValue, LINK, LOCATION,
    RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use http::{HeaderName, Response, StatusCode};
use onlyonce_core::{ErrorKind, RecordId, Refusal, Seldom};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::answer::StoredAnswer;
use crate::audience::Audience;
use crate::body::ResponseBody;
use crate::key::KeyFrom;

/// The names of all problems: the last part of their `type`.
///
/// A service inside of the layer that puts one into the extensions of its response, beside a [`Class`](onlyonce_core::Class), is
/// spoken for by the layer: it answers with this problem, in the language of the caller and by the rules of the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// 400: the route needs a key.
    KeyMissing,
    /// 400: the key can't be used.
    KeyInvalid,
    /// 400: the route needs a one-time token.
    TokenMissing,
    /// 403: the token is not good for this.
    TokenRefused,
    /// 410: the token's time is over, and it was not used before.
    TokenExpired,
    /// 400: the request does not say who calls.
    ScopeMissing,
    /// 401: the credentials do not hold.
    ScopeDenied,
    /// 400: the body can't be read, or is not what the route needs.
    BodyInvalid,
    /// 400: a parameter of the query is missing or wrong.
    QueryInvalid,
    /// 400: two servers could read the request differently.
    RequestAmbiguous,
    /// 404: no such call is known to this caller.
    OutcomeNotFound,
    /// 408: the body did not come in time.
    RequestTimeout,
    /// 409: the same call runs.
    InProgress,
    /// 409: the call was made before, and duplicates are refused.
    Duplicate,
    /// 409: calls are numbered in rising order, and a higher number came before.
    OutOfOrder,
    /// 409: nobody knows whether the call had its effect.
    OutcomeUnknown,
    /// 409: the call was done, but its answer was too large to keep.
    ResponseNotRetained,
    /// 413: the body is too large.
    RequestTooLarge,
    /// 431: the request has too many headers.
    HeadTooLarge,
    /// 422: the key was used with another payload.
    PayloadMismatch,
    /// 500: the handler failed in a way that leaves doubt.
    HandlerFailed,
    /// 500: the handler failed, and all that it did was undone with the record.
    RolledBack,
    /// 503: the store does not answer; nothing ran.
    StoreUnavailable,
    /// 503: the record of this call can't be read; nothing ran.
    RecordUnreadable,
    /// 503: there is no memory left to take the request in; nothing ran.
    Overloaded,
    /// 503: the server is about to stop and takes no new calls; nothing ran.
    Draining,
    /// 502: the upstream was not reached; nothing was sent.
    UpstreamUnreachable,
    /// 502: the request was sent, and the upstream did not answer it whole.
    UpstreamFailed,
    /// 504: the request was sent, and the upstream did not answer in time.
    UpstreamTimeout,
    /// 404: nothing is served there.
    NotFound,
    /// 405: this method is refused here.
    MethodRefused,
    /// 414: the path can't be sent on with what the gateway puts before it.
    TargetTooLong,
}

/// The answer to a request that a service beside or inside of the layer refuses, in the words and the language of the layer.
///
/// ```
/// use onlyonce_http::{ProblemKind, problem};
/// let answer = problem::response(ProblemKind::UpstreamUnreachable, &http::HeaderMap::new(), Some("connection refused"));
/// assert_eq!(answer.status(), 502);
/// ```
#[must_use]
pub fn response(kind: ProblemKind, request: &HeaderMap, why: Option<&str>) -> Response<Bytes> {
    let problem = why.into_iter().fold(Problem::of_service(kind), Problem::because);
    problem.render(Audience::of(request), DOCS)
}

/// Each kind by itself, so that many of one do not hide another.
static REFUSED: [Seldom; ProblemKind::ALL.len()] = [const { Seldom::new() }; ProblemKind::ALL.len()];

/// One line a refusal is for whoever looks for one; for all others there is one now and then.
fn refused(kind: ProblemKind, instance: &str, record: Option<RecordId>, why: Option<&str>) {
    let (problem, record) = (kind.name(), record.map(tracing::field::display));
    let place = ProblemKind::ALL.iter().position(|known| *known == kind);
    match place.and_then(|place| REFUSED[place].happened()) {
        Some(times) => tracing::info!(problem, times, instance, record, why, "refused"),
        None => tracing::debug!(problem, instance, record, why, "refused"),
    }
}

/// Writes how many requests were refused since it was logged last, if that is some time ago. A server calls it every few
/// seconds, so that the end of a storm is not kept back until the next one; without it nothing else is missing.
pub fn log_refusals() {
    for (kind, seldom) in ProblemKind::ALL.iter().zip(&REFUSED) {
        if let Some(times) = seldom.left() {
            tracing::info!(problem = kind.name(), times, "refused");
        }
    }
}

/// What a retry of a call in doubt leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// There is no record of it.
    Unrecorded,
    /// The same answer, until a person decides.
    Hold,
    /// After that long, it is found out what became of the first.
    Ask(Duration),
    /// It runs again.
    Rerun,
}

/// What an idempotent gateway or layer in front must make of a refusal: "come back later" is no answer to be kept.
const OUTCOME: HeaderName = HeaderName::from_static("onlyonce-outcome");

/// Where problems are described.
pub(crate) const DOCS: &str = "https://docs.rs/onlyonce-http/latest/onlyonce_http/problem/index.html";

/// A refusal on its way to the client. Boxed, because it travels as the error of functions that rarely fail.
#[derive(Debug)]
pub(crate) struct Problem(Box<Content>);

#[derive(Debug)]
struct Content {
    kind: ProblemKind,
    why: Option<String>,
    record: Option<RecordId>,
    retry_after: Option<Duration>,
    retryable: bool,
    location: Option<HeaderValue>,
    doubt: Doubt,
    members: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind) -> Self {
        let retryable = matches!(
            kind,
            ProblemKind::InProgress
                | ProblemKind::RolledBack
                | ProblemKind::StoreUnavailable
                | ProblemKind::RequestTimeout
                | ProblemKind::Overloaded
                | ProblemKind::Draining
                | ProblemKind::UpstreamUnreachable
        );
        let (why, record, retry_after, location) = (None, None, None, None);
        let (doubt, members) = (Doubt::Unrecorded, Map::new());
        Self(Box::new(Content { kind, why, record, retry_after, retryable, location, doubt, members }))
    }

    /// What a service beside or inside of the layer tells.
    pub(crate) fn of_service(kind: ProblemKind) -> Self {
        let problem = Self::new(kind);
        match kind {
            // Relayed while it came, it may have had an effect in part.
            ProblemKind::RequestTimeout => problem.for_good(),
            _ if problem.0.retryable => problem.retry_after(Duration::from_secs(1)),
            _ => problem,
        }
    }

    /// The route needs a key, and this is where it goes.
    pub(crate) fn key_missing(from: &KeyFrom) -> Self {
        Self::new(ProblemKind::KeyMissing).because(from.place())
    }

    /// A problem that is not retryable, although its kind usually is.
    fn for_good(mut self) -> Self {
        self.0.retryable = false;
        self
    }

    /// Adds what exactly is wrong, in English: it often names the caller's own input.
    pub(crate) fn because(mut self, why: impl Display) -> Self {
        self.0.why = Some(why.to_string());
        self
    }

    pub(crate) fn about(mut self, record: RecordId) -> Self {
        self.0.record = Some(record);
        self
    }

    pub(crate) fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self.0.retryable = true;
        self
    }

    /// Follows the rules of the route about what is in doubt; other problems stay as they are.
    pub(crate) fn in_doubt(mut self, doubt: Doubt) -> Self {
        if !self.0.kind.leaves_doubt() {
            return self;
        }
        self.0.doubt = doubt;
        match doubt {
            Doubt::Ask(after) => {
                let after = self.0.retry_after.unwrap_or(after);
                self.retry_after(after)
            }
            Doubt::Rerun => self.retry_after(Duration::from_secs(1)),
            Doubt::Unrecorded | Doubt::Hold => {
                self.0.retry_after = None;
                self.for_good()
            }
        }
    }

    fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.members.insert(name.into(), value.into());
        self
    }

    /// The problem that a refused call is answered with.
    pub(crate) fn of(refusal: Refusal) -> Self {
        match refusal {
            Refusal::InProgress { retry_after } => {
                Self::new(ProblemKind::InProgress).retry_after(retry_after)
            }
            Refusal::Duplicate => Self::new(ProblemKind::Duplicate),
            Refusal::Mismatch => Self::new(ProblemKind::PayloadMismatch),
            Refusal::OutOfOrder { last } => Self::new(ProblemKind::OutOfOrder).member("last", last),
            Refusal::Unknown { evidence, retry_after } => {
                let mut problem = Self::new(ProblemKind::OutcomeUnknown);
                if let Ok(seen) = StoredAnswer::decode(evidence) {
                    problem = problem.member("first_status", seen.status().as_u16());
                }
                match retry_after {
                    Some(after) => problem.retry_after(after),
                    None => problem,
                }
            }
            Refusal::Store(error) => match error.kind() {
                ErrorKind::Corrupt => Self::new(ProblemKind::RecordUnreadable),
                // Repeating what the store refuses for good is pointless.
                ErrorKind::Rejected => Self::new(ProblemKind::StoreUnavailable).for_good(),
                _ => Self::new(ProblemKind::StoreUnavailable).retry_after(Duration::from_secs(1)),
            },
            _ => Self::new(ProblemKind::RecordUnreadable),
        }
    }

    /// The problem that stands for an answer which was not kept.
    pub(crate) fn not_retained(status: StatusCode, location: Option<HeaderValue>) -> Self {
        let mut problem =
            Self::new(ProblemKind::ResponseNotRetained).member("original_status", status.as_u16());
        if let Some(text) = location.as_ref().and_then(|value| value.to_str().ok()) {
            problem = problem.member("original_location", text);
        }
        problem.0.location = location;
        problem
    }

    pub(crate) fn name(&self) -> &'static str {
        self.0.kind.name()
    }

    pub(crate) fn respond<B>(self, to: Audience, docs: &str) -> Response<ResponseBody<B>> {
        self.render(to, docs).map(ResponseBody::from)
    }

    fn render(self, to: Audience, docs: &str) -> Response<Bytes> {
        let Audience { language, wants_page } = to;
        let Content { kind, why, record, retry_after, retryable, location, doubt, members } = *self.0;
        let mut text = kind.text(language);
        if kind == ProblemKind::StoreUnavailable && !retryable {
            text.detail = texts::refused_by_the_store(language);
        }
        let (status, name) = (kind.status(), kind.name());
        let instance = format!("urn:uuid:{}", Uuid::new_v4());
        refused(kind, &instance, record, why.as_deref());
        let mut detail = text.detail.to_owned();
        if kind.leaves_doubt() {
            detail.push_str(texts::remedy(doubt, language));
        }
        if let Some(why) = why {
            detail = format!("{detail} ({why})");
        }
        let page = wants_page.then(|| page::write(language.tag(), text.title, &detail, &instance));
        let mut document = members;
        document.insert("type".into(), format!("urn:onlyonce:problem:{name}").into());
        document.insert("title".into(), text.title.into());
        document.insert("status".into(), status.as_u16().into());
        document.insert("detail".into(), detail.into());
        document.insert("instance".into(), instance.into());
        document.insert("retryable".into(), retryable.into());
        if let Some(record) = record {
            document.insert("record".into(), record.to_string().into());
        }
        let content = if wants_page { "text/html; charset=utf-8" } else { "application/problem+json" };
        let body = Bytes::from(page.unwrap_or_else(|| Value::Object(document).to_string()));
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        headers.insert(CONTENT_LANGUAGE, HeaderValue::from_static(language.tag()));
        headers.insert(VARY, HeaderValue::from_static("accept, accept-language"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(link) = HeaderValue::try_from(format!("<{docs}#{name}>; rel=\"describedby\"")) {
            headers.insert(LINK, link);
        }
        if let Some((word, class)) = kind.outcome() {
            headers.insert(OUTCOME, HeaderValue::from_static(word));
            response.extensions_mut().insert(class);
        }
        let headers = response.headers_mut();
        if let Some(after) = retry_after {
            // Rounded up: coming back too early is the one thing that the header is there to prevent.
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_millis().div_ceil(1000).max(1) as u64));
        }
        if let Some(location) = location {
            headers.insert(LOCATION, location);
        }
        if kind == ProblemKind::ScopeDenied {
            // A 401 without it is none, says RFC 9110.
            let challenge = HeaderValue::from_static("Bearer error=\"invalid_token\"");
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if matches!(
            kind,
            ProblemKind::RequestTooLarge
                | ProblemKind::RequestTimeout
                | ProblemKind::Overloaded
                | ProblemKind::Draining
        ) {
            // The rest of the body may still be on its way, and must not be taken for a request.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_described_where_its_link_points() {
        for kind in ProblemKind::ALL {
            let heading = format!("//! ## {}\n//! {}:", kind.name(), kind.status().as_u16());
            assert!(include_str!("mod.rs").contains(&heading), "{}", kind.name());
        }
    }
}
