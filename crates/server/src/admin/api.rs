//! The JSON API.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use axum::{Json, Router, routing::post};
use onlyonce::{Cursor, Fence, Filter, Hash16, Key, Listed, RecordId, Resolution, Settled, StateKind};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};

use super::Admin;
use super::audit::Change;
use super::events::{Event, events};
use super::metrics::Stats;
use super::problem::AdminProblem;
use super::view::{AnswerView, Detail, Listing, Outcome, RecordView, Resolve, StateName, whole};
use crate::config::units;

#[derive(OpenApi)]
#[openapi(
    info(title = "onlyonce admin", description = "Inspect and repair the records of an onlyonce gateway."),
    paths(list, show, resolve, release, forget, attention, stats, told_events, config, openapi),
    components(schemas(RecordView, Listing, Detail, AnswerView, Resolve, Outcome, StateName, Stats, Changed, Effective, AdminProblem)),
    modifiers(&Bearer)
)]
struct Document;

struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
        document.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
    }
}

/// The largest decision that is read.
const MOST_READ: usize = 2 << 20;
/// The longest reason, and the longest name of a person.
const MOST_SAID: usize = 2000;

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/records", get(list))
        .route("/records/{id}", get(show).delete(forget))
        .route("/records/{id}/resolve", post(resolve))
        .route("/records/{id}/release", post(release))
        .route("/attention", get(attention))
        .route("/stats", get(stats))
        .route("/events", get(events))
        .route("/config", get(config))
        .route("/openapi.json", get(openapi))
        .fallback(async || AdminProblem::not_found("nothing is served here; see /api/openapi.json"))
        .method_not_allowed_fallback(async || {
            AdminProblem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "see /api/openapi.json for what can be done here",
            )
        })
        .layer(DefaultBodyLimit::max(MOST_READ))
}

type Answered<T> = Result<Json<T>, AdminProblem>;

/// Which records.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Only those in this state.
    state: Option<StateName>,
    /// Only those of this scope: its digest, or its parts in the order of the configuration, with commas between them.
    scope: Option<String>,
    /// Only those of this key: its digest, the key itself, or the id of a record.
    q: Option<String>,
    /// Only those of this route, for instance `POST /payments`.
    route: Option<String>,
    /// Only those that began within this span, for instance `1h`.
    since: Option<String>,
    /// Where to go on.
    cursor: Option<String>,
    /// How many at most (100, up to 1000).
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of records.
#[utoipa::path(get, path = "/api/records", params(Search), responses(
    (status = 200, body = Listing), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn list(
    State(admin): State<Arc<Admin>>,
    search: Result<Query<Search>, QueryRejection>,
) -> Answered<Listing> {
    let Query(search) = search.map_err(|why| AdminProblem::invalid(why.body_text()))?;
    let limit = search.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(AdminProblem::invalid("limit must be between 1 and 1000"));
    }
    let since = search.since.as_deref().map(units::duration).transpose().map_err(AdminProblem::invalid)?;
    let recent = |listed: &Listed| since.is_none_or(|since| listed.snapshot.age <= since);
    if let Some(id) = search.q.as_deref().and_then(|text| text.parse::<RecordId>().ok()) {
        let found = admin.store.get(&id).await.map_err(|error| AdminProblem::store(&error))?;
        let found = found.map(|snapshot| Listed { id, snapshot }).filter(recent);
        return Ok(Json(Listing { records: found.iter().map(RecordView::of).collect(), next: None }));
    }
    let filter = admin.filter(&search)?;
    let after = search.cursor.filter(|cursor| !cursor.is_empty()).map(Cursor);
    let page = admin.store.list(&filter, after.as_ref(), limit).await;
    let page = page.map_err(|error| match error.kind() {
        onlyonce::ErrorKind::Rejected if after.is_some() => AdminProblem::invalid(
            "cursor is not one of this store's; take it from `next` of the page before, or leave it out for the first page",
        ),
        onlyonce::ErrorKind::Rejected => AdminProblem::invalid(format!("{error}")),
        _ => AdminProblem::store(&error),
    })?;
    let records = page.records.iter().filter(|listed| recent(listed)).map(RecordView::of).collect();
    Ok(Json(Listing { records, next: page.next.map(|cursor| cursor.0) }))
}

