//! Idempotency inside the business transaction, and the guards.
//!
//! | module | what it is |
//! |---|---|
//! | [`guard`] | one statement that tells done, duplicate, conflict, illegal and missing apart |

pub mod guard;
