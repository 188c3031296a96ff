//! When records expire: pages of about a second, each with the hashes of the records that expire in it.

use std::collections::BTreeMap;

use crate::clock::Moment;

/// A page holds hashes and not ids, which are four times as long; it holds one for every record, also if two agree.
#[derive(Debug, Default)]
pub(super) struct Calendar(BTreeMap<u64, Vec<u64>>);

/// The page of a moment: 2^20 microseconds are about a second.
pub(super) fn page(at: Moment) -> u64 {
    at.as_micros() >> 20
}

impl Calendar {
    pub(super) fn insert(&mut self, at: Moment, hash: u64) {
        self.0.entry(page(at)).or_default().push(hash);
    }

    /// Short where it is used: what is removed early is what was begun a moment ago and is settled now.
    pub(super) fn remove(&mut self, at: Moment, hash: u64) {
        let page = page(at);
        let Some(hashes) = self.0.get_mut(&page) else { return };
        if let Some(place) = hashes.iter().rposition(|found| *found == hash) {
            hashes.swap_remove(place);
        }
        if hashes.is_empty() {
            self.0.remove(&page);
        }
    }

    /// A record of the first page, if all of that page is over.
    pub(super) fn first_before(&self, now: Moment) -> Option<(u64, u64)> {
        let (page_of_first, hashes) = self.0.first_key_value()?;
        (*page_of_first < page(now)).then(|| hashes.last().map(|hash| (*page_of_first, *hash)))?
    }

    /// The records of the page that is not over yet.
    pub(super) fn today(&self, now: Moment) -> Vec<u64> {
        self.0.get(&page(now)).cloned().unwrap_or_default()
    }
}
