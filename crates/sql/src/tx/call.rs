//! Calls in code: a closure over the transaction.

use onlyonce_core::{Call, Classify, ErrorKind, Refusal, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::handle::Tx;
use crate::dialect::Database;

/// Runs a [`Call`] in the transaction of its record.
pub trait InTransaction {
    /// Runs the body, unless the call was made before; then gives the answer of that time. What the body does with its
    /// [`Tx`] is committed together with the answer; an error that is kept is committed alone; any other error, and a panic,
    /// rolls everything back.
    ///
    /// It runs in a task of its own: it goes on when the caller goes away.
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn pay<E>(once: onlyonce_core::Idempotency) -> Result<i64, E>
    /// # where E: onlyonce_core::Classify + From<onlyonce_core::Refusal> + From<sqlx::Error> + Send + 'static {
    /// use onlyonce_sql::{InTransaction, Postgres, Tx};
    /// once.call("pay", "order-42").input(&100).in_transaction(|mut tx: Tx<Postgres>| async move {
    ///     sqlx::query("UPDATE accounts SET cents = cents - 100 WHERE id = 7").execute(&mut *tx).await?;
    ///     Ok(100)
    /// }).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// The body's own error, or one made from a [`Refusal`].
    fn in_transaction<DB, T, E, F>(
        self,
        body: impl FnOnce(Tx<DB>) -> F + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        DB: Database,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Classify + From<Refusal> + Send + 'static;
}

impl InTransaction for Call {
    async fn in_transaction<DB, T, E, F>(
        self,
        body: impl FnOnce(Tx<DB>) -> F + Send + 'static,
    ) -> Result<T, E>
    where
        DB: Database,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Classify + From<Refusal> + Send + 'static,
    {
        let refused =
            |kind, why: &'static str| Refusal::Store(StoreError::new(kind, DB::WORD, "run", why)).into();
        let run = self.run_with(move |permit| async move {
            match Tx::of(&permit) {
                Ok(tx) => body(tx).await,
                Err(no) => {
                    Err(Refusal::Store(StoreError::new(ErrorKind::Rejected, DB::WORD, "run", no)).into())
                }
            }
        });
        // A task, because a call that is dropped half-way would leave its commit half-way.
        match tokio::spawn(run).await {
            Ok(result) => result,
            Err(_) => {
                Err(refused(ErrorKind::Unavailable, "the body panicked, and all that it did was rolled back"))
            }
        }
    }
}
