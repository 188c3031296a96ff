//! The bare engine: a group-commit writer that puts what it is given, and nothing else.

use std::path::Path;
use std::thread::JoinHandle;

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use tokio::sync::{mpsc, oneshot};

use crate::callers::{ANSWER, Pairs, id};

/// As long as a record without its answer.
pub(crate) const RECORD_BYTES: usize = 180;

type Put = (Vec<u8>, Vec<u8>, oneshot::Sender<()>);

/// Puts of keys and values, durable when they return.
pub(crate) struct Puts {
    queue: Option<mpsc::Sender<Put>>,
    writer: Option<JoinHandle<()>>,
}

impl Puts {
    /// `write` makes all that it is given durable at once.
    pub(crate) fn new(mut write: impl FnMut(&[Put]) + Send + 'static) -> Self {
        let (queue, mut puts) = mpsc::channel::<Put>(1024);
        let writer = std::thread::spawn(move || {
            let mut batch = Vec::new();
            while puts.blocking_recv_many(&mut batch, 1024) > 0 {
                write(&batch);
                batch.drain(..).for_each(|(_, _, done)| done.send(()).unwrap());
            }
        });
        Self { queue: Some(queue), writer: Some(writer) }
    }

    async fn put(&self, key: Vec<u8>, value: Vec<u8>) {
        let (done, wait) = oneshot::channel();
        self.queue.as_ref().unwrap().send((key, value, done)).await.unwrap();
        wait.await.unwrap();
    }
}

impl Drop for Puts {
    fn drop(&mut self) {
        self.queue = None;
        self.writer.take().unwrap().join().unwrap();
    }
}

impl Pairs for Puts {
    async fn pair(&self, n: u64) {
        let key = id(n).as_bytes().to_vec();
        // No two records are alike, as with us.
        let mut value: Vec<u8> = key.iter().copied().cycle().take(RECORD_BYTES).collect();
        self.put(key.clone(), value.clone()).await;
        value.extend_from_slice(ANSWER);
        self.put(key, value).await;
    }
}

pub(crate) fn engine(path: &Path) -> Puts {
    let db = Database::builder(path).worker_threads(2).manual_journal_persist(true).open().unwrap();
    let tree =
        db.keyspace("records", || KeyspaceCreateOptions::default().max_memtable_size(16 << 20)).unwrap();
    Puts::new(move |puts| {
        let mut batch = db.batch().durability(Some(PersistMode::SyncData));
        for (key, value, _) in puts {
            batch.insert(&tree, &key[..], &value[..]);
        }
        batch.commit().unwrap();
    })
}
