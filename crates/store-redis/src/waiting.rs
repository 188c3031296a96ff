//! Waiting for a change: heard of by pub/sub, and looked for now and then in case nothing is heard.
//!
//! ```text
//!  enlist ─▶ look, and note in the record that somebody waits ─▶ wait for a message or a pause ─▶ again
//! ```
//!
//! Listening began before the look, so a change after it is heard; a change before it is seen.

use std::time::Duration;

use onlyonce_core::{RecordId, Revision};

use crate::store::RedisStore;

/// The first pause where nothing is heard; it doubles.
const SHORT: Duration = Duration::from_millis(10);
/// The longest pause where nothing is heard.
const LONG: Duration = Duration::from_millis(500);
/// The pause where changes are heard of: a message may still be lost, in a failover for example.
const HEARING: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Ends when the record is no longer as it was seen.
    pub(crate) async fn wait(&self, id: &RecordId, seen: Revision) {
        let mut pause = SHORT;
        loop {
            let notified = self.wakes.of(id).notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let hears = self.wakes.hears();
            // A server that does not answer says nothing about the record: look again later.
            if let Ok(false) = self.is_at(id, seen, hears).await {
                return;
            }
            let quiet = if hears { HEARING } else { pause };
            tokio::select! {
                () = notified => {}
                () = tokio::time::sleep(quiet.mul_f64(rand::random_range(0.75..1.0))) => {}
            }
            pause = (pause * 2).min(LONG);
        }
    }
}
