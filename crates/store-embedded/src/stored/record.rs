//! A record as bytes.

use bytes::Bytes;
use onlyonce_core::codec::{Reader, Writer};
use onlyonce_core::machine::Record;
use onlyonce_core::{Answer, Fence, Fingerprint, Hash16, Label, Moment, Over, Owner, RecordId, Verdict};

use super::{Damage, Sealed, VERSION, array, invalid, moment, seal, small, unseal};

/// A record, its times on the wall clock.
pub(crate) fn encode_record(id: &RecordId, record: &Record) -> Sealed {
    let over = match record.over {
        Over::Nothing => 0,
        Over::Released => 1,
        Over::Lapsed => 2,
    };
    let (verdict, answer, at) = match &record.settled {
        None => (0, None, Moment::from_micros(0)),
        Some((Verdict::Completed(answer), at)) => (1, Some(answer), *at),
        Some((Verdict::Released, at)) => (2, None, *at),
        Some((Verdict::Unknown(evidence), at)) => (3, Some(evidence), *at),
    };
    let answer = answer.map_or(&[][..], |answer| &answer.0);
    let body = Writer::with_capacity(b'R', VERSION, 200 + record.label.route.len() + answer.len())
        .number(record.fingerprint.version().into())
        .bytes(record.fingerprint.digest())
        .bytes(record.label.route.as_bytes())
        .bytes(record.label.key.as_bytes())
        .bytes(record.label.scope.as_bytes())
        .number(record.fence.0)
        .bytes(record.owner.as_bytes())
        .number(record.attempts.into())
        .number(over)
        .number(record.lease_until.as_micros())
        .number(record.created.as_micros())
        .number(record.expires.as_micros())
        .number(verdict)
        .number(at.as_micros())
        .bytes(answer);
    seal(id.as_bytes(), body)
}

pub(crate) fn decode_record(id: &RecordId, bytes: Bytes) -> Result<Record, Damage> {
    let mut reader = Reader::new(unseal(id.as_bytes(), bytes)?, b'R', VERSION)?;
    let version = small(&mut reader, "fingerprint version")?;
    let fingerprint = Fingerprint::from_parts(version, array(&mut reader)?);
    let route = reader.bytes()?;
    let route = str::from_utf8(&route).map_err(|_| invalid("the route is not text"))?.into();
    let key = Hash16::from_bytes(array(&mut reader)?);
    let scope = Hash16::from_bytes(array(&mut reader)?);
    let fence = Fence(reader.number()?);
    let owner = Owner::from_bytes(array(&mut reader)?);
    let attempts = small(&mut reader, "attempts")?;
    let over = match reader.number()? {
        0 => Over::Nothing,
        1 => Over::Released,
        2 => Over::Lapsed,
        _ => return Err(invalid("begun over what?")),
    };
    let lease_until = moment(&mut reader)?;
    let created = moment(&mut reader)?;
    let expires = moment(&mut reader)?;
    let (verdict, at, answer) = (reader.number()?, moment(&mut reader)?, Answer(reader.bytes()?));
    reader.finish()?;
    let settled = match verdict {
        0 => None,
        1 => Some((Verdict::Completed(answer), at)),
        2 => Some((Verdict::Released, at)),
        3 => Some((Verdict::Unknown(answer), at)),
        _ => return Err(invalid("settled how?")),
    };
    let label = Label { route, key, scope };
    Ok(Record { fingerprint, label, fence, owner, attempts, over, settled, lease_until, created, expires })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(settled: Option<(Verdict, Moment)>) -> Record {
        Record {
            fingerprint: Fingerprint::empty(),
            label: Label {
                route: "POST /orders".into(),
                key: Hash16::from_bytes([1; 16]),
                scope: Hash16::from_bytes([2; 16]),
            },
            fence: Fence(u64::MAX - 1),
            owner: Owner::from_bytes([3; 16]),
            attempts: 3,
            over: Over::Lapsed,
            settled,
            lease_until: Moment::from_micros(5),
            created: Moment::from_micros(6),
            expires: Moment::from_micros(u64::MAX),
        }
    }

    fn all() -> Vec<Record> {
        let answer = Answer("paid".into());
        let at = Moment::from_micros(9);
        vec![
            record(None),
            record(Some((Verdict::Released, at))),
            record(Some((Verdict::Completed(answer.clone()), at))),
            record(Some((Verdict::Unknown(answer), at))),
        ]
    }

    #[test]
    fn every_record_reads_back() {
        let id = RecordId::from_bytes([9; 32]);
        for record in all() {
            assert_eq!(decode_record(&id, encode_record(&id, &record).to_bytes()).unwrap(), record);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let id = RecordId::from_bytes([9; 32]);
        for record in all() {
            let bytes = encode_record(&id, &record).to_bytes();
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.to_vec();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_record(&id, damaged.into()).is_err(), "bit {bit}");
            }
            for length in 0..bytes.len() {
                assert!(decode_record(&id, bytes.slice(..length)).is_err(), "length {length}");
            }
        }
    }

    #[test]
    fn a_record_under_the_id_of_another_is_damage() {
        let bytes = encode_record(&RecordId::from_bytes([9; 32]), &record(None)).to_bytes();
        assert!(decode_record(&RecordId::from_bytes([8; 32]), bytes).is_err());
    }
}
