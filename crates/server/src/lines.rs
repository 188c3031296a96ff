//! Lines that a thread of its own writes: whoever says something never waits for the one who reads.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// How many lines may wait. More than a reader that hangs for a moment lets come, and little memory.
const MOST: usize = 1024;
/// How often it is looked whether there is room again.
const LOOK: Duration = Duration::from_millis(5);

/// Standard output or standard error, behind a queue.
#[derive(Debug)]
pub(crate) struct Lines {
    queue: SyncSender<Word>,
    lost: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Word {
    Line(Vec<u8>),
    /// Answered when all before it is written.
    Written(SyncSender<()>),
}

impl Lines {
    /// Begins to write there. What was lost is told by `tell`, once there is room again.
    pub(crate) fn to(stream: &impl AsFd, tell: fn(usize) -> String) -> Self {
        let (queue, words) = sync_channel(MOST);
        let lost = Arc::new(AtomicUsize::new(0));
        // A file of its own, so that a write that hangs holds no lock that others need.
        let file = stream.as_fd().try_clone_to_owned().map(File::from);
        let count = Arc::clone(&lost);
        let write = move || {
            if let Ok(file) = file {
                write(file, &words, &count, tell)
            }
        };
        // Without a thread nothing is written: the queue is closed then.
        let _ = std::thread::Builder::new().name("lines".into()).spawn(write);
        Self { queue, lost }
    }

    /// Says a line, or loses it if too many wait already.
    pub(crate) fn say(&self, line: &[u8]) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Word::Line(line.to_vec())) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says a line, and waits this long for room.
    pub(crate) fn say_patiently(&self, line: &[u8], patience: Duration) {
        if !self.push(Word::Line(line.to_vec()), patience) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all that was said is written, for this long at the most.
    pub(crate) fn finish(&self, patience: Duration) {
        let (done, written) = sync_channel(1);
        if self.push(Word::Written(done), patience) {
            let _ = written.recv_timeout(patience);
        }
    }

    fn push(&self, mut word: Word, patience: Duration) -> bool {
        let looks = patience.as_millis() / LOOK.as_millis();
        for _ in 0..=looks {
            word = match self.queue.try_send(word) {
                Ok(()) => return true,
                Err(TrySendError::Full(word)) => word,
                // Nobody writes any more.
                Err(TrySendError::Disconnected(_)) => return false,
            };
            std::thread::sleep(LOOK);
        }
        false
    }
}

fn write(mut file: File, words: &Receiver<Word>, lost: &AtomicUsize, tell: fn(usize) -> String) {
    // Whoever reads may have gone, which is no reason to end.
    let mut put = |line: &[u8]| drop::<io::Result<()>>(file.write_all(line));
    while let Ok(word) = words.recv() {
        match word {
            Word::Line(line) => put(&line),
            Word::Written(done) => drop(done.try_send(())),
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            count => put(tell(count).as_bytes()),
        }
    }
}
