//! One call, however it is sent: when it is sent again, when it has its answer, and when nobody knows. The only place that
//! decides; the middleware and the service only send.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use onlyonce_core::{Clock, InputError, Moment};

use crate::allowance::Allowance;
use crate::builder::{Builder, OutcomeQuery, Policy};
use crate::unknown::{OutcomeUnknown, ServerSays};
use crate::verdict::{Verdict, judge};
use crate::{outcome, pause};

/// The key under which a call was made; in the extensions of its response.
///
/// ```no_run
/// # fn look(response: reqwest::Response) {
/// use onlyonce_client::CallKey;
/// let key = response.extensions().get::<CallKey>().map(|key| key.0.clone());
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CallKey(pub String);

impl std::fmt::Debug for CallKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CallKey(<{} bytes>)", self.0.len())
    }
}

/// Gives every call one key and retries it safely: a middleware for `reqwest`, and with the feature `tower` a layer around any
/// client that is a tower service. Clones share the retry allowance.
///
/// Add it as the first middleware, so that every attempt goes through the others. A body that is a stream can't be sent twice:
/// such a call is made once.
///
/// # Cancel safety
/// A call that is dropped may have had its effect. Where that matters, set the key yourself, as a header, and keep it.
#[derive(Debug, Clone)]
pub struct OnlyOnce {
    policy: Arc<Policy>,
    pub(crate) clock: Arc<dyn Clock>,
    allowance: Arc<Allowance>,
}

impl Default for OnlyOnce {
    fn default() -> Self {
        Self::new()
    }
}

/// How a call is sent.
pub(crate) trait Way: Send {
    type Answer: Send;
    type Error: Send;

    /// Whether it can be sent once more.
    fn repeatable(&self) -> bool;
    /// Sends it.
    fn send(&mut self) -> impl Future<Output = Result<Answered<Self::Answer>, Self::Error>> + Send;
    /// What it means that sending failed.
    fn meaning(error: &Self::Error) -> Verdict;
    /// Sends `GET path?query` with the headers of the call.
    fn ask(&mut self, target: &outcome::Target)
    -> impl Future<Output = Option<(StatusCode, Vec<u8>)>> + Send;
}

/// An answer, and what was seen of it. `body` is there if it is small.
pub(crate) struct Answered<A> {
    pub(crate) answer: A,
    /// Where it came from, if that is not where the call was sent: a redirect was followed.
    pub(crate) elsewhere: Option<String>,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
}

/// How a call ended.
pub(crate) enum Ended<A, E> {
    /// The answer to it.
    Answer(A),
    /// It was not answered, and has not happened.
    Failed(E),
    /// It may have happened. The last failure, if that was not an answer, goes along.
    Unknown(OutcomeUnknown, Option<E>),
}

/// What an attempt led to.
struct Heard<A, E> {
    verdict: Verdict,
    /// What the server asked for.
    pause: Option<Duration>,
    status: Option<StatusCode>,
    elsewhere: Option<String>,
    /// An error is missing if the time was up.
    result: Result<A, Option<E>>,
}

impl<A, E> Heard<A, E> {
    fn failed(verdict: Verdict, error: Option<E>) -> Self {
        Self { verdict, pause: None, status: None, elsewhere: None, result: Err(error) }
    }
}

