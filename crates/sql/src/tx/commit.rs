//! The commit of a transaction, and what became of it.

use sqlx::SqlSafeStr as _;

use super::transaction::Transaction;
use crate::dialect::{Database, Done, Meaning};
use crate::statements::Statements;
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
            // A refusal may be that of a statement which was sent along, after a commit that was done.
            Meaning::Refused | Meaning::Gone | Meaning::Stopped | Meaning::Other => Self::Unheard(error),
        }
    }
}

/// Settles the claim, then commits. Two round trips: one for both would have to be written out and planned anew each time, which
/// costs a server more.
pub(super) async fn settle_and_commit<DB: Database>(
    mut transaction: Transaction<DB>,
    statements: &Statements,
    arguments: Vec<Value>,
) -> Result<(), Commit> {
    let settle = || statements.settle.sql.clone();
    let mut settled = DB::run(&mut transaction, settle(), arguments.clone()).await;
    if let (Err(error), Some(commit)) = (&settled, DB::COMMIT)
        && DB::meaning(error) == Meaning::ReadOnly
    {
        // The handler ended the transaction: what it committed was its claim too, or there is none to settle.
        let _ = DB::raw(&mut transaction, commit.into_sql_str()).await;
        settled = DB::run(&mut transaction, settle(), arguments).await;
    }
    transaction.reopen().await;
    let failed = match settled {
        Ok(Done { rows: 1, .. }) => match transaction.commit().await {
            Ok(()) => return Ok(()),
            Err(error) => Commit::during::<DB>(error),
        },
        Ok(_) => Commit::NoClaim,
        Err(error) => Commit::Refused(error),
    };
    transaction.leave().await;
    Err(failed)
}
