//! Pay: a retry after a lost reply charges once. See `scenario/pay.rs`.

use onlyonce_examples::on_sqlite::scenario::{Failure, pay};
use onlyonce_examples::on_sqlite::tell;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tell(pay::story).await
}
