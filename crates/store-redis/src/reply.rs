//! What the scripts reply, read strictly.

use bytes::Bytes;
use onlyonce_core::machine::Record;
use onlyonce_core::{Begin, Fence, Moment, Snapshot};
use redis::Value;

use crate::fault::Damaged;
use crate::stored;

/// The answer to a begin.
pub(crate) fn begun(reply: Value) -> Result<Begin, Damaged> {
    let nonsense = Damaged("the reply to a begin is of no known form");
    let Value::Array(reply) = reply else { return Err(nonsense) };
    match <[Value; 4]>::try_from(reply) {
        Ok([Value::Int(1), Value::Int(fence), Value::Int(attempt), Value::BulkString(over)]) => {
            Ok(Begin::Acquired {
                fence: Fence(u64::try_from(fence).map_err(|_| Damaged("a fence is negative"))?),
                attempt: u32::try_from(attempt).map_err(|_| Damaged("an attempt has no such number"))?,
                over: stored::over(over.first().copied().unwrap_or_default())?,
            })
        }
        Ok(_) => Err(nonsense),
        Err(reply) => match <[Value; 3]>::try_from(reply) {
            Ok([Value::Int(0), Value::Int(now), Value::BulkString(value)]) => {
                let (record, now) = read(now, value)?;
                Ok(Begin::Taken(record.snapshot(now)))
            }
            _ => Err(nonsense),
        },
    }
}

/// The answer to a read: absent, or as it is at the server's time.
pub(crate) fn got(reply: Value) -> Result<Option<Snapshot>, Damaged> {
    let Value::Array(reply) = reply else { return Err(Damaged("the reply to a read is no list")) };
    let mut reply = reply.into_iter();
    match (reply.next(), reply.next()) {
        // Lua ends a list at the first nothing.
        (Some(Value::Int(_)), None | Some(Value::Nil)) => Ok(None),
        (Some(Value::Int(now)), Some(Value::BulkString(value))) => {
            let (record, now) = read(now, value)?;
            Ok((!record.is_expired(now)).then(|| record.snapshot(now)))
        }
        _ => Err(Damaged("the reply to a read is of no known form")),
    }
}

fn read(now: i64, value: Vec<u8>) -> Result<(Record, Moment), Damaged> {
    let now = u64::try_from(now).map_err(|_| Damaged("the time of the server is before 1970"))?;
    Ok((stored::decode(Bytes::from(value))?, Moment::from_micros(now)))
}
