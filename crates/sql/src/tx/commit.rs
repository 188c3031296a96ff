//! The end of a transaction: what became of its commit.

use sqlx::Transaction;

use crate::dialect::{Database, Done, Meaning};
use crate::statements::{Statements, safe};
use crate::value::Value;

/// Why a commit did not end well.
#[derive(Debug)]
pub(super) enum Commit {
    /// The claim is not in this transaction any more.
    NoClaim,
    /// The server said no: nothing of the transaction is left.
    Refused(sqlx::Error),
    /// Nobody heard what became of it.
    Unheard(sqlx::Error),
}

impl Commit {
    /// A failure of what may have committed.
    fn during<DB: Database>(error: sqlx::Error) -> Self {
        match DB::meaning(&error) {
            Meaning::Duplicate
            | Meaning::Locked
            | Meaning::GaveWay
            | Meaning::Constraint
            | Meaning::ReadOnly
            | Meaning::NoTable
            | Meaning::TooLarge => Self::Refused(error),
            Meaning::Gone | Meaning::Other => Self::Unheard(error),
        }
    }
}

/// Settles the claim, then commits. Two round trips: one for both would have to be written out and planned anew each time, which
/// costs a server more.
pub(super) async fn settle_and_commit<DB: Database>(
    mut transaction: Transaction<'static, DB>,
    statements: &Statements,
    arguments: Vec<Value>,
) -> Result<(), Commit> {
    let settled = DB::run(&mut transaction, statements.settle.sql.clone(), arguments).await;
    if let Some(reopen) = DB::REOPEN {
        let _ = DB::raw(&mut transaction, safe(reopen.to_owned())).await;
    }
    match settled {
        Ok(Done { rows: 1, .. }) => transaction.commit().await.map_err(Commit::during::<DB>),
        Ok(_) => Err(Commit::NoClaim),
        Err(error) => Err(Commit::Refused(error)),
    }
}
