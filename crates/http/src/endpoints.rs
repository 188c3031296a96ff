//! What the layer answers itself, below `/_onlyonce/`: tokens, ids, and the script for forms. The outcome query is in `outcome`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use form_urlencoded::parse;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use onlyonce_core::token::Tokens;
use onlyonce_core::{InputError, Operation, Refusal};
use serde_json::json;
use uuid::Uuid;

use crate::audience::Audience;
use crate::body::ResponseBody;
use crate::key::KeyFrom;
use crate::layer::Shared;
use crate::outcome;
use crate::problem::{Problem, ProblemKind};
use crate::scope::Caller;

const TOKENS: &str = "/_onlyonce/tokens";
const IDS: &str = "/_onlyonce/ids";
const ONCE_JS: &str = "/_onlyonce/once.js";
/// How many ids one request gets at most.
const MOST_IDS: u32 = 1000;

/// The script for forms (no dependencies, below 3 KB): served at `/_onlyonce/once.js`.
pub const SCRIPT: &str = include_str!("once.js");

type Made = Pin<Box<dyn Future<Output = Result<Vec<String>, InputError>> + Send>>;

/// Where the ids of `POST /_onlyonce/ids` come from.
///
/// ```
/// use onlyonce_http::Ids;
/// let uuids = Ids::uuid();
/// let numbers = Ids::with(|count| async move { Ok((0..count).map(|n| n.to_string()).collect()) });
/// ```
#[derive(Clone)]
pub struct Ids(Arc<dyn Fn(u32) -> Made + Send + Sync>);

impl Ids {
    /// UUID v7, which need nothing.
    #[must_use]
    pub fn uuid() -> Self {
        Self::with(async |count| Ok((0..count).map(|_| Uuid::now_v7().to_string()).collect()))
    }

    /// A function of yours, which is told how many are wanted; for instance a Snowflake generator.
    pub fn with<F>(make: impl Fn(u32) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Vec<String>, InputError>> + Send + 'static,
    {
        Self(Arc::new(move |count| Box::pin(make(count))))
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids(..)")
    }
}

/// Something that the layer answers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Outcome,
    Tokens,
    Ids,
    OnceJs,
}

/// Which endpoint a request is for, if any.
pub(crate) fn find(shared: &Shared, parts: &Parts) -> Option<Endpoint> {
    let path = parts.uri.path();
    match parts.method {
        Method::GET | Method::HEAD if shared.outcome_path.as_deref() == Some(path) => Some(Endpoint::Outcome),
        Method::GET | Method::HEAD if shared.forms && path == ONCE_JS => Some(Endpoint::OnceJs),
        Method::POST if shared.forms && path == TOKENS => Some(Endpoint::Tokens),
        Method::POST if shared.ids.is_some() && path == IDS => Some(Endpoint::Ids),
        _ => None,
    }
}

pub(crate) async fn answer<R>(
    endpoint: Endpoint,
    shared: &Shared,
    parts: Parts,
) -> Response<ResponseBody<R>> {
    let answered = match endpoint {
        Endpoint::Outcome => outcome::look_up(shared, &parts).await,
        Endpoint::Tokens => token(shared, &parts).await,
        Endpoint::Ids => ids(shared, &parts).await,
        Endpoint::OnceJs => Ok(script()),
    };
    answered.unwrap_or_else(|problem| problem.respond(Audience::of(&parts.headers), &shared.docs))
}

/// `POST /_onlyonce/tokens?method=POST&path=/orders`: a token for this caller and that action, and where to put it.
async fn token<R>(shared: &Shared, parts: &Parts) -> Result<Response<ResponseBody<R>>, Problem> {
    let (method, path) = outcome::target(parts)?;
    let Some((tokens, header, field)) = taken(shared, &method, &path) else {
        return Err(Problem::new(ProblemKind::QueryInvalid).because(
            "calls of this method and path take no token; one that was sent would protect nothing",
        ));
    };
    let scope = match shared.scope.find(parts) {
        Caller::Known(scope) => scope,
        Caller::Absent => return Err(Problem::new(ProblemKind::ScopeMissing)),
        Caller::Denied => return Err(Problem::new(ProblemKind::ScopeDenied)),
    };
    let token = tokens.issue(&scope, &Operation::http(method.as_str(), &path)).await;
    let token = token.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the store failed");
        Problem::of(Refusal::Store(error))
    })?;
    Ok(document(&json!({
        "token": token.as_str(),
        "expires_in": tokens.lifetime().as_secs(),
        "header": header.map(HeaderName::as_str),
        "field": field,
    })))
}

/// Who issues the tokens of a call, and the header and field that are looked into for them. Where a call needs a key and no
/// token, a token is a key that the server chose, and goes where the key goes.
fn taken<'a>(
    shared: &'a Shared,
    method: &Method,
    path: &str,
) -> Option<(&'a Tokens, Option<&'a HeaderName>, Option<&'a str>)> {
    let options = &shared.routes.named(method, path)?.options;
    if let Some(rule) = &options.token {
        return Some((&rule.tokens, Some(&rule.header), Some(&rule.field)));
    }
    let tokens = shared.tokens.as_ref()?;
    match &options.key {
        KeyFrom::Header(name) => Some((tokens, Some(name), None)),
        KeyFrom::Form(name) | KeyFrom::Query(name) => Some((tokens, None, Some(name))),
        KeyFrom::Json(_) | KeyFrom::Sequence(_) => None,
    }
}

/// `POST /_onlyonce/ids?count=10`
async fn ids<R>(shared: &Shared, parts: &Parts) -> Result<Response<ResponseBody<R>>, Problem> {
    let wrong = |why: String| Problem::new(ProblemKind::QueryInvalid).because(why);
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let count = match parse(query).find(|(name, _)| name == "count") {
        None => 1,
        Some((_, text)) => text
            .parse()
            .ok()
            .filter(|count| (1..=MOST_IDS).contains(count))
            .ok_or_else(|| wrong(format!("`count` is a number from 1 to {MOST_IDS}")))?,
    };
    let Some(source) = &shared.ids else { return Err(wrong("there are no ids".into())) };
    let made = (source.0)(count).await;
    let ids = made.map_err(|why| Problem::new(ProblemKind::StoreUnavailable).because(why))?;
    Ok(document(&json!({ "ids": ids })))
}

pub(crate) fn document<R>(value: &serde_json::Value) -> Response<ResponseBody<R>> {
    response(Bytes::from(value.to_string()), "application/json", "no-store")
}

fn script<R>() -> Response<ResponseBody<R>> {
    response(Bytes::from_static(SCRIPT.as_bytes()), "text/javascript; charset=utf-8", "public, max-age=3600")
}

fn response<R>(body: Bytes, content: &'static str, cache: &'static str) -> Response<ResponseBody<R>> {
    let mut response = Response::new(ResponseBody::full(body, None));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}
