//! Refusals of the admin API, as `application/problem+json`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onlyonce::StoreError;
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong, and what to do about it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct AdminProblem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
}

impl AdminProblem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Refused");
        Self { kind: "about:blank", title, status: status.as_u16(), detail: detail.into() }
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    pub(super) fn store(error: &StoreError) -> Self {
        onlyonce::seldom!(error, error = error as &dyn std::error::Error, "the store failed");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("the store failed: {error}"))
    }

    /// The store failed while a record was changed.
    pub(super) fn half_way(error: &StoreError) -> Self {
        let problem = Self::store(error);
        let detail = format!("{}; the record may have been changed: look again", problem.detail);
        Self { detail, ..problem }
    }
}

impl IntoResponse for AdminProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
