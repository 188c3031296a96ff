//! A script: one atomic step on the server, and one round trip.

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use crate::fault::Fault;
use crate::link::Link;
use crate::replicas::Replicas;

/// A script, known to the server by its digest.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    digest: String,
}

impl Script {
    pub(crate) fn new(source: &'static str) -> Self {
        Self { source, digest: redis::Script::new(source).get_hash().to_owned() }
    }

    /// Runs it on these keys, which are in one slot.
    ///
    /// A server that does not know the script (a new one, restarted, failed over, or flushed) has run nothing: it is sent
    /// the whole script once, which it then knows.
    pub(crate) async fn run(&self, link: &Link, keys: &[&str], arguments: &[&[u8]]) -> Result<Value, Fault> {
        match link.send(&command("EVALSHA", &self.digest, keys, arguments)).await {
            Err(fault) if is_unknown(&fault) => {
                link.send(&command("EVAL", self.source, keys, arguments)).await
            }
            done => done,
        }
    }

    /// Runs it in one message, whether the server knows it or not: whatever is sent later comes later.
    #[cfg(feature = "locks")]
    pub(crate) async fn run_whole(
        &self,
        link: &Link,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Value, Fault> {
        link.send(&command("EVAL", self.source, keys, arguments)).await
    }

    /// As [`run`](Self::run), and says how many replicas have what it wrote.
    pub(crate) async fn run_replicated(
        &self,
        link: &Link,
        keys: &[&str],
        arguments: &[&[u8]],
        replicas: &Replicas,
    ) -> Result<(Value, u32), Fault> {
        match link.send_replicated(&command("EVALSHA", &self.digest, keys, arguments), replicas).await {
            Err(fault) if is_unknown(&fault) => {
                link.send_replicated(&command("EVAL", self.source, keys, arguments), replicas).await
            }
            done => done,
        }
    }
}

fn command(name: &str, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    // Known beforehand, so that the command does not grow piece by piece.
    let bytes = keys.iter().map(|key| key.len()).chain(arguments.iter().map(|argument| argument.len()));
    let bytes = name.len() + script.len() + bytes.sum::<usize>() + 1;
    let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), bytes);
    command.arg(name).arg(script).arg(keys.len()).arg(keys);
    for argument in arguments {
        command.arg(*argument);
    }
    command
}

fn is_unknown(fault: &Fault) -> bool {
    fault.cause().kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
