//! How the results of calls in code are stored: as JSON, behind a version and a flag for success or kept error.
//!
//! What JSON can't keep exactly is not stored: a retry that is refused is better than one that gets another answer.

use std::fmt::Display;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::canonical::{self, Items};
use crate::classify::{Class, Classify};
use crate::codec::{CodecError, Reader, SEAL_BYTES, Writer};
use crate::record::Answer;

const FORMAT: u8 = b'V';
const VERSION: u8 = 2;
const OK: u64 = 0;
const KEPT_ERROR: u64 = 1;

pub(crate) fn save<T, E>(result: &Result<T, E>) -> Result<Answer, CodecError>
where
    T: Serialize + DeserializeOwned,
    E: Classify,
{
    match result {
        Ok(value) => save_ok(value),
        Err(error) => save_kept(error),
    }
}

pub(crate) fn save_ok<T: Serialize + DeserializeOwned>(value: &T) -> Result<Answer, CodecError> {
    Ok(write(OK, &exact_json(value)?))
}

/// An error says itself how it is stored; it is asked for the same again.
fn save_kept<E: Classify>(error: &E) -> Result<Answer, CodecError> {
    let saved = error.save()?;
    let revived = E::revive(saved.clone())?;
    if revived.classify() != Class::Keep || !is_same(&revived.save()?, &saved) {
        return Err(CodecError::Invalid("the error that is revived from it is another one".into()));
    }
    Ok(write(KEPT_ERROR, &saved))
}

/// Whether two forms of an error are the same. Where they are JSON, the order of members and of sets is chance.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let canonical = |bytes| {
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        canonical::encode(&value, Items::InAnyOrder).ok()
    };
    one == other || canonical(one).is_some_and(|one| canonical(other) == Some(one))
}

/// The JSON of a value, if it is read back as the same value.
pub(crate) fn exact_json<T: Serialize + DeserializeOwned>(value: &T) -> Result<Vec<u8>, CodecError> {
    let invalid = |error: &dyn Display| CodecError::Invalid(error.to_string());
    let json = serde_json::to_vec(value).map_err(|error| invalid(&error))?;
    let revived: T = serde_json::from_slice(&json).map_err(|error| invalid(&error))?;
    let bytes = |value: &T| canonical::encode(value, Items::InAnyOrder).map_err(|error| invalid(&error));
    if bytes(value)? != bytes(&revived)? {
        return Err(CodecError::Invalid(
            "JSON has no way to write it exactly (`Some(())`, `Some(None)`, NaN and the infinities are such values)".into(),
        ));
    }
    Ok(json)
}

pub(crate) fn revive<T: DeserializeOwned, E: Classify>(answer: Answer) -> Result<Result<T, E>, CodecError> {
    let mut reader = Reader::sealed(answer.0, FORMAT, VERSION)?;
    let flag = reader.number()?;
    let body: Bytes = reader.bytes()?;
    reader.finish()?;
    match flag {
        OK => serde_json::from_slice(&body).map(Ok).map_err(|error| CodecError::Invalid(error.to_string())),
        KEPT_ERROR => E::revive(body).map(Err),
        other => Err(CodecError::Invalid(format!("result flag {other}"))),
    }
}

fn write(flag: u64, body: &[u8]) -> Answer {
    let writer = Writer::with_capacity(FORMAT, VERSION, body.len() + 11 + SEAL_BYTES);
    Answer(writer.number(flag).bytes(body).seal())
}
