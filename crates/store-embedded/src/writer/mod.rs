//! The one thread that writes.
//!
//! Callers put their operation into a bounded queue and wait. The writer takes all that is queued, decides it in order with
//! the [machine](onlyonce_core::machine), writes one batch, syncs once, and answers everybody. An answer that says "nothing
//! changed" waits for the sync too, because it may rest on a change of the same batch.

mod decide;
mod op;
mod plan;
mod sweep;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use onlyonce_core::machine::Record;
use onlyonce_core::{Fence, Moment, RecordId, StoreError, TimeNote};
use tokio::sync::mpsc::Receiver;

use crate::crash::CrashPoint;
use crate::engine::{Engine, EngineError, Memory, Put};
use crate::keys::{self, Key};
use crate::limits::Limits;
use crate::noted::Noted;
use crate::open::{self, Opened};
use crate::shared::{BACKEND, Shared, Stop};
use crate::stored::{Tag, Totals, decode_record, encode_note};
use decide::Decided;
pub(crate) use op::{Begun, Op, Swept};

/// One batch takes no more operations than this, so that nobody waits for too many others.
const MAX_BATCH: usize = 1024;

/// So many records that run are kept in memory; beyond that they are read.
const MAX_RUNNING: usize = 16_384;

/// Deletions after which it is worth to reclaim room, if they are also half of what is left.
const WORTH_RECLAIMING: u64 = 10_000;

/// How often the directory is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) noted: Noted,
    pub(crate) totals: Totals,
    pub(crate) tag: Tag,
    pub(crate) limits: Limits,
    /// Records that were begun last and are not settled, as they are on disk: a settlement need not read what was written
    /// a moment ago.
    pub(crate) running: HashMap<RecordId, Record>,
    /// No list of completed records that is of use comes before this.
    pub(crate) swept_to: Key,
    /// The last batch that can be read.
    pub(crate) visible: u64,
    /// For opening the store again.
    pub(crate) memory: Memory,
    /// Deletions since room was last reclaimed.
    pub(crate) deleted: u64,
    /// When the directory was last looked for.
    pub(crate) looked: Moment,
    /// Wakes the thread that does the chores.
    pub(crate) chores: SyncSender<()>,
}

impl Writer {
    /// Serves until every sender is gone or somebody closes the queue, and everything that was queued is answered.
    pub(crate) fn run(mut self, mut queue: Receiver<Op>) {
        let mut ops = Vec::with_capacity(MAX_BATCH);
        // The time is noted before anything rests on it.
        self.guarded_batch(&mut ops);
        while queue.blocking_recv_many(&mut ops, MAX_BATCH) > 0 {
            if ops.iter().any(|op| matches!(op, Op::Close)) {
                queue.close();
            }
            self.guarded_batch(&mut ops);
        }
    }

    /// If it panics, the senders of the answers are dropped, and the callers told that they can't know.
    fn guarded_batch(&mut self, ops: &mut Vec<Op>) {
        if catch_unwind(AssertUnwindSafe(|| self.batch(ops))).is_err() {
            self.shared.stop(Stop::ForGood("the writer panicked".into()));
            ops.clear();
        }
    }

    fn batch(&mut self, ops: &mut Vec<Op>) {
        self.look_for_directory();
        if self.shared.check_reading("").is_err() {
            for op in ops.drain(..) {
                op.refuse(|call| self.shared.refusal(call));
            }
            return;
        }
        // Before anything is judged by the time.
        let note = self.shared.time.records.to_note();
        let mut decided = Decided { is_wanted: note.is_some(), ..Decided::default() };
        for op in ops.drain(..) {
            match op {
                // It comes alone, or after what was decided without it: nothing was written since the store stopped.
                Op::Reopen { reply } => {
                    self.reopen();
                    // Nobody may wait for it any more.
                    let _ = reply.send(());
                }
                op => self.decide(op, &mut decided),
            }
        }
        // Others may stop the store at any moment, because its directory is gone: what was decided before is written all the same, or
        // it would be told as done and be nowhere.
        if !decided.has_changes() && (!decided.is_wanted || self.shared.check("").is_err()) {
            return decided.answers.into_iter().for_each(op::Answer::send);
        }
        CrashPoint::BeforeWrite.pass();
        match self.write(&mut decided, note) {
            Ok(()) => self.answer(decided),
            Err(cause) => {
                self.shared.stop(Stop::because(&cause, &self.shared));
                // Wakes the one that waits for room; if it can't be told, it is awake.
                let _ = self.chores.try_send(());
                for answer in decided.answers {
                    answer.send_ambiguous(|call| {
                        StoreError::ambiguous(BACKEND, call, self.shared.stop_reason())
                    });
                }
            }
        }
    }

