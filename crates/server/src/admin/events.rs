//! What happens, as it happens: server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tokio_stream::wrappers::{BroadcastStream, IntervalStream};

use super::Admin;
use super::problem::AdminProblem;
use super::view::Outcome;

/// What is told.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// A person changed a record.
    Change { action: String, outcome: Option<Outcome>, record: String, who: String, why: String },
    /// The configuration was read again.
    Reloaded,
}

const EVERY: Duration = Duration::from_secs(1);
/// How many may listen at a time: each keeps a place of the admin listener, and probes need some too.
const MOST_LISTENERS: usize = 16;

pub(super) async fn events(
    State(admin): State<Arc<Admin>>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, AdminProblem> {
    // First a place, then the count: two who come at once can't both take the last one.
    let place = admin.events.subscribe();
    if admin.events.receiver_count() > MOST_LISTENERS {
        let why = format!("{MOST_LISTENERS} listen to events already; end one of them, or ask /api/stats");
        return Err(AdminProblem::new(StatusCode::SERVICE_UNAVAILABLE, why));
    }
    let changes = BroadcastStream::new(place).filter_map(async |event| {
        let event = event.ok()?;
        let name = match &event {
            Event::Change { .. } => "change",
            Event::Reloaded => "reloaded",
        };
        sse::Event::default().event(name).json_data(&event).ok()
    });
    // Whoever came in with a token that no longer counts is shown out.
    let (token, doorkeeper) = (admin.token(), Arc::clone(&admin));
    let ticks = IntervalStream::new(tokio::time::interval(EVERY)).filter_map(move |_| {
        let stats = admin.metrics.stats(&admin);
        async move { sse::Event::default().event("stats").json_data(stats).ok() }
    });
    let told = stream::select(Box::pin(changes), Box::pin(ticks));
    let told = told.take_while(move |_| std::future::ready(doorkeeper.token().is_same(&token))).map(Ok);
    Ok(Sse::new(told).keep_alive(KeepAlive::default()))
}
