//! After a time-out: what became of my call?

use form_urlencoded::parse;
use http::request::Parts;
use http::{Method, Response};
use onlyonce_core::seldom;
use onlyonce_core::token::Checked;
use onlyonce_core::{Answer, Key, Operation, RecordId, Refusal, Scope, SequenceKey, Snapshot, State};
use serde_json::json;

use crate::answer::StoredAnswer;
use crate::body::ResponseBody;
use crate::endpoints;
use crate::key::{IDEMPOTENCY_KEY, KeyFrom, from_header, from_sequence};
use crate::layer::Shared;
use crate::path;
use crate::problem::{Problem, ProblemKind};
use crate::token::{Found, TokenRule};

/// Answers `GET /_onlyonce/outcome?method=POST&path=/payments` with the key or token and the credentials of the call.
pub(crate) async fn look_up<R>(shared: &Shared, parts: &Parts) -> Result<Response<ResponseBody<R>>, Problem> {
    let (method, path) = target(parts)?;
    let Some(route) = shared.routes.named(&method, &path) else {
        return Err(
            Problem::new(ProblemKind::QueryInvalid).because("calls of this method and path are not recorded")
        );
    };
    let scope = shared.scope.find(parts).scope()?;
    let operation = Operation::http(method.as_str(), &path);
    let key = match &route.options.token {
        Some(rule) => key_of_token(rule, parts, &scope, &operation).await?,
        None => key(&route.options.key, parts)?,
    };
    let id = RecordId::of(&scope, &operation, &key);
    match route.once.outcome(&id).await {
        Ok(Some(snapshot)) => Ok(describe(id, &snapshot)),
        Ok(None) => Err(Problem::new(ProblemKind::OutcomeNotFound).about(id)),
        Err(error) => {
            seldom!(error, record = %id, error = &error as &dyn std::error::Error, "the store failed");
            Err(Problem::of(Refusal::Store(error)).about(id))
        }
    }
}

/// The key of the call that a token stands for. Asking uses no token up.
async fn key_of_token(
    rule: &TokenRule,
    parts: &Parts,
    scope: &Scope,
    operation: &Operation,
) -> Result<Key, Problem> {
    if !rule.tokens.leave_records() {
        return Err(Problem::new(ProblemKind::QueryInvalid)
            .because("a token of this route is deleted before its call, which leaves no record"));
    }
    let token = match rule.find(parts, &[]) {
        Found::Token(token) => token,
        Found::Nothing => return Err(Problem::new(ProblemKind::TokenMissing)),
        Found::Unclear => return Err(Problem::new(ProblemKind::TokenRefused)),
    };
    match rule.tokens.check(&token, scope, operation).await {
        Ok(Checked::Valid(ticket) | Checked::Expired(ticket)) => Ok(ticket.key),
        Ok(Checked::Refused | Checked::Deleted | Checked::Gone) => {
            Err(Problem::new(ProblemKind::TokenRefused))
        }
        Err(error) => {
            seldom!(error, error = &error as &dyn std::error::Error, "the token could not be checked");
            Err(Problem::of(Refusal::Store(error)))
        }
    }
}

/// Method and path of the call that is asked about.
pub(crate) fn target(parts: &Parts) -> Result<(Method, String), Problem> {
    let query = parts.uri.query().unwrap_or_default();
    let parameter = |name: &str| {
        parse(query.as_bytes()).find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
    };
    let method = parameter("method").unwrap_or_else(|| "POST".into()).to_ascii_uppercase();
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| Problem::new(ProblemKind::QueryInvalid).because("`method` is not a method"))?;
    let path =
        parameter("path").filter(|path| path.starts_with('/')).map(|path| path::spelled(&path).into_owned());
    let path = path.ok_or_else(|| {
        Problem::new(ProblemKind::QueryInvalid).because("`path` is missing, or does not start with a slash")
    })?;
    Ok((method, path))
}

/// The key is in the header that the route uses, or in the usual one where the route finds its keys elsewhere.
fn key(from: &KeyFrom, parts: &Parts) -> Result<Key, Problem> {
    let name = match from {
        KeyFrom::Header(name) => name,
        KeyFrom::Sequence(name) => {
            let number = from_sequence(&parts.headers, name);
            let number = number.map_err(|why| Problem::new(ProblemKind::KeyInvalid).because(why))?;
            return number.map(SequenceKey::key_of).ok_or_else(|| Problem::key_missing(from));
        }
        KeyFrom::Json(_) | KeyFrom::Query(_) | KeyFrom::Form(_) => &IDEMPOTENCY_KEY,
    };
    let key = from_header(&parts.headers, name)
        .map_err(|why| Problem::new(ProblemKind::KeyInvalid).because(why))?;
    key.ok_or_else(|| {
        Problem::new(ProblemKind::KeyMissing).because(format_args!("here it goes into the header {name}"))
    })
}

fn describe<R>(id: RecordId, snapshot: &Snapshot) -> Response<ResponseBody<R>> {
    let status =
        |answer: &Answer| StoredAnswer::decode(answer.clone()).ok().map(|seen| seen.status().as_u16());
    let (state, status) = match &snapshot.state {
        State::Running { .. } => ("in_progress", None),
        State::Completed(answer) => ("completed", status(answer)),
        State::Released => ("failed", None),
        State::Lapsed { evidence, .. } => ("unknown", status(evidence)),
    };
    let document = json!({
        "state": state,
        "attempt": snapshot.attempts,
        "age": snapshot.age.as_secs(),
        "status": status,
        "record": id.to_string(),
    });
    endpoints::document(&document)
}
