//! The records that are not completed, in memory: few at any time, and what people ask for. On disk they are lists, one for
//! each batch that opened some; a list is rewritten when most of it has left and removed when all has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use onlyonce_core::RecordId;

use crate::engine::Put;
use crate::keys;
use crate::stored::{OpenItem, encode_open};

/// A list is rewritten when no more than one in this many is left, so the lists stay in proportion to what is open, and
/// an entry is rewritten a few times at most.
const WORTH_REWRITING: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Index {
    by_id: BTreeMap<RecordId, Slot>,
    by_age: BTreeSet<(u64, RecordId)>,
    by_expiry: BTreeSet<(u64, RecordId)>,
    lists: HashMap<u64, List>,
    /// All records, completed ones too, and expired ones until they are swept.
    pub(crate) records: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    item: OpenItem,
    list: u64,
}

#[derive(Debug)]
struct List {
    /// Who was in it when it was last read or written.
    ids: Vec<RecordId>,
    /// How many entries it has on disk.
    written: usize,
    left: usize,
}

impl Index {
    /// Takes in a list that has `written` entries on disk, of which these count. An item that is in another list already
    /// leaves it.
    pub(crate) fn enter(&mut self, batch: u64, items: &[OpenItem], written: usize) {
        for item in items {
            self.leave(&item.id);
            self.by_id.insert(item.id, Slot { item: *item, list: batch });
            self.by_age.insert((item.created, item.id));
            self.by_expiry.insert((item.expires, item.id));
        }
        let ids: Vec<_> = items.iter().map(|item| item.id).collect();
        self.lists.insert(batch, List { left: ids.len(), written, ids });
    }

    /// Takes a record out, and says which list it was in.
    pub(crate) fn leave(&mut self, id: &RecordId) -> Option<u64> {
        let slot = self.by_id.remove(id)?;
        self.by_age.remove(&(slot.item.created, *id));
        self.by_expiry.remove(&(slot.item.expires, *id));
        if let Some(list) = self.lists.get_mut(&slot.list) {
            list.left -= 1;
        }
        Some(slot.list)
    }

    /// What is to be written after records have left a list.
    pub(crate) fn tidy(&mut self, batch: u64) -> Option<Put> {
        let list = self.lists.get_mut(&batch)?;
        let key = keys::open_list(batch);
        if list.left == 0 {
            self.lists.remove(&batch);
            return Some(Put { key, value: None });
        }
        if list.left * WORTH_REWRITING > list.written {
            return None;
        }
        let by_id = &self.by_id;
        let slots = list.ids.iter().filter_map(|id| by_id.get(id).filter(|slot| slot.list == batch));
        let items: Vec<_> = slots.map(|slot| slot.item).collect();
        list.ids = items.iter().map(|item| item.id).collect();
        list.written = items.len();
        let value = Some(encode_open(&key, &items));
        Some(Put { key, value })
    }

    pub(crate) fn get(&self, id: &RecordId) -> Option<&OpenItem> {
        self.by_id.get(id).map(|slot| &slot.item)
    }

    /// In the order of ids, after the given one.
    pub(crate) fn after(&self, after: Option<&RecordId>) -> impl Iterator<Item = &OpenItem> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, |id| Excluded(*id));
        self.by_id.range((from, Unbounded)).map(|(_, slot)| &slot.item)
    }

    /// Those that began first at the head.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = &OpenItem> {
        self.by_age.iter().filter_map(|(_, id)| self.get(id))
    }

    /// Those that should have expired at `now`, with their expiry and in its order, after the given one.
    pub(crate) fn due(
        &self,
        after: Option<(u64, RecordId)>,
        now: u64,
    ) -> impl Iterator<Item = (u64, RecordId)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.by_expiry.range((from, Unbounded)).copied().take_while(move |(expires, _)| *expires <= now)
    }

    /// Remembers that a record expires later than its list says.
    pub(crate) fn postpone(&mut self, id: &RecordId, expires: u64) {
        if let Some(slot) = self.by_id.get_mut(id) {
            self.by_expiry.remove(&(slot.item.expires, *id));
            slot.item.expires = expires;
            self.by_expiry.insert((expires, *id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{OpenKind, decode_open};

    fn item(n: u8) -> OpenItem {
        let id = RecordId::from_bytes([n; 32]);
        OpenItem { id, created: u64::from(100 - n), expires: u64::from(n), kind: OpenKind::Unsettled }
    }

    #[test]
    fn a_list_is_rewritten_when_most_have_left_and_removed_with_the_last() {
        let items: Vec<_> = (0..8).map(item).collect();
        let mut index = Index::default();
        index.enter(1, &items, 8);
        for n in 0..5 {
            assert_eq!(index.leave(&item(n).id), Some(1));
            assert!(index.tidy(1).is_none());
        }
        index.leave(&item(5).id);
        let rewritten = index.tidy(1).unwrap();
        assert_eq!(decode_open(&rewritten.key, rewritten.value.unwrap().to_bytes()).unwrap(), items[6..]);
        index.leave(&item(6).id);
        assert!(index.tidy(1).is_none());
        index.leave(&item(7).id);
        assert!(index.tidy(1).unwrap().value.is_none());
        assert_eq!(index.leave(&item(7).id), None);
        assert_eq!(index.oldest().count(), 0);
    }

    #[test]
    fn a_record_is_in_its_newest_list_only() {
        let mut index = Index::default();
        index.enter(1, &[item(1), item(2)], 2);
        index.enter(2, &[OpenItem { created: 1, ..item(1) }], 1);
        assert_eq!(index.leave(&item(1).id), Some(2));
        assert!(index.tidy(2).unwrap().value.is_none());
        assert_eq!(index.oldest().count(), 1);
        assert_eq!(index.due(None, 10).collect::<Vec<_>>(), [(2, item(2).id)]);
    }
}
