//! The six scenarios of the guide, each a short story that says what happened.

pub mod create;
pub mod form;
pub mod message;
pub mod pay;
pub mod status_flow;
pub mod stock;

use onlyonce::sql::guard::{self, GuardError};
use sqlx::{Pool, Transaction};

use super::{BEGIN, Db};

/// What can go wrong in a scenario.
pub type Failure = Box<dyn std::error::Error>;

/// Creates the tables of the guards, and those of the scenario.
async fn prepare(pool: &Pool<Db>, tables: &'static str) -> Result<(), Failure> {
    guard::migrate(&mut pool.acquire().await?).await?;
    sqlx::raw_sql(tables).execute(pool).await?;
    Ok(())
}

/// Runs the work in a transaction, and again from its start where the database says so.
async fn transaction<T>(
    pool: &Pool<Db>,
    work: impl AsyncFn(&mut Transaction<'static, Db>) -> Result<T, GuardError>,
) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut tx = pool.begin_with(BEGIN).await?;
        match work(&mut tx).await {
            Ok(done) => {
                tx.commit().await?;
                return Ok(done);
            }
            Err(error) if error.is_retryable() && tries < 10 => tx.rollback().await?,
            Err(error) => return Err(error.into()),
        }
    }
}
