//! For authors of [onlyonce](https://docs.rs/onlyonce) stores: the contract as tests, and the means to break things on purpose.
//!
//! - [`conformance!`], [`conformance_inspect!`] and [`conformance_full!`]: one named test for every [law](laws) of a store.
//! - [`lock_conformance!`]: the same for a backend of locks and its [laws](lock_laws).
//! - [`ModelStore`]: the contract a second time, as plain as can be. With a [`Flaw`] it is a mutant that the laws catch.
//! - [`FaultyStore`]: loses requests and replies, delays and hangs, by a script or from a seed.
//! - [`FaultProxy`]: a network between a client and a real server that drops, delays, resets and half-closes.
//! - [`frames`]: HTTP/2 byte by byte, for streams that end as no client would end them.
//! - [`free_port`] and [`free_pair`]: for servers that are killed and started again where they were.
//! - [`Ledger`] and [`History`]: what really happened, what callers heard, and whether the two fit.
//! - [`KillTest`](kill) and [`CrowdTest`](kill): processes that make calls are killed, paused and restarted; nothing may happen
//!   twice.
//!
//! A store author writes a [`Harness`], which says how to open the store and how its time passes, and one line:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use onlyonce_core::{ManualClock, MemoryStore, Store};
//! use onlyonce_testkit::{Harness, conformance};
//!
//! struct MyStore { clock: ManualClock, store: Arc<MemoryStore> }
//!
//! #[async_trait::async_trait]
//! impl Harness for MyStore {
//!     async fn open() -> Self {
//!         let clock = ManualClock::new();
//!         Self { store: Arc::new(MemoryStore::new().with_clock(clock.clone())), clock }
//!     }
//!     fn store(&self) -> Arc<dyn Store> {
//!         self.store.clone()
//!     }
//!     fn lease(&self) -> Duration {
//!         Duration::from_secs(30) // on a real server: 300 ms
//!     }
//!     async fn pass(&self, span: Duration) {
//!         self.clock.advance(span); // on a real server: tokio::time::sleep(span).await
//!     }
//! }
//!
//! conformance!(MyStore);
//! # fn main() {
//! #     let law = onlyonce_testkit::laws::store_laws().first().expect("there are laws");
//! #     onlyonce_testkit::run_law::<MyStore>(law.run);
//! # }
//! ```

mod faulty;
pub mod frames;
mod harness;
mod history;
#[cfg(unix)]
pub mod kill;
pub mod laws;
mod ledger;
pub mod lock_laws;
mod model;
mod ports;
mod proxy;

pub use faulty::{Fault, FaultyStore, Op, Rates};
pub use harness::{FullHarness, Harness, InspectHarness, run_full_law, run_inspect_law, run_law};
pub use history::{Event, History, Summary, Violations};
#[cfg(unix)]
pub use kill::{CrowdTest, KillReport, KillTest};
pub use ledger::{Effect, Ledger};
pub use lock_laws::{LockHarness, run_lock_law};
pub use model::{Flaw, ModelHarness, ModelStore};
pub use ports::{free_pair, free_port};
pub use proxy::{FaultProxy, NetFault, Traffic};
