//! Runnable examples: `cargo run -p onlyonce-examples --bin quickstart`. Each is tested as a user would try it.
