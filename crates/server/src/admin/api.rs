//! The JSON API.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use axum::{Json, Router, routing::post};
use onlyonce::{ErrorKind, Listed, Resolution};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};

use super::Admin;
use super::events::{Event, events};
use super::metrics::Stats;
use super::problem::AdminProblem;
use super::repair::{Deed, Repair, Unrepaired};
use super::search::{IdWord, NotOne, Unlisted, Words, several};
use super::view::{AnswerView, Detail, Listing, Outcome, RecordView, Resolve, StateName, whole};

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

/// Which records. What is left out does not matter; what is there must not be empty.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Only those in this state.
    state: Option<StateName>,
    /// Only those of this scope: its digest, or its parts in the order of the configuration, with commas between them.
    #[param(min_length = 1)]
    scope: Option<String>,
    /// Only those of this key: its digest, the key itself, or the id of a record.
    #[param(min_length = 1)]
    q: Option<String>,
    /// Only those of this route, for instance `POST /payments`.
    #[param(min_length = 1)]
    route: Option<String>,
    /// Only those that began within this span, for instance `1h`.
    #[param(min_length = 1)]
    since: Option<String>,
    /// Where to go on: `next` of the page before.
    #[param(min_length = 1)]
    cursor: Option<String>,
    /// How many at most (100, up to 1000).
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of records. One that is short has a `next` if there may be more.
#[utoipa::path(get, path = "/api/records", params(Wanted), responses(
    (status = 200, body = Listing), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn list(
    State(admin): State<Arc<Admin>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Answered<Listing> {
    let Query(wanted) = wanted.map_err(|why| AdminProblem::invalid(why.body_text()))?;
    let limit = wanted.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(AdminProblem::invalid("limit must be between 1 and 1000"));
    }
    let words = Words {
        state: wanted.state,
        route: wanted.route.as_deref(),
        scope: wanted.scope.as_deref(),
        key: wanted.q.as_deref(),
        since: wanted.since.as_deref(),
    };
    let scope = Arc::clone(&admin.now.read().scope);
    let search = words.meaning(|text| scope.named(text)).map_err(AdminProblem::invalid)?;
    let page = search.page(&*admin.store, wanted.cursor.as_deref(), limit).await;
    let page = page.map_err(|why| match why {
        Unlisted::Cursor => AdminProblem::invalid(
            "cursor is not one of this search; take it from `next` of the page before, or leave it out for the first page",
        ),
        Unlisted::Store(error) if error.kind() == ErrorKind::Rejected => {
            AdminProblem::invalid(error.to_string())
        }
        Unlisted::Store(error) => AdminProblem::store(&error),
    })?;
    let records = page.records.iter().map(RecordView::of).collect();
    Ok(Json(Listing { records, next: page.next.map(|cursor| cursor.0) }))
}

type Id = Result<Path<String>, PathRejection>;

impl Admin {
    /// The record whose id is this, or begins so.
    async fn find(&self, id: Id) -> Result<Listed, AdminProblem> {
        let Path(text) = id.map_err(|why| AdminProblem::invalid(why.body_text()))?;
        let word = IdWord::parse(&text).map_err(AdminProblem::invalid)?;
        word.find(&*self.store).await.map_err(|why| match why {
            NotOne::None => AdminProblem::not_found("there is no such record, or it has expired"),
            NotOne::Several(candidates) => AdminProblem::invalid(several(&candidates)),
            NotOne::Store(error) => AdminProblem::store(&error),
        })
    }
}

