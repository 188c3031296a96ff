//! How long to wait before the next attempt.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// Full jitter: anything between nothing and a bound that doubles, so that callers who failed together come back apart. What
/// the server asked for comes on top.
pub(crate) fn before(attempt: u32, base: Duration, most: Duration, asked: Option<Duration>) -> Duration {
    let bound = base.saturating_mul(1 << attempt.min(20)).min(most);
    asked.unwrap_or_default().saturating_add(bound.mul_f64(rand::random()))
}

/// What the server asks for, in seconds or as a date.
pub(crate) fn asked(headers: &HeaderMap, wall_micros: u64) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let date = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(Duration::from_micros(wall_micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_ask_in_seconds_or_by_date() {
        let ask = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            asked(&headers, 784_111_767_000_000)
        };
        assert_eq!(ask("7"), Some(Duration::from_secs(7)));
        assert_eq!(ask("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(ask("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(ask("soon"), None);
    }

    #[test]
    fn pauses_grow_are_bounded_and_differ() {
        let (base, most) = (Duration::from_millis(100), Duration::from_secs(5));
        for attempt in [0, 1, 5, 40] {
            let bound = base.saturating_mul(1 << attempt.min(20)).min(most);
            let pauses: Vec<_> = (0..100).map(|_| before(attempt, base, most, None)).collect();
            assert!(pauses.iter().all(|pause| *pause <= bound));
            assert!(
                pauses.iter().max().unwrap() > &(bound / 2) && pauses.iter().min().unwrap() < &(bound / 2)
            );
        }
        assert!(before(0, base, most, Some(Duration::from_secs(3))) >= Duration::from_secs(3));
        assert_eq!(before(40, Duration::MAX, Duration::MAX, Some(Duration::MAX)), Duration::MAX);
    }
}
