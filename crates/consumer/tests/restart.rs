//! The broker itself goes down with SIGKILL in the middle, and comes back with what it had on disk.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::{
    KafkaStage, Stage, assert_one_each, consumer, engine, names, record, start, stop, unique, until,
    until_effects,
};
use onlyonce_consumer::Job;
use onlyonce_testkit::{Ledger, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A server of this test alone: killed when it is dropped, and its last words are shown if the test has failed.
struct Own {
    child: Child,
    log: PathBuf,
}

impl Own {
    fn start(command: &mut Command, log: PathBuf) -> Self {
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let quiet = command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = quiet.spawn();
        let child =
            child.unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo xtask test` installs it"));
        Self { child, log }
    }

    /// Waits until it answers these first words with a word of its own.
    async fn answers(mut self, port: u16, words: &[u8]) -> Self {
        let patience = Instant::now() + Duration::from_secs(120);
        while Instant::now() < patience {
            let greeted = tokio::time::timeout(Duration::from_secs(5), greeted(port, words)).await;
            if matches!(greeted, Ok(Ok(()))) {
                return self;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended by itself: {status}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the server does not answer within two minutes");
    }
}

async fn greeted(port: u16, words: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(words).await?;
    stream.read_exact(&mut [0]).await.map(drop)
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("the end of {}:", self.log.display());
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

async fn nats(directory: &Path, port: u16) -> Own {
    let mut command = Command::new("nats-server");
    command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(directory);
    Own::start(&mut command, directory.join("log")).answers(port, b"").await
}

async fn rabbitmq(directory: &Path, [port, distribution, names]: [u16; 3]) -> Own {
    let path = |name: &str| directory.join(name).display().to_string();
    std::fs::write(path("plugins"), "[].\n").unwrap();
    let config = format!(
        "listeners.tcp.1 = 127.0.0.1:{port}\ndisk_free_limit.absolute = 50MB\nlog.file = false\nlog.console = true\n"
    );
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
        .env("RABBITMQ_ALLOW_INPUT", "1")
        // It takes no more of the machine than it needs.
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none");
    Own::start(&mut command, directory.join("out")).answers(port, b"AMQP\x00\x00\x09\x01").await
}

/// The name server of RabbitMQ's runtime.
async fn epmd(directory: &Path, port: u16) -> Own {
    let mut command = Command::new("epmd");
    command.args(["-port", &port.to_string(), "-address", "127.0.0.1"]);
    // What it is asked: which names there are.
    Own::start(&mut command, directory.join("epmd")).answers(port, b"\x00\x01n").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nats_that_is_killed_and_started_again_loses_nothing() {
    let (directory, port) = (tempfile::tempdir().unwrap(), free_port());
    let server = nats(directory.path(), port).await;
    let stage = Stage::nats_at(&format!("nats://127.0.0.1:{port}")).await;
    let restart = async |_: &Stage| {
        drop(server);
        nats(directory.path(), port).await
    };
    survives(stage, restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rabbitmq_that_is_killed_and_started_again_loses_nothing() {
    let (directory, ports) = (tempfile::tempdir().unwrap(), [free_port(), free_port(), free_port()]);
    let _epmd = epmd(directory.path(), ports[2]).await;
    let server = rabbitmq(directory.path(), ports).await;
    let stage = Stage::rabbitmq_at(&format!("amqp://guest:guest@127.0.0.1:{}/%2f", ports[0])).await;
    let restart = async |_: &Stage| {
        drop(server);
        rabbitmq(directory.path(), ports).await
    };
    survives(stage, restart).await;
}

/// The mock cluster has no disk to start again from, but can hang up on everybody and take no calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kafka_that_is_gone_for_a_while_loses_nothing() {
    let stage = Stage::Kafka(KafkaStage::mock(&unique("orders")).await);
    let restart = async |stage: &Stage| {
        let Stage::Kafka(stage) = stage else { panic!("it is a Kafka") };
        stage.down();
        tokio::time::sleep(Duration::from_secs(5)).await;
        stage.up();
    };
    survives(stage, restart).await;
}

/// Ten messages are done, the server dies with others under way and the rest in it, and comes back.
async fn survives<S>(stage: Stage, restart: impl AsyncFnOnce(&Stage) -> S) {
    let (once, ledger, gate) = (engine().await, Ledger::in_memory(), Arc::new(Semaphore::new(10)));
    let (seen, turn) = (ledger.clone(), Arc::clone(&gate));
    let handler = move |job: Job| {
        let (ledger, turn) = (seen.clone(), Arc::clone(&turn));
        async move {
            record(&ledger, &job);
            turn.acquire().await.unwrap().forget();
            Ok(())
        }
    };
    for name in names(60) {
        stage.publish(Some(&name), &name).await;
    }
    let consuming = start(consumer(&once, handler).concurrency(4), &stage).await;
    until(&consuming, |stats| stats.done == 10).await;
    until_effects(&ledger, 11).await;
    let _server = restart(&stage).await;
    let under_way = 11..=14;
    assert!(under_way.contains(&ledger.effects().unwrap().len()), "it died with handlers under way");
    gate.add_permits(1_000);
    let stage = stage.again().await;
    until_effects(&ledger, 60).await;
    stage.settled(&consuming).await;
    stop(consuming).await;
    assert_one_each(&ledger, names(60));
    assert_eq!(stage.left().await, 0);
}
