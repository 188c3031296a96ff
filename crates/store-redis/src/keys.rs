//! The names of records: prefix and `{id}`. The braces let a Cluster place a record by its id alone.

use onlyonce_core::RecordId;

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

    pub(crate) fn record(&self, id: &RecordId) -> String {
        format!("{}{{{id}}}", self.prefix)
    }

    /// The id within the name of a record; `None` if the name is not that of a record.
    pub(crate) fn id(&self, key: &[u8]) -> Option<RecordId> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?;
        let id = rest.strip_prefix(b"{")?.strip_suffix(b"}")?;
        std::str::from_utf8(id).ok()?.parse().ok()
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
        pattern + "{*}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_not_taken_for_records() {
        let keys = Keys::new("app:".into()).unwrap();
        let id = RecordId::from_bytes([0xab; 32]);
        assert_eq!(keys.record(&id), format!("app:{{{}}}", "ab".repeat(32)));
        assert_eq!(keys.id(keys.record(&id).as_bytes()), Some(id));
        for other in ["app:changed", "app:{zz}", "other:{}", ""] {
            assert_eq!(keys.id(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_prefix_is_taken_literally_by_a_scan() {
        assert_eq!(Keys::new("a*[b]?".into()).unwrap().pattern(), r"a\*\[b\]\?{*}");
        assert!(Keys::new("{a}".into()).is_none());
    }
}
