//! What makes two requests with the same key the same request.

use http::header::CONTENT_TYPE;
use http::request::Parts;
use onlyonce_core::{Fingerprint, FingerprintBuilder, InputError};
use serde_json::Value;

/// What makes two requests with the same key the same request.
///
/// ```
/// use onlyonce_http::FingerprintOf;
/// let only_the_money = FingerprintOf::Json(vec!["/amount".into(), "/currency".into()]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FingerprintOf {
    /// Method, path, query, content type and every byte of the body.
    #[default]
    Everything,
    /// Method, path, and these members of the JSON body, by meaning: order and white space do not count.
    Json(Vec<String>),
}

impl FingerprintOf {
    pub(crate) fn validate(&self) -> Result<(), InputError> {
        let Self::Json(pointers) = self else { return Ok(()) };
        if pointers.is_empty() {
            return Err(InputError::new(
                "a fingerprint of no JSON members would make every payload the same",
            ));
        }
        match pointers.iter().find(|pointer| !pointer.starts_with('/')) {
            Some(bad) => Err(InputError::new(format!("the JSON pointer {bad:?} does not start with '/'"))),
            None => Ok(()),
        }
    }

    pub(crate) fn of(&self, parts: &Parts, path: &str, body: &[u8]) -> Result<Fingerprint, InputError> {
        let builder = FingerprintBuilder::new().part(parts.method.as_str().as_bytes()).part(path.as_bytes());
        let builder = match self {
            Self::Everything => builder
                .optional(parts.uri.query().map(str::as_bytes))
                .optional(parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes()))
                .part(body),
            Self::Json(pointers) => {
                let document: Value = serde_json::from_slice(body).map_err(|cause| {
                    InputError::new(format!("the body must be JSON here, and can't be read: {cause}"))
                })?;
                pointers.iter().fold(builder, |builder, pointer| match document.pointer(pointer) {
                    Some(member) => builder.json(member),
                    None => builder.optional(None),
                })
            }
        };
        Ok(builder.finish())
    }
}
