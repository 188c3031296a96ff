//! The commit of a transaction, and what became of it.

use sqlx::{SqlSafeStr as _, Transaction};

use super::end::{leave, reopen};
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
    let settle = || statements.settle.sql.clone();
    let mut settled = DB::run(&mut transaction, settle(), arguments.clone()).await;
    if let (Err(error), Some(commit)) = (&settled, DB::COMMIT)
        && DB::meaning(error) == Meaning::ReadOnly
    {
        // The handler ended the transaction: what it committed was its claim too, or there is none to settle.
        let _ = DB::raw(&mut transaction, commit.into_sql_str()).await;
        settled = DB::run(&mut transaction, settle(), arguments).await;
    }
    reopen(&mut transaction).await;
    let failed = match settled {
        Ok(Done { rows: 1, .. }) => return commit(transaction).await,
        Ok(_) => Commit::NoClaim,
        Err(error) => Commit::Refused(error),
    };
    leave(transaction).await;
    Err(failed)
}

async fn commit<DB: Database>(mut transaction: Transaction<'static, DB>) -> Result<(), Commit> {
    let Some(commit) = DB::COMMIT else {
        return transaction.commit().await.map_err(Commit::during::<DB>);
    };
    let Err(error) = DB::raw(&mut transaction, commit.into_sql_str()).await else {
        // What is rolled back as it is dropped is nothing any more.
        return Ok(());
    };
    let failed = Commit::during::<DB>(error);
    if matches!(failed, Commit::Refused(_)) {
        leave(transaction).await;
    }
    Err(failed)
}
