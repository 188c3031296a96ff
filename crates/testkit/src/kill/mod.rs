//! Processes that die: a victim makes calls through the engine, a harness kills and pauses it, and the ledger judges.
//!
//! The victim is the test itself, started again as a child process. Effects and answers go to files which outlive it, so
//! that nothing it heard or did is forgotten when it is killed.
//!
//! ```no_run
//! use std::sync::Arc;
//! use onlyonce_core::{MemoryStore, Store};
//! use onlyonce_testkit::KillTest;
//!
//! #[test]
//! fn nothing_happens_twice_when_the_process_is_killed() {
//!     let report = KillTest::new("nothing_happens_twice_when_the_process_is_killed")
//!         .kills(12)
//!         .run(|directory| Arc::new(open(directory)));
//!     println!("{report:?}");
//! }
//! # fn open(_: &std::path::Path) -> MemoryStore { MemoryStore::new() }
//! ```

mod crowd;
mod harness;
mod scene;
mod victim;

pub use crowd::CrowdTest;
pub use harness::{KillReport, KillTest};
