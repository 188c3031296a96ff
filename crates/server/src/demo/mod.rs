//! The demo: a payments service behind the layer, on the embedded store, with a page where a person tries to pay twice.

mod bank;
mod greeting;
mod page;
mod shop;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onlyonce::embedded::EmbeddedStore;
use onlyonce::{Drained, Idempotency, Settings};
use tokio::net::TcpListener;

use crate::cli::DemoArguments;
use crate::failure::Failure;
use crate::say::announce;
use crate::shutdown;
use bank::Bank;

/// How long calls under way may take after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(arguments: DemoArguments) -> Result<(), Failure> {
    let listener = listen(arguments.listen).await?;
    let address =
        listener.local_addr().map_err(|error| Failure::because("the socket has no address", &error))?;
    let store = EmbeddedStore::open(&arguments.data)
        .map_err(|error| Failure::because("the demo can't start", &error))?;
    let bank = Bank::open(&arguments.data.join("charges.jsonl"))
        .map_err(|error| Failure::because("the charges can't be read", &error))?;
    // Duplicates wait for the first instead of being told to come back: that is what a person at a button wants.
    let settings = Settings { wait: Duration::from_secs(10), ..Settings::default() };
    let once = Idempotency::builder(store)
        .settings(settings)
        .build()
        .map_err(|error| Failure::because("the settings make no sense", &error))?;
    let app = shop::app(once.clone(), Arc::new(bank))?;
    greeting::print(address, &arguments.data);
    axum::serve(listener, app)
        .with_graceful_shutdown(shutdown::asked_for())
        .await
        .map_err(|error| Failure::because("the server stopped", &error))?;
    announce!("finishing what is under way…");
    match once.drain(DRAIN).await {
        Drained::Everything => announce!("done: every call is settled. Start again and retry an old key."),
        Drained::Left(calls) => {
            announce!("{calls} calls were still running; retries of them will be told \"unknown\".")
        }
    }
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::new(format!(
            "{address} is in use by another program; choose another address with --listen, for instance --listen 127.0.0.1:0 for any free port"
        )),
        ErrorKind::PermissionDenied => Failure::new(format!(
            "{address} may not be used without special rights; choose a port above 1023 with --listen"
        )),
        _ => Failure::because(&format!("can't listen on {address}"), &error),
    })
}
