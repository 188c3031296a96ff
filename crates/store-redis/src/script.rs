//! The scripts: the rules of [`machine`](onlyonce_core::machine) in the server's language, each one atomic step.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use crate::fault::Fault;
use crate::link::Link;

/// A script, known to the server by its digest.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    digest: String,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("scripts/record.lua"), include_str!(concat!("scripts/", $file))))
        });
    };
}

script!(BEGIN, "begin.lua");
script!(RENEW, "renew.lua");
script!(SETTLE, "settle.lua");
script!(GET, "get.lua");
script!(FORGET, "forget.lua");
script!(WAIT, "wait.lua");

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, digest: redis::Script::new(source).get_hash().to_owned() }
    }

    /// Runs on the record at `key`: one round trip.
    ///
    /// A server that does not know the script (a new one, restarted, failed over, or flushed) has run nothing: it is sent
    /// the whole script once, which it then knows.
    pub(crate) async fn run(&self, link: &Link, key: &str, arguments: &[&[u8]]) -> Result<Value, Fault> {
        match link.send(&self.command("EVALSHA", &self.digest, key, arguments)).await {
            Err(fault) if fault.cause().kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.send(&self.command("EVAL", self.source, key, arguments)).await
            }
            done => done,
        }
    }

    fn command(&self, name: &str, script: &str, key: &str, arguments: &[&[u8]]) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(key);
        for argument in arguments {
            command.arg(*argument);
        }
        command
    }
}
