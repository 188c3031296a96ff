//! Removing expired records: in small transactions, by primary key, beside any number of others who do the same.

use std::time::Duration;

use onlyonce_core::{Moment, StoreError};
use sqlx::{Connection as _, SqlSafeStr as _};

use crate::clock;
use crate::dialect::{Database, Dialect};
use crate::fault;
use crate::link::Link;
use crate::pooled::Pooled;
use crate::statements::safe;
use crate::store::SqlStore;
use crate::value::Value;
use crate::waiting::jittered;

/// How many records are removed by one transaction.
const BATCH: u32 = 500;
/// How often a batch is repeated that had to give way.
const REPEATS: u32 = 5;

/// How far a purge is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// How many records were removed so far.
    pub removed: u64,
    /// How many by the last transaction.
    pub last: u32,
}

impl<DB: Database> SqlStore<DB> {
    /// Removes every expired record, and says after each small transaction how far it is. Never touches a record that
    /// runs or is kept; may be stopped and repeated at any time, beside other instances that do the same.
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqlite")]
    /// # async fn purge(store: onlyonce_sql::SqliteStore) -> Result<(), onlyonce_core::StoreError> {
    /// let removed = store.purge(|progress| println!("{} removed", progress.removed)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the database fails; what was removed until then stays removed.
    pub async fn purge(&self, mut tell: impl FnMut(Progress) + Send) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let last = batch(self.link(), BATCH).await?;
            removed += u64::from(last);
            if last > 0 {
                tell(Progress { removed, last });
            }
            if last < BATCH {
                return Ok(removed);
            }
        }
    }
}

/// Removes at most `limit` expired records.
pub(crate) async fn batch<DB: Dialect>(link: &Link<DB>, limit: u32) -> Result<u32, StoreError> {
    keep_time(link).await?;
    let mut removed = 0;
    while removed < limit {
        let wanted = BATCH.min(limit - removed);
        let some = one_batch(link, wanted).await?;
        removed += some;
        if some < wanted {
            break;
        }
    }
    Ok(removed)
}

/// Notes the time of the records now and then, where that is our business.
async fn keep_time<DB: Dialect>(link: &Link<DB>) -> Result<(), StoreError> {
    if DB::NOW.is_some() {
        return Ok(());
    }
    let mut connection = link.connection("sweep").await?;
    let keep =
        async |connection: &mut DB::Connection| clock::keep::<DB>(connection, &link.table, &link.time).await;
    link.in_time("sweep", &mut connection, keep).await
}

/// Removes one batch. A transaction that had to give way to another sweep, or to calls, has changed nothing and is repeated.
async fn one_batch<DB: Dialect>(link: &Link<DB>, limit: u32) -> Result<u32, StoreError> {
    let mut pause = Duration::from_millis(4);
    for _ in 0..REPEATS {
        match one_transaction(link, limit).await {
            Err(error) if fault::gave_way::<DB>(&error) => tokio::time::sleep(jittered(pause)).await,
            swept => return swept,
        }
        pause *= 2;
    }
    one_transaction(link, limit).await
}

async fn one_transaction<DB: Dialect>(link: &Link<DB>, limit: u32) -> Result<u32, StoreError> {
    // Whoever drops this half-way leaves no open transaction in the pool.
    let mut connection = Pooled::new(link.connection("sweep").await?);
    connection.begin_change();
    let sweep = async |connection: &mut DB::Connection| {
        let mut transaction = connection.begin_with(DB::BEGIN.into_sql_str()).await?;
        let find = &link.statements.expired;
        // Rows that others hold are theirs: they run, or sweep too.
        let arguments = link.timed(find, vec![Value::Int(limit.into())]);
        let rows = DB::rows(&mut transaction, find.sql.clone(), arguments).await?;
        let mut ids = String::new();
        for row in &rows {
            ids.push(if ids.is_empty() { '(' } else { ',' });
            Value::Bytes(DB::bytes(row, 0)?.unwrap_or_default().into()).write(&mut ids, DB::HEX);
        }
        if ids.is_empty() {
            transaction.rollback().await?;
            return Ok(0);
        }
        let mut delete = link.statements.delete_template.clone();
        if DB::NOW.is_none() {
            let written = |moment: Moment| moment.as_micros().to_string();
            delete = delete.replace("{now}", &written(link.time.now()));
            delete = delete.replace("{stepped}", &written(link.time.stepped()));
        }
        let removed = DB::raw(&mut transaction, safe(format!("{delete}{ids})"))).await?;
        transaction.commit().await?;
        Ok(u32::try_from(removed.rows).unwrap_or(u32::MAX))
    };
    let swept = link.in_time("sweep", connection.connection(), sweep).await?;
    connection.end_change();
    Ok(swept)
}
