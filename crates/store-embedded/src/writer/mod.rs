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

use onlyonce_core::machine::Record;
use onlyonce_core::{RecordId, StoreError};
use tokio::sync::mpsc::Receiver;

use crate::crash::CrashPoint;
use crate::engine::EngineError;
use crate::keys;
use crate::limits::Limits;
use crate::noted::Noted;
use crate::shared::{BACKEND, Shared};
use crate::stored::{Tag, Totals};
use decide::Decided;
pub(crate) use op::Op;

/// One batch takes no more operations than this, so that nobody waits for too many others.
const MAX_BATCH: usize = 1024;

/// So many records that run are kept in memory; beyond that they are read.
const MAX_RUNNING: usize = 16_384;

/// Deletions after which it is worth to reclaim room, if they are also half of what is left.
const WORTH_RECLAIMING: u64 = 10_000;

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
    /// No list of completed records begins before this.
    pub(crate) swept_to: u64,
    /// Deletions since room was last reclaimed.
    pub(crate) deleted: u64,
    /// Wakes the thread that reclaims room.
    pub(crate) reclaim: SyncSender<()>,
}

impl Writer {
    /// Serves until every sender is gone or somebody closes the queue, and everything that was queued is answered.
    pub(crate) fn run(mut self, mut queue: Receiver<Op>) {
        let mut ops = Vec::with_capacity(MAX_BATCH);
        while queue.blocking_recv_many(&mut ops, MAX_BATCH) > 0 {
            if ops.iter().any(|op| matches!(op, Op::Close)) {
                queue.close();
            }
            // If it panics, the senders of the answers are dropped, and the callers told that they can't know.
            if catch_unwind(AssertUnwindSafe(|| self.batch(&mut ops))).is_err() {
                self.shared.stop("the writer panicked");
                ops.clear();
            }
        }
    }

    fn batch(&mut self, ops: &mut Vec<Op>) {
        if self.shared.check("").is_err() {
            for op in ops.drain(..) {
                op.refuse(|call| StoreError::unavailable(BACKEND, call, self.shared.stop_reason()));
            }
            return;
        }
        let mut decided = Decided::default();
        for op in ops.drain(..) {
            self.decide(op, &mut decided);
        }
        if decided.is_empty() {
            return decided.answers.into_iter().for_each(op::Answer::send);
        }
        CrashPoint::BeforeWrite.pass();
        match self.write(&mut decided) {
            Ok(()) => self.answer(decided),
            Err(cause) => {
                self.shared.stop(&cause.to_string());
                for answer in decided.answers {
                    answer.send_ambiguous(|call| {
                        StoreError::ambiguous(BACKEND, call, self.shared.stop_reason())
                    });
                }
            }
        }
    }

    fn write(&mut self, decided: &mut Decided) -> Result<(), EngineError> {
        let puts = plan::puts(decided, &mut self.totals, &self.tag, &mut self.shared.index.lock());
        self.limits
            .wrote(puts.iter().map(|put| put.value.as_ref().map_or(64, |value| value.len() + 64)).sum());
        // A list may come before the last sweep's end, if the clock was set back or nothing is to be kept.
        let first =
            puts.iter().filter(|put| put.value.is_some()).filter_map(|put| keys::expiry_list_parts(&put.key));
        self.swept_to = first.map(|(first, _)| first).fold(self.swept_to, u64::min);
        self.shared.engine.commit(puts)?;
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
        if self.deleted >= WORTH_RECLAIMING.max(self.totals.records / 2) && self.reclaim.try_send(()).is_ok()
        {
            self.deleted = 0;
        }
    }
}
