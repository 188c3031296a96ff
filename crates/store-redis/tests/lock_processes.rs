//! Eight processes want one lock, and holders are stopped for longer than their ttl: the fence at the resource keeps it right.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::*;
use onlyonce_core::lock::{LockError, Locks};
use onlyonce_store_redis::RedisLocks;
use redis::aio::MultiplexedConnection;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

const NAME: &str = "one_at_a_time_over_eight_processes_that_are_stopped_beyond_their_ttl";
const SCENE: &str = "ONLYONCE_LOCK_SCENE";
const TTL: Duration = Duration::from_millis(400);
const PAUSES: u32 = 12;

/// The resource: a number in a Redis, which remembers the highest fence that it has seen and refuses lower ones, at reads as
/// well as at writes. It counts what it did.
struct Resource {
    connection: MultiplexedConnection,
    scene: String,
}

/// fence, process: the number, or nothing.
const READ: &str = "
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return false end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'holder', ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], 'number') or 0)";

/// fence, number: 1 if written.
const WRITE: &str = "
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then
  redis.call('HINCRBY', KEYS[1], 'refused', 1)
  return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'number', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'written', 1)";

impl Resource {
    async fn open(scene: String) -> Self {
        // A process that is stopped hears its answers late, and that is all right.
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(url()).unwrap();
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
        Self { connection, scene }
    }

    async fn read(&mut self, fence: u64) -> Option<u64> {
        let mut command = redis::cmd("EVAL");
        command.arg(READ).arg(1).arg(&self.scene).arg(fence).arg(std::process::id());
        command.query_async(&mut self.connection).await.unwrap()
    }

    async fn write(&mut self, fence: u64, number: u64) {
        let mut command = redis::cmd("EVAL");
        command.arg(WRITE).arg(1).arg(&self.scene).arg(fence).arg(number);
        let _: u64 = command.query_async(&mut self.connection).await.unwrap();
    }

    async fn field(&mut self, name: &str) -> u64 {
        let mut command = redis::cmd("HGET");
        let found: Option<u64> =
            command.arg(&self.scene).arg(name).query_async(&mut self.connection).await.unwrap();
        found.unwrap_or(0)
    }
}

/// Counts up, each time under the lock, and never looks whether it has lost it.
async fn work(scene: String) {
    let backend = RedisLocks::builder(url()).prefix(format!("{scene}:")).open_locks().await.unwrap();
    let locks = Locks::new(backend);
    let mut resource = Resource::open(scene).await;
    while resource.field("over").await == 0 {
        let guard = match locks.key("number").ttl(TTL).wait(5 * TTL).acquire().await {
            Ok(guard) => guard,
            Err(LockError::Busy { .. }) => continue,
            // It was stopped while it asked, and came too late.
            Err(LockError::Store(_)) => continue,
            Err(other) => panic!("{other:?}"),
        };
        let fence = guard.fence().0;
        if let Some(number) = resource.read(fence).await {
            sleep(Duration::from_millis(10)).await;
            resource.write(fence, number + 1).await;
        }
        let _ = guard.release().await;
    }
}

fn start(scene: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([NAME, "--exact", "--nocapture", "--test-threads=1"]).env(SCENE, scene);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn one_at_a_time_over_eight_processes_that_are_stopped_beyond_their_ttl() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    if let Ok(scene) = std::env::var(SCENE) {
        return runtime.block_on(work(scene));
    }
    runtime.block_on(async {
        let scene = format!("scene:{:016x}", rand::random::<u64>());
        let mut children: Vec<_> = (0..8).map(|_| start(&scene)).collect();
        let mut resource = Resource::open(scene).await;
        let mut paused = 0;
        for _ in 0..60 {
            sleep(Duration::from_millis(250)).await;
            // Whoever read last is most likely still inside.
            let holder = resource.field("holder").await;
            let Some(child) = children.iter().find(|child| u64::from(child.id()) == holder) else { continue };
            let pid = Pid::from_child(child);
            kill_process(pid, Signal::STOP).unwrap();
            sleep(TTL * 3).await;
            kill_process(pid, Signal::CONT).unwrap();
            paused += 1;
            if paused >= PAUSES && resource.field("refused").await > 0 {
                break;
            }
        }
        let mut over = redis::cmd("HSET");
        let _: u64 =
            over.arg(&resource.scene).arg("over").arg(1).query_async(&mut resource.connection).await.unwrap();
        for child in &mut children {
            assert!(child.wait().unwrap().success(), "a process failed");
        }
        let (number, written) = (resource.field("number").await, resource.field("written").await);
        let refused = resource.field("refused").await;
        println!("{written} writes, {refused} refused, {paused} pauses");
        assert_eq!(number, written, "an update was lost: two were inside at once");
        // The fence makes up for whoever was stopped. It would also hide a lock that lets everybody in, but for the many refusals.
        let late = u64::from(paused) + written / 10;
        assert!(
            refused <= late,
            "{refused} writes came too late, of {written}: the lock let several in at once"
        );
        assert!(written >= 50, "only {written} writes: nothing was shown");
        assert!(
            refused >= 1,
            "no holder was late in {paused} pauses: the fence was not needed, and nothing was shown"
        );
    });
}