impl Admin {
    fn filter(&self, search: &Search) -> Result<Filter, AdminProblem> {
        let key = search.q.as_deref().filter(|text| !text.is_empty()).map(|text| {
            let hashed = || Key::new(text).map(|key| Hash16::of_key(&key));
            digest(text).map_or_else(hashed, Ok).map_err(|error| AdminProblem::invalid(error.to_string()))
        });
        let scope = search.scope.as_deref().filter(|text| !text.is_empty()).map(|text| {
            let named = || self.now.read().scope.named(text).map(|scope| Hash16::of_scope(&scope));
            digest(text).or_else(named).ok_or_else(|| AdminProblem::invalid("there can be no such scope"))
        });
        Ok(Filter {
            state: search.state.map(StateName::kind),
            route: search.route.as_deref().filter(|text| !text.is_empty()).map(Into::into),
            key: key.transpose()?,
            scope: scope.transpose()?,
        })
    }

    async fn find(&self, id: &RecordId) -> Result<Listed, AdminProblem> {
        let found = self.store.get(id).await.map_err(|error| AdminProblem::store(&error))?;
        let snapshot =
            found.ok_or_else(|| AdminProblem::not_found("there is no such record, or it has expired"))?;
        Ok(Listed { id: *id, snapshot })
    }
}

/// A digest as listings show it.
fn digest(text: &str) -> Option<Hash16> {
    let digits = text.as_bytes();
    let mut bytes = [0; 16];
    if digits.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Hash16::from_bytes(bytes))
}

type Id = Result<Path<String>, PathRejection>;

fn parse_id(id: Id) -> Result<RecordId, AdminProblem> {
    let Path(text) = id.map_err(|why| AdminProblem::invalid(why.body_text()))?;
    text.parse().map_err(|error: onlyonce::InputError| AdminProblem::invalid(error.to_string()))
}

/// A record with what is stored of its answer.
#[utoipa::path(get, path = "/api/records/{id}", params(("id" = String, Path, description = "64 hexadecimal digits", pattern = "^[0-9a-f]{64}$")), responses(
    (status = 200, body = Detail), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 404, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn show(State(admin): State<Arc<Admin>>, id: Id) -> Answered<Detail> {
    Ok(Json(Detail::of(&admin.find(&parse_id(id)?).await?)))
}

/// What was changed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Changed {
    pub(crate) id: String,
    pub(crate) action: String,
    /// The state before.
    pub(crate) was: StateName,
}

/// Ends the doubt about an unknown outcome: it happened, with this answer, or it did not.
#[utoipa::path(post, path = "/api/records/{id}/resolve", params(("id" = String, Path, description = "64 hexadecimal digits", pattern = "^[0-9a-f]{64}$")), request_body = Resolve, responses(
    (status = 200, body = Changed), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 404, body = AdminProblem, content_type = "application/problem+json"), (status = 409, body = AdminProblem, content_type = "application/problem+json"),
    (status = 413, body = AdminProblem, content_type = "application/problem+json"), (status = 415, body = AdminProblem, content_type = "application/problem+json"), (status = 422, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn resolve(
    State(admin): State<Arc<Admin>>,
    id: Id,
    headers: HeaderMap,
    decision: Result<Json<Resolve>, JsonRejection>,
) -> Answered<Changed> {
    let id = parse_id(id)?;
    let Json(decision) = decision.map_err(|why| AdminProblem::new(why.status(), why.body_text()))?;
    let resolution = decision.resolution().map_err(AdminProblem::invalid)?;
    let by = By { action: "resolve", who: &who(&headers)?, why: &decision.reason, seen: decision.fence };
    admin.settle(&id, &by, resolution).await
}

/// Why, and at which fence.
#[derive(Debug, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Reason {
    /// Why; written to the audit log.
    #[schema(min_length = 1, max_length = 2000, pattern = r"\S")]
    #[param(min_length = 1, max_length = 2000, pattern = r"\S")]
    reason: String,
    /// The fence that was seen; without it the record's present one is taken.
    #[serde(default, deserialize_with = "whole")]
    fence: Option<u64>,
}

