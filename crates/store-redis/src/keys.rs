//! The names of records and of their indexes: the prefix, `{shard}`, and the id or the word `open`.
//!
//! A Cluster places keys by what is in the braces, so that a record and the index of its shard are on one node, and one
//! script can write both.

use std::fmt::{self, Write};

use onlyonce_core::RecordId;

/// How many shards there are: enough to spread over many nodes, and few enough to look at each.
pub(crate) const SHARDS: u16 = 1024;
const INDEX: &str = "open";
const LETTERS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// The names that a script is given: of a record, and of the index of its shard.
#[derive(Debug)]
pub(crate) struct Names {
    text: String,
    split: usize,
}

impl Names {
    pub(crate) fn record(&self) -> &str {
        &self.text[..self.split]
    }

    pub(crate) fn index(&self) -> &str {
        &self.text[self.split..]
    }
}

/// The shard of a record, by the first ten bits of its id.
fn shard(id: &RecordId) -> u16 {
    let id = id.as_bytes();
    u16::from(id[0]) << 2 | u16::from(id[1]) >> 6
}

fn tag(shard: u16) -> [u8; 2] {
    [LETTERS[usize::from(shard >> 5) % 32], LETTERS[usize::from(shard) % 32]]
}

/// How the names of one store begin.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    /// `None` if the prefix has braces: a Cluster would place every record by them, on one node.
    pub(crate) fn new(prefix: String) -> Option<Self> {
        (!prefix.contains(['{', '}'])).then_some(Self { prefix })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name of a record, and that of the index of its shard.
    pub(crate) fn record(&self, id: &RecordId) -> Names {
        let tag = tag(shard(id));
        let close = self.prefix.len() + 4;
        let mut text = String::with_capacity(2 * close + 64 + INDEX.len());
        for rest in [&id as &dyn fmt::Display, &INDEX] {
            // Writing to a String does not fail.
            let _ = write!(text, "{}{{{}{}}}{rest}", self.prefix, char::from(tag[0]), char::from(tag[1]));
        }
        Names { text, split: close + 64 }
    }

    /// The name of the index of a shard.
    pub(crate) fn index(&self, shard: u16) -> String {
        let tag = tag(shard);
        format!("{}{{{}{}}}{INDEX}", self.prefix, char::from(tag[0]), char::from(tag[1]))
    }

    /// The id within the name of a record; `None` if the name is not that of a record.
    pub(crate) fn id(&self, key: &[u8]) -> Option<RecordId> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?;
        let id: RecordId = std::str::from_utf8(rest.get(4..)?).ok()?.parse().ok()?;
        let tag = tag(shard(&id));
        (rest[..4] == [b'{', tag[0], tag[1], b'}']).then_some(id)
    }

    /// The channel on which changes are told to who waits.
    pub(crate) fn channel(&self) -> String {
        format!("{}changed", self.prefix)
    }

    /// What SCAN has to match.
    pub(crate) fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.prefix.len() + 4);
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "{??}*"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_not_taken_for_records() {
        let keys = Keys::new("app:".into()).unwrap();
        let id = RecordId::from_bytes([0xab; 32]);
        let names = keys.record(&id);
        assert_eq!(names.record(), format!("app:{{le}}{}", "ab".repeat(32)));
        assert_eq!((names.index(), keys.index(0b10_1010_1110)), ("app:{le}open", "app:{le}open".to_owned()));
        assert_eq!(keys.id(names.record().as_bytes()), Some(id));
        let elsewhere = names.record().replace("{le}", "{ld}");
        for other in ["app:changed", "app:{le}open", "other:{}", "", "app:", "app:{le", &elsewhere] {
            assert_eq!(keys.id(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn every_shard_has_a_tag_of_its_own() {
        let tags: std::collections::BTreeSet<_> = (0..SHARDS).map(tag).collect();
        assert_eq!(tags.len(), usize::from(SHARDS));
    }

    #[test]
    fn a_prefix_is_taken_literally_by_a_scan() {
        assert_eq!(Keys::new("a*[b]?".into()).unwrap().pattern(), r"a\*\[b\]\?{??}*");
        assert!(Keys::new("{a}".into()).is_none());
    }
}
