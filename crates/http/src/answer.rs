//! An HTTP answer as it is stored: status, headers, body, trailers.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Response, StatusCode};
use onlyonce_core::Answer;
use onlyonce_core::codec::{CodecError, Reader, SEAL_BYTES, Writer, size_of_bytes, size_of_number};

const FORMAT: u8 = b'H';
const VERSION: u8 = 2;
const WHOLE: u64 = 0;
const TOMBSTONE: u64 = 1;

/// A stored HTTP answer.
///
/// ```
/// use onlyonce_http::StoredAnswer;
/// let created = http::Response::builder().status(201).body("receipt 7".into())?;
/// let stored = StoredAnswer::whole(created).encode();
/// assert_eq!(StoredAnswer::decode(stored)?.status(), 201);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum StoredAnswer {
    /// Everything that a replay needs.
    Whole {
        /// Status, headers and body.
        response: Response<Bytes>,
        /// Trailers, if there were any.
        trailers: Option<HeaderMap>,
    },
    /// The answer was too large, or a stream: it is known that it happened, and no more.
    Tombstone {
        /// The status of the answer.
        status: StatusCode,
        /// Where it pointed to.
        location: Option<HeaderValue>,
    },
}

impl StoredAnswer {
    /// An answer with its body.
    #[must_use]
    pub fn whole(response: Response<Bytes>) -> Self {
        Self::Whole { response, trailers: None }
    }

    /// What is kept of an answer whose body is not.
    #[must_use]
    pub fn tombstone(status: StatusCode, headers: &HeaderMap) -> Self {
        Self::Tombstone { status, location: headers.get(LOCATION).cloned() }
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Whole { response, .. } => response.status(),
            Self::Tombstone { status, .. } => *status,
        }
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> Answer {
        match self {
            Self::Whole { response, trailers } => encode_whole(
                response.status(),
                || response.headers().iter(),
                response.body(),
                || trailers.iter().flat_map(HeaderMap::iter),
            ),
            Self::Tombstone { status, location } => {
                let writer = Writer::new(FORMAT, VERSION).number(TOMBSTONE).number(status.as_u16().into());
                let location = location.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
                Answer(writer.bytes(location).seal())
            }
        }
    }

    /// The status of stored bytes, of which only the [beginning](onlyonce_core::Listed::ANSWER_BYTES) need be there. They are not checked.
    #[must_use]
    pub fn status_of(answer: &Answer) -> Option<StatusCode> {
        let mut reader = Reader::new(answer.0.clone(), FORMAT, VERSION).ok()?;
        let _kind = reader.number().ok()?;
        StatusCode::from_u16(u16::try_from(reader.number().ok()?).ok()?).ok()
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// If they are not from [`encode`](Self::encode) of a version that this release knows.
    pub fn decode(answer: Answer) -> Result<Self, CodecError> {
        let mut reader = Reader::sealed(answer.0, FORMAT, VERSION)?;
        let kind = reader.number()?;
        let status = u16::try_from(reader.number()?).ok().and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or_else(|| CodecError::Invalid("a status".into()))?;
        let decoded = match kind {
            WHOLE => {
                let headers = read_headers(&mut reader)?;
                let trailers = Some(read_headers(&mut reader)?).filter(|trailers| !trailers.is_empty());
                let mut response = Response::new(reader.bytes()?);
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                Self::Whole { response, trailers }
            }
            TOMBSTONE => {
                let location = Some(reader.bytes()?).filter(|bytes| !bytes.is_empty());
                let location = location.map(read_value).transpose()?;
                Self::Tombstone { status, location }
            }
            other => return Err(CodecError::Invalid(format!("answer kind {other}"))),
        };
        reader.finish()?;
        Ok(decoded)
    }
}

/// Encodes without building a response first, into memory of exactly its size: the hot path of a first run.
pub(crate) fn encode_whole<'a, H, T>(
    status: StatusCode,
    headers: impl Fn() -> H,
    body: &[u8],
    trailers: impl Fn() -> T,
) -> Answer
where
    H: Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
    T: Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
{
    let status = status.as_u16().into();
    let (count, size) = measure(headers());
    let (trailer_count, trailer_size) = measure(trailers());
    let numbers = [WHOLE, status, count, trailer_count].map(size_of_number).iter().sum::<usize>();
    let capacity = numbers + size + trailer_size + size_of_bytes(body) + SEAL_BYTES;
    let writer = Writer::with_capacity(FORMAT, VERSION, capacity).number(WHOLE).number(status);
    let writer = headers().fold(writer.number(count), write_header);
    let writer = trailers().fold(writer.number(trailer_count), write_header);
    Answer(writer.bytes(body).seal())
}

