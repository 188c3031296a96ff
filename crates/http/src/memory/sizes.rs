//! How large the last answers were, by what was called.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicBool;

use super::{ORDER, Size};

/// A page of memory. Two paths may share a place: then one of them is taken for the other.
const PLACES: usize = 4096;

/// Where the size of the last answer to a method and path is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u16);

/// Whether the last answers were large.
pub(super) struct LastSizes {
    large: Box<[AtomicBool]>,
    /// Nobody can know which path shares the place of another.
    keys: RandomState,
}

impl Default for LastSizes {
    fn default() -> Self {
        let large = (0..PLACES).map(|_| AtomicBool::new(false)).collect();
        Self { large, keys: RandomState::new() }
    }
}

impl LastSizes {
    pub(super) fn place(&self, method: &http::Method, path: &str) -> Place {
        Place((self.keys.hash_one((method, path)) % PLACES as u64) as u16)
    }

    pub(super) fn note(&self, Place(place): Place, size: Size) {
        let (noted, is_large) = (&self.large[usize::from(place)], size == Size::Large);
        // Nearly always it is as it was, and nobody has to hear of it.
        if noted.load(ORDER) != is_large {
            noted.store(is_large, ORDER);
        }
    }

    pub(super) fn is_large(&self, Place(place): Place) -> bool {
        self.large[usize::from(place)].load(ORDER)
    }
}
