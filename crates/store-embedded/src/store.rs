//! The store itself: what callers hold.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use onlyonce_core::{
    AttemptId, Begin, Claim, ErrorKind, Fence, RecordId, Revision, Settled, Settlement, Snapshot, Store,
    StoreError,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::builder::Builder;
use crate::chores;
use crate::directory::Directory;
use crate::keys;
use crate::open::{self, Opened};
use crate::open_error::OpenError;
use crate::presence::Presence;
use crate::shared::{BACKEND, Open, Shared};
use crate::time::Time;
use crate::writer::{Begun, Op, Swept, Writer};

/// A sweep is done in parts of this size, so that calls get their turn in between.
const SWEEP_AT_ONCE: u32 = 1024;

/// Records in a directory of this machine, for one process at a time.
///
/// ```
/// use onlyonce_core::Idempotency;
/// use onlyonce_store_embedded::EmbeddedStore;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("onlyonce-data");
/// let store = EmbeddedStore::open(path)?;
/// let once = Idempotency::new(store);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it answers what is queued and waits for the writer; [`close`](Self::close) does the same without blocking.
#[derive(Debug)]
pub struct EmbeddedStore {
    pub(crate) shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Op>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Turns to read a large answer that somebody asked for again.
    large_reads: Semaphore,
}

/// How many large answers are read at a time.
const LARGE_READS: usize = 4;
/// How often a record may move under a begin.
const ROUNDS: usize = 16;

