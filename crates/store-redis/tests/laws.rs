//! Every law, on a real Redis, on one that Sentinels watch, and on a real Cluster; each test with a prefix of its own.
#![allow(clippy::unwrap_used, reason = "a harness is a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Inspect, Store};
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::{
    Harness, InspectHarness, conformance, conformance_contended_fences, conformance_inspect,
};

macro_rules! harness {
    ($name:ident, $url:path) => {
        struct $name(Arc<RedisStore>);

        #[async_trait::async_trait]
        impl Harness for $name {
            async fn open() -> Self {
                Self(Arc::new(common::open($url(), &common::prefix()).await))
            }

            fn store(&self) -> Arc<dyn Store> {
                self.0.clone()
            }

            fn lease(&self) -> Duration {
                Duration::from_millis(300)
            }

            async fn pass(&self, span: Duration) {
                tokio::time::sleep(span).await;
            }
        }

        #[async_trait::async_trait]
        impl InspectHarness for $name {
            fn inspect(&self) -> Arc<dyn Inspect> {
                self.0.clone()
            }
        }
    };
}

harness!(OneRedis, common::url);
harness!(Watched, common::sentinel_url);
harness!(Cluster, common::cluster_url);

mod redis {
    use super::*;
    conformance!(OneRedis);
    conformance_contended_fences!(OneRedis);
    conformance_inspect!(OneRedis);
}

mod sentinel {
    use super::*;
    conformance!(Watched);
    conformance_contended_fences!(Watched);
    conformance_inspect!(Watched);
}

mod cluster {
    use super::*;
    conformance!(Cluster);
    conformance_contended_fences!(Cluster);
    conformance_inspect!(Cluster);
}
