//! The scripts of locks, each one atomic step and one round trip.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use crate::fault::Fault;
use crate::link::Link;

/// A script, known to the server by its digest.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    digest: String,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            let source = include_str!(concat!("../scripts/lock/", $file));
            Script { source, digest: redis::Script::new(source).get_hash().to_owned() }
        });
    };
}

script!(ACQUIRE, "acquire.lua");
script!(CLAIM, "claim.lua");
script!(RENEW, "renew.lua");
script!(REPAIR, "repair.lua");
script!(RELEASE, "release.lua");
script!(WAIT, "wait.lua");
script!(COUNT, "count.lua");

impl Script {
    /// A server that does not know the script has run nothing: it is sent the whole script once.
    pub(super) async fn run(&self, link: &Link, keys: &[&str], arguments: &[&[u8]]) -> Result<Value, Fault> {
        match link.send(&self.command("EVALSHA", &self.digest, keys, arguments)).await {
            Err(fault) if fault.cause().kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.send(&self.command("EVAL", self.source, keys, arguments)).await
            }
            done => done,
        }
    }

    fn command(&self, name: &str, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(keys.len()).arg(keys);
        for argument in arguments {
            command.arg(*argument);
        }
        command
    }
}