/// It did not happen and can no longer happen: the next retry runs.
#[utoipa::path(post, path = "/api/records/{id}/release", params(("id" = String, Path, description = "64 hexadecimal digits", pattern = "^[0-9a-f]{64}$")), request_body = Reason, responses(
    (status = 200, body = Changed), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 404, body = AdminProblem, content_type = "application/problem+json"), (status = 409, body = AdminProblem, content_type = "application/problem+json"),
    (status = 413, body = AdminProblem, content_type = "application/problem+json"), (status = 415, body = AdminProblem, content_type = "application/problem+json"), (status = 422, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn release(
    State(admin): State<Arc<Admin>>,
    id: Id,
    headers: HeaderMap,
    reason: Result<Json<Reason>, JsonRejection>,
) -> Answered<Changed> {
    let id = parse_id(id)?;
    let Json(reason) = reason.map_err(|why| AdminProblem::new(why.status(), why.body_text()))?;
    let by = By { action: "release", who: &who(&headers)?, why: &reason.reason, seen: reason.fence };
    admin.settle(&id, &by, Resolution::DidNotHappen).await
}

/// Forgets a record: the next request with its key runs.
#[utoipa::path(delete, path = "/api/records/{id}", params(("id" = String, Path, description = "64 hexadecimal digits", pattern = "^[0-9a-f]{64}$"), Reason), responses(
    (status = 200, body = Changed), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 404, body = AdminProblem, content_type = "application/problem+json"), (status = 409, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn forget(
    State(admin): State<Arc<Admin>>,
    id: Id,
    headers: HeaderMap,
    reason: Result<Query<Reason>, QueryRejection>,
) -> Answered<Changed> {
    let id = parse_id(id)?;
    let Query(reason) = reason.map_err(|why| AdminProblem::invalid(why.body_text()))?;
    let by = By { action: "forget", who: &who(&headers)?, why: &reason.reason, seen: reason.fence };
    let found = admin.find(&id).await?;
    if found.snapshot.state.kind() == StateKind::Running {
        return Err(AdminProblem::conflict("an attempt runs; wait for its end"));
    }
    admin.change(&found, &by, |fence| admin.once.forget(&id, fence)).await
}

/// Who changes what, and why.
struct By<'a> {
    action: &'a str,
    who: &'a str,
    why: &'a str,
    seen: Option<u64>,
}

impl Admin {
    async fn settle(&self, id: &RecordId, by: &By<'_>, resolution: Resolution) -> Answered<Changed> {
        let found = self.find(id).await?;
        if found.snapshot.state.kind() != StateKind::Lapsed {
            let state = StateName::of(found.snapshot.state.kind()).name();
            return Err(AdminProblem::conflict(format!(
                "the record is {state}; only an unknown outcome can be decided"
            )));
        }
        self.change(&found, by, |fence| self.once.resolve(id, fence, resolution)).await
    }

