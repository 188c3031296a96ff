//! The driver's connection to a Cluster, made anew after it fell silent.
//!
//! The driver connects to nodes by itself when their connections break. But where a command is left without a reply for too long, it
//! may wait for something that never comes, such as the map of slots from a node that is gone, and then every command after
//! it waits too: only another connection ends that. The same if its task has ended, with the runtime on which it was made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::RedisError;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use tokio::time::timeout;

pub(super) struct Renewable {
    current: Mutex<ClusterConnection>,
    /// How to make another, and how long that may take; not for a connection that a user made.
    source: Option<Box<(ClusterClient, Duration)>>,
    silent: AtomicBool,
    renewing: tokio::sync::Mutex<()>,
}

impl Renewable {
    pub(super) async fn connect(client: ClusterClient, patience: Duration) -> Result<Self, RedisError> {
        let connection = client.get_async_connection().await?;
        Ok(Self::new(connection, Some(Box::new((client, patience)))))
    }

    pub(super) fn given(connection: ClusterConnection) -> Self {
        Self::new(connection, None)
    }

    fn new(connection: ClusterConnection, source: Option<Box<(ClusterClient, Duration)>>) -> Self {
        let (current, silent) = (Mutex::new(connection), AtomicBool::new(false));
        Self { current, source, silent, renewing: tokio::sync::Mutex::new(()) }
    }

    /// The connection to use next.
    pub(super) async fn get(&self) -> ClusterConnection {
        if self.silent.load(Ordering::Relaxed) {
            self.renew().await;
        }
        self.current.lock().clone()
    }

    /// Takes note of why a command failed.
    pub(super) fn failed(&self, cause: &RedisError) {
        if cause.is_timeout() || has_ended(cause) {
            self.silent.store(true, Ordering::Relaxed);
        }
    }

    /// One caller renews; the others go on with what there is. If that fails the next caller tries again.
    async fn renew(&self) {
        let (Some(source), Ok(_turn)) = (&self.source, self.renewing.try_lock()) else { return };
        let (client, patience) = &**source;
        if let Ok(Ok(connection)) = timeout(*patience, client.get_async_connection()).await {
            tracing::warn!(
                "the Cluster left commands without a reply, or its task ended: it is connected to anew"
            );
            *self.current.lock() = connection;
            self.silent.store(false, Ordering::Relaxed);
        }
    }
}

/// Whether the driver's task is gone, as with the runtime that it ran on. It has no other word for it than its text.
fn has_ended(cause: &RedisError) -> bool {
    cause.is_io_error() && cause.to_string().contains("redis_cluster: Unable to")
}
