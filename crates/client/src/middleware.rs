//! Calls by `reqwest`.

use async_trait::async_trait;
use http::{Extensions, Method, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::call::{Answered, CallKey, Ended, OnlyOnce, Way};
use crate::outcome::{self, Target};
use crate::peek;
use crate::verdict::Verdict;

struct ByReqwest<'a> {
    request: Request,
    /// Its body was a stream, and is gone.
    spent: bool,
    extensions: &'a mut Extensions,
    next: Next<'a>,
}

impl Way for ByReqwest<'_> {
    type Answer = Response;
    type Error = Error;

    fn repeatable(&self) -> bool {
        !self.spent
    }

    async fn send(&mut self) -> Result<Answered<Response>> {
        let sent = self.request.try_clone().unwrap_or_else(|| {
            self.spent = true;
            // Without its body it is still good to ask about it.
            let mut empty = Request::new(self.request.method().clone(), self.request.url().clone());
            *empty.headers_mut() = self.request.headers().clone();
            std::mem::replace(&mut self.request, empty)
        });
        let response = self.next.clone().run(sent, self.extensions).await?;
        let (answer, body) = peek::whole(response).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        Ok(Answered { answer, status, headers, body })
    }

    /// Refused by the network before anything was sent, or in doubt.
    fn meaning(error: &Error) -> Verdict {
        match error {
            Error::Reqwest(error) if error.is_connect() => Verdict::Later,
            Error::Reqwest(error) if error.is_builder() || error.is_redirect() => Verdict::Answer,
            Error::Reqwest(_) => Verdict::Doubt,
            // Another middleware refused it; it knows best what that means, and it is not repeated.
            Error::Middleware(_) => Verdict::Answer,
        }
    }

    async fn ask(&mut self, target: &Target) -> Option<(StatusCode, Vec<u8>)> {
        let mut url = self.request.url().clone();
        url.set_path(&target.path);
        url.set_query(Some(&target.query));
        let mut question = Request::new(Method::GET, url);
        *question.headers_mut() = outcome::without_body(self.request.headers());
        let answer = self.next.clone().run(question, self.extensions).await.ok()?;
        Some((answer.status(), answer.bytes().await.ok()?.to_vec()))
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
            Ended::Failed(error) => Err(error),
            Ended::Unknown(unknown, cause) => {
                Err(Error::middleware(unknown.caused_by(cause.map(Into::into))))
            }
        }
    }
}
