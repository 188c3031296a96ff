//! The broker itself goes down with SIGKILL in the middle, and comes back with what it had on disk.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{NatsStage, RabbitStage, Stage, assert_one_each, consumer, engine, record, stop, until};
use onlyonce_consumer::Job;
use onlyonce_testkit::Ledger;

/// A server of this test alone; killed when dropped.
struct Own(Child);

impl Own {
    fn start(command: &mut Command) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(
            quiet
                .spawn()
                .unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo xtask test` installs it")),
        )
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn nats(directory: &Path, port: u16) -> Own {
    let mut command = Command::new("nats-server");
    Own::start(command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(directory))
}

fn rabbitmq(directory: &Path, [port, distribution, names]: [u16; 3]) -> Own {
    let path = |name: &str| directory.join(name).display().to_string();
    std::fs::write(path("plugins"), "[].\n").unwrap();
    let config = format!("listeners.tcp.1 = 127.0.0.1:{port}\ndisk_free_limit.absolute = 50MB\n");
    std::fs::write(path("rabbitmq.conf"), config).unwrap();
    let mut command = Command::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
    command
        .arg("-noinput")
        .env("HOME", directory)
        .env("RABBITMQ_NODENAME", format!("r{port}@localhost"))
        .env("RABBITMQ_DIST_PORT", distribution.to_string())
        .env("RABBITMQ_MNESIA_BASE", path("mnesia"))
        .env("RABBITMQ_LOG_BASE", path("log"))
        .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
        .env("ERL_EPMD_PORT", names.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        // The script then becomes the server: what is killed is the server itself.
        .env("RABBITMQ_ALLOW_INPUT", "1");
    Own::start(&mut command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nats_that_is_killed_and_started_again_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let url = format!("nats://127.0.0.1:{port}");
    let server = nats(directory.path(), port);
    wait_for(port).await;
    let stage = Stage::Nats(NatsStage::new(&url, "orders").await);
    let restart = || async {
        drop(server);
        let again = nats(directory.path(), port);
        wait_for(port).await;
        again
    };
    survives(stage, restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rabbitmq_that_is_killed_and_started_again_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let ports = [free_port(), free_port(), free_port()];
    let mut epmd = Command::new("epmd");
    let _epmd = Own::start(epmd.args(["-port", &ports[2].to_string(), "-address", "127.0.0.1"]));
    let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", ports[0]);
    let server = rabbitmq(directory.path(), ports);
    common::rabbitmq::is_up(&url).await;
    let stage = Stage::Rabbit(RabbitStage::new(&url, "orders").await);
    let again_at = url.clone();
    let restart = || async move {
        drop(server);
        let again = rabbitmq(directory.path(), ports);
        common::rabbitmq::is_up(&again_at).await;
        (again, directory)
    };
    survives(stage, restart).await;
}

async fn wait_for(port: u16) {
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Half of the messages are done, the server dies with the rest in it, and comes back.
async fn survives<S, F: Future<Output = S>>(stage: Stage, restart: impl FnOnce() -> F) {
    let (once, ledger) = (engine().await, Ledger::in_memory());
    let slow = ledger.clone();
    let handler = move |job: Job| {
        let ledger = slow.clone();
        async move {
            record(&ledger, &job);
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(())
        }
    };
    let names: Vec<String> = (0..60).map(|n| format!("message-{n}")).collect();
    for name in &names {
        stage.publish(Some(name), name).await;
    }
    let consuming = consumer(&once, handler).concurrency(4).start(stage.broker()).await.unwrap();
    until(&consuming, |stats| stats.done >= 10).await;
    let _server = restart().await;
    assert!(ledger.effects().unwrap().len() < names.len(), "it was all done before the server died");
    // Each was handled, and the last acks were heard: nothing comes back any more.
    let stage = stage.again().await;
    let mut before = consuming.stats();
    for n in 0.. {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = consuming.stats();
        if now == before && ledger.effects().unwrap().len() >= names.len() && stage.left().await == 0 {
            break;
        }
        assert!(n < 45, "still {now:?}, {} left", stage.left().await);
        before = now;
    }
    stop(consuming).await;
    assert_one_each(&ledger, names);
    assert_eq!(stage.left().await, 0);
}
