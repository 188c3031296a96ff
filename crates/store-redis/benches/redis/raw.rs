//! What the store is measured against: the driver alone, which sends the same scripts with arguments of the same length, on one
//! multiplexed connection, and does not look at what comes back.

use redis::aio::{ConnectionLike, MultiplexedConnection};

pub(crate) const BEGIN: &str =
    concat!(include_str!("../../src/scripts/record.lua"), include_str!("../../src/scripts/begin.lua"));
pub(crate) const SETTLE: &str =
    concat!(include_str!("../../src/scripts/record.lua"), include_str!("../../src/scripts/settle.lua"));

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

    /// A begin that acquires, or finds the record of an earlier round.
    pub(crate) async fn begin(&self, key: &str, owner: &[u8]) {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.begin).arg(2).arg(key).arg(index(key)).arg(owner).arg(&[0_u8; 33][..]);
        command.arg("60000000").arg("600000000").arg("N").arg(&[0_u8; 8][..]);
        command.arg([&[1_u8; 32][..], &4_u32.to_be_bytes(), b"POST"].concat());
        self.send(&command).await;
    }

    pub(crate) async fn settle(&self, key: &str, owner: &[u8], answer: &[u8]) {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.settle).arg(2).arg(key).arg(index(key)).arg(owner).arg("");
        command.arg("C").arg(answer).arg("600000000");
        self.send(&command).await;
    }

    async fn send(&self, command: &redis::Cmd) {
        self.connection.clone().req_packed_command(command).await.unwrap().extract_error().unwrap();
    }
}

/// A name as the store would give it.
pub(crate) fn key(prefix: &str, number: usize) -> String {
    format!("{prefix}{{{:02x}}}{number:064x}", number % 256)
}

fn index(key: &str) -> String {
    format!("{}open", &key[..key.len() - 64])
}
