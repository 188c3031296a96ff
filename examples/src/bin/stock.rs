//! Stock: nothing is taken twice or oversold. See `scenario/stock.rs`.

use onlyonce_examples::on_sqlite::scenario::{Failure, stock};
use onlyonce_examples::on_sqlite::tell;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tell(stock::story).await
}
