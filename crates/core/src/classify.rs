//! Which failures are answers, which are accidents, and which leave doubt.

use std::convert::Infallible;

use bytes::Bytes;

use crate::codec::CodecError;

/// What becomes of the record when a call has ended in a certain way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It is the answer, for every retry: a success, or a business refusal such as "out of stock".
    Keep,
    /// Nothing happened: a retry may run.
    Release,
    /// Nobody can know: a retry is told so.
    Unknown,
}

/// An error type that knows, for each of its cases, whether it is an answer.
///
/// Only the engineer of the business can decide this, so there is no default. A case that is kept must survive being
/// stored: `save` and `revive` are called for kept cases only. `#[derive(Classify)]` of the `onlyonce` crate writes all three.
///
/// ```
/// use onlyonce_core::{Bytes, Class, Classify, codec::CodecError};
///
/// #[derive(Debug, PartialEq)]
/// enum PayError { CardDeclined(String), DatabaseDown, GatewayTimedOut }
///
/// impl Classify for PayError {
///     fn classify(&self) -> Class {
///         match self {
///             Self::CardDeclined(_) => Class::Keep,
///             Self::DatabaseDown => Class::Release,
///             Self::GatewayTimedOut => Class::Unknown,
///         }
///     }
///     fn save(&self) -> Result<Bytes, CodecError> {
///         match self {
///             Self::CardDeclined(why) => Ok(why.clone().into()),
///             _ => unreachable!("only kept cases are saved"),
///         }
///     }
///     fn revive(saved: Bytes) -> Result<Self, CodecError> {
///         Ok(Self::CardDeclined(String::from_utf8_lossy(&saved).into_owned()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which of its cases are answers",
    note = "derive `Classify` for it, with `#[keep]`, `#[release]` or `#[unknown]` on each case"
)]
pub trait Classify: Sized {
    /// What becomes of the record.
    fn classify(&self) -> Class;

    /// The bytes from which [`revive`](Self::revive) makes the same error again.
    ///
    /// # Errors
    /// If it can't be stored.
    fn save(&self) -> Result<Bytes, CodecError>;

    /// The error that was saved.
    ///
    /// # Errors
    /// If the bytes are not from [`save`](Self::save).
    fn revive(saved: Bytes) -> Result<Self, CodecError>;
}

impl Classify for Infallible {
    fn classify(&self) -> Class {
        match *self {}
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        match *self {}
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Err(CodecError::Invalid("an error was stored for a call that has none".into()))
    }
}
