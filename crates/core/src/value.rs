//! How the results of calls in code are stored: as JSON, behind a version and a flag for success or kept error.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::classify::Classify;
use crate::codec::{CodecError, Reader, SEAL_BYTES, Writer};
use crate::record::Answer;

const FORMAT: u8 = b'V';
const VERSION: u8 = 2;
const OK: u64 = 0;
const KEPT_ERROR: u64 = 1;

pub(crate) fn save<T: Serialize, E: Classify>(result: &Result<T, E>) -> Result<Answer, CodecError> {
    match result {
        Ok(value) => save_ok(value),
        Err(error) => Ok(write(KEPT_ERROR, &error.save()?)),
    }
}

pub(crate) fn save_ok<T: Serialize>(value: &T) -> Result<Answer, CodecError> {
    let json = serde_json::to_vec(value).map_err(|error| CodecError::Invalid(error.to_string()))?;
    Ok(write(OK, &json))
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
