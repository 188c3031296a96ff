//! Create: a click that comes twice makes one order. See `scenario/create.rs`.

use onlyonce_examples::on_sqlite::scenario::{Failure, create};
use onlyonce_examples::on_sqlite::tell;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tell(create::story).await
}