impl EmbeddedStore {
    /// Opens the store in this directory, which is made if it does not exist. This blocks: call it at the start, or on a
    /// thread that may.
    ///
    /// # Errors
    /// See [`OpenError`], whose text says what to do.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(path.as_ref()).open()
    }

    /// Settings for a store in this directory.
    pub fn builder(path: impl Into<PathBuf>) -> Builder {
        Builder::new(path.into())
    }

    pub(crate) fn with(builder: Builder) -> Result<Self, OpenError> {
        let directory = Directory::lock(&builder.path)?;
        let Opened { engine, index, totals, tag, noted, time } =
            open::open(&directory, builder.memory, None)?;
        let time = Time::new(builder.clock, time);
        let presence = Presence::of(&directory).map_err(|cause| directory.failed(cause))?;
        let shared =
            Arc::new(Shared::new(engine, index, time, builder.limits.keep_free, directory, presence));
        let (queue, ops) = mpsc::channel(builder.queue);
        let (chores, wishes) = sync_channel(1);
        let writer = Writer {
            shared: shared.clone(),
            noted,
            totals,
            tag,
            limits: builder.limits,
            running: HashMap::new(),
            swept_to: keys::expiry_list(0, 0),
            visible: totals.batch,
            memory: builder.memory,
            deleted: 0,
            looked: shared.time.clock.now(),
            chores,
        };
        let failed = |cause| OpenError::io(&builder.path, cause);
        let helper = thread::Builder::new().name("onlyonce-chores".into());
        let (shared_too, weak_queue) = (shared.clone(), queue.downgrade());
        let helper = helper.spawn(move || chores::run(&shared_too, &wishes, &weak_queue));
        let writer = thread::Builder::new().name("onlyonce-writer".into()).spawn(move || writer.run(ops));
        let threads = Mutex::new(vec![writer.map_err(failed)?, helper.map_err(failed)?]);
        Ok(Self { shared, queue: Some(queue), threads, large_reads: Semaphore::new(LARGE_READS) })
    }

    /// Answers what is queued, refuses what comes later, and ends the threads. The directory is free when the store is
    /// dropped.
    ///
    /// # Cancel safety
    /// The store is closed anyway.
    pub async fn close(&self) {
        if let Some(queue) = &self.queue {
            // An error means that it was closed before.
            let _ = queue.send(Op::Close).await;
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        // It fails only if the runtime is shut down; the threads end all the same.
        let _ = tokio::task::spawn_blocking(move || join(threads)).await;
    }

    /// Puts an operation into the queue and waits for its answer.
    async fn ask<T>(
        &self,
        call: &'static str,
        op: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Op,
    ) -> Result<T, StoreError> {
        self.shared.check_reading(call)?;
        let (reply, answer) = oneshot::channel();
        let closed = || StoreError::unavailable(BACKEND, call, "the store was closed");
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(op(reply)).await.map_err(|_| closed())?;
        let lost = |_| StoreError::ambiguous(BACKEND, call, self.shared.stop_reason());
        answer.await.map_err(lost)?
    }

    /// Runs a read that may wait for the disk, on a thread that may.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        call: &'static str,
        read: impl FnOnce(&Open<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.shared.check_reading(call)?;
        let shared = self.shared.clone();
        let read = tokio::task::spawn_blocking(move || read(&shared.open(call)?)).await;
        read.map_err(|cause| StoreError::unavailable(BACKEND, call, cause))?
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // The writer catches its own panics; one of the engine was reported where it happened.
        let _ = thread.join();
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.queue = None;
        join(std::mem::take(self.threads.get_mut()));
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    /// Durable before it returns.
    async fn begin(&self, id: &RecordId, claim: &Claim) -> Result<Begin, StoreError> {
        for _ in 0..ROUNDS {
            match self.ask("begin", |reply| Op::Begin { id: *id, claim: claim.clone(), reply }).await? {
                Begun::Told(begin) => return Ok(begin),
                Begun::Large => {}
            }
            // It is never closed.
            let _turn = self.large_reads.acquire().await;
            // If it is gone by now, the next begin will say.
            if let Some(snapshot) = self.get(id).await? {
                return Ok(Begin::Taken(snapshot));
            }
        }
        Err(StoreError::new(ErrorKind::Busy, BACKEND, "begin", "the record kept changing; retry"))
    }

    /// In memory only: a lease dies with the process that holds it, so there is nothing to write, and a full disk does not end it.
    async fn renew(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        lease: Duration,
    ) -> Result<Settled, StoreError> {
        self.shared.check_reading("renew")?;
        Ok(self.shared.leases.renew(id, attempt, lease, &self.shared.time))
    }

    /// Durable before it returns.
    async fn settle(
        &self,
        id: &RecordId,
        attempt: &AttemptId,
        how: &Settlement,
    ) -> Result<Settled, StoreError> {
        self.ask("settle", |reply| Op::Settle { id: *id, attempt: *attempt, how: how.clone(), reply }).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let id = *id;
        self.read("get", move |shared| {
            let found = shared.read(&id, "get")?;
            let live = found.filter(|(record, now)| !record.is_expired(now.moment));
            Ok(live.map(|(record, now)| record.snapshot(now.moment)))
        })
        .await
    }

    async fn forget(&self, id: &RecordId, seen: Fence) -> Result<Settled, StoreError> {
        self.ask("forget", |reply| Op::Forget { id: *id, seen, reply }).await
    }

    /// Costs as much as has expired, not as much as there is.
    async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        let mut swept = 0;
        while swept < limit {
            let part = (limit - swept).min(SWEEP_AT_ONCE) as usize;
            let Swept { deleted, more } = self.ask("sweep", |reply| Op::Sweep { limit: part, reply }).await?;
            swept += deleted as u32;
            if !more {
                break;
            }
        }
        Ok(swept)
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.shared.look_for_directory();
        self.shared.check("ready")?;
        self.shared.keep_free.check(self.shared.directory.path())
    }

    /// Wakes at once when this process changes the record; no other process can.
    async fn changed(&self, id: &RecordId, seen: Revision, timeout: Duration) {
        let moved = async {
            loop {
                let notified = self.shared.leases.changed(id).notified();
                tokio::pin!(notified);
                // Enlisted before the look, so that a change between the look and the wait is not missed.
                notified.as_mut().enable();
                if !self.is_at(id, seen).await {
                    return;
                }
                notified.await;
            }
        };
        tokio::select! {
            () = moved => {}
            () = self.shared.time.clock.sleep(timeout) => {}
        }
    }
}

impl EmbeddedStore {
    async fn is_at(&self, id: &RecordId, seen: Revision) -> bool {
        // A lease is ended when its settlement is durable: while it is there, there is no need to ask the disk.
        let (lease, _) = self.shared.leases.look(id, &self.shared.time);
        if !seen.settled && lease.is_some_and(|lease| lease.fence == seen.fence) {
            return true;
        }
        let id = *id;
        let record = self.read("changed", move |shared| shared.read(&id, "changed")).await;
        // After an error the caller looks again and hears of it.
        record.is_ok_and(|found| found.is_some_and(|(record, _)| record.revision() == seen))
    }
}
