//! Waiting for a change: heard of where the database can tell, and looked for with growing pauses.

use std::time::Duration;

use onlyonce_core::{RecordId, Revision, StoreError};

use crate::dialect::Database;
use crate::row;
use crate::store::SqlStore;
use crate::value::Value;

/// The first pause where nothing is heard; it doubles.
const SHORT: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_millis(250);
/// The pause where a change is heard of: only in case a message was lost.
const HEARD: Duration = Duration::from_secs(2);

impl<DB: Database> SqlStore<DB> {
    /// Ends when the record is no longer as it was seen, or can't be looked at.
    pub(crate) async fn wait(&self, id: &RecordId, seen: Revision) -> Result<(), StoreError> {
        let link = self.link();
        let mut pause = SHORT;
        // Listening begins before the look: a change after the look is heard, one before it is seen.
        let place = self.inner.wakes.as_ref().map(|wakes| wakes.enlist(*id));
        let mut told = false;
        loop {
            let mut woken = std::pin::pin!(place.as_ref().map(|place| place.woken()));
            if let Some(woken) = woken.as_mut().as_pin_mut() {
                woken.enable();
            }
            let heard = place.as_ref().is_some_and(|place| place.is_listening());
            if let (true, false, Some(listen)) = (heard, told, &link.statements.listen) {
                let arguments = vec![row::id(id), Value::Int(row::fence(seen.fence))];
                link.run("changed", listen, arguments).await?;
                told = true;
            }
            let found = link.find("changed", id).await?;
            let still = found.is_some_and(|found| {
                found.record.revision() == seen && !found.record.is_expired(found.now.moment)
            });
            if !still {
                return Ok(());
            }
            let longest = if heard { HEARD } else { jittered(pause) };
            match woken.as_pin_mut() {
                Some(woken) => {
                    let _ = tokio::time::timeout(longest, woken).await;
                }
                None => tokio::time::sleep(longest).await,
            }
            pause = (pause * 2).min(LONG);
        }
    }
}

/// About as long, and not as long as everybody else.
pub(crate) fn jittered(span: Duration) -> Duration {
    span.mul_f64(0.5 + rand::random::<f64>())
}
