//! Parameters of queries and urlencoded forms, exactly as they were sent.

use std::borrow::Cow;

use onlyonce_core::InputError;
use percent_encoding::percent_decode;

/// The one value of a parameter, as long as every service finds the same one.
///
/// # Errors
/// If it is there several times, also by a name or behind a separator that only some services read so, or if it is not text.
pub(crate) fn find<'a>(encoded: &'a [u8], name: &str) -> Result<Option<Cow<'a, str>>, InputError> {
    // `;` separated parameters once, and to some services it still does.
    let pieces = encoded.split(|byte| matches!(byte, b'&' | b';'));
    let alike = pieces.filter(|piece| is_alike(&decoded(split(piece).0), name));
    let mut exact = encoded.split(|byte| *byte == b'&').map(split);
    let exact = exact.find(|(found, _)| *decoded(found) == *name.as_bytes());
    match (alike.count(), exact) {
        (0, None) => Ok(None),
        (1, Some((_, value))) if value.contains(&b';') => {
            Err(InputError::new(format!("{name} holds a semicolon, at which some services cut; write %3B")))
        }
        (1, Some((_, value))) if decoded(value).contains(&0) => {
            Err(InputError::new(format!("{name} holds a NUL, at which some services cut")))
        }
        (1, Some((_, value))) => text(decoded(value), name).map(Some),
        (1, None) => Err(InputError::new(format!("{name} is spelled otherwise; write {name}"))),
        _ => Err(InputError::new(format!(
            "{name} is there several times, or beside a name that some services take for it; send one"
        ))),
    }
}

/// The values of every parameter that some service takes for this one.
pub(crate) fn all_alike<'a>(encoded: &'a [u8], name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let pieces = encoded.split(|byte| matches!(byte, b'&' | b';')).map(split);
    // No name folds into a longer one, and most are told by that.
    let pieces =
        pieces.map(|(found, value)| (decoded(found), value)).filter(|(found, _)| found.len() >= name.len());
    pieces.filter(|(found, _)| is_alike(found, name)).map(|(_, value)| decoded(value))
}

/// Whether a parameter is this one, or to some service a member of it: `a[b]`, `a.b`.
pub(crate) fn names_part_of(encoded: &[u8], name: &str) -> bool {
    encoded.split(|byte| matches!(byte, b'&' | b';')).any(|piece| {
        let found = decoded(split(piece).0);
        let outer = found.split(|byte| *byte == b'.').next().unwrap_or_default();
        is_alike(&found, name) || is_alike(outer, name)
    })
}

fn split(piece: &[u8]) -> (&[u8], &[u8]) {
    let end = piece.iter().position(|byte| *byte == b'=').unwrap_or(piece.len());
    (&piece[..end], piece.get(end + 1..).unwrap_or_default())
}

fn decoded(encoded: &[u8]) -> Cow<'_, [u8]> {
    if encoded.contains(&b'+') {
        let spaces: Vec<u8> = encoded.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        return Cow::Owned(percent_decode(&spaces).collect());
    }
    percent_decode(encoded).into()
}

/// Whether some service takes the one name for the other.
pub(crate) fn is_alike(found: &[u8], name: &str) -> bool {
    folded(found) == folded(name.as_bytes())
}

/// What is the same name to some service: PHP writes an underscore for what can't be in a variable's name and reads `a[]` as `a`,
/// others do not tell capitals from small letters.
fn folded(name: &[u8]) -> Vec<u8> {
    let start = name.iter().position(|byte| *byte != 0 && !byte.is_ascii_whitespace());
    let name = &name[start.unwrap_or(name.len())..];
    // A bracket that is not closed is an underscore to it, too.
    let opens = if name.contains(&b']') { b'[' } else { 0 };
    let is_end = |byte: &u8| *byte == 0 || *byte == opens;
    let end = name.iter().position(is_end).filter(|end| *end > 0).unwrap_or(name.len());
    let fold = |byte: &u8| {
        if byte.is_ascii_alphanumeric() || !byte.is_ascii() { byte.to_ascii_lowercase() } else { b'_' }
    };
    name[..end].iter().map(fold).collect()
}

fn text<'a>(bytes: Cow<'a, [u8]>, name: &str) -> Result<Cow<'a, str>, InputError> {
    let wrong = |_| InputError::new(format!("{name} is not UTF-8 text, so two of them could look the same"));
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(wrong),
        Cow::Owned(bytes) => {
            String::from_utf8(bytes).map(Cow::Owned).map_err(|error| wrong(error.utf8_error()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_exactly_or_not_at_all() {
        let at = |encoded: &'static str| find(encoded.as_bytes(), "k");
        assert_eq!(at("a=1&k=x%20y+z%2B").unwrap().as_deref(), Some("x y z+"));
        assert_eq!(at("k=caf%C3%A9").unwrap().as_deref(), Some("caf\u{e9}"));
        assert_eq!(at("%6B=1").unwrap().as_deref(), Some("1"));
        assert_eq!(at("k").unwrap().as_deref(), Some(""));
        assert_eq!(at("k=a=b").unwrap().as_deref(), Some("a=b"));
        assert_eq!(at("note=a;b&x=k").unwrap(), None);
        assert_eq!(at("").unwrap(), None);
        for lossy in ["k=%ff", "k=%fe", "k=%c3"] {
            assert!(at(lossy).is_err(), "{lossy}");
        }
        for doubled in
            ["k=1&k=1", "k=1;k=2", "a=1;k=2&k=1", "k=1&K=2", "k=1&k[]=2", "k=1&+k=2", "k=1&k%00x=2", "k=1;2"]
        {
            assert!(at(doubled).is_err(), "{doubled}");
        }
        assert!(at("K=1").is_err() && at("k[]=1").is_err() && at("a=1;k=2").is_err());
        for twin in ["request.id", "request[id", "request%5Bid", "request id", "request_id[]"] {
            let doubled = format!("request_id=1&{twin}=2");
            assert!(find(doubled.as_bytes(), "request_id").is_err(), "{twin}");
        }
        assert_eq!(find(b"request_id=1&request[id]=2", "request_id").unwrap().as_deref(), Some("1"));
        assert!(at("k=a%00b").is_err());
    }
}
