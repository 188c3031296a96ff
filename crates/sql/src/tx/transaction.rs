//! The transaction of a claim, and its end; and what a handler may have left in it.

use std::convert::identity;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, SqlSafeStr as _, SqlStr};
use sqlx_core::transaction::TransactionManager as _;

use crate::dialect::{Database, Meaning};
use crate::late::in_time;
use crate::pooled::Pooled;

/// The transaction of a claim. Dropped before its end, it ends with its connection.
pub(super) struct Transaction<DB: Database> {
    connection: Pooled<DB>,
    /// How long its beginning and its end may take.
    patience: Duration,
}

impl<DB: Database> Transaction<DB> {
    pub(super) async fn begin(
        connection: PoolConnection<DB>,
        sql: SqlStr,
        patience: Duration,
    ) -> Result<Self, sqlx::Error> {
        let mut transaction = Self { connection: Pooled::new(connection), patience };
        transaction.connection.begin_change();
        let begun = DB::TransactionManager::begin(&mut transaction, Some(sql));
        match in_time::<DB, _, _>(patience, identity, begun).await {
            Ok(()) => Ok(transaction),
            Err(error) => {
                // SQLite was told one thing, and did not do it. Others may have done a part of what they were told.
                if DB::meaning(&error) == Meaning::Locked {
                    transaction.connection.end_change();
                }
                Err(error)
            }
        }
    }

    /// Commits, and puts the connection right.
    pub(super) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        match DB::COMMIT {
            None => DB::TransactionManager::commit(self).await?,
            Some(commit) => {
                DB::raw(self, commit.into_sql_str()).await?;
                // For the driver, which counts it still. What is rolled back is nothing any more.
                DB::TransactionManager::start_rollback(self);
            }
        }
        self.connection.end_change();
        Ok(())
    }

    /// Rolls back, also what was undone by itself already, and puts the connection right.
    pub(super) async fn leave(mut self) {
        if in_time::<DB, _, _>(self.patience, identity, self.undo()).await.is_ok() {
            self.connection.end_change();
        }
    }

    async fn undo(&mut self) -> Result<(), sqlx::Error> {
        self.undo_savepoints().await?;
        if let Some(afterwards) = DB::AFTERWARDS {
            DB::raw(self, afterwards.into_sql_str()).await?;
        }
        self.reopen().await;
        DB::TransactionManager::rollback(self).await
    }

    /// Leaves from where nobody can wait for it: as a task, like the pool's own work when a connection comes back.
    pub(super) fn abandon(self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.leave());
        }
    }

    /// Undoes the savepoints that a handler began and never ended: the end of one would be taken for the end of the transaction.
    pub(super) async fn level(&mut self) -> Result<(), sqlx::Error> {
        in_time::<DB, _, _>(self.patience, identity, self.undo_savepoints()).await
    }

    async fn undo_savepoints(&mut self) -> Result<(), sqlx::Error> {
        if DB::TransactionManager::get_transaction_depth(self) > 1 {
            // Those that were dropped are undone by then.
            self.ping().await?;
        }
        while DB::TransactionManager::get_transaction_depth(self) > 1 {
            DB::TransactionManager::rollback(self).await?;
        }
        Ok(())
    }

    /// Lets the driver end what it counts as a transaction, where the handler ended the database's by SQL. Not where the driver counts
    /// none: nobody would end that one.
    pub(super) async fn reopen(&mut self) {
        if let (Some(reopen), true) = (DB::REOPEN, self.is_in_transaction()) {
            let _ = DB::raw(self, reopen.into_sql_str()).await;
        }
    }
}

impl<DB: Database> Deref for Transaction<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

impl<DB: Database> DerefMut for Transaction<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}
