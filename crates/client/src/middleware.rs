//! The middleware: one key, as many attempts as make sense, and an answer or a clear word.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Extensions, HeaderValue, StatusCode};
use onlyonce_core::{Clock, InputError, Moment};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::allowance::Allowance;
use crate::builder::{Builder, OutcomeQuery, Policy};
use crate::unknown::{OutcomeUnknown, ServerSays};
use crate::verdict::{Verdict, judge};
use crate::{outcome, pause, peek};

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

/// Gives every call one key and retries it safely. Clones share the retry allowance.
///
/// Add it as the first middleware, so that every attempt goes through the others. A body that is a stream can't be sent twice:
/// such a call is made once.
///
/// # Cancel safety
/// A call that is dropped may have had its effect. Where that matters, set the key yourself, as a header, and keep it.
#[derive(Debug, Clone)]
pub struct OnlyOnce {
    policy: Arc<Policy>,
    clock: Arc<dyn Clock>,
    allowance: Arc<Allowance>,
}

impl Default for OnlyOnce {
    fn default() -> Self {
        Self::new()
    }
}

/// What an attempt led to.
struct Heard {
    verdict: Verdict,
    /// What the server asked for.
    pause: Option<Duration>,
    result: Result<Response>,
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

    /// The key of a call: the one that it has, or a new one.
    fn key(&self, request: &mut Request) -> Result<String> {
        if let Some(given) = request.headers().get(&self.policy.header) {
            let given =
                given.to_str().map_err(|_| Error::middleware(InputError::new("the key is not text")))?;
            return Ok(given.to_owned());
        }
        let key =
            self.policy.prefix.as_ref().map_or_else(onlyonce_id::key, |prefix| prefix.generate().to_string());
        let mut value = HeaderValue::from_str(&key).map_err(Error::middleware)?;
        value.set_sensitive(true);
        request.headers_mut().insert(self.policy.header.clone(), value);
        Ok(key)
    }

    /// Sends the call once.
    async fn attempt(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Heard {
        let answered = async {
            let response = next.run(request, extensions).await?;
            Ok::<_, Error>(peek::whole(response).await?)
        };
        let limit = self.clock.sleep(self.policy.attempt_timeout);
        let answered = race::first(answered, limit).await;
        match answered {
            Some(Ok((response, body))) => {
                let verdict = judge(response.status(), response.headers(), body.as_deref());
                let pause = pause::asked(response.headers(), self.clock.wall_micros());
                Heard { verdict, pause, result: Ok(response) }
            }
            Some(Err(error)) => Heard { verdict: of_error(&error), pause: None, result: Err(error) },
            None => {
                let error = InputError::new(format!("no answer within {:?}", self.policy.attempt_timeout));
                Heard { verdict: Verdict::Doubt, pause: None, result: Err(Error::middleware(error)) }
            }
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

    async fn in_doubt(
        &self,
        call: &Request,
        extensions: &mut Extensions,
        next: &Next<'_>,
    ) -> Option<ServerSays> {
        let OutcomeQuery::At(path) = &self.policy.outcome else { return None };
        let limit = self.clock.sleep(self.policy.attempt_timeout);
        race::first(outcome::ask(call, path, extensions, next.clone()), limit).await.flatten()
    }
}

/// What a failure means: refused by the network before anything was sent, or in doubt.
fn of_error(error: &Error) -> Verdict {
    match error {
        Error::Reqwest(error) if error.is_connect() => Verdict::Later,
        Error::Reqwest(error) if error.is_builder() || error.is_redirect() => Verdict::Answer,
        Error::Reqwest(_) => Verdict::Doubt,
        // Another middleware refused it; it knows best what that means, and it is not repeated.
        Error::Middleware(_) => Verdict::Answer,
    }
}

#[async_trait]
impl Middleware for OnlyOnce {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let has_key = request.headers().contains_key(&self.policy.header);
        if !has_key && !self.policy.methods.contains(request.method()) {
            return next.run(request, extensions).await;
        }
        let key = self.key(&mut request)?;
        let started = self.clock.now();
        self.allowance.call(started);
        let (mut attempts, mut doubt) = (0, false);
        let heard = loop {
            let again = request.try_clone();
            let once = again.is_none();
            let copy = again.unwrap_or_else(|| empty_copy(&request));
            let sent = std::mem::replace(&mut request, copy);
            attempts += 1;
            let heard = self.attempt(sent, extensions, next.clone()).await;
            doubt |= matches!(heard.verdict, Verdict::Doubt | Verdict::Unknown);
            let is_final = matches!(heard.verdict, Verdict::Answer | Verdict::Refused | Verdict::Unknown);
            if is_final || once {
                break heard;
            }
            let Some(pause) = self.next_pause(attempts, started, heard.pause) else { break heard };
            tracing::debug!(attempts, ?pause, "the call is sent again with the same key");
            self.clock.sleep(pause).await;
        };
        // An answer to the call ends all doubt; whatever else came last does so only if nothing can have happened.
        if heard.verdict == Verdict::Answer || !doubt {
            return heard.result.map(|response| marked(response, key));
        }
        let mut server_says = match heard.verdict {
            Verdict::Unknown => Some(ServerSays::Unknown),
            _ => self.in_doubt(&request, extensions, &next).await,
        };
        if server_says == Some(ServerSays::Completed)
            && let Some(again) = request.try_clone()
        {
            attempts += 1;
            let stored = self.attempt(again, extensions, next.clone()).await;
            if stored.verdict == Verdict::Answer && stored.result.is_ok() {
                return stored.result.map(|response| marked(response, key));
            }
            server_says = Some(ServerSays::Completed);
        }
        let last_status: Option<StatusCode> = heard.result.as_ref().ok().map(Response::status);
        let cause = heard.result.err();
        Err(Error::middleware(OutcomeUnknown { key, attempts, server_says, last_status, cause }))
    }
}

/// A request whose body can't be copied, without it: to ask about it.
fn empty_copy(request: &Request) -> Request {
    let mut copy = Request::new(request.method().clone(), request.url().clone());
    *copy.headers_mut() = request.headers().clone();
    copy
}

fn marked(mut response: Response, key: String) -> Response {
    response.extensions_mut().insert(CallKey(key));
    response
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
