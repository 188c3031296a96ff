//! The scripts on records: the rules of [`machine`](onlyonce_core::machine) in the server's language.

use std::sync::LazyLock;

use redis::Value;

use crate::fault::Fault;
use crate::keys::Names;
use crate::link::Link;
use crate::replicas::Replicas;
use crate::script::Script;

/// A script on a record.
#[derive(Debug)]
pub(crate) struct RecordScript {
    script: Script,
    /// 1: the record; 2: the index of its shard too. While a slot of a Cluster moves, scripts with two keys have to wait for
    /// its end, so that only those have two that need them.
    keys: usize,
}

macro_rules! script {
    ($name:ident, $keys:literal, $($file:literal),+) => {
        pub(crate) static $name: LazyLock<RecordScript> = LazyLock::new(|| {
            let source = concat!($(include_str!(concat!("scripts/", $file))),+);
            RecordScript { script: Script::new(source), keys: $keys }
        });
    };
}

// Every call needs these two: their usual case comes before what the scripts share.
script!(BEGIN, 2, "quick/begin.lua", "record.lua", "begin.lua");
script!(RENEW, 1, "record.lua", "renew.lua");
script!(SETTLE, 2, "quick/settle.lua", "record.lua", "settle.lua");
script!(GET, 1, "record.lua", "get.lua");
script!(FORGET, 2, "record.lua", "forget.lua");
script!(WAIT, 1, "record.lua", "wait.lua");
script!(TIDY, 2, "record.lua", "tidy.lua");

impl RecordScript {
    pub(crate) async fn run(&self, link: &Link, names: &Names, arguments: &[&[u8]]) -> Result<Value, Fault> {
        self.script.run(link, &[names.record(), names.index()][..self.keys], arguments).await
    }

    pub(crate) async fn run_replicated(
        &self,
        link: &Link,
        names: &Names,
        arguments: &[&[u8]],
        replicas: &Replicas,
    ) -> Result<(Value, u32), Fault> {
        let keys = [names.record(), names.index()];
        self.script.run_replicated(link, &keys[..self.keys], arguments, replicas).await
    }
}