impl OnlyOnce {
    /// The middleware with the default settings.
    ///
    /// # Panics
    /// Never: the default settings are valid.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build().expect("the default settings are valid")
    }

    /// Starts a configured one.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn assemble(policy: Policy, clock: Arc<dyn Clock>, allowance: Allowance) -> Self {
        Self { policy: Arc::new(policy), clock, allowance: Arc::new(allowance) }
    }

    /// The key of a call: the one that it has, or a new one, which is put there. `None` for a call that needs none.
    pub(crate) fn key(&self, method: &Method, headers: &mut HeaderMap) -> Result<Option<String>, InputError> {
        if let Some(given) = headers.get(&self.policy.header) {
            let given = given.to_str().map_err(|_| InputError::new("the key is not text"))?;
            return Ok(Some(given.to_owned()));
        }
        if !self.policy.methods.contains(method) {
            return Ok(None);
        }
        let key =
            self.policy.prefix.as_ref().map_or_else(onlyonce_id::key, |prefix| prefix.generate().to_string());
        let mut value = HeaderValue::from_str(&key).map_err(|_| InputError::new("the key is not text"))?;
        value.set_sensitive(true);
        headers.insert(self.policy.header.clone(), value);
        Ok(Some(key))
    }

    /// Sends a call as often as makes sense, always with the key that it has.
    pub(crate) async fn run<W: Way>(
        &self,
        way: &mut W,
        key: &str,
        asks: impl FnOnce(&str) -> outcome::Target,
    ) -> Ended<W::Answer, W::Error> {
        let started = self.clock.now();
        self.allowance.call(started);
        let (mut attempts, mut doubt) = (0, false);
        let heard = loop {
            attempts += 1;
            let heard = self.attempt(way).await;
            doubt |= heard.verdict.doubts();
            if heard.verdict.is_final() || !way.repeatable() {
                break heard;
            }
            let Some(pause) = self.next_pause(attempts, started, heard.pause) else { break heard };
            tracing::debug!(attempts, ?pause, "the call is sent again with the same key");
            self.clock.sleep(pause).await;
        };
        // An answer to the call ends all doubt; whatever else came last does so only if nothing can have happened.
        let settled = heard.verdict == Verdict::Answer || !doubt;
        let cause = match heard.result {
            Ok(answer) if settled => return Ended::Answer(answer),
            Err(Some(error)) if settled => return Ended::Failed(error),
            Ok(_) => None,
            Err(cause) => cause,
        };
        let too_late = cause.is_none() && heard.status.is_none();
        let server_says = match (&self.policy.outcome, heard.verdict) {
            (_, Verdict::Unknown) => Some(ServerSays::Unknown),
            (OutcomeQuery::At(path), _) => self.in_time(outcome::ask(way, &asks(path))).await.flatten(),
            (OutcomeQuery::Off, _) => None,
        };
        if server_says == Some(ServerSays::Completed) && way.repeatable() {
            attempts += 1;
            let stored = self.attempt(way).await;
            if let (Verdict::Answer, Ok(answer)) = (stored.verdict, stored.result) {
                return Ended::Answer(answer);
            }
        }
        let late = || format!("no answer within {:?}", self.policy.attempt_timeout);
        let astray = |elsewhere| {
            format!(
                "the HTTP client followed a redirect to {elsewhere}, or a middleware below changed the address: what was answered \
                 there is not the answer to the call. Use onlyonce_client::http(), and change addresses before this middleware"
            )
        };
        let why = heard.elsewhere.map(astray).or_else(|| too_late.then(late));
        let unknown = OutcomeUnknown {
            key: key.to_owned(),
            attempts,
            server_says,
            last_status: heard.status,
            cause: why.map(Into::into),
        };
        Ended::Unknown(unknown, cause)
    }

    /// Sends the call once.
    async fn attempt<W: Way>(&self, way: &mut W) -> Heard<W::Answer, W::Error> {
        match self.in_time(way.send()).await {
            Some(Ok(Answered { answer, elsewhere, status, headers, body })) => Heard {
                verdict: match elsewhere {
                    None => judge(status, &headers, body.as_deref()),
                    Some(_) => Verdict::Astray,
                },
                pause: pause::asked(&headers, self.clock.wall_micros()),
                status: Some(status),
                elsewhere,
                result: Ok(answer),
            },
            Some(Err(error)) => Heard::failed(W::meaning(&error), Some(error)),
            None => Heard::failed(Verdict::Doubt, None),
        }
    }

    /// How long to wait before the next attempt; `None` if there is none.
    fn next_pause(&self, attempts: u32, started: Moment, asked: Option<Duration>) -> Option<Duration> {
        let policy = &self.policy;
        let now = self.clock.now();
        let pause = pause::before(attempts - 1, policy.base, policy.most, asked);
        let in_time = now.since(started).saturating_add(pause) < policy.budget;
        // The allowance is asked last, because asking takes from it.
        (attempts < policy.attempts && in_time && self.allowance.retry(now)).then_some(pause)
    }

    /// What comes within the time of one attempt.
    async fn in_time<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        race::first(future, self.clock.sleep(self.policy.attempt_timeout)).await
    }
}

/// Racing two futures without depending on a runtime.
mod race {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use onlyonce_core::Sleep;

    /// The future's output, or `None` if the time is up first.
    pub(super) async fn first<T>(future: impl Future<Output = T>, mut limit: Sleep) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}
