//! `Tx` as an argument of an axum handler.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use onlyonce_core::Permit;

use super::handle::{NoTx, Tx};
use crate::dialect::Database;

impl<S: Send + Sync, DB: Database> FromRequestParts<S> for Tx<DB> {
    type Rejection = NoTx;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoTx> {
        let permit = parts.extensions.get::<Permit>().ok_or(NoTx::NotInTransaction)?;
        Self::of(permit)
    }
}

impl IntoResponse for NoTx {
    fn into_response(self) -> Response {
        tracing::error!(error = &self as &dyn std::error::Error, "a handler has no transaction");
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}
