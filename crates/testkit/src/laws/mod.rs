//! The contract of a store, one function a law: what the docs of [`Store`](onlyonce_core::Store) and
//! [`Inspect`](onlyonce_core::Inspect) say of its answers.
//!
//! What they say of its failures is not here, because a law has no means to make every backend fail: that the
//! [`ErrorKind`](onlyonce_core::ErrorKind) is true, and that nothing is retried underneath. Show that with a
//! [`FaultProxy`](crate::FaultProxy) and the kill tests. That the backend's own clock judges is shown only where the harness's
//! [`pass`](Harness::pass) moves that one. And only a store that can be [full](FullHarness) has laws about that.
//!
//! A law takes an open harness and panics if the store breaks it. Most records of a law have a lease and a retention that do
//! not end while it runs; only where time is the point do they last a few [`Harness::lease`]s.

pub mod answers;
pub mod begin;
mod case;
pub mod dropped;
pub mod expiry;
pub mod facts;
pub mod fences;
pub mod forget;
pub mod full;
pub mod inspect;
pub mod races;
pub mod ready;
pub mod renew;
pub mod repeat;
pub mod settle;
pub mod sweep;
mod table;
pub mod takeover;
pub mod waiting;

use std::pin::Pin;

use crate::harness::{FullHarness, Harness, InspectHarness};

/// A law under way.
pub type Trial<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A law as a function: it panics if the store breaks it.
pub type LawFn = for<'a> fn(&'a dyn Harness) -> Trial<'a>;

/// A law about looking through a store, as a function.
pub type InspectLawFn = for<'a> fn(&'a dyn InspectHarness) -> Trial<'a>;

/// A law about a store that is full, as a function.
pub type FullLawFn = for<'a> fn(&'a dyn FullHarness) -> Trial<'a>;

/// A law and its name.
#[derive(Debug, Clone, Copy)]
pub struct Law<F> {
    /// The name, which says what the law demands.
    pub name: &'static str,
    /// Tries it on a store.
    pub run: F,
}

macro_rules! list {
    (() $($module:ident::$law:ident,)+) => {
        &[$(Law { name: stringify!($law), run: |harness| Box::pin($module::$law(harness)) }),+]
    };
}

/// All laws of [`Store`](onlyonce_core::Store).
#[must_use]
pub fn store_laws() -> &'static [Law<LawFn>] {
    crate::__store_laws!([list])
}

/// All laws of [`Inspect`](onlyonce_core::Inspect).
#[must_use]
pub fn inspect_laws() -> &'static [Law<InspectLawFn>] {
    crate::__inspect_laws!([list])
}

/// All laws of a store that is full.
#[must_use]
pub fn full_laws() -> &'static [Law<FullLawFn>] {
    crate::__full_laws!([list])
}