/// A record with what is stored of its answer.
#[utoipa::path(get, path = "/api/records/{id}", params(("id" = String, Path, description = "64 hexadecimal digits, or as many of the first as no other id begins with", pattern = "^[0-9a-f]{4,64}$")), responses(
    (status = 200, body = Detail), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 404, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn show(State(admin): State<Arc<Admin>>, id: Id) -> Answered<Detail> {
    Ok(Json(Detail::of(&admin.find(id).await?)))
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
#[utoipa::path(post, path = "/api/records/{id}/resolve", params(("id" = String, Path, description = "64 hexadecimal digits, or as many of the first as no other id begins with", pattern = "^[0-9a-f]{4,64}$")), request_body = Resolve, responses(
    (status = 200, body = Changed), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 404, body = AdminProblem, content_type = "application/problem+json"), (status = 409, body = AdminProblem, content_type = "application/problem+json"),
    (status = 413, body = AdminProblem, content_type = "application/problem+json"), (status = 415, body = AdminProblem, content_type = "application/problem+json"), (status = 422, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn resolve(
    State(admin): State<Arc<Admin>>,
    id: Id,
    headers: HeaderMap,
    decision: Result<Json<Resolve>, JsonRejection>,
) -> Answered<Changed> {
    let Json(decision) = decision.map_err(|why| AdminProblem::new(why.status(), why.body_text()))?;
    let deed = decision.deed().map_err(AdminProblem::invalid)?;
    let Resolve { reason: why, fence, .. } = decision;
    let repair = Repair { action: "resolve", deed, who: who(&headers)?, why, fence, state: None };
    admin.carry_out(id, repair).await
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
#[utoipa::path(post, path = "/api/records/{id}/release", params(("id" = String, Path, description = "64 hexadecimal digits, or as many of the first as no other id begins with", pattern = "^[0-9a-f]{4,64}$")), request_body = Reason, responses(
    (status = 200, body = Changed), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 404, body = AdminProblem, content_type = "application/problem+json"), (status = 409, body = AdminProblem, content_type = "application/problem+json"),
    (status = 413, body = AdminProblem, content_type = "application/problem+json"), (status = 415, body = AdminProblem, content_type = "application/problem+json"), (status = 422, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn release(
    State(admin): State<Arc<Admin>>,
    id: Id,
    headers: HeaderMap,
    reason: Result<Json<Reason>, JsonRejection>,
) -> Answered<Changed> {
    let Json(Reason { reason: why, fence }) =
        reason.map_err(|why| AdminProblem::new(why.status(), why.body_text()))?;
    let deed = Deed::Decide(Resolution::DidNotHappen, None);
    let repair = Repair { action: "release", deed, who: who(&headers)?, why, fence, state: None };
    admin.carry_out(id, repair).await
}

/// Why, and what was seen.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Forgetting {
    /// Why; written to the audit log.
    #[param(min_length = 1, max_length = 2000, pattern = r"\S")]
    reason: String,
    /// The fence that was seen; without it the record's present one is taken.
    #[serde(default, deserialize_with = "whole")]
    fence: Option<u64>,
    /// The state that was seen; without it the record's present one is taken.
    state: Option<StateName>,
}

/// Forgets a record: the next request with its key runs.
#[utoipa::path(delete, path = "/api/records/{id}", params(("id" = String, Path, description = "64 hexadecimal digits, or as many of the first as no other id begins with", pattern = "^[0-9a-f]{4,64}$"), Forgetting), responses(
    (status = 200, body = Changed), (status = 400, body = AdminProblem, content_type = "application/problem+json"), (status = 401, body = AdminProblem, content_type = "application/problem+json"), (status = 404, body = AdminProblem, content_type = "application/problem+json"), (status = 409, body = AdminProblem, content_type = "application/problem+json"), (status = 503, body = AdminProblem, content_type = "application/problem+json")))]
async fn forget(
    State(admin): State<Arc<Admin>>,
    id: Id,
    headers: HeaderMap,
    seen: Result<Query<Forgetting>, QueryRejection>,
) -> Answered<Changed> {
    let Query(Forgetting { reason: why, fence, state }) =
        seen.map_err(|why| AdminProblem::invalid(why.body_text()))?;
    let repair = Repair { action: "forget", deed: Deed::Forget, who: who(&headers)?, why, fence, state };
    admin.carry_out(id, repair).await
}

impl Admin {
    /// Makes a change to its end: whoever asked for it may have gone.
    async fn carry_out(self: Arc<Self>, id: Id, repair: Repair) -> Answered<Changed> {
        if repair.why.trim().is_empty() || repair.why.chars().count() > MOST_SAID {
            return Err(AdminProblem::invalid(
                "say why in `reason`, in 1 to 2000 characters: it is written to the audit log",
            ));
        }
        let found = self.find(id).await?;
        let changing = tokio::spawn(async move { self.change(&found, &repair).await });
        changing.await.unwrap_or_else(|_| {
            let what = "the change ended half-way; look what became of it";
            Err(AdminProblem::new(StatusCode::INTERNAL_SERVER_ERROR, what))
        })
    }

    async fn change(&self, found: &Listed, repair: &Repair) -> Answered<Changed> {
        // What is decided now is kept for as long as the route says now.
        let once = self.gate.live().layer.engine_of(&found.snapshot.label.route);
        let done = repair.apply(&once, &*self.store, &self.audit(), found).await;
        done.map_err(|why| match why {
            Unrepaired::Moved => AdminProblem::conflict(
                "the record has moved on since it was seen; look again and decide again",
            ),
            Unrepaired::Runs => AdminProblem::conflict("an attempt runs; wait for its end"),
            Unrepaired::Known(state) => AdminProblem::conflict(format!(
                "the record is {}; only an unknown outcome can be decided",
                state.name()
            )),
            Unrepaired::Mark => {
                AdminProblem::conflict("it is the mark of a sequence, and has no answer; release it")
            }
            Unrepaired::Unwritten(error) => {
                tracing::error!(%error, "the audit log can't be written");
                AdminProblem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the audit log can't be written, so nothing was changed",
                )
            }
            Unrepaired::Store(error) => AdminProblem::half_way(&error),
        })?;
        let (action, record) = (repair.action.to_owned(), found.id.to_string());
        let (who, why, outcome) = (repair.who.clone(), repair.why.clone(), repair.deed.outcome());
        // Nobody may be listening.
        let _ = self.events.send(Event::Change {
            action: action.clone(),
            outcome,
            record: record.clone(),
            who,
            why,
        });
        let was = StateName::of(found.snapshot.state.kind());
        Ok(Json(Changed { id: record, action, was }))
    }
}

/// Who acts: the token says "an administrator"; a name can be given beside it.
fn who(headers: &HeaderMap) -> Result<String, AdminProblem> {
    let Some(value) = headers.get("onlyonce-actor") else { return Ok("admin".into()) };
    let is_name =
        |text: &&str| !text.trim().is_empty() && text.len() <= MOST_SAID && !text.contains(char::is_control);
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
