//! The end of a transaction that is not committed; and what a handler may have left in one.

use sqlx::{Connection as _, SqlSafeStr as _, Transaction};
use sqlx_core::transaction::TransactionManager as _;

use crate::dialect::Database;

/// Rolls back, also what was undone by itself already. What fails here is rolled back by the server with the connection.
pub(super) async fn leave<DB: Database>(mut transaction: Transaction<'static, DB>) {
    let _ = level(&mut transaction).await;
    if let Some(afterwards) = DB::AFTERWARDS {
        let _ = DB::raw(&mut transaction, afterwards.into_sql_str()).await;
    }
    reopen(&mut transaction).await;
    let _ = transaction.rollback().await;
}

/// Leaves from where nobody can wait for it: as a task, like the pool's own work when a connection comes back.
pub(super) fn abandon<DB: Database>(transaction: Transaction<'static, DB>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(leave(transaction));
    }
}

/// Undoes the savepoints that a handler began and never ended: the end of one would be taken for the end of the transaction.
pub(super) async fn level<DB: Database>(
    transaction: &mut Transaction<'static, DB>,
) -> Result<(), sqlx::Error> {
    if DB::TransactionManager::get_transaction_depth(transaction) > 1 {
        // Those that were dropped are undone by then.
        transaction.ping().await?;
    }
    while DB::TransactionManager::get_transaction_depth(transaction) > 1 {
        DB::TransactionManager::rollback(transaction).await?;
    }
    Ok(())
}

/// Lets the driver end what it counts as a transaction, where the handler ended the database's by SQL. Not where the driver counts none:
/// nobody would end that one.
pub(super) async fn reopen<DB: Database>(transaction: &mut Transaction<'static, DB>) {
    if let (Some(reopen), true) = (DB::REOPEN, transaction.is_in_transaction()) {
        let _ = DB::raw(transaction, reopen.into_sql_str()).await;
    }
}
