//! An answer that does not come.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::dialect::Dialect;

/// How long a statement may take, if nobody says.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long a migration may take: an index of a large table takes longer than any statement of a call, and one who migrates may have to
/// wait for another.
pub(crate) fn migration(patience: Duration) -> Duration {
    patience.saturating_mul(30)
}

/// Waits for the answer of a server for this long. One whose host lost power never hangs up, and who waits for it holds a
/// connection, and all else that goes with it, for as long as the network takes to notice: a quarter of an hour, or for ever.
///
/// A database that runs in this process can't get lost, and says by itself when it has waited for long enough.
///
/// # Cancel safety
/// The answer that is late is dropped: whose connection it came from has to close that.
pub(crate) async fn in_time<DB: Dialect, T, E>(
    span: Duration,
    late: impl FnOnce(sqlx::Error) -> E,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    if DB::IS_LOCAL {
        return answer.await;
    }
    tokio::time::timeout(span, answer).await.unwrap_or_else(|_| Err(late(error(span))))
}

/// Says that nothing was answered for so long.
pub(crate) fn error(span: Duration) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, Late(span)))
}

/// Whether it says so: then another connection would hardly be answered either.
pub(crate) fn is_late(error: &sqlx::Error) -> bool {
    after(error).is_some()
}

/// For how long nothing was answered, if it says so.
pub(crate) fn after(error: &sqlx::Error) -> Option<Duration> {
    match error {
        sqlx::Error::Io(error) => error.get_ref()?.downcast_ref().map(|Late(span)| *span),
        _ => None,
    }
}

#[derive(Debug)]
struct Late(Duration);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the database did not answer within {:?}", self.0)
    }
}

impl Error for Late {}
