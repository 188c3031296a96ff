//! The scripts: the rules of [`machine`](onlyonce_core::machine) in the server's language, each one atomic step.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use crate::fault::Fault;
use crate::keys::Names;
use crate::link::Link;
use crate::replicas::Replicas;

/// A script, known to the server by its digest.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    digest: String,
    /// 1: the record; 2: the index of its shard too. While a slot of a Cluster moves, scripts with two keys have to wait for
    /// its end, so that only those have two that need them.
    keys: usize,
}

macro_rules! script {
    ($name:ident, $keys:literal, $file:literal) => {
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            let source =
                concat!(include_str!("scripts/record.lua"), include_str!(concat!("scripts/", $file)));
            Script { source, digest: redis::Script::new(source).get_hash().to_owned(), keys: $keys }
        });
    };
}

script!(BEGIN, 2, "begin.lua");
script!(RENEW, 1, "renew.lua");
script!(SETTLE, 2, "settle.lua");
script!(GET, 1, "get.lua");
script!(FORGET, 2, "forget.lua");
script!(WAIT, 1, "wait.lua");
script!(TIDY, 2, "tidy.lua");

impl Script {
    /// Runs on a record: one round trip.
    ///
    /// A server that does not know the script (a new one, restarted, failed over, or flushed) has run nothing: it is sent
    /// the whole script once, which it then knows.
    pub(crate) async fn run(&self, link: &Link, names: &Names, arguments: &[&[u8]]) -> Result<Value, Fault> {
        match link.send(&self.command("EVALSHA", &self.digest, names, arguments)).await {
            Err(fault) if is_unknown(&fault) => {
                link.send(&self.command("EVAL", self.source, names, arguments)).await
            }
            done => done,
        }
    }

    /// As [`run`](Self::run), and says how many replicas have what it wrote.
    pub(crate) async fn run_replicated(
        &self,
        link: &Link,
        names: &Names,
        arguments: &[&[u8]],
        replicas: &Replicas,
    ) -> Result<(Value, u32), Fault> {
        match link.send_replicated(&self.command("EVALSHA", &self.digest, names, arguments), replicas).await {
            Err(fault) if is_unknown(&fault) => {
                link.send_replicated(&self.command("EVAL", self.source, names, arguments), replicas).await
            }
            done => done,
        }
    }

    fn command(&self, name: &str, script: &str, names: &Names, arguments: &[&[u8]]) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys).arg(names.record());
        if self.keys == 2 {
            command.arg(names.index());
        }
        for argument in arguments {
            command.arg(*argument);
        }
        command
    }
}

fn is_unknown(fault: &Fault) -> bool {
    fault.cause().kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
