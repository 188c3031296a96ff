//! The fields of a multipart body by their names. Parts are not read: a name that some service may find is a name.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use crate::pairs;

/// Whether a part may be taken for a field of this name. What is in a part, a file for instance, has no names.
pub(crate) fn has_field(content_type: &[u8], body: &[u8], name: &str) -> bool {
    match boundary(content_type) {
        Some(boundary) => dispositions(body, boundary).iter().any(|line| names(line, name)),
        // Nobody can be sure where parts begin.
        None => names(body, name),
    }
}

/// The one boundary that all services find.
fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    const WORD: &[u8] = b"boundary";
    let mut found =
        content_type.windows(WORD.len()).enumerate().filter(|(_, word)| word.eq_ignore_ascii_case(WORD));
    let (Some((at, _)), None) = (found.next(), found.next()) else { return None };
    let value = content_type[at + WORD.len()..].strip_prefix(b"=")?;
    let value = match value.strip_prefix(b"\"") {
        Some(quoted) => &quoted[..quoted.iter().position(|byte| *byte == b'"')?],
        None => value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end(),
    };
    // At others some services cut.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_-./:=?".contains(byte);
    (!value.is_empty() && value.iter().all(is_plain)).then_some(value)
}

/// The `Content-Disposition` of every part, in one line each.
fn dispositions(body: &[u8], boundary: &[u8]) -> Vec<Vec<u8>> {
    let (mut found, mut in_head, mut is_one) = (Vec::<Vec<u8>>::new(), false, false);
    for line in body.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.strip_prefix(b"--").is_some_and(|line| line.starts_with(boundary)) {
            (in_head, is_one) = (true, false);
        } else if line.is_empty() {
            in_head = false;
        } else if in_head {
            let is_continued = line.starts_with(b" ") || line.starts_with(b"\t");
            if !is_continued {
                let header = line.split(|byte| *byte == b':').next().unwrap_or_default();
                is_one = header.trim_ascii().eq_ignore_ascii_case(b"content-disposition");
            }
            match found.last_mut().filter(|_| is_continued) {
                Some(begun) if is_one => begun.extend_from_slice(line),
                _ if is_one => found.push(line.to_vec()),
                _ => {}
            }
        }
    }
    found
}

/// Whether a parameter `name` says this, wherever it stands and however it is written.
fn names(text: &[u8], wanted: &str) -> bool {
    const WORD: &[u8] = b"name";
    let marks = text.windows(WORD.len()).enumerate().filter(|(_, word)| word.eq_ignore_ascii_case(WORD));
    marks.filter(|(at, _)| *at == 0 || !text[at - 1].is_ascii_alphanumeric()).any(|(at, _)| {
        let rest = text[at + WORD.len()..].trim_ascii_start();
        // `name*=` and `name*0=` are the same name, written otherwise.
        let is_star = |byte: &u8| *byte == b'*' || byte.is_ascii_digit();
        let stars = rest.iter().take_while(|byte| is_star(byte)).count();
        let Some(value) = rest[stars..].trim_ascii_start().strip_prefix(b"=") else { return false };
        readings(value.trim_ascii_start(), stars > 0).iter().any(|said| pairs::is_alike(said, wanted))
    })
}

/// What services read of such a value: they differ in what ends it, and in what a backslash does.
fn readings(value: &[u8], is_extended: bool) -> Vec<Cow<'_, [u8]>> {
    let until = |value: &'_ [u8], ends: &[u8]| {
        value.iter().position(|byte| ends.contains(byte)).unwrap_or(value.len())
    };
    let (inner, ends): (&[u8], &[u8]) = match value {
        [quote @ (b'"' | b'\''), inner @ ..] => (inner, if *quote == b'"' { b"\"\r\n" } else { b"'\r\n" }),
        _ => (value, b"; \t\r\n"),
    };
    let bare = &inner[..until(inner, ends)];
    let mut readings = vec![Cow::Borrowed(bare), Cow::Borrowed(&value[..until(value, b"; \t\r\n")])];
    if inner.contains(&b'\\') {
        readings.push(Cow::Owned(unescaped(inner, ends)));
    }
    // `charset'language'text`.
    if is_extended && let Some(text) = value.splitn(3, |byte| *byte == b'\'').nth(2) {
        readings.push(percent_decode(&text[..until(text, b"; \t\r\n")]).into());
    }
    readings
}

fn unescaped(inner: &[u8], ends: &[u8]) -> Vec<u8> {
    let (mut text, mut bytes) = (Vec::new(), inner.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => text.extend(bytes.next()),
            byte if ends.contains(byte) => break,
            byte => text.push(*byte),
        }
    }
    text
}