    async fn change<F>(&self, found: &Listed, by: &By<'_>, work: impl FnOnce(Fence) -> F) -> Answered<Changed>
    where
        F: Future<Output = Result<Settled, onlyonce::StoreError>>,
    {
        if by.why.trim().is_empty() || by.why.chars().count() > MOST_SAID {
            return Err(AdminProblem::invalid(
                "say why in `reason`, in 1 to 2000 characters: it is written to the audit log",
            ));
        }
        let seen = by.seen.map_or(found.snapshot.fence, Fence);
        let moved_on = || {
            AdminProblem::conflict("the record has moved on since it was seen; look again and decide again")
        };
        if seen != found.snapshot.fence {
            return Err(moved_on());
        }
        let note = |result| self.note(found, by, result);
        note("begun")?;
        let settled = work(seen).await.map_err(|error| AdminProblem::store(&error))?;
        match settled {
            Settled::Lost => {
                note("lost")?;
                Err(moved_on())
            }
            Settled::Applied => {
                note("done")?;
                let (action, record) = (by.action.to_owned(), found.id.to_string());
                let event =
                    Event::Change { action: action.clone(), record, who: by.who.into(), why: by.why.into() };
                // Nobody may be listening.
                let _ = self.events.send(event);
                let was = StateName::of(found.snapshot.state.kind());
                Ok(Json(Changed { id: found.id.to_string(), action, was }))
            }
        }
    }

    fn note(&self, found: &Listed, by: &By<'_>, result: &str) -> Result<(), AdminProblem> {
        let (action, who, why) = (by.action, by.who, by.why);
        let change =
            Change { action, record: found.id.to_string(), fence: found.snapshot.fence.0, who, why, result };
        self.audit().write(&change).map_err(|error| {
            tracing::error!(%error, "the audit log can't be written");
            AdminProblem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the audit log can't be written, so nothing was changed",
            )
        })
    }
}

/// Who acts: the token says "an administrator"; a name can be given beside it.
fn who(headers: &HeaderMap) -> Result<String, AdminProblem> {
    let Some(value) = headers.get("onlyonce-actor") else { return Ok("admin".into()) };
    let is_name = |text: &&str| text.len() <= MOST_SAID && !text.contains(char::is_control);
    let text = std::str::from_utf8(value.as_bytes()).ok().filter(is_name);
    text.map(str::to_owned).ok_or_else(|| AdminProblem::invalid("onlyonce-actor is not a name"))
}

/// What needs a person: unknown outcomes, the one that began first at the head.
#[utoipa::path(get, path = "/api/attention", responses((status = 200, body = Listing), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn attention(State(admin): State<Arc<Admin>>) -> Answered<Listing> {
    let lapsed = admin.store.lapsed(100).await.map_err(|error| AdminProblem::store(&error))?;
    Ok(Json(Listing { records: lapsed.iter().map(RecordView::of).collect(), next: None }))
}

/// Figures of this process, and how many records there are.
#[utoipa::path(get, path = "/api/stats", responses((status = 200, body = Stats), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn stats(State(admin): State<Arc<Admin>>) -> Answered<Stats> {
    let counts = tokio::time::timeout(Duration::from_secs(30), admin.store.count()).await;
    let counts =
        counts.map_err(|_| AdminProblem::new(StatusCode::SERVICE_UNAVAILABLE, "counting took too long"))?;
    let counts = counts.map_err(|error| AdminProblem::store(&error))?;
    let records =
        counts.into_iter().map(|(kind, count)| (StateName::of(kind).name().to_owned(), count)).collect();
    Ok(Json(Stats { records: Some(records), ..admin.metrics.stats(&admin) }))
}

/// Server-sent events: `stats` every second, `change` when a person changed a record, `reloaded`.
#[utoipa::path(get, path = "/api/events", responses((status = 200, content_type = "text/event-stream"), (status = 401, body = AdminProblem, content_type = "application/problem+json")))]
#[allow(dead_code, reason = "it documents `events`, whose type the macro does not understand")]
async fn told_events() {}

/// The effective configuration, as TOML with the source of each value, without secrets.
#[utoipa::path(get, path = "/api/config", responses((status = 200, body = Effective), (status = 401, body = AdminProblem, content_type = "application/problem+json")))]
async fn config(State(admin): State<Arc<Admin>>) -> Json<Effective> {
    Json(Effective { toml: admin.now.read().config.clone() })
}

/// The configuration that is in force.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Effective {
    /// As TOML, with the source of each value behind it.
    toml: String,
}

/// This description.
#[utoipa::path(get, path = "/api/openapi.json", responses((status = 200, content_type = "application/json", body = Object), (status = 401, body = AdminProblem, content_type = "application/problem+json")))]
async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
