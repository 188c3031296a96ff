//! The time of the records as bytes.

use bytes::Bytes;
use onlyonce_core::codec::{Reader, Writer};
use onlyonce_core::{TimeNote, Uptime};

use super::{Damage, Sealed, VERSION, invalid, moment, seal, unseal};
use crate::keys;

pub(crate) fn encode_note(note: &TimeNote) -> Sealed {
    let (boot, since_boot) = match &note.uptime {
        Some(uptime) => (&uptime.boot[..], uptime.since_boot.as_micros()),
        None => (&[][..], 0),
    };
    let body = Writer::with_capacity(b'T', VERSION, 64).bytes(boot).number(since_boot);
    let body = body.number(note.wall).number(note.time.as_micros()).number(note.stepped.as_micros());
    seal(keys::TIME, body)
}

pub(crate) fn decode_note(bytes: Bytes) -> Result<TimeNote, Damage> {
    let mut reader = Reader::new(unseal(keys::TIME, bytes)?, b'T', VERSION)?;
    let boot = reader.bytes()?;
    let since_boot = moment(&mut reader)?;
    let uptime = match boot.len() {
        0 => None,
        _ => Some(Uptime {
            boot: <[u8; 16]>::try_from(&boot[..]).map_err(|_| invalid("a boot has another length"))?,
            since_boot,
        }),
    };
    let note = TimeNote {
        uptime,
        wall: reader.number()?,
        time: moment(&mut reader)?,
        stepped: moment(&mut reader)?,
    };
    reader.finish()?;
    Ok(note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlyonce_core::Moment;

    #[test]
    fn a_note_reads_back() {
        for uptime in [None, Some(Uptime { boot: [7; 16], since_boot: Moment::from_micros(9) })] {
            let (time, stepped) = (Moment::from_micros(u64::MAX), Moment::from_micros(3));
            let note = TimeNote { uptime, wall: 5, time, stepped };
            assert_eq!(decode_note(encode_note(&note).to_bytes()).unwrap(), note);
        }
    }
}
