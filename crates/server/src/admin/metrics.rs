//! Counters and histograms, for Prometheus and for the statistics of the API.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use crate::failure::Failure;

const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const KEEP_UP: Duration = Duration::from_secs(5);

/// The metrics of this process.
#[derive(Clone)]
pub(crate) struct Handle(PrometheusHandle);

/// Installs the recorder, once in a process.
pub(crate) fn install() -> Result<Handle, Failure> {
    static INSTALLED: OnceLock<Handle> = OnceLock::new();
    if let Some(handle) = INSTALLED.get() {
        return Ok(handle.clone());
    }
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS);
    let recorder =
        builder.map_err(|error| Failure::because("metrics can't be kept", &error))?.build_recorder();
    let handle = Handle(recorder.handle());
    metrics::set_global_recorder(recorder)
        .map_err(|error| Failure::because("metrics can't be kept", &error))?;
    metrics::describe_counter!("onlyonce_requests_total", "Requests with a key, by route and result");
    metrics::describe_counter!(
        "onlyonce_unkeyed_total",
        "Writes without a key on declared routes, passed on unprotected"
    );
    metrics::describe_gauge!(
        "onlyonce_unknown_outcomes",
        "Records in the store whose outcome is unknown and waits for a person, at most 10000"
    );
    metrics::describe_gauge!(
        "onlyonce_unknown_oldest_seconds",
        "How long ago the oldest call with an unknown outcome began, 0 if there is none"
    );
    metrics::describe_counter!(
        "onlyonce_left_behind_total",
        "Calls that nothing was heard of, found in the store after a start: mostly those of a crash"
    );
    metrics::describe_histogram!(
        "onlyonce_request_seconds",
        "How long requests with a key took, by route and result"
    );
    metrics::describe_histogram!(
        "onlyonce_store_seconds",
        "How long the store took, by operation and result"
    );
    metrics::describe_gauge!("onlyonce_in_flight", "Calls under way");
    metrics::describe_gauge!("onlyonce_memory_bytes", "What is buffered, of limits.memory");
    metrics::describe_gauge!("onlyonce_memory_limit_bytes", "limits.memory");
    metrics::describe_gauge!("onlyonce_connections", "Connections of callers, WebSockets too");
    metrics::describe_gauge!("onlyonce_draining", "1 while the gateway finishes its last requests");
    Ok(INSTALLED.get_or_init(|| handle).clone())
}

/// Figures of this process since its start.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Stats {
    /// Calls under way.
    pub(crate) in_flight: usize,
    pub(crate) draining: bool,
    /// Requests with a key, by result.
    pub(crate) requests: BTreeMap<String, u64>,
    /// The same, by route and result.
    pub(crate) routes: BTreeMap<String, BTreeMap<String, u64>>,
    /// Records in the store, by state; absent in events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) records: Option<BTreeMap<String, u64>>,
}

impl Handle {
    pub(super) fn text(&self, admin: &Admin) -> String {
        metrics::gauge!("onlyonce_in_flight").set(admin.once.in_flight() as f64);
        let resources = &admin.gate.resources;
        metrics::gauge!("onlyonce_memory_bytes").set(resources.memory.used() as f64);
        metrics::gauge!("onlyonce_memory_limit_bytes").set(resources.memory.limit() as f64);
        metrics::gauge!("onlyonce_connections").set(resources.places.taken() as f64);
        metrics::gauge!("onlyonce_draining").set(f64::from(u8::from(admin.gate.is_draining())));
        self.0.render()
    }

    pub(super) fn stats(&self, admin: &Admin) -> Stats {
        let mut stats = Stats {
            in_flight: admin.once.in_flight(),
            draining: admin.gate.is_draining(),
            ..Stats::default()
        };
        for line in self.0.render().lines() {
            if let Some((route, result, count)) = request_line(line) {
                *stats.requests.entry(result.clone()).or_default() += count;
                *stats.routes.entry(route).or_default().entry(result).or_default() += count;
            }
        }
        stats
    }
}

/// Reads `onlyonce_requests_total{route="POST /a",result="executed"} 3`.
fn request_line(line: &str) -> Option<(String, String, u64)> {
    let (labels, count) = line.strip_prefix("onlyonce_requests_total{")?.rsplit_once("} ")?;
    let of = |name: &str| {
        let from = labels.find(&format!("{name}=\""))? + name.len() + 2;
        let text = &labels[from..];
        let mut escaped = false;
        let end = text.find(|letter| {
            let end = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            end
        })?;
        Some(text[..end].replace("\\\"", "\"").replace("\\\\", "\\"))
    };
    Some((of("route")?, of("result")?, count.trim().parse().ok()?))
}

/// Histograms gather samples that have to be sorted now and then.
pub(crate) async fn keep_up(admin: Arc<Admin>) {
    loop {
        tokio::time::sleep(KEEP_UP).await;
        admin.metrics.0.run_upkeep();
        onlyonce::http::problem::log_refusals();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_request_is_read_back() {
        let line = r#"onlyonce_requests_total{route="POST /a",result="executed"} 3"#;
        assert_eq!(request_line(line), Some(("POST /a".into(), "executed".into(), 3)));
        let quoted = r#"onlyonce_requests_total{route="POST /\"a",result="x"} 3"#;
        assert_eq!(request_line(quoted), Some(("POST /\"a".into(), "x".into(), 3)));
        assert_eq!(request_line("# HELP onlyonce_requests_total"), None);
    }
}
