//! The transaction, as a handler holds it.

use std::error::Error;
use std::fmt;
use std::ops::{Deref, DerefMut};

use onlyonce_core::{Loan, Permit};

use super::transaction::Transaction;
use crate::dialect::Database;

/// The transaction in which the record of this call is written: what is done with it commits with the answer, or not at all.
///
/// Use it as a connection: `sqlx::query(…).execute(&mut *tx)`. It goes back when it is dropped, and onlyonce commits once
/// the handler has answered; there is no `commit` here. `tx.begin()` makes a savepoint; one that is left open is undone. Don't put a
/// time-out around `tx.begin()` itself: sqlx undoes the whole transaction when it is stopped half-way. Don't keep it beyond the handler: then
/// the answer is not sent, and what was not committed is rolled back.
///
/// Don't end the transaction by SQL of your own. After a ROLLBACK the claim is gone: the answer is not sent, and a retry runs. A
/// COMMIT (on MySQL also DDL) commits the claim early: the answer is kept beside it, but if the handler fails after that, or
/// the process dies, the record is judged by its lease: in progress for `max_run`, then unknown. It never runs a second time.
/// On MySQL, where a deadlock ends the transaction as well, nothing can be written after its end (error 1792): hand the error of a
/// deadlock back, and the whole call is run again.
pub struct Tx<DB: Database> {
    // Only `None` while it is being dropped.
    transaction: Option<Transaction<DB>>,
    loan: Loan,
}

/// Why there is no transaction to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTx {
    /// The call does not run in a transaction.
    NotInTransaction,
    /// It was taken before and is still in use, or it is of another database.
    Taken,
}

impl<DB: Database> Tx<DB> {
    /// Takes the transaction of the call that runs under this permit. It can be taken again once it was dropped.
    ///
    /// # Errors
    /// If there is none, or somebody has it.
    pub fn of(permit: &Permit) -> Result<Self, NoTx> {
        let loan = permit.loan().ok_or(NoTx::NotInTransaction)?.clone();
        let transaction = loan.take::<Transaction<DB>>().ok_or(NoTx::Taken)?;
        Ok(Self { transaction: Some(transaction), loan })
    }
}

const TAKEN: &str = "only a drop takes it";

impl<DB: Database> Deref for Tx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.transaction.as_ref().expect(TAKEN)
    }
}

impl<DB: Database> DerefMut for Tx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.transaction.as_mut().expect(TAKEN)
    }
}

impl<DB: Database> Drop for Tx<DB> {
    fn drop(&mut self) {
        let too_late = self.transaction.take().and_then(|transaction| self.loan.give_back(transaction));
        too_late.into_iter().for_each(Transaction::abandon);
    }
}

impl<DB: Database> fmt::Debug for Tx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tx({})", DB::WORD)
    }
}

impl fmt::Display for NoTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotInTransaction => {
                "this call does not run in a transaction: put the layer on the route with an engine made by \
                 SqlStore::same_transaction(), and refuse requests without a key (MissingKey::Reject)"
            }
            Self::Taken => "the transaction is in use already, or it is of another database",
        })
    }
}

impl Error for NoTx {}
