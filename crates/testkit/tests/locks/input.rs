//! What can't be used is refused, with what to do.

use std::error::Error as _;
use std::time::Duration;

use onlyonce_core::lock::LockError;

use crate::world::*;

#[tokio::test]
async fn bad_keys_and_spans_are_refused_with_their_name_and_nothing_is_asked() {
    let world = World::new();
    let key = |name: &str| world.locks.key(name);
    let day = 24 * 3600 * SECOND;
    for (request, says) in [
        (key(""), "empty"),
        (key(&"x".repeat(256)), "256 bytes"),
        (key("a").ttl(Duration::ZERO), "ttl"),
        (key("a").ttl(2 * day), "ttl"),
        (key("a").wait(2 * day), "wait"),
        (key("a").max_hold(Duration::ZERO), "max_hold"),
    ] {
        let error = request.acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Input(_)) && !error.is_retryable());
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains(says), "{cause}");
    }
    assert_eq!(world.server.acquires(), 0);
    drop(key(&"x".repeat(255)).ttl(Duration::from_millis(10)).acquire().await.unwrap());
}
