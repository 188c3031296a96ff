//! What the store is measured against: the driver alone, which sends the same scripts with arguments of the same length, on one
//! multiplexed connection, and does not look at what comes back.

use redis::Value;
use redis::aio::{ConnectionLike, MultiplexedConnection};

pub(crate) const BEGIN: &str = concat!(
    include_str!("../../src/scripts/quick/begin.lua"),
    include_str!("../../src/scripts/record.lua"),
    include_str!("../../src/scripts/begin.lua")
);
pub(crate) const SETTLE: &str = concat!(
    include_str!("../../src/scripts/quick/settle.lua"),
    include_str!("../../src/scripts/record.lua"),
    include_str!("../../src/scripts/settle.lua")
);

/// The two scripts as the server knows them, and a connection.
#[derive(Clone)]
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    begin: String,
    settle: String,
}

impl Raw {
    pub(crate) async fn new(url: &str, begin: &str, settle: &str) -> Self {
        let mut connection =
            redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
        let mut digests = Vec::new();
        for script in [begin, settle] {
            let load =
                redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async::<String>(&mut connection).await;
            digests.push(load.unwrap());
        }
        let [begin, settle] = <[String; 2]>::try_from(digests).unwrap();
        Self { connection, begin, settle }
    }

    /// A begin that acquires, or finds the record of an earlier round. The fence, if it acquired.
    pub(crate) async fn begin(&self, key: &str, owner: &[u8]) -> i64 {
        let mut command = redis::cmd("EVALSHA");
        let tail = [&[0_u8; 33][..], &[1_u8; 32], &4_u32.to_be_bytes(), b"POST"].concat();
        command.arg(&self.begin).arg(2).arg(key).arg(index(key)).arg(owner).arg(tail);
        command.arg("60000000").arg("600000000").arg("600000");
        let reply = self.send(&command).await;
        if let Value::Int(fence) = reply { fence } else { 0 }
    }

    pub(crate) async fn settle(&self, key: &str, owner: &[u8], fence: i64, answer: &[u8]) {
        let mut command = redis::cmd("EVALSHA");
        let attempt = [owner, &fence.to_be_bytes()].concat();
        command.arg(&self.settle).arg(2).arg(key).arg(index(key)).arg(attempt);
        command.arg("C").arg(answer).arg("600000000").arg("600000");
        self.send(&command).await;
    }

    async fn send(&self, command: &redis::Cmd) -> Value {
        self.connection.clone().req_packed_command(command).await.unwrap().extract_error().unwrap()
    }
}

/// A name as the store would give it.
pub(crate) fn key(prefix: &str, number: usize) -> String {
    format!("{prefix}{{{:02x}}}{number:064x}", number % 256)
}

fn index(key: &str) -> String {
    format!("{}open", &key[..key.len() - 64])
}
