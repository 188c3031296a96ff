//! A row as `core::machine` knows it, and back.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::machine::{Now, Record};
use onlyonce_core::{
    Answer, AttemptId, Claim, Fence, Fingerprint, Hash16, Label, Moment, Over, Owner, RecordId, Settlement,
    Verdict,
};

use crate::dialect::Dialect;
use crate::fault::Damaged;
use crate::statements::{COMPLETED, RELEASED, RUNNING, UNKNOWN};
use crate::value::Value;

/// Longer than any setting allows, and short enough that adding it to any time does not overflow.
const LONGEST: Duration = Duration::from_secs(200 * 366 * 24 * 3600);

/// A record, and the time on its server when it was read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) id: RecordId,
    pub(crate) record: Record,
    /// When it expires, as it is stored: a clock that was set may prolong that.
    pub(crate) stored_expires: Moment,
    pub(crate) now: Now,
}

/// Why a row could not be read.
#[derive(Debug)]
pub(crate) enum Unread {
    Driver(sqlx::Error),
    Damaged(Damaged),
}

impl From<sqlx::Error> for Unread {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Damaged> for Unread {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged)
    }
}

/// Reads a row of the columns that every statement reads. `clock` is the time where the database has none.
pub(crate) fn read<DB: Dialect>(row: &DB::Row) -> Result<Found, Unread> {
    let int = |column| DB::int(row, column);
    let bytes = |column| -> Result<Vec<u8>, Unread> { Ok(DB::bytes(row, column)?.unwrap_or_default()) };
    let now = moment(int(16)?);
    let answer = || -> Result<Answer, Unread> { Ok(Answer(bytes(12)?.into())) };
    let verdict = match int(10)? {
        RUNNING => None,
        COMPLETED => Some(Verdict::Completed(answer()?)),
        RELEASED => Some(Verdict::Released),
        UNKNOWN => Some(Verdict::Unknown(answer()?)),
        _ => return Err(Damaged("its status is none that this release knows").into()),
    };
    let settled_at = moment(int(11)?);
    let over = match int(9)? {
        0 => Over::Nothing,
        1 => Over::Released,
        2 => Over::Lapsed,
        _ => return Err(Damaged("what it was begun over is none that this release knows").into()),
    };
    let route = String::from_utf8(bytes(3)?).map_err(|_| Damaged("its route is not UTF-8"))?;
    let version = u8::try_from(int(1)?).map_err(|_| Damaged("the rules of its hash have no number"))?;
    let record = Record {
        fingerprint: Fingerprint::from_parts(version, exactly(&bytes(2)?)?),
        label: Label {
            route: route.into(),
            key: Hash16::from_bytes(exactly(&bytes(4)?)?),
            scope: Hash16::from_bytes(exactly(&bytes(5)?)?),
        },
        fence: Fence(int(6)?.unsigned_abs()),
        owner: Owner::from_bytes(exactly(&bytes(7)?)?),
        attempts: u32::try_from(int(8)?).map_err(|_| Damaged("its attempts are no number"))?,
        over,
        settled: verdict.map(|verdict| (verdict, settled_at)),
        lease_until: moment(int(13)?),
        created: moment(int(14)?),
        expires: moment(int(15)?),
    };
    let id = RecordId::from_bytes(exactly(&bytes(0)?)?);
    let stored_expires = record.expires;
    Ok(Found { id, record, stored_expires, now: Now { moment: now, fence_floor: Fence(now.as_micros()) } })
}

/// The id alone, of a row of which perhaps nothing else can be read.
pub(crate) fn id_of<DB: Dialect>(row: &DB::Row) -> Option<RecordId> {
    let id = DB::bytes(row, 0).ok().flatten()?;
    Some(RecordId::from_bytes(exactly(&id).ok()?))
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Damaged> {
    bytes.try_into().map_err(|_| Damaged("a digest has another length than it should"))
}

pub(crate) fn moment(micros: i64) -> Moment {
    Moment::from_micros(micros.unsigned_abs())
}

pub(crate) fn micros(moment: Moment) -> Value {
    Value::Int(i64::try_from(moment.as_micros()).unwrap_or(i64::MAX))
}

pub(crate) fn span(span: Duration) -> Value {
    Value::Int(i64::try_from(span.min(LONGEST).as_micros()).unwrap_or(i64::MAX))
}

pub(crate) fn fence(fence: Fence) -> i64 {
    i64::try_from(fence.0).unwrap_or(i64::MAX)
}

pub(crate) fn id(id: &RecordId) -> Value {
    Value::bytes(id.as_bytes())
}

/// The arguments of an insert.
pub(crate) fn insert(record: &RecordId, claim: &Claim) -> Vec<Value> {
    vec![
        id(record),
        Value::Int(claim.fingerprint.version().into()),
        Value::bytes(claim.fingerprint.digest()),
        Value::bytes(claim.owner.as_bytes()),
        span(claim.lease),
        span(claim.retain_unsettled),
        Value::bytes(claim.label.route.as_bytes()),
        Value::bytes(claim.label.key.as_bytes()),
        Value::bytes(claim.label.scope.as_bytes()),
    ]
}

/// The arguments of a compare-and-set from what was found to the next record.
pub(crate) fn take(found: &Found, new: &Record) -> Vec<Value> {
    let old = &found.record;
    let over = match new.over {
        Over::Nothing => 0,
        Over::Released => 1,
        Over::Lapsed => 2,
    };
    vec![
        Value::Int(new.fingerprint.version().into()),
        Value::bytes(new.fingerprint.digest()),
        Value::bytes(new.label.route.as_bytes()),
        Value::bytes(new.label.key.as_bytes()),
        Value::bytes(new.label.scope.as_bytes()),
        Value::Int(fence(new.fence)),
        Value::bytes(new.owner.as_bytes()),
        Value::Int(new.attempts.into()),
        Value::Int(over),
        micros(new.lease_until),
        micros(new.created),
        micros(new.expires),
        id(&found.id),
        Value::Int(fence(old.fence)),
        Value::Int(status(old.settled.as_ref().map(|(verdict, _)| verdict))),
        micros(old.lease_until),
        micros(found.stored_expires),
    ]
}

/// The arguments of a settlement.
pub(crate) fn settle(record: &RecordId, attempt: &AttemptId, how: &Settlement) -> Vec<Value> {
    let answer = match &how.verdict {
        Verdict::Completed(Answer(bytes)) | Verdict::Unknown(Answer(bytes)) => Some(Bytes::clone(bytes)),
        Verdict::Released => None,
    };
    vec![
        Value::Int(status(Some(&how.verdict))),
        Value::MaybeBytes(answer),
        span(how.retain),
        id(record),
        Value::bytes(attempt.owner.as_bytes()),
        Value::MaybeInt(attempt.fence.map(fence)),
    ]
}

fn status(verdict: Option<&Verdict>) -> i64 {
    match verdict {
        None => RUNNING,
        Some(Verdict::Completed(_)) => COMPLETED,
        Some(Verdict::Released) => RELEASED,
        Some(Verdict::Unknown(_)) => UNKNOWN,
    }
}
