//! What the scripts reply, read strictly.

use bytes::Bytes;
use onlyonce_core::{Begin, Fence, Moment, Over, Snapshot};
use redis::Value;

use crate::fault::Damaged;
use crate::server_time::ServerTime;
use crate::stored;

/// The answer to a begin: the fence of a first attempt, a completed record, another record at the server's time, or another
/// attempt.
pub(crate) fn begun(reply: Value, time: &ServerTime) -> Result<Begin, Damaged> {
    let nonsense = Damaged("the reply to a begin is of no known form");
    let list = match reply {
        Value::Int(now) => {
            time.learn(moment(now)?);
            return Ok(Begin::Acquired { fence: fence(now)?, attempt: 1, over: Over::Nothing });
        }
        Value::BulkString(value) => {
            return Ok(Begin::Taken(stored::decode(Bytes::from(value))?.snapshot(time.now())));
        }
        Value::Array(list) => list,
        _ => return Err(nonsense),
    };
    match <[Value; 2]>::try_from(list) {
        Ok([Value::Int(now), Value::BulkString(value)]) => {
            let now = moment(now)?;
            time.learn(now);
            Ok(Begin::Taken(stored::decode(Bytes::from(value))?.snapshot(now)))
        }
        Ok(_) => Err(nonsense),
        Err(list) => match &list[..] {
            [Value::Int(number), Value::Int(attempt), Value::BulkString(over)] => Ok(Begin::Acquired {
                fence: fence(*number)?,
                attempt: u32::try_from(*attempt).map_err(|_| Damaged("an attempt has no such number"))?,
                over: stored::over(over.first().copied().unwrap_or_default())?,
            }),
            _ => Err(nonsense),
        },
    }
}

/// The answer to a read: absent, or as it is at the server's time.
pub(crate) fn got(reply: Value, time: &ServerTime) -> Result<Option<Snapshot>, Damaged> {
    let Value::Array(reply) = reply else { return Err(Damaged("the reply to a read is no list")) };
    let mut reply = reply.into_iter();
    let Some(Value::Int(now)) = reply.next() else { return Err(Damaged("the reply to a read has no time")) };
    let now = moment(now)?;
    time.learn(now);
    match reply.next() {
        // Lua ends a list at the first nothing.
        None | Some(Value::Nil) => Ok(None),
        Some(Value::BulkString(value)) => {
            let record = stored::decode(Bytes::from(value))?;
            Ok((!record.is_expired(now)).then(|| record.snapshot(now)))
        }
        _ => Err(Damaged("the reply to a read is of no known form")),
    }
}

fn fence(number: i64) -> Result<Fence, Damaged> {
    u64::try_from(number).map(Fence).map_err(|_| Damaged("a fence is negative"))
}

fn moment(now: i64) -> Result<Moment, Damaged> {
    let now = u64::try_from(now).map_err(|_| Damaged("the time of the server is before 1970"))?;
    Ok(Moment::from_micros(now))
}