/// How many there are, and how much room they need.
fn measure<'a>(headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> (u64, usize) {
    headers.fold((0, 0), |(count, size), (name, value)| {
        (count + 1, size + size_of_bytes(name.as_str().as_bytes()) + size_of_bytes(value.as_bytes()))
    })
}

fn write_header(writer: Writer, (name, value): (&HeaderName, &HeaderValue)) -> Writer {
    writer.bytes(name.as_str().as_bytes()).bytes(value.as_bytes())
}

fn read_headers(reader: &mut Reader) -> Result<HeaderMap, CodecError> {
    let count = reader.length()?;
    let mut headers = HeaderMap::with_capacity(count.min(64));
    for _ in 0..count {
        let name = HeaderName::from_bytes(&reader.bytes()?)
            .map_err(|_| CodecError::Invalid("a header name".into()))?;
        let value = read_value(reader.bytes()?)?;
        headers.try_append(name, value).map_err(|_| CodecError::Invalid("too many headers".into()))?;
    }
    Ok(headers)
}

fn read_value(bytes: Bytes) -> Result<HeaderValue, CodecError> {
    HeaderValue::from_maybe_shared(bytes).map_err(|_| CodecError::Invalid("a header value".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_as_it_was() {
        let mut response = Response::builder()
            .status(303)
            .header("location", "/orders/7")
            .header("link", "a")
            .header("link", "b")
            .header("x-raw", HeaderValue::from_bytes(b"\xff").unwrap())
            .body(Bytes::from_static(b"\0\xff body"))
            .unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let stored =
            StoredAnswer::Whole { response: response.clone(), trailers: Some(trailers.clone()) }.encode();
        let StoredAnswer::Whole { response: back, trailers: back_trailers } =
            StoredAnswer::decode(stored).unwrap()
        else {
            panic!("a tombstone came back")
        };
        assert_eq!(back.status(), response.status());
        assert_eq!(back.headers(), &std::mem::take(response.headers_mut()));
        assert_eq!(back.body(), response.body());
        assert_eq!(back_trailers, Some(trailers));
    }

    #[test]
    fn an_answer_takes_exactly_the_room_that_was_made_for_it() {
        for length in [0, 1, 127, 128, 20_000] {
            let response =
                Response::builder().status(201).header("location", "/orders/7").header("link", "a");
            let response = response.body(Bytes::from(vec![b'x'; length])).unwrap();
            let stored = StoredAnswer::whole(response).encode().0;
            // Bytes with room to spare are not given back as they were made.
            let expected = stored.len();
            assert_eq!(Vec::from(stored).capacity(), expected);
        }
    }

    #[test]
    fn the_status_is_in_the_beginning() {
        let response = Response::builder().status(201).body(Bytes::from(vec![b'x'; 1000])).unwrap();
        let tombstone = StoredAnswer::tombstone(StatusCode::CREATED, &HeaderMap::new()).encode();
        for stored in [StoredAnswer::whole(response).encode(), tombstone] {
            let beginning = stored.0.slice(..stored.0.len().min(onlyonce_core::Listed::ANSWER_BYTES));
            assert_eq!(StoredAnswer::status_of(&Answer(beginning)), Some(StatusCode::CREATED));
        }
        for none in [&b""[..], b"H", b"H\x02\x00", b"X\x02\x00\xc9\x01"] {
            assert_eq!(StoredAnswer::status_of(&Answer(Bytes::copy_from_slice(none))), None);
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let stored = StoredAnswer::tombstone(StatusCode::OK, &HeaderMap::new()).encode().0;
        for broken in [
            Bytes::new(),
            stored.slice(..stored.len() - 1),
            Bytes::from([&stored[..], b"x"].concat()),
            Bytes::from([b"H\x03", &stored[2..]].concat()),
            Writer::new(FORMAT, VERSION).number(7).number(200).seal(),
            Writer::new(FORMAT, VERSION).number(WHOLE).number(200).number(u32::MAX.into()).seal(),
        ] {
            assert!(StoredAnswer::decode(Answer(broken.clone())).is_err(), "{broken:?}");
        }
    }
}
