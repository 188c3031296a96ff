//! The laws of a store that is full, each on a Redis of its own whose memory is used up.
#![allow(clippy::unwrap_used, reason = "a harness is a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::servers::Redis;
use onlyonce_core::Store;
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::{FullHarness, Harness, conformance_full};

struct Small {
    store: Arc<RedisStore>,
    redis: Redis,
}

#[async_trait::async_trait]
impl Harness for Small {
    async fn open() -> Self {
        let redis = Redis::start(&["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"]).await;
        Self { store: Arc::new(common::open(redis.url(), &common::prefix()).await), redis }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(300)
    }

    async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

#[async_trait::async_trait]
impl FullHarness for Small {
    async fn fill(&self) {
        // Far below what is there: no noise of buffers makes room.
        self.redis.ask("config set maxmemory 500kb");
        assert!(self.redis.ask("set one more").contains("OOM"), "memory is full");
    }
}

conformance_full!(Small);
