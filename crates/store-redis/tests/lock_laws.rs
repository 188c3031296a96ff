//! Every law of locks, on a real Redis, a real Cluster, and five Redis at once.
#![allow(clippy::unwrap_used, reason = "a harness is a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Fence;
use onlyonce_core::lock::{LockBackend, NoFence};
use onlyonce_store_redis::{RedLock, RedisLocks};
use onlyonce_testkit::{LockHarness, lock_conformance};

macro_rules! harness {
    ($name:ident, $proof:ty, $open:expr) => {
        struct $name(Arc<dyn LockBackend<Proof = $proof>>);

        #[async_trait::async_trait]
        impl LockHarness for $name {
            type Proof = $proof;

            async fn open() -> Self {
                Self(Arc::new($open.await.unwrap()))
            }

            fn backend(&self) -> Arc<dyn LockBackend<Proof = $proof>> {
                self.0.clone()
            }

            fn unit(&self) -> Duration {
                Duration::from_millis(800)
            }

            async fn pass(&self, span: Duration) {
                tokio::time::sleep(span).await;
            }
        }
    };
}

harness!(OneRedis, Fence, RedisLocks::builder(common::url()).prefix(common::prefix()).open_locks());
harness!(Cluster, Fence, RedisLocks::builder(common::cluster_url()).prefix(common::prefix()).open_locks());
harness!(
    Five,
    NoFence,
    RedLock::builder(common::url_in("ONLYONCE_TEST_REDLOCK_URLS").split(','))
        .prefix(common::prefix())
        .node_timeout(Duration::from_secs(5))
        .open()
);

mod redis {
    use super::*;
    lock_conformance!(OneRedis, fenced);
}

mod cluster {
    use super::*;
    lock_conformance!(Cluster, fenced);
}

mod redlock {
    use super::*;
    lock_conformance!(Five);
}
