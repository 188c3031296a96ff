//! What the layer answers itself, below `/_onlyonce/`: tokens, ids, and the script for forms. The outcome query is in `outcome`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use form_urlencoded::parse;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use onlyonce_core::seldom;
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
    /// One of them, asked for by another method than those that it has.
    Only(&'static str),
}

/// Which endpoint a request is for, if any.
pub(crate) fn find(shared: &Shared, parts: &Parts) -> Option<Endpoint> {
    let path = parts.uri.path();
    let (endpoint, methods) = match path {
        _ if shared.outcome_path.as_deref() == Some(path) => (Endpoint::Outcome, "GET, HEAD"),
        ONCE_JS if shared.forms => (Endpoint::OnceJs, "GET, HEAD"),
        TOKENS if shared.forms => (Endpoint::Tokens, "POST"),
        IDS if shared.ids.is_some() => (Endpoint::Ids, "POST"),
        _ => return None,
    };
    let is_one = methods.split(", ").any(|method| parts.method == method);
    Some(if is_one { endpoint } else { Endpoint::Only(methods) })
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
        Endpoint::Only(methods) => {
            let problem = Problem::new(ProblemKind::MethodRefused).because(format_args!("here: {methods}"));
            let mut response = problem.respond(Audience::of(&parts.headers), &shared.docs);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
            return response;
        }
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
    let scope = shared.scope.find(parts).scope()?;
    let token = tokens.issue(&scope, &Operation::http(method.as_str(), &path)).await;
    let token = token.map_err(|error| {
        seldom!(error, error = &error as &dyn std::error::Error, "the store failed");
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
    let mut response = Response::new(ResponseBody::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}
