//! Opening a store: the directory, the check of the journals, the engine, and what has to be known before serving.

use onlyonce_core::machine::Record;
use onlyonce_core::{RecordId, TimeNote, Verdict};

use crate::crash::CrashPoint;
use crate::directory::Directory;
use crate::engine::{Engine, EngineError, Memory, Visit};
use crate::index::Index;
use crate::journal::{self, JournalError};
use crate::keys;
use crate::manifest;
use crate::noted::Noted;
use crate::open_error::OpenError;
use crate::persisted::Persisted;
use crate::stored::{OpenItem, OpenKind, Tag, Totals, decode_note, decode_open, decode_record};
use crate::tables;

/// A store that is ready to serve.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    pub(crate) index: Index,
    pub(crate) totals: Totals,
    pub(crate) tag: Tag,
    pub(crate) noted: Noted,
    pub(crate) time: Option<TimeNote>,
}

/// Opens what is there, through all checks. What follows batch `up_to` is cut off: this process knows that nobody was told of it.
pub(crate) fn open(directory: &Directory, memory: Memory, up_to: Option<u64>) -> Result<Opened, OpenError> {
    let tag = directory.format(memory, up_to.is_none())?.tag;
    let (noted, last_noted) =
        Noted::open(&directory.noted(), &tag).map_err(|cause| directory.failed(cause))?;
    let engine = directory.engine();
    let manifests = manifest::check(&engine).map_err(|cause| directory.failed(cause))?;
    manifests.map_err(|what| OpenError::damaged(directory.path(), what))?;
    let tables = tables::check(&engine).map_err(|cause| directory.failed(cause))?;
    tables.map_err(|what| OpenError::damaged(directory.path(), what))?;
    let persisted = Persisted::read(directory, &tag)?;
    let checked = journal::check(&engine, &tag, journal::Known { noted: last_noted, up_to, persisted })
        .map_err(|cause| match cause {
            JournalError::Io(file, cause) => {
                tracing::error!(file = %file.display(), %cause, "a journal can't be read");
                directory.failed(cause)
            }
            JournalError::Damaged(what) => OpenError::damaged(directory.path(), what),
        })?;
    CrashPoint::Recovering.pass();
    let engine = Engine::open(&engine, memory).map_err(|cause| directory.engine_failed(cause))?;
    let totals = totals(&engine, directory, &tag)?;
    let expected = checked.last.unwrap_or(0).max(last_noted);
    if totals.batch < expected {
        let what =
            format!("batch {expected} was acknowledged, but only batch {} was recovered", totals.batch);
        return Err(OpenError::damaged(directory.path(), what));
    }
    let mut index = index(&engine, directory)?;
    index.records = totals.records;
    let time = time(&engine, directory)?;
    CrashPoint::Recovered.pass();
    Ok(Opened { engine, index, totals, tag, noted, time })
}

fn totals(engine: &Engine, directory: &Directory, tag: &Tag) -> Result<Totals, OpenError> {
    let bytes = engine.get(keys::LAST).map_err(|cause| directory.engine_failed(cause))?;
    let totals = bytes.map(|bytes| Totals::decode(tag, bytes)).transpose();
    let totals =
        totals.map_err(|cause| OpenError::damaged(directory.path(), format!("the last batch: {cause}")))?;
    Ok(totals.unwrap_or_default())
}

fn time(engine: &Engine, directory: &Directory) -> Result<Option<TimeNote>, OpenError> {
    let bytes = engine.get(keys::TIME).map_err(|cause| directory.engine_failed(cause))?;
    let note = bytes.map(decode_note).transpose();
    note.map_err(|cause| OpenError::damaged(directory.path(), format!("the time of the records: {cause}")))
}

/// Reads the lists of open records and what they name; the cost is that of what is open, not of what is stored.
fn index(engine: &Engine, directory: &Directory) -> Result<Index, OpenError> {
    let mut lists = Vec::new();
    let mut is_whole = true;
    let range = keys::open_list(0)..=keys::open_list(u64::MAX);
    let scanned = engine.scan(range, |key, value| {
        match keys::open_list_batch(key).zip(decode_open(key, value).ok()) {
            Some(list) => lists.push(list),
            None => is_whole = false,
        }
        Visit::More
    });
    scanned.map_err(|cause| directory.engine_failed(cause))?;
    let mut index = Index::default();
    for (batch, items) in lists {
        let open: Vec<_> = items.iter().copied().filter(|item| is_open(engine, item)).collect();
        index.enter(batch, &open, items.len());
    }
    if !is_whole {
        tracing::warn!("a list of open records is damaged; looking through all records instead");
        add_unlisted(engine, &mut index).map_err(|cause| directory.engine_failed(cause))?;
    }
    Ok(index)
}

/// Whether the record is still as the list says: a list is not rewritten for every record that leaves it.
fn is_open(engine: &Engine, item: &OpenItem) -> bool {
    let record = engine.get(&keys::record(&item.id));
    let record = record.map(|bytes| bytes.map(|bytes| decode_record(&item.id, bytes)));
    match record {
        Ok(None) => false,
        Ok(Some(Ok(record))) => open_item(item.id, &record).is_some(),
        // A damaged record is not known to be settled.
        Ok(Some(Err(_))) | Err(_) => true,
    }
}

/// Finds open records that no list names. They get into a list again when they are next written.
fn add_unlisted(engine: &Engine, index: &mut Index) -> Result<(), EngineError> {
    let mut unlisted = Vec::new();
    engine.scan([keys::RECORD]..[keys::RECORD + 1], |key, value| {
        let found = keys::record_id(key).and_then(|id| Some((id, decode_record(&id, value).ok()?)));
        if let Some((id, record)) = found.filter(|(id, _)| index.get(id).is_none()) {
            unlisted.extend(open_item(id, &record));
        }
        Visit::More
    })?;
    // No batch has this number.
    index.enter(0, &unlisted, unlisted.len());
    Ok(())
}

/// The record as an item of the lists of open records, unless it is completed.
pub(crate) fn open_item(id: RecordId, record: &Record) -> Option<OpenItem> {
    let kind = match &record.settled {
        None => OpenKind::Unsettled,
        Some((Verdict::Released, _)) => OpenKind::Released,
        Some((Verdict::Unknown(_), _)) => OpenKind::Unknown,
        Some((Verdict::Completed(_), _)) => return None,
    };
    let (created, expires) = (record.created.as_micros(), record.expires_at().as_micros());
    Some(OpenItem { id, created, expires, kind })
}
