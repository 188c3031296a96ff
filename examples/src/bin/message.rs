//! Message: a delivery that comes again is not handled again. See `scenario/message.rs`.

use onlyonce_examples::on_sqlite::scenario::{Failure, message};
use onlyonce_examples::on_sqlite::tell;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tell(message::story).await
}
