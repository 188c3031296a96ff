//! Files that were cut or changed behind the store's back. Whatever is damaged: what was acknowledged is there, or its key
//! fails closed, or the store is not opened. Never is it silently gone, and never does anything panic out of the store.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::*;
use onlyonce_core::{ErrorKind, Inspect, Store, StoreError};
use onlyonce_store_embedded::{EmbeddedStore, OpenError};

/// Some in tables, some only in the journal.
const RECORDS: u64 = 160;

/// A closed store with [`RECORDS`] completed records, in memory if possible: many copies of it are opened.
fn store_with_records() -> tempfile::TempDir {
    store_with_tables_of(32 << 10)
}

fn store_with_tables_of(buffer_bytes: u64) -> tempfile::TempDir {
    let directory = scratch();
    let path = directory.path().join("data");
    for records in [0..RECORDS - 20, RECORDS - 20..RECORDS] {
        let store = EmbeddedStore::builder(&path).buffer_bytes(buffer_bytes).open().unwrap();
        block_on(async {
            for n in records {
                complete(&store, n).await.unwrap();
            }
        });
    }
    directory
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The journals, and how long they are.
fn journals_of(path: &Path) -> Vec<(PathBuf, u64)> {
    let found = fs::read_dir(path.join("engine")).unwrap().flatten();
    found.map(|entry| (entry.path(), entry.metadata().map_or(0, |file| file.len()))).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn journal(path: &Path) -> PathBuf {
    let journals =
        files(&path.join("engine")).into_iter().filter(|file| file.extension().is_some_and(|e| e == "jnl"));
    journals.max_by_key(|file| file.metadata().unwrap().modified().unwrap()).unwrap()
}

#[derive(Debug, Default)]
struct Tally {
    refused: u32,
    served: u32,
    keys_failed: u64,
}

impl Tally {
    /// Opens what was damaged, and looks at all that was acknowledged.
    fn look(&mut self, path: &Path, damage: &str) {
        let store = match EmbeddedStore::open(path) {
            Ok(store) => store,
            Err(refused) => {
                assert!(!matches!(refused, OpenError::InUse { .. }), "{damage}: {refused:?}");
                self.refused += 1;
                return;
            }
        };
        self.served += 1;
        block_on(async {
            for n in 0..RECORDS {
                match show(&store, n).await {
                    Shown::AsAcknowledged => {}
                    Shown::FailsClosed => self.keys_failed += 1,
                    Shown::Lost(what) => panic!("{damage}: lost {what}"),
                }
            }
            // No more than an error either.
            let _ = store.count().await;
            let _ = store.list(&Default::default(), None, 1_000).await;
            let _ = begin(&store, RECORDS + 1).await;
        });
    }
}

#[test]
fn a_flipped_bit_anywhere_never_loses_a_record_silently() {
    let pristine = store_with_records();
    let path = pristine.path().join("data");
    let trials: u64 = std::env::var("ONLYONCE_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let files = files(&path);
    let mut tally = Tally::default();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for trial in 0..trials {
        let file = &files[trial as usize % files.len()];
        let name = file.strip_prefix(&path).unwrap();
        let mut bytes = fs::read(file).unwrap();
        if bytes.is_empty() {
            continue;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bit = (random >> 16) as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let damaged = scratch();
        copy(&path, damaged.path());
        fs::write(damaged.path().join(name), bytes).unwrap();
        tally.look(damaged.path(), &format!("bit {bit} of {}", name.display()));
    }
    println!("{tally:?}");
    assert!(tally.refused > 0 && tally.served > 0, "{tally:?}");
}

#[test]
fn a_flipped_bit_anywhere_in_the_journal_is_noticed() {
    let pristine = store_with_records();
    let path = pristine.path().join("data");
    let journal = journal(&path);
    let name = journal.strip_prefix(&path).unwrap();
    let whole = fs::read(&journal).unwrap();
    // Every byte of the first batches, which holds all parts of the format, and some further on.
    let step = (whole.len() / 150).max(1);
    let offsets = (0..700.min(whole.len())).step_by(3).chain((700..whole.len()).step_by(step));
    for offset in offsets {
        let damaged = scratch();
        copy(&path, damaged.path());
        let mut bytes = whole.clone();
        bytes[offset] ^= 1 << (offset % 8);
        fs::write(damaged.path().join(name), &bytes).unwrap();
        Tally::default().look(damaged.path(), &format!("byte {offset} of {}", name.display()));
        // Looking has not made it worse: a person may still mend it.
        if let Err(error @ OpenError::Damaged { .. }) = EmbeddedStore::open(damaged.path()) {
            let is_same = fs::read(damaged.path().join(name)).unwrap() == bytes;
            assert!(is_same, "byte {offset} of {}, in {:?}: {error}", name.display(), journals_of(&path));
        }
    }
}

const ALL_IN_JOURNALS: u64 = 16 << 20;
const SOME_IN_TABLES: u64 = 256 << 10;

/// Where the batches of a journal end.
fn ends(journal: &[u8]) -> Vec<usize> {
    (4..=journal.len()).filter(|end| journal[..*end].ends_with(b"FJL\x03")).collect()
}

/// The same store, with its journal cut into three at the ends of batches, as it is when tables are slow to be written.
fn store_with_three_journals(buffer_bytes: u64) -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = store_with_tables_of(buffer_bytes);
    let path = directory.path().join("data");
    let active = journal(&path);
    let bytes = fs::read(&active).unwrap();
    let ends = ends(&bytes);
    assert!(ends.len() >= 20, "only {} batches", ends.len());
    let (third, two_thirds) = (ends[ends.len() / 3], ends[ends.len() * 2 / 3]);
    let first: u64 = active.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let parts = [&bytes[..third], &bytes[third..two_thirds], &bytes[two_thirds..]];
    let journals = (first..).zip(parts).map(|(number, part)| {
        let name = PathBuf::from(format!("engine/{number}.jnl"));
        fs::write(path.join(&name), part).unwrap();
        name
    });
    let journals = journals.collect();
    (directory, journals)
}

/// A store whose journal begins right behind what is in the tables, and the name of that journal.
fn store_with_journal_behind_tables() -> (tempfile::TempDir, PathBuf) {
    let directory = store_with_tables_of(SOME_IN_TABLES);
    let path = directory.path().join("data");
    let journal = journal(&path);
    let whole = fs::read(&journal).unwrap();
    let ends = ends(&whole);
    let name = journal.strip_prefix(&path).unwrap().to_owned();
    let opens_without = |batches: usize| {
        let cut = scratch();
        copy(&path, cut.path());
        fs::write(cut.path().join(&name), &whole[ends[batches - 1]..]).unwrap();
        match EmbeddedStore::open(cut.path()) {
            Ok(_) => true,
            Err(OpenError::Damaged { .. }) => false,
            Err(other) => panic!("without {batches} batches: {other:?}"),
        }
    };
    // As many batches as can be missed.
    let (mut opens, mut refused) = (1, ends.len());
    assert!(opens_without(opens) && !opens_without(refused - 1), "all or nothing is in tables");
    while refused - opens > 1 {
        let middle = opens.midpoint(refused);
        *(if opens_without(middle) { &mut opens } else { &mut refused }) = middle;
    }
    fs::write(&journal, &whole[ends[opens - 1]..]).unwrap();
    (directory, name)
}

#[test]
fn several_journals_are_as_good_as_one() {
    for buffer_bytes in [ALL_IN_JOURNALS, SOME_IN_TABLES] {
        let (directory, _) = store_with_three_journals(buffer_bytes);
        let mut tally = Tally::default();
        tally.look(&directory.path().join("data"), "nothing");
        assert_eq!((tally.served, tally.keys_failed), (1, 0));
    }
}

#[test]
fn a_missing_journal_is_noticed_whichever_it_is_and_the_note_is_not_needed_unless_it_is_the_last() {
    let (pristine, journals) = store_with_three_journals(ALL_IN_JOURNALS);
    for (index, journal) in journals.iter().enumerate() {
        for without_note in [false, true] {
            if without_note && index + 1 == journals.len() {
                continue;
            }
            let damaged = scratch();
            copy(&pristine.path().join("data"), damaged.path());
            fs::remove_file(damaged.path().join(journal)).unwrap();
            if without_note {
                fs::remove_file(damaged.path().join("noted")).unwrap();
            }
            let refused = EmbeddedStore::open(damaged.path()).expect_err("opened without a journal");
            assert!(matches!(refused, OpenError::Damaged { .. }), "{index}: {refused:?}");
        }
    }
}

#[test]
fn a_changed_sequence_number_at_the_head_of_a_journal_loses_nothing_silently() {
    let (behind_tables, journal) = store_with_journal_behind_tables();
    Tally::default().look(&behind_tables.path().join("data"), "nothing");
    flip_first_sequence_number(behind_tables.path(), &journal);
    let (several, journals) = store_with_three_journals(SOME_IN_TABLES);
    for journal in &journals {
        flip_first_sequence_number(several.path(), journal);
    }
}

fn flip_first_sequence_number(pristine: &Path, journal: &Path) {
    let mut tally = Tally::default();
    let whole = fs::read(pristine.join("data").join(journal)).unwrap();
    for bit in 0..64 {
        let mut bytes = whole.clone();
        // Behind the kind of the entry and the number of items.
        bytes[5 + bit / 8] ^= 1 << (bit % 8);
        let damaged = scratch();
        copy(&pristine.join("data"), damaged.path());
        fs::write(damaged.path().join(journal), &bytes).unwrap();
        tally.look(
            damaged.path(),
            &format!("bit {bit} of the first sequence number of {}", journal.display()),
        );
    }
    assert!(tally.refused > 32, "{}: {tally:?}", journal.display());
}

#[test]
fn a_journal_that_was_cut_is_refused_where_it_was_acknowledged() {
    let pristine = store_with_tables_of(ALL_IN_JOURNALS);
    let path = pristine.path().join("data");
    let journal = journal(&path);
    let name = journal.strip_prefix(&path).unwrap();
    let length = fs::metadata(&journal).unwrap().len();
    for cut in (1..length).step_by((length as usize / 100).max(1)) {
        let damaged = scratch();
        copy(&path, damaged.path());
        fs::OpenOptions::new()
            .write(true)
            .open(damaged.path().join(name))
            .unwrap()
            .set_len(length - cut)
            .unwrap();
        let refused = EmbeddedStore::open(damaged.path()).unwrap_err();
        assert!(matches!(refused, OpenError::Damaged { .. }), "cut by {cut}: {refused:?}");
    }
}

/// A store whose last batch was written but never noted, as a crash leaves it: the length of its journal before and after.
fn store_with_torn_end() -> (tempfile::TempDir, PathBuf, u64, u64) {
    let directory = store_with_records();
    let path = directory.path().join("data");
    let journal = journal(&path);
    let note = fs::read(path.join("noted")).unwrap();
    let before = fs::metadata(&journal).unwrap().len();
    let store = open(&path);
    block_on(begin(&store, RECORDS)).unwrap();
    drop(store);
    let after = fs::metadata(&journal).unwrap().len();
    assert!(after > before);
    fs::write(path.join("noted"), note).unwrap();
    let name = journal.strip_prefix(&path).unwrap().to_owned();
    (directory, name, before, after)
}

#[test]
fn a_torn_end_is_cut_off_at_every_length_and_the_rest_is_there() {
    let (pristine, name, before, after) = store_with_torn_end();
    let path = pristine.path().join("data");
    let whole = fs::read(path.join(&name)).unwrap();
    // An odd step goes through every byte of the fields over the two ways to be torn.
    for length in (before..=after).step_by(5) {
        let mut bytes = whole.clone();
        if length % 2 == 0 {
            bytes.truncate(length as usize);
        } else {
            // As if the end had been made room for, but never written.
            bytes[length as usize..].fill(0);
        }
        let damaged = scratch();
        copy(&path, damaged.path());
        fs::write(damaged.path().join(&name), bytes).unwrap();
        let mut tally = Tally::default();
        tally.look(damaged.path(), &format!("torn at {length}"));
        assert_eq!((tally.served, tally.keys_failed), (1, 0), "torn at {length}");
        // And it went on from there.
        let found = block_on(open(damaged.path()).get(&id(RECORDS + 1))).unwrap();
        assert!(found.is_some(), "torn at {length}");
    }
}

#[test]
fn a_hole_within_the_last_unacknowledged_batch_is_a_torn_end_too() {
    let (pristine, name, before, after) = store_with_torn_end();
    let path = pristine.path().join("data");
    let mut bytes = fs::read(path.join(&name)).unwrap();
    // Pages reach the disk in any order: the end of the batch may be there and its middle not.
    bytes[before as usize + 120..after as usize - 20].fill(0);
    fs::write(path.join(&name), bytes).unwrap();
    let mut tally = Tally::default();
    tally.look(&path, "a hole");
    assert_eq!((tally.served, tally.keys_failed), (1, 0));
}

#[test]
fn damage_before_a_later_batch_is_refused_even_without_the_note() {
    let pristine = store_with_records();
    let path = pristine.path().join("data");
    let journal = journal(&path);
    let mut bytes = fs::read(&journal).unwrap();
    bytes[0] ^= 0xff;
    fs::write(&journal, bytes).unwrap();
    fs::remove_file(path.join("noted")).unwrap();
    let refused = EmbeddedStore::open(&path).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused:?}");
    assert!(refused.to_string().contains("can't be read from byte 0"), "{refused}");
}

#[test]
fn a_value_damaged_in_a_table_fails_its_key_closed_and_leaves_the_others() {
    let pristine = store_with_records();
    let path = pristine.path().join("data");
    let needle = &answer(0).0[..4_000];
    let mut damaged = 0;
    for file in files(&path.join("engine/keyspaces")) {
        let mut bytes = fs::read(&file).unwrap();
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            bytes[at + 2_000] ^= 1;
            fs::write(&file, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "record 0 is in no table");
    let store = open(&path);
    block_on(async {
        let refused = store.get(&id(0)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused:?}");
        let refused = store.begin(&id(0), &claim()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused:?}");
        let mut served = 0;
        for n in 1..RECORDS {
            match show(&store, n).await {
                Shown::AsAcknowledged => served += 1,
                Shown::FailsClosed => {}
                Shown::Lost(what) => panic!("{what}"),
            }
        }
        assert!(served > RECORDS * 9 / 10, "only {served} served");
        complete(&store, RECORDS + 1).await.unwrap();
    });
}

#[test]
fn a_table_that_claims_too_many_sections_is_refused_with_a_message() {
    let directory = store_with_records();
    let path = directory.path().join("data");
    let tables =
        files(&path.join("engine")).into_iter().filter(|file| file.parent().unwrap().ends_with("tables"));
    let mut damaged = 0;
    for table in tables {
        let whole = fs::read(&table).unwrap();
        let contents = whole.windows(4).rposition(|window| window == b"TOC!").expect("a table of contents");
        let mut bytes = whole.clone();
        // The highest byte of the count behind the magic: billions of sections.
        bytes[contents + 7] ^= 0x80;
        fs::write(&table, &bytes).unwrap();
        let refused = EmbeddedStore::open(&path).expect_err("it was opened");
        assert!(matches!(refused, OpenError::Damaged { .. }), "{refused:?}");
        fs::write(&table, &whole).unwrap();
        damaged += 1;
    }
    assert!(damaged > 0, "there is no table");
    EmbeddedStore::open(&path).expect("all is mended");
}

#[test]
fn a_table_that_is_cut_under_a_process_is_not_said_to_come_back_by_itself() {
    let directory = store_with_tables_of(32 << 10);
    let path = directory.path().join("data");
    let store = EmbeddedStore::open(&path).unwrap();
    for table in files(&path.join("engine/keyspaces/1/tables")) {
        let file = fs::OpenOptions::new().write(true).open(&table).unwrap();
        file.set_len(file.metadata().unwrap().len() / 4).unwrap();
    }
    let failures: Vec<StoreError> = block_on(read_all(&store)).into_iter().filter_map(Result::err).collect();
    assert!(!failures.is_empty(), "nothing was read from the tables");
    for failure in failures {
        assert_eq!(failure.kind(), ErrorKind::Corrupt, "{failure}");
    }
}

async fn read_all(store: &EmbeddedStore) -> Vec<Result<(), StoreError>> {
    let mut read = Vec::new();
    for n in 0..RECORDS {
        read.push(store.get(&id(n)).await.map(drop));
    }
    read
}
