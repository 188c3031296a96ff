//! What makes two requests with the same key the same request.

use http::header::CONTENT_TYPE;
use http::request::Parts;
use onlyonce_core::json::Json;
use onlyonce_core::{Fingerprint, FingerprintBuilder, InputError};

use crate::merged;

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
    /// Method, path, and these members of the JSON body, by meaning: order and white space do not count, every digit of a number
    /// does. A body that two parsers could read differently (a member that is there twice, or in other letters) is refused.
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
                let unclear =
                    |cause| InputError::new(format!("the body must be JSON that all read alike: {cause}"));
                let document = Json::parse(body).map_err(unclear)?;
                pointers.iter().try_fold(builder, |builder, pointer| {
                    merged::check_member(pointer, parts, &document)?;
                    Ok(match document.at(pointer).map_err(unclear)? {
                        Some(member) => builder.json(member),
                        None => builder.optional(None),
                    })
                })?
            }
        };
        Ok(builder.finish())
    }
}
