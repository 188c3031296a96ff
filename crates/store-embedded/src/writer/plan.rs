//! Turns what was decided into one batch: the records, and the lists that name them.

use std::collections::BTreeSet;

use onlyonce_core::RecordId;

use super::decide::{Decided, Touched};
use crate::engine::Put;
use crate::index::Index;
use crate::keys;
use crate::open::open_item;
use crate::stored::{Due, OpenItem, Tag, Totals, encode_due, encode_open, encode_record};

/// Records whose expiry is no further apart than this share a list, so that a list comes due nearly at once.
const LIST_SPAN_MICROS: u64 = 1_000_000;

/// The batch, its number first. The totals and the index become those after the batch.
pub(super) fn puts(decided: &mut Decided, totals: &mut Totals, tag: &Tag, index: &mut Index) -> Vec<Put> {
    totals.batch += 1;
    let mut puts = Vec::with_capacity(decided.touched.len() + decided.lists.len() + 8);
    puts.push(Put { key: keys::last(), value: None });
    let mut opened = Vec::new();
    let mut completed = Vec::new();
    let mut left = BTreeSet::new();
    for (id, touched) in &decided.touched {
        totals.records = Touched::count(totals.records, touched);
        left.extend(index.leave(id));
        sort(*id, touched, &mut opened, &mut completed);
        puts.extend(record(id, touched));
    }
    if !opened.is_empty() {
        let key = keys::open_list(totals.batch);
        let value = Some(encode_open(&key, &opened));
        puts.push(Put { key, value });
        index.enter(totals.batch, &opened, opened.len());
    }
    puts.extend(left.into_iter().filter_map(|list| index.tidy(list)));
    puts.extend(due_lists(completed, totals.batch));
    puts.extend(std::mem::take(&mut decided.lists).into_iter().map(|(key, value)| Put { key, value }));
    index.records = totals.records;
    puts[0].value = Some(totals.encode(tag));
    puts
}

fn sort(id: RecordId, touched: &Touched, opened: &mut Vec<OpenItem>, completed: &mut Vec<Due>) {
    if let Some(record) = &touched.record {
        match open_item(id, record) {
            Some(item) => opened.push(item),
            None => completed.push(Due { id, expires: record.expires.as_micros() }),
        }
    }
}

fn record(id: &RecordId, touched: &Touched) -> Option<Put> {
    let value = touched.record.as_ref().map(|record| encode_record(id, record));
    (value.is_some() || touched.existed).then(|| Put { key: keys::record(id), value })
}

/// One list for the records that expire at about the same time.
fn due_lists(mut completed: Vec<Due>, batch: u64) -> Vec<Put> {
    completed.sort_unstable_by_key(|due| due.expires);
    let near = |first: &Due, next: &Due| next.expires - first.expires <= LIST_SPAN_MICROS;
    let mut lists = Vec::new();
    let mut rest = &completed[..];
    while let Some(first) = rest.first() {
        let (list, later) = rest.split_at(rest.partition_point(|due| near(first, due)));
        lists.push(due_list(list, batch));
        rest = later;
    }
    lists
}

/// The list of these records, which come in the order of their expiry.
pub(super) fn due_list(list: &[Due], batch: u64) -> Put {
    let key = keys::expiry_list(list.first().map_or(0, |due| due.expires), batch);
    let value = Some(encode_due(&key, list));
    Put { key, value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::decode_due;

    #[test]
    fn records_that_expire_together_share_a_list() {
        let due = |n: u8, expires| Due { id: RecordId::from_bytes([n; 32]), expires };
        let lists = due_lists(vec![due(1, 9_000_000), due(2, 10), due(3, 1_000_010), due(4, 1_000_011)], 7);
        let lists: Vec<_> = lists
            .into_iter()
            .map(|put| decode_due(&put.key, put.value.unwrap().to_bytes()).unwrap())
            .collect();
        let expected =
            [vec![due(2, 10), due(3, 1_000_010)], vec![due(4, 1_000_011)], vec![due(1, 9_000_000)]];
        assert_eq!(lists, expected);
    }
}
