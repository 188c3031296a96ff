//! A stored answer, given again.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Response;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::Clock;

use crate::body::{InMemory, ResponseBody};
use crate::headers;
use crate::key::IDEMPOTENCY_KEY;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");

/// The end of the year 9999: no later date can be written.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// The stored answer with the marks of a replay.
pub(crate) fn answer<R>(
    mut response: Response<Bytes>,
    trailers: Option<HeaderMap>,
    echo: Option<HeaderValue>,
    expires_in: Duration,
    clock: &dyn Clock,
) -> Response<ResponseBody<R>> {
    let trailers = trailers.map(Box::new);
    headers::announce(response.headers_mut(), trailers.as_deref());
    let mut response = response.map(|bytes| ResponseBody::full(InMemory { bytes, trailers }));
    mark(response.headers_mut(), echo, Some(expires_in), clock);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Repeats the key, and says until when the answer is kept.
pub(crate) fn mark(
    headers: &mut HeaderMap,
    echo: Option<HeaderValue>,
    kept_for: Option<Duration>,
    clock: &dyn Clock,
) {
    headers.remove(EXPIRES);
    match echo {
        Some(key) => drop(headers.insert(IDEMPOTENCY_KEY, key)),
        None => drop(headers.remove(IDEMPOTENCY_KEY)),
    }
    if let Some(kept_for) = kept_for {
        let at = Duration::from_micros(clock.wall_micros()).saturating_add(kept_for);
        // To the nearest second, so that the first answer and its replays name the same time.
        let second = ((at.as_millis().saturating_add(500) / 1000) as u64).min(LAST_DATE.as_secs());
        if let Some(value) = date(second) {
            headers.insert(EXPIRES, value);
        }
    }
}

thread_local! {
    /// The date that was written last: answers of one second share it.
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// A second since 1970 as a date.
fn date(second: u64) -> Option<HeaderValue> {
    LAST.with_borrow_mut(|last| {
        if let Some((_, value)) = last.as_ref().filter(|(of, _)| *of == second) {
            return Some(value.clone());
        }
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(second)).unwrap_or(SystemTime::UNIX_EPOCH);
        let value = HeaderValue::try_from(httpdate::fmt_http_date(at)).ok()?;
        *last = Some((second, value.clone()));
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_has_its_own_date() {
        for second in [0, 1, 1, 0, 1_700_000_000, 1] {
            let expected = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            assert_eq!(date(second).unwrap(), expected.as_str());
        }
    }
}
