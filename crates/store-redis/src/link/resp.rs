//! Reading replies: the second version of the protocol, which every server speaks.

use redis::{ErrorKind, RedisError, Value};

/// Lists within lists within lists: no command of ours has more.
const DEEPEST: usize = 8;

/// The reply at the beginning of these bytes and its length, if it is there as a whole.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, RedisError> {
    within(bytes, 0)
}

fn within(bytes: &[u8], depth: usize) -> Result<Option<(Value, usize)>, RedisError> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let [kind, text @ .., b'\r', b'\n'] = &bytes[..=end] else {
        return Err(nonsense("a line that has no end"));
    };
    let mut used = end + 1;
    let value = match kind {
        b'+' if text == b"OK" => Value::Okay,
        b'+' => Value::SimpleString(String::from_utf8_lossy(text).into_owned()),
        b':' => Value::Int(number(text)?),
        b'$' => match usize::try_from(number(text)?) {
            Err(_) => Value::Nil,
            Ok(length) => {
                let rest = &bytes[used..];
                if rest.len() < length.saturating_add(2) {
                    return Ok(None);
                }
                if rest[length..length + 2] != *b"\r\n" {
                    return Err(nonsense("a text that is longer than it says"));
                }
                used += length + 2;
                Value::BulkString(rest[..length].to_vec())
            }
        },
        b'*' if depth == DEEPEST => return Err(nonsense("lists within lists")),
        b'*' => match usize::try_from(number(text)?) {
            Err(_) => Value::Nil,
            Ok(length) => {
                let mut list = Vec::with_capacity(length.min(1024));
                while list.len() < length {
                    let Some((value, more)) = within(&bytes[used..], depth + 1)? else { return Ok(None) };
                    used += more;
                    list.push(value);
                }
                Value::Array(list)
            }
        },
        // The driver knows all kinds of errors.
        b'-' => redis::parse_redis_value(&bytes[..=end])?,
        _ => return Err(nonsense("a kind of reply that there is not")),
    };
    Ok(Some((value, used)))
}

fn number(text: &[u8]) -> Result<i64, RedisError> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| nonsense("a number that is none"))
}

pub(super) fn nonsense(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Parse, "the server sent what is no reply", what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn a_reply_is_read_when_it_is_there_as_a_whole_and_not_before() {
        let nested = Value::Array(vec![
            Value::Int(-7),
            bulk("a\r\nb"),
            Value::Nil,
            Value::Array(vec![]),
            Value::SimpleString("PONG".into()),
        ]);
        let whole = b"*5\r\n:-7\r\n$4\r\na\r\nb\r\n$-1\r\n*0\r\n+PONG\r\n+OK\r\n";
        let length = whole.len() - b"+OK\r\n".len();
        for there in 0..length {
            assert_eq!(parse(&whole[..there]).unwrap(), None, "{there} bytes");
        }
        assert_eq!(parse(whole).unwrap(), Some((nested, length)));
        assert_eq!(parse(&whole[length..]).unwrap(), Some((Value::Okay, 5)));
    }

    #[test]
    fn an_error_of_the_server_is_a_reply_like_any_other() {
        let (value, used) = parse(b"-NOSCRIPT No matching script.\r\n:1\r\n").unwrap().unwrap();
        assert_eq!(used, 31);
        let error = value.extract_error().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::NoScript));
    }

    #[test]
    fn what_is_no_reply_is_an_error_and_never_guessed() {
        for bytes in
            [&b"hello\r\n"[..], b":\r\n", b":1x\r\n", b"$1\r\nabc\r\n", b"+OK\n", &b"*1\r\n".repeat(20)]
        {
            assert!(parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
