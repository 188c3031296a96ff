//! Calls that wait for another one of the same key, in another process.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::*;
use onlyonce_core::codec::CodecError;
use onlyonce_core::{Bytes, Class, Classify, Idempotency, Inspect as _, Refusal, Settings};
use onlyonce_sql::{InTransaction as _, Postgres, SqlStore, Tx};
use onlyonce_testkit::{FaultProxy, NetFault};

#[derive(Debug)]
#[allow(dead_code, reason = "for who reads a failure")]
struct Failed(String);

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.to_string())
    }
}

impl Classify for Failed {
    fn classify(&self) -> Class {
        Class::Release
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Ok(Bytes::new())
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Err(CodecError::Damaged)
    }
}

/// A fence is given again to an insert that waited for another transaction, by a second statement. Who waits has seen both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_waits_on_while_the_fence_of_the_first_still_rises() {
    let table = table();
    let store = open_table::<Postgres>(&table).await;
    let address = Postgres::url();
    let (_, server) = address.split_once('@').unwrap();
    let server = server.split('/').next().unwrap();
    let engine = async || {
        let proxy = FaultProxy::start(server).await.unwrap();
        let url = address.replace(server, &proxy.address().to_string());
        let store = SqlStore::<Postgres>::builder(url).table(&table).open().await.unwrap();
        let settings = Settings { wait: Duration::from_secs(20), ..Settings::default() };
        (proxy, Idempotency::builder(store).settings(settings).build().unwrap())
    };
    let ((first_link, first), (link, duplicate)) = (engine().await, engine().await);
    // The record is held by a transaction that is undone: an insert behind it waits, and then comes through.
    let (held, hold) = (tokio::sync::oneshot::channel(), tokio::sync::oneshot::channel::<()>());
    let holder = store.same_transaction().build().unwrap();
    let holder = tokio::spawn(async move {
        let call = holder.call("pay", "k").input(&1);
        let undone: Result<u32, Failed> = call
            .in_transaction(move |_: Tx<Postgres>| async move {
                held.0.send(()).unwrap();
                hold.1.await.unwrap();
                Err(Failed("undone".into()))
            })
            .await;
        undone
    });
    held.1.await.unwrap();
    first_link.when(b"SET fence = ", NetFault::DelayRequest(Duration::from_secs(1)));
    // What the duplicate waits for is no longer there when it begins to.
    link.when(b"SET awaited", NetFault::DelayRequest(Duration::from_secs(2)));
    let call = first.call("pay", "k").input(&1);
    let first = tokio::spawn(call.run(async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok::<u32, Failed>(7)
    }));
    tokio::time::sleep(Duration::from_millis(300)).await;
    hold.0.send(()).unwrap();
    holder.await.unwrap().unwrap_err();
    // It is there with the fence that it does not keep.
    let count = || async { store.count().await.unwrap().values().sum::<u64>() };
    while count().await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let same: Result<u32, Failed> = duplicate.call("pay", "k").input(&1).run(async { Ok(8) }).await;
    assert_eq!(same.unwrap(), 7, "it waited, and got the answer of the first");
    assert_eq!(first.await.unwrap().unwrap(), 7);
    assert_eq!((first_link.traffic().faults, link.traffic().faults), (1, 1), "both came late");
}
