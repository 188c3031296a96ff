//! A directory that can't be opened: a clear message each, and nothing changed.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fs;

use common::*;
use onlyonce_store_embedded::{EmbeddedStore, OpenError};

fn refused(path: &std::path::Path) -> OpenError {
    EmbeddedStore::open(path).expect_err("it must not open")
}

#[test]
fn a_file_is_not_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "hello").unwrap();
    for path in [file.clone(), file.join("below")] {
        let refused = refused(&path);
        assert!(matches!(refused, OpenError::NotADirectory { .. }), "{refused:?}");
        assert!(refused.to_string().contains("name a directory"), "{refused}");
    }
    assert_eq!(fs::read(file).unwrap(), b"hello");
}

#[cfg(unix)]
#[test]
fn a_new_directory_is_for_its_owner_alone_and_an_old_one_keeps_its_rights() {
    use std::os::unix::fs::PermissionsExt;
    let rights = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let directory = tempfile::tempdir().unwrap();
    let (new, old) = (directory.path().join("new"), directory.path().join("old"));
    drop(EmbeddedStore::open(&new).unwrap());
    assert_eq!(rights(&new), 0o700, "answers are nobody else's business");
    fs::create_dir(&old).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o750)).unwrap();
    drop(EmbeddedStore::open(&old).unwrap());
    assert_eq!(rights(&old), 0o750);
}

#[test]
fn a_directory_with_something_else_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("photo.jpg"), "hello").unwrap();
    let refused = refused(directory.path());
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused:?}");
    assert!(refused.to_string().contains("name an empty directory"), "{refused}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_second_store_in_this_process_is_refused_until_the_first_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let refused = refused(directory.path());
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(
        text.contains(directory.path().to_str().unwrap()) && text.contains("stop the other process"),
        "{text}"
    );
    drop(first);
    open(directory.path());
}

#[test]
fn a_second_process_is_refused() {
    const NAME: &str = "a_second_process_is_refused";
    if is_child(NAME) {
        let refused = refused(std::env::var("DATA").unwrap().as_ref());
        std::process::exit(if matches!(refused, OpenError::InUse { .. }) { 42 } else { 1 });
    }
    let directory = tempfile::tempdir().unwrap();
    let _first = open(directory.path());
    let status = child(NAME).env("DATA", directory.path()).status().unwrap();
    assert_eq!(status.code(), Some(42));
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let format = directory.path().join("format");
    let newer = fs::read_to_string(&format).unwrap().replace("format 1", "format 2");
    fs::write(&format, &newer).unwrap();
    let refused = refused(directory.path());
    assert!(matches!(refused, OpenError::Newer { found: 2, known: 1, .. }), "{refused:?}");
    assert!(refused.to_string().contains("run the newer release"), "{refused}");
    assert_eq!(fs::read_to_string(format).unwrap(), newer);
}

#[test]
fn a_store_whose_parts_are_missing_is_refused_and_not_made_anew() {
    for missing in ["format", "engine", "engine/keyspaces/1/current", "engine/keyspaces/0/current"] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        block_on(complete(&store, 1)).unwrap();
        drop(store);
        let (path, aside) = (directory.path().join(missing), directory.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        let refused = refused(directory.path());
        if missing == "format" {
            // Without it the directory is a stranger's, because of `aside`; without `aside` it is damaged.
            assert!(matches!(refused, OpenError::Foreign { .. }), "{refused:?}");
            fs::remove_file(&aside).unwrap();
            let refused = self::refused(directory.path());
            assert!(matches!(refused, OpenError::Damaged { .. }), "{refused:?}");
            continue;
        }
        assert!(matches!(refused, OpenError::Damaged { .. }), "{missing}: {refused:?}");
        assert!(refused.to_string().contains("restore a backup"), "{refused}");
        // Nothing was thrown away: put back, it opens.
        fs::rename(&aside, &path).unwrap();
        assert_eq!(block_on(show(&open(directory.path()), 1)), Shown::AsAcknowledged);
    }
}

#[test]
fn a_missing_note_is_no_loss() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    block_on(complete(&store, 1)).unwrap();
    drop(store);
    fs::remove_file(directory.path().join("noted")).unwrap();
    assert_eq!(block_on(show(&open(directory.path()), 1)), Shown::AsAcknowledged);
}

#[test]
fn a_lock_that_somebody_removed_neither_opens_a_store_twice_nor_closes_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let store = EmbeddedStore::open(&path).unwrap();
    block_on(complete(&store, 1)).unwrap();
    fs::remove_file(path.join("lock")).unwrap();
    let refused = refused(&path);
    assert!(matches!(refused, OpenError::InUse { .. }), "it is not damaged: {refused:?}");
    drop(store);
    fs::remove_file(path.join("engine/lock")).unwrap();
    let again = EmbeddedStore::open(&path).unwrap();
    assert!(matches!(block_on(show(&again, 1)), Shown::AsAcknowledged));
}
