//! HTTP/2 byte by byte, for streams that end as no well-behaved client would end them.
//!
//! ```
//! use onlyonce_testkit::frames;
//! let head = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/pay")];
//! let cut = [frames::opening(), frames::head(1, &head, false), frames::data(1, b"amount=10", false), frames::reset(1, 0)];
//! assert!(cut.concat().starts_with(b"PRI * HTTP/2.0"));
//! ```

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// What a client says first.
#[must_use]
pub fn opening() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, b"")[..]].concat()
}

/// A head, or trailers. Names and values may have up to 126 bytes.
#[must_use]
pub fn head(stream: u32, fields: &[(&str, &str)], end: bool) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap_or(126)], text.as_bytes()].concat();
    let field = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
    let block: Vec<u8> = fields.iter().flat_map(field).collect();
    frame(HEADERS, END_HEADERS | if end { END_STREAM } else { 0 }, stream, &block)
}

/// A piece of a body, of up to 16 KiB.
#[must_use]
pub fn data(stream: u32, bytes: &[u8], end: bool) -> Vec<u8> {
    frame(DATA, if end { END_STREAM } else { 0 }, stream, bytes)
}

/// The stream is over, for this reason.
#[must_use]
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// The connection is over, for this reason; streams above `last` were not looked at.
#[must_use]
pub fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// The other end answers this when it has read all before.
#[must_use]
pub fn ping() -> Vec<u8> {
    frame(PING, 0, 0, b"are you?")
}

/// What the other end answers to a [`ping`].
#[must_use]
pub fn pong() -> Vec<u8> {
    frame(PING, 1, 0, b"are you?")
}
