//! When a lease is renewed, and what came of it: one schedule, for attempts and for locks.

use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::lease::Lease;
use crate::record::Settled;

/// What became of one renewal.
#[derive(Debug)]
pub(crate) enum Renewal {
    /// The lease holds on; it is due again then.
    Renewed { next: Moment },
    /// The backend says that it belongs to nobody or to somebody else.
    Lost,
    /// Nobody knows; it is tried again then.
    Unknown { error: StoreError, next: Moment },
    /// The local deadline has come first.
    Over,
}

/// When a lease of `span` that was asked for at `sent` is to be renewed first.
pub(crate) fn first(sent: Moment, span: Duration) -> Moment {
    sent.plus(span / 3)
}

/// Renews once. The reply is not waited for beyond the deadline: whoever was told that the lease is lost must not be
/// contradicted by a late one.
pub(crate) async fn renew(
    clock: &dyn Clock,
    lease: &Lease,
    span: Duration,
    call: impl Future<Output = Result<Settled, StoreError>>,
) -> Renewal {
    let sent = clock.now();
    let reply = tokio::select! {
        biased;
        () = lease.lost() => return Renewal::Over,
        reply = call => reply,
    };
    match reply {
        Ok(Settled::Applied) => {
            lease.extend(sent.plus(span));
            Renewal::Renewed { next: first(sent, span) }
        }
        Ok(Settled::Lost) => Renewal::Lost,
        Err(error) => Renewal::Unknown { error, next: clock.now().plus(span / 12) },
    }
}
