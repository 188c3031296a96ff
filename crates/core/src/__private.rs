//! What the code that the macros write needs, so that its users need no dependency but this one. Not an interface: it may
//! change in any release.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
pub use serde::Serialize;
pub use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::codec::CodecError;
use crate::value::exact_json;

/// Takes the two types out of a `Result`, also where it hides behind an alias.
#[diagnostic::on_unimplemented(
    message = "an idempotent function returns a `Result`, not `{Self}`",
    label = "this is not a `Result`",
    note = "a caller must be told when the call did not run: its error type is made from a `Refusal`"
)]
pub trait Outcome {
    /// What is replayed.
    type Value;
    /// What is classified.
    type Error;
}

impl<T, E> Outcome for Result<T, E> {
    type Value = T;
    type Error = E;
}

/// A key or scope as text.
pub fn text<T: fmt::Display + ?Sized>(value: &T) -> String {
    value.to_string()
}

/// A kept case of an error: its name, and its fields by name (or place), as JSON.
///
/// The fields stay text until their type is known, so that nothing is lost on the way through a looser form.
#[derive(Debug)]
pub struct Kept {
    name: String,
    fields: BTreeMap<String, Box<RawValue>>,
}

impl Kept {
    /// A case without fields.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), fields: BTreeMap::new() }
    }

    /// The case with this field.
    ///
    /// # Errors
    /// If JSON can't keep it exactly.
    pub fn with<T: Serialize + DeserializeOwned>(
        mut self,
        field: &str,
        value: &T,
    ) -> Result<Self, CodecError> {
        let json = exact_json(value).map_err(|error| self.invalid(field, &error.to_string()))?;
        let json = String::from_utf8(json).map_err(|error| self.invalid(field, &error.to_string()))?;
        let json = RawValue::from_string(json).map_err(|error| self.invalid(field, &error.to_string()))?;
        self.fields.insert(field.to_owned(), json);
        Ok(self)
    }

    /// The bytes that [`read`](Self::read) takes.
    ///
    /// # Errors
    /// Never in practice: every field is JSON already.
    pub fn save(self) -> Result<Bytes, CodecError> {
        serde_json::to_vec(&BTreeMap::from([(self.name, self.fields)]))
            .map(Bytes::from)
            .map_err(|error| CodecError::Invalid(error.to_string()))
    }

    /// The case that was saved.
    ///
    /// # Errors
    /// If the bytes are not from [`save`](Self::save).
    pub fn read(saved: &[u8]) -> Result<Self, CodecError> {
        let cases: BTreeMap<String, BTreeMap<String, Box<RawValue>>> =
            serde_json::from_slice(saved).map_err(|error| CodecError::Invalid(error.to_string()))?;
        let mut cases = cases.into_iter();
        match (cases.next(), cases.next()) {
            (Some((name, fields)), None) => Ok(Self { name, fields }),
            _ => Err(CodecError::Invalid("a kept error has exactly one case".into())),
        }
    }

    /// Which case it is.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of a field. One that was added since may be an `Option`: then it is `None`.
    ///
    /// # Errors
    /// If it is absent or of another type.
    pub fn field<T: DeserializeOwned>(&self, field: &str) -> Result<T, CodecError> {
        let Some(json) = self.fields.get(field) else {
            return serde_json::from_str("null").map_err(|_| self.invalid(field, "it is absent"));
        };
        serde_json::from_str(json.get()).map_err(|error| self.invalid(field, &error.to_string()))
    }

    /// The error type has no such case, or does not keep it any more.
    #[must_use]
    pub fn not_kept(name: &str) -> CodecError {
        CodecError::Invalid(format!("`{name}` is not a kept case of the error type"))
    }

    fn invalid(&self, field: &str, why: &str) -> CodecError {
        CodecError::Invalid(format!("field `{field}` of the kept error `{}`: {why}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_case_comes_back_with_every_digit() {
        let kept = Kept::new("Limit").with("most", &u128::MAX).unwrap().with("why", &"£".to_owned()).unwrap();
        let kept = Kept::read(&kept.save().unwrap()).unwrap();
        assert_eq!(kept.name(), "Limit");
        assert_eq!(kept.field::<u128>("most").unwrap(), u128::MAX);
        assert_eq!(kept.field::<String>("why").unwrap(), "£");
    }

    #[test]
    fn a_field_that_json_can_not_keep_is_refused_when_it_is_stored() {
        for number in [f64::NAN, f64::INFINITY] {
            let error = Kept::new("Limit").with("most", &number).unwrap_err().to_string();
            assert!(error.contains("field `most` of the kept error `Limit`"), "{error}");
        }
        assert!(Kept::new("Limit").with("most", &Some(())).is_err());
        assert!(Kept::new("Limit").with("most", &(0.1_f64 * 1.19)).is_ok());
    }

    #[test]
    fn a_field_added_since_is_none_or_an_error() {
        let kept = Kept::read(br#"{"Declined":{}}"#).unwrap();
        assert_eq!(kept.field::<Option<u8>>("code").unwrap(), None);
        let error = kept.field::<u8>("code").unwrap_err().to_string();
        assert!(error.contains("field `code` of the kept error `Declined`: it is absent"), "{error}");
    }

    #[test]
    fn bytes_from_elsewhere_are_refused() {
        for bytes in [&b""[..], b"{}", b"7", br#"{"A":{},"B":{}}"#, br#"{"A":7}"#] {
            assert!(matches!(Kept::read(bytes), Err(CodecError::Invalid(_))), "{bytes:?}");
        }
    }
}
