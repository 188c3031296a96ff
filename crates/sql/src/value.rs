//! What is put into statements: numbers and bytes, bound or written out.

use std::fmt::Write as _;

use bytes::Bytes;

/// One argument of a statement. There is no text: what is bytes to us is bytes to every database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Int(i64),
    MaybeInt(Option<i64>),
    Bytes(Bytes),
    MaybeBytes(Option<Bytes>),
}

impl Value {
    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        Self::Bytes(Bytes::copy_from_slice(bytes))
    }

    /// As it is written in SQL; numbers and hexadecimal digits need no escaping.
    pub(crate) fn write(&self, sql: &mut String, hex: (&str, &str)) {
        match self {
            Self::Int(number) | Self::MaybeInt(Some(number)) => {
                let _ = write!(sql, "{number}");
            }
            Self::MaybeInt(None) | Self::MaybeBytes(None) => sql.push_str("NULL"),
            Self::Bytes(bytes) | Self::MaybeBytes(Some(bytes)) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                sql.reserve(bytes.len() * 2 + 16);
                sql.push_str(hex.0);
                for byte in bytes {
                    sql.push(char::from(DIGITS[usize::from(byte >> 4)]));
                    sql.push(char::from(DIGITS[usize::from(byte & 15)]));
                }
                sql.push_str(hex.1);
            }
        }
    }
}

/// A template whose places `$1`, `$2`, … are filled with what `fill` writes for them (from 0).
pub(crate) fn fill(template: &str, mut fill: impl FnMut(&mut String, usize)) -> String {
    let mut sql = String::with_capacity(template.len() + 64);
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        sql.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let place: usize = rest[..end].parse().unwrap_or(1);
        fill(&mut sql, place.saturating_sub(1));
        rest = &rest[end..];
    }
    sql.push_str(rest);
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_so_that_they_mean_themselves() {
        let values = [Value::Int(-7), Value::bytes(b"\x00\xff'"), Value::MaybeBytes(None), Value::bytes(b"")];
        let sql = fill("a $1 b $2 c $3 d $4", |sql, n| values[n].write(sql, ("x'", "'")));
        assert_eq!(sql, "a -7 b x'00ff27' c NULL d x''");
    }
}
