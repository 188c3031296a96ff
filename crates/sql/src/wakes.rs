//! Messages of a change, to those who wait for it in this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onlyonce_core::RecordId;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Who waits for which record; the listener wakes them.
#[derive(Clone)]
#[doc(hidden)]
pub struct Wakes(Arc<Shared>);

struct Shared {
    waiting: Mutex<HashMap<RecordId, (Arc<Notify>, usize)>>,
    /// Whether messages are heard right now.
    listening: AtomicBool,
    /// Whether the task that listens was started.
    started: AtomicBool,
    begin: Box<dyn Fn(Wakes) + Send + Sync>,
}

impl fmt::Debug for Wakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakes").field("waiting", &self.0.waiting.lock().len()).finish_non_exhaustive()
    }
}

/// A place among those who wait; dropping it leaves.
pub(crate) struct Place {
    wakes: Wakes,
    id: RecordId,
    notify: Arc<Notify>,
}

#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL tells of changes"))]
impl Wakes {
    fn new(begin: impl Fn(Self) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            waiting: Mutex::default(),
            listening: AtomicBool::new(false),
            started: AtomicBool::new(false),
            begin: Box::new(begin),
        }))
    }

    /// Waits from now on. The first who does so starts the listener: a process in which nobody waits needs none.
    pub(crate) fn enlist(&self, id: RecordId) -> Place {
        if !self.0.started.swap(true, Ordering::AcqRel) {
            (self.0.begin)(self.clone());
        }
        let mut waiting = self.0.waiting.lock();
        let (notify, count) = waiting.entry(id).or_default();
        *count += 1;
        Place { wakes: self.clone(), id, notify: Arc::clone(notify) }
    }

    fn wake(&self, id: &RecordId) {
        if let Some((notify, _)) = self.0.waiting.lock().get(id) {
            notify.notify_waiters();
        }
    }

    fn wake_all(&self) {
        self.0.waiting.lock().values().for_each(|(notify, _)| notify.notify_waiters());
    }

    fn listens(&self, does: bool) {
        self.0.listening.store(does, Ordering::Release);
        // Whoever waits looks once more: something may have been missed, or may be heard from now on.
        self.wake_all();
    }

    /// Whether anybody but the listener itself still needs it.
    fn is_needed(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Place {
    pub(crate) fn is_listening(&self) -> bool {
        self.wakes.0.listening.load(Ordering::Acquire)
    }

    /// Ends with the next message, counted from when it is enabled.
    pub(crate) fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.wakes.0.waiting.lock();
        if let Some((_, count)) = waiting.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.id);
            }
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use onlyonce_core::RecordId;
    use sqlx::postgres::PgListener;
    use sqlx::{Pool, Postgres};

    use super::Wakes;
    use crate::table::Table;

    /// The channel on which changes of a table are told.
    pub(crate) fn channel(table: &Table) -> String {
        format!("once_{}", table.name())
    }

    /// Listens on a connection of its own, from the first who waits until nobody has the store any more.
    pub(crate) fn listen(pool: Pool<Postgres>, channel: String) -> Wakes {
        Wakes::new(move |wakes| {
            tokio::spawn(work(wakes, pool.clone(), channel.clone()));
        })
    }

    /// The end of listening, also with its runtime: who waits must not rely on it, and the next one starts it anew.
    struct Deaf(Wakes);

    impl Drop for Deaf {
        fn drop(&mut self) {
            self.0.0.started.store(false, Ordering::Release);
            self.0.listens(false);
        }
    }

    async fn work(wakes: Wakes, pool: Pool<Postgres>, channel: String) {
        let deaf_in_the_end = Deaf(wakes);
        let wakes = &deaf_in_the_end.0;
        while wakes.is_needed() && !pool.is_closed() {
            if let Err(error) = hear(wakes, &pool, &channel).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "not listening; waiting calls look instead"
                );
            }
            wakes.listens(false);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn hear(wakes: &Wakes, pool: &Pool<Postgres>, channel: &str) -> Result<(), sqlx::Error> {
        // Not from the pool: that connection would be missing there for good.
        let own = sqlx::pool::PoolOptions::new().max_connections(1).min_connections(0);
        let own = own.connect_lazy_with((*pool.connect_options()).clone());
        let mut listener = PgListener::connect_with(&own).await?;
        listener.listen(channel).await?;
        wakes.listens(true);
        while wakes.is_needed() && !pool.is_closed() {
            let next = tokio::time::timeout(Duration::from_secs(5), listener.try_recv()).await;
            match next {
                Ok(Ok(Some(message))) => {
                    if let Some(id) = id_of(message.payload()) {
                        wakes.wake(&id);
                    }
                }
                // The connection is gone, and with it what was said meanwhile.
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn id_of(hex: &str) -> Option<RecordId> {
        let mut id = [0; 32];
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        for (n, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).ok()?;
        }
        Some(RecordId::from_bytes(id))
    }
}

#[cfg(feature = "postgres")]
pub(crate) use postgres::{channel, listen};
