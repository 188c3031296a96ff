//! Form: a token for one submit. See `scenario/form.rs`.

use onlyonce_examples::on_sqlite::scenario::{Failure, form};
use onlyonce_examples::on_sqlite::tell;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tell(form::story).await
}
