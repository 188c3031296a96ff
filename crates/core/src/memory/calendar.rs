//! When records expire: pages of about a second, each with the hashes of the records that expire in it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::clock::Moment;

/// A page holds hashes and not ids, which are four times as long; it holds one for every record, also if two agree.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    pages: BTreeMap<u64, Vec<u64>>,
    /// The paper of the last page that became empty: a record that is begun and settled at once leaves one each time.
    spare: Vec<u64>,
}

/// A spare larger than this is not worth keeping.
const LARGEST_SPARE: usize = 64;

/// The page of a moment: 2^20 microseconds are about a second.
pub(super) fn page(at: Moment) -> u64 {
    at.as_micros() >> 20
}

impl Calendar {
    pub(super) fn insert(&mut self, at: Moment, hash: u64) {
        self.pages.entry(page(at)).or_insert_with(|| std::mem::take(&mut self.spare)).push(hash);
    }

    /// Short where it is used: what is removed early is what was begun a moment ago and is settled now.
    pub(super) fn remove(&mut self, at: Moment, hash: u64) {
        let page = page(at);
        let Entry::Occupied(mut found) = self.pages.entry(page) else { return };
        let hashes = found.get_mut();
        if let Some(place) = hashes.iter().rposition(|found| *found == hash) {
            hashes.swap_remove(place);
        }
        if hashes.is_empty() {
            let empty = found.remove();
            if empty.capacity() <= LARGEST_SPARE {
                self.spare = empty;
            }
        }
    }

    /// A record of the first page, if all of that page is over.
    pub(super) fn first_before(&self, now: Moment) -> Option<(u64, u64)> {
        let (page_of_first, hashes) = self.pages.first_key_value()?;
        (*page_of_first < page(now)).then(|| hashes.last().map(|hash| (*page_of_first, *hash)))?
    }

    /// The records of the page that is not over yet.
    pub(super) fn today(&self, now: Moment) -> Vec<u64> {
        self.pages.get(&page(now)).cloned().unwrap_or_default()
    }
}
