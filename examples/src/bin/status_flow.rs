//! Status flow: states are passed in their order, once. See `scenario/status_flow.rs`.

use onlyonce_examples::on_sqlite::scenario::{Failure, status_flow};
use onlyonce_examples::on_sqlite::tell;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tell(status_flow::story).await
}
