//! A strict parser (RFC 8259) that keeps numbers as text and refuses what can be read in two ways.

use std::borrow::Cow;

use super::{Json, shown};
use crate::error::InputError;

/// As serde_json has it: deeper documents would take a parser's stack.
const DEEPEST: usize = 128;
/// More digits than any exponent of a double has, and than fit 64 bits easily.
const EXPONENT_DIGITS: usize = 9;

pub(super) fn document(bytes: &[u8]) -> Result<Json<'_>, InputError> {
    let mut parser = Parser { bytes, at: 0 };
    let value = parser.value(0)?;
    parser.space();
    if parser.at < bytes.len() {
        return Err(parser.wrong("it goes on after its end"));
    }
    Ok(value)
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn wrong(&self, why: &str) -> InputError {
        InputError::new(format!("{why}, at byte {} of the JSON", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, InputError> {
        if depth == DEEPEST {
            return Err(self.wrong("it goes too deep"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.text().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number().map(Json::Number),
            Some(_) => self.word(),
            None => Err(self.wrong("it ends too early")),
        }
    }

    fn word(&mut self) -> Result<Json<'a>, InputError> {
        let words = [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))];
        for (word, value) in words {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong("a value was expected"))
    }

    fn list(&mut self, depth: usize) -> Result<Json<'a>, InputError> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Json::List(items));
            }
            if !self.take(b',') {
                return Err(self.wrong("a comma or the end of an array was expected"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, InputError> {
        let mut members = Vec::new();
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("the name of a member was expected"));
            }
            let name = self.text()?;
            if name.contains('\0') {
                return Err(
                    self.wrong("the name of a member holds a NUL, at which some services stop to read")
                );
            }
            self.space();
            if !self.take(b':') {
                return Err(self.wrong("a colon was expected"));
            }
            members.push((name, self.value(depth + 1)?));
            self.space();
            if self.take(b'}') {
                return once_each(members).map(Json::Object);
            }
            if !self.take(b',') {
                return Err(self.wrong("a comma or the end of an object was expected"));
            }
        }
    }

    fn text(&mut self) -> Result<Cow<'a, str>, InputError> {
        let start = self.at;
        self.at += 1;
        let mut plain = true;
        loop {
            match self.peek() {
                None => return Err(self.wrong("a string does not end")),
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    self.at += 2;
                }
                Some(0..0x20) => return Err(self.wrong("a string holds a control character")),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        let quoted = &self.bytes[start..self.at];
        if plain {
            let text = std::str::from_utf8(&quoted[1..quoted.len() - 1]);
            return text.map(Cow::Borrowed).map_err(|_| self.wrong("a string is not UTF-8"));
        }
        let text: Result<String, _> = serde_json::from_slice(quoted);
        text.map(Cow::Owned).map_err(|_| self.wrong("a string holds what is no character"))
    }

    fn number(&mut self) -> Result<&'a str, InputError> {
        let start = self.at;
        self.take(b'-');
        let leading_zero = self.peek() == Some(b'0');
        if self.digits()? > 1 && leading_zero {
            return Err(self.wrong("a number begins with a zero"));
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'-') {
                self.take(b'+');
            }
            let digits = self.digits()?;
            if digits > EXPONENT_DIGITS {
                return Err(self.wrong("a number has an exponent that no service can read"));
            }
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        if !text.parse().is_ok_and(f64::is_finite) {
            return Err(self.wrong("a number is larger than services can read"));
        }
        Ok(text)
    }

    fn digits(&mut self) -> Result<usize, InputError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match self.at - start {
            0 => Err(self.wrong("a digit was expected")),
            digits => Ok(digits),
        }
    }
}

type Members<'a> = Vec<(Cow<'a, str>, Json<'a>)>;

/// The members in the order of their names, if none is there twice.
fn once_each(mut members: Members<'_>) -> Result<Members<'_>, InputError> {
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    match members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        None => Ok(members),
        Some(pair) => Err(InputError::new(format!(
            "the member {} is there twice, and services differ in which one they read; send it once",
            shown(&pair[0].0)
        ))),
    }
}
