//! Calls by `reqwest`.

use async_trait::async_trait;
use http::{Extensions, Method, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::body::{BoxError, CutOff};
use crate::call::{Answered, CallKey, Ended, OnlyOnce, Way};
use crate::outcome::{self, Target};
use crate::peek;
use crate::sending::{Seen, keyed};
use crate::verdict::Verdict;

struct ByReqwest<'a> {
    request: Request,
    /// Its body was a stream, and is gone.
    spent: bool,
    extensions: &'a mut Extensions,
    next: Next<'a>,
}

/// An attempt that was not answered.
struct Failed {
    error: Error,
    seen: Seen,
    /// Where it was sent.
    url: String,
    /// It was being answered.
    broke_off: bool,
}

/// The client's own error, or one of ours.
fn unread(error: BoxError) -> Error {
    match error.downcast::<reqwest::Error>() {
        Ok(error) => Error::Reqwest(*error),
        Err(_) => Error::middleware(CutOff),
    }
}

/// Where a request goes; what is behind `#` stays here.
fn address(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    url.into()
}

impl Way for ByReqwest<'_> {
    type Answer = Response;
    type Error = Failed;

    fn repeatable(&self) -> bool {
        !self.spent
    }

    async fn send(&mut self) -> std::result::Result<Answered<Response>, Failed> {
        let sent = self.request.try_clone().unwrap_or_else(|| {
            self.spent = true;
            // Without its body it is still good to ask about it.
            let mut empty = Request::new(self.request.method().clone(), self.request.url().clone());
            *empty.headers_mut() = self.request.headers().clone();
            std::mem::replace(&mut self.request, empty)
        });
        let url = address(sent.url());
        let (response, seen) = keyed(self.next.clone().run(sent, self.extensions)).await;
        let failed = |error, broke_off| Failed { error, seen, url: url.clone(), broke_off };
        let response = response.map_err(|error| failed(error, false))?;
        let whole = peek::whole(response, self.request.method()).await;
        let (answer, body) = whole.map_err(|error| failed(unread(error), true))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let elsewhere = Some(address(answer.url())).filter(|from| *from != url);
        Ok(Answered { answer, elsewhere, status, headers, body })
    }

    /// Refused by the network before anything was sent, or in doubt.
    fn meaning(failed: &Failed) -> Verdict {
        let here = |error: &reqwest::Error| error.url().is_none_or(|url| address(url) == failed.url);
        match &failed.error {
            _ if failed.broke_off => Verdict::Doubt,
            // Of another client it is not known whether it had sent it, and was redirected to where nobody listens.
            Error::Reqwest(error) if error.is_connect() && failed.seen.dialled => Verdict::Later,
            Error::Reqwest(error) if error.is_builder() && here(error) => Verdict::Refused,
            // It was answered with a redirect, and another one.
            Error::Reqwest(error) if error.is_redirect() || error.is_builder() => Verdict::Astray,
            Error::Reqwest(_) => Verdict::Doubt,
            // It may have been sent before another middleware failed; only that one knows, and it is not repeated.
            Error::Middleware(_) => Verdict::Astray,
        }
    }

    async fn ask(&mut self, target: &Target) -> Option<(StatusCode, Vec<u8>)> {
        let mut url = self.request.url().clone();
        url.set_path(&target.path);
        url.set_query(Some(&target.query));
        let mut question = Request::new(Method::GET, url);
        *question.headers_mut() = outcome::without_body(self.request.headers());
        let answer = keyed(self.next.clone().run(question, self.extensions)).await.0.ok()?;
        Some((answer.status(), peek::small(answer).await?))
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
        let method = request.method().clone();
        let Some(key) = self.key(&method, request.headers_mut()).map_err(Error::middleware)? else {
            return next.run(request, extensions).await;
        };
        let path = request.url().path().to_owned();
        let mut way = ByReqwest { request, spent: false, extensions, next };
        match self.run(&mut way, &key, |at| Target::about(at, &method, &path)).await {
            Ended::Answer(mut response) => {
                response.extensions_mut().insert(CallKey(key));
                Ok(response)
            }
            Ended::Failed(failed) => Err(failed.error),
            Ended::Unknown(unknown, failed) => {
                Err(Error::middleware(unknown.caused_by(failed.map(|failed| failed.error.into()))))
            }
        }
    }
}