    /// Now and then: what is acknowledged into a directory that is gone is lost.
    fn look_for_directory(&mut self) {
        let now = self.shared.time.clock.now();
        if now.since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            self.shared.look_for_directory();
        }
    }

    fn write(&mut self, decided: &mut Decided, note: Option<TimeNote>) -> Result<(), EngineError> {
        let mut puts = plan::puts(decided, &mut self.totals, &self.tag, &mut self.shared.index.lock());
        puts.extend(note.map(|note| Put { key: keys::time(), value: Some(encode_note(&note)) }));
        self.limits
            .wrote(puts.iter().map(|put| put.value.as_ref().map_or(64, |value| value.len() + 64)).sum());
        // A list may come before the last sweep's end, if nothing is to be kept.
        let lists = puts.iter().filter(|put| put.value.is_some()).map(|put| put.key);
        let lists = lists.filter(|key| keys::expiry_list_parts(key).is_some());
        self.swept_to = lists.fold(self.swept_to, Key::min);
        self.shared.open("write").map_err(|_| EngineError::Stopped)?.engine.commit(puts)?;
        self.visible = self.totals.batch;
        if let Some(note) = note {
            self.shared.time.records.noted(&note);
        }
        CrashPoint::BeforeNote.pass();
        self.noted.write(self.totals.batch).map_err(EngineError::Io)?;
        CrashPoint::BeforeAnswer.pass();
        Ok(())
    }

    fn answer(&mut self, decided: Decided) {
        for (id, fence) in &decided.ended {
            self.shared.leases.end(id, *fence);
        }
        if self.running.len() > MAX_RUNNING {
            self.running.clear();
        }
        for (id, touched) in decided.touched {
            self.shared.leases.wake(&id);
            match touched.record {
                Some(record) if record.settled.is_none() => self.running.insert(id, record),
                _ => self.running.remove(&id),
            };
        }
        decided.answers.into_iter().for_each(op::Answer::send);
        CrashPoint::AfterAnswer.pass();
        self.deleted += decided.deleted;
        if self.deleted >= WORTH_RECLAIMING.max(self.totals.records / 2) && self.chores.try_send(()).is_ok() {
            self.deleted = 0;
        }
    }
}

impl Writer {
    /// Closes the engine, which takes with it whatever it failed to write, and opens what is there through all checks of a start.
    fn reopen(&mut self) {
        let shared = Arc::clone(&self.shared);
        shared.look_for_directory();
        if !shared.is_full() {
            return;
        }
        let mut place = shared.engine.write();
        let closed = place.take().map_or(Ok(()), |engine| engine.close(&shared.directory.engine()));
        if let Err(cause) = closed {
            return shared.stop(Stop::ForGood(cause.to_string()));
        }
        match open::open(&shared.directory, self.memory, Some(self.visible)) {
            Ok(opened) => {
                let Opened { engine, index, totals, noted, .. } = opened;
                shared.leases.retain(|id, fence| is_running(&engine, id, fence));
                self.totals = Totals { last_fence: totals.last_fence.max(self.totals.last_fence), ..totals };
                (self.noted, self.swept_to) = (noted, keys::expiry_list(0, 0));
                self.running.clear();
                *shared.index.lock() = index;
                *place = Some(engine);
                drop(place);
                shared.go_on();
            }
            Err(refused) => shared.stop(refused.into()),
        }
    }
}

/// Whether this attempt is the one on disk, and is not settled.
fn is_running(engine: &Engine, id: &RecordId, fence: Fence) -> bool {
    match engine.get(&keys::record(id)).map(|found| found.map(|bytes| decode_record(id, bytes))) {
        Ok(Some(Ok(record))) => record.settled.is_none() && record.fence == fence,
        Ok(None) => false,
        // Nobody knows: a lease that is kept in vain runs out, one that is taken away lets another run.
        Ok(Some(Err(_))) | Err(_) => true,
    }
}
