//! The form of a record at the server. The scripts read and write the same layout: see `scripts/record.lua`.

use std::time::Duration;

use bytes::{Buf, Bytes};
use onlyonce_core::machine::Record;
use onlyonce_core::{
    Answer, AttemptId, Claim, Fence, Fingerprint, Hash16, Label, Moment, Over, Owner, Takeover, Verdict,
};

use crate::fault::Damaged;

/// Everything before the route.
pub(crate) const HEAD: usize = 134;

/// Spans beyond this are cut, so that sums with the time of the day stay exact in a Lua number.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A span as the scripts take it.
pub(crate) fn micros(span: Duration) -> String {
    span.min(LONGEST).as_micros().to_string()
}

/// A span as Redis takes it, not shorter.
pub(crate) fn millis(span: Duration) -> String {
    span.min(LONGEST).as_micros().div_ceil(1000).to_string()
}

pub(crate) fn fence(fence: Fence) -> [u8; 8] {
    fence.0.to_be_bytes()
}

/// The owner of an attempt, and its fence where that is known.
pub(crate) fn attempt(attempt: &AttemptId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    bytes.extend_from_slice(attempt.owner.as_bytes());
    bytes.extend(attempt.fence.map(fence).into_iter().flatten());
    bytes
}

/// Payload, key, scope and route: the end of a record that has no answer yet.
pub(crate) fn tail(fingerprint: &Fingerprint, label: &Label) -> Vec<u8> {
    let route = label.route.as_bytes();
    let length = u32::try_from(route.len()).unwrap_or(u32::MAX).to_be_bytes();
    let digest = &fingerprint.digest()[..];
    [&[fingerprint.version()], digest, label.key.as_bytes(), label.scope.as_bytes(), &length, route].concat()
}

/// What may be taken over: nothing, anything, or what has the fence that was seen.
pub(crate) fn takeover(claim: &Claim) -> Vec<u8> {
    match claim.takeover {
        Takeover::Never => Vec::new(),
        Takeover::Allowed => b"A".to_vec(),
        Takeover::Seen(seen) => fence(seen).to_vec(),
    }
}

pub(crate) fn verdict(verdict: &Verdict) -> (&'static [u8], &[u8]) {
    match verdict {
        Verdict::Completed(answer) => (b"C", &answer.0),
        Verdict::Released => (b"F", &[]),
        Verdict::Unknown(evidence) => (b"U", &evidence.0),
    }
}

pub(crate) fn over(letter: u8) -> Result<Over, Damaged> {
    match letter {
        b'N' => Ok(Over::Nothing),
        b'R' => Ok(Over::Released),
        b'L' => Ok(Over::Lapsed),
        _ => Err(Damaged("what the attempt was begun over is none of N, R and L")),
    }
}

/// Reads a whole record, or the beginning of one that has all of its route: the answer is then cut.
pub(crate) fn decode(mut value: Bytes) -> Result<Record, Damaged> {
    if value.len() < HEAD || value[..2] != [b'O', 1] {
        return Err(Damaged("what is stored is not a record of this version"));
    }
    value.advance(2);
    let (state, over) = (value.get_u8(), over(value.get_u8())?);
    let _waited_for = value.get_u8();
    let owner = Owner::from_bytes(array(&mut value));
    let (fence, attempts) = (Fence(value.get_u64()), value.get_u32());
    let [created, lease_until, settled_at, expires] = [(); 4].map(|()| Moment::from_micros(value.get_u64()));
    let fingerprint = Fingerprint::from_parts(value.get_u8(), array(&mut value));
    let (key, scope) = (Hash16::from_bytes(array(&mut value)), Hash16::from_bytes(array(&mut value)));
    let length = usize::try_from(value.get_u32()).unwrap_or(usize::MAX);
    if value.len() < length {
        return Err(Damaged("the record ends within its route"));
    }
    let route = value.split_to(length);
    let route = std::str::from_utf8(&route).map_err(|_| Damaged("the route is not UTF-8"))?.into();
    let verdict = match state {
        b'R' => None,
        b'C' => Some(Verdict::Completed(Answer(value))),
        b'F' => Some(Verdict::Released),
        b'U' => Some(Verdict::Unknown(Answer(value))),
        _ => return Err(Damaged("the state is none of R, C, F and U")),
    };
    Ok(Record {
        fingerprint,
        label: Label { route, key, scope },
        fence,
        owner,
        attempts,
        over,
        settled: verdict.map(|verdict| (verdict, settled_at)),
        lease_until,
        created,
        expires,
    })
}

/// The next bytes; the caller knows that they are there.
fn array<const N: usize>(value: &mut Bytes) -> [u8; N] {
    let mut bytes = [0; N];
    value.copy_to_slice(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let said = Label {
            route: "POST /".into(),
            key: Hash16::from_bytes([3; 16]),
            scope: Hash16::from_bytes([4; 16]),
        };
        let mut value = b"O\x01CL0".to_vec();
        value.extend([7; 16]);
        value.extend(9_u64.to_be_bytes());
        value.extend(2_u32.to_be_bytes());
        for time in [10_u64, 20, 30, 40] {
            value.extend(time.to_be_bytes());
        }
        value.extend(tail(&Fingerprint::from_parts(1, [5; 32]), &said));
        value
    }

    #[test]
    fn a_record_is_read_field_by_field() {
        let mut value = sample();
        assert_eq!(value.len(), HEAD + "POST /".len());
        value.extend(b"answer");
        let record = decode(value.into()).unwrap();
        assert_eq!((record.fence, record.attempts, record.over), (Fence(9), 2, Over::Lapsed));
        let answer = Verdict::Completed(Answer(Bytes::from_static(b"answer")));
        assert_eq!(record.settled, Some((answer, Moment::from_micros(30))));
        assert_eq!((&*record.label.route, record.expires), ("POST /", Moment::from_micros(40)));
    }

    #[test]
    fn whatever_the_bytes_nothing_panics_and_nothing_is_guessed() {
        let whole = sample();
        for length in 0..whole.len() {
            assert!(decode(Bytes::copy_from_slice(&whole[..length])).is_err(), "{length} bytes");
        }
        for (place, byte) in [(0, b'X'), (1, 2), (2, b'X'), (3, b'X'), (130, 0xff), (HEAD, 0xff)] {
            let mut damaged = whole.clone();
            damaged[place] = byte;
            assert!(decode(damaged.into()).is_err(), "byte {place}");
        }
    }

    #[test]
    fn spans_are_cut_where_lua_would_round_them() {
        assert_eq!(micros(Duration::from_millis(300)), "300000");
        assert_eq!(micros(Duration::MAX), "3153600000000000");
        assert_eq!(millis(Duration::MAX), "3153600000000");
    }

    #[test]
    fn redis_keeps_a_record_not_shorter_than_it_was_asked_to() {
        assert_eq!(millis(Duration::ZERO), "0");
        assert_eq!(millis(Duration::from_millis(300)), "300");
        assert_eq!(millis(Duration::from_micros(300_001)), "301");
    }
}
