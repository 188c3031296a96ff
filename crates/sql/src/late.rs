//! An answer that does not come.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::dialect::Dialect;

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
    match error {
        sqlx::Error::Io(error) => error.get_ref().is_some_and(|inner| inner.is::<Late>()),
        _ => false,
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
