//! What de-duplication costs a consumer, as ratios to the bare one in the same run: the same stream of a private NATS, the same
//! number of handlers, the same double ack.
//!
//! `cargo bench -p onlyonce-consumer --all-features` starts a private nats-server and redis-server; the transactions are in a file
//! of SQLite, and also in the PostgreSQL at `ONLYONCE_TEST_POSTGRES_URL` if there is one. `--quick` takes fewer messages.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program that measures real time"
)]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{self, Context, stream};
use futures_util::{StreamExt, TryStreamExt};
use onlyonce_bench_report::{Goal, Length, Report};
use onlyonce_consumer::{Consumer, Job, Nats};
use onlyonce_core::codec::CodecError;
use onlyonce_core::{Bytes, Class, Classify, Idempotency};
use onlyonce_sql::{Database, SqlStore, Tx};
use onlyonce_store_redis::RedisStore;
use sqlx::{Executor, Pool};

const HANDLERS: u16 = 16;
const STREAM: &str = "orders";

struct Server(Child);

impl Server {
    fn start(program: &str, args: &[&str]) -> Self {
        let quiet = Stdio::null;
        let child = Command::new(program).args(args).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
        Self(child.unwrap_or_else(|error| panic!("{program}: {error}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn port_of(server: impl FnOnce(u16) -> Server) -> (Server, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = server(port);
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (server, port)
}

#[derive(Debug)]
struct Down;

impl Classify for Down {
    fn classify(&self) -> Class {
        Class::Release
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Ok(Bytes::new())
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Ok(Self)
    }
}

fn group() -> String {
    format!("g{:016x}", rand::random::<u64>())
}

/// The bare consumer: pull, work, double ack. Messages a second.
async fn bare<F: Future<Output = ()>>(jet: &Context, messages: u64, work: impl Fn() -> F) -> f64 {
    let name = group();
    let config = pull::Config { durable_name: Some(name.clone()), ..pull::Config::default() };
    let stream = jet.get_stream(STREAM).await.unwrap();
    let consumer: PullConsumer = stream.create_consumer(config).await.unwrap();
    let started = Instant::now();
    let pulled = consumer.stream().max_messages_per_batch(HANDLERS.into()).messages().await.unwrap();
    pulled
        .take(usize::try_from(messages).unwrap())
        .map_err(|error| panic!("{error}"))
        .try_for_each_concurrent(Some(HANDLERS.into()), |message| {
            let working = work();
            async move {
                working.await;
                message.double_ack().await.unwrap();
                Ok::<(), ()>(())
            }
        })
        .await
        .unwrap();
    messages as f64 / started.elapsed().as_secs_f64()
}

/// The same with a consumer of ours.
async fn ours<F>(
    url: &str,
    messages: u64,
    once: &Idempotency,
    work: impl Fn(Job) -> F + Send + Sync + 'static,
) -> f64
where
    F: Future<Output = Result<(), Down>> + Send + 'static,
{
    let consumer = Consumer::new(once.clone(), group(), "bench", work).concurrency(HANDLERS);
    let broker = Nats::new(url, STREAM).dead_letter("dead");
    let consuming = consumer.replay_horizon(Duration::from_secs(60)).start(broker).await.unwrap();
    // Neither pays for connecting and for making its durable consumer.
    let (started, before) = (Instant::now(), consuming.stats().done);
    while consuming.stats().done < messages {
        assert!(started.elapsed() < Duration::from_secs(300), "it got stuck: {consuming:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = started.elapsed();
    consuming.shutdown(Duration::from_secs(30)).await;
    (messages - before) as f64 / took.as_secs_f64()
}

struct Bench {
    url: String,
    jet: Context,
    messages: u64,
    rounds: usize,
}

impl Bench {
    async fn redis(&self, port: u16, report: &mut Report) {
        let store = RedisStore::builder(format!("redis://127.0.0.1:{port}")).open().await.unwrap();
        let once = Idempotency::new(store);
        let mut figures = Vec::new();
        for _ in 0..self.rounds {
            let plain = bare(&self.jet, self.messages, || async {}).await;
            figures.push(ours(&self.url, self.messages, &once, |_| async { Ok(()) }).await / plain);
        }
        report.add("P9", "consumer with records in Redis / bare consumer", &figures, Goal::AtLeast(0.5));
    }

    async fn transaction<DB>(&self, store: &SqlStore<DB>, case: &str, report: &mut Report)
    where
        DB: Database,
        for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
        for<'c> &'c Pool<DB>: Executor<'c, Database = DB>,
    {
        let pool = store.pool();
        pool.execute("CREATE TABLE IF NOT EXISTS effects (n INTEGER)").await.unwrap();
        let once = store.same_transaction().build().unwrap();
        let mut figures = Vec::new();
        for _ in 0..self.rounds {
            let plain = bare(&self.jet, self.messages, || async {
                let mut tx = pool.begin().await.unwrap();
                (&mut *tx).execute("INSERT INTO effects VALUES (1)").await.unwrap();
                tx.commit().await.unwrap();
            });
            let plain = plain.await;
            let work = |job: Job| async move {
                let mut tx: Tx<DB> = Tx::of(job.permit()).map_err(|_| Down)?;
                (&mut *tx).execute("INSERT INTO effects VALUES (1)").await.map_err(|_| Down)?;
                Ok(())
            };
            figures.push(ours(&self.url, self.messages, &once, work).await / plain);
        }
        report.add("P9", case, &figures, Goal::AtLeast(0.5));
    }
}

fn main() {
    let (messages, rounds) = Length::from_args().pick((50, 1), (1_000, 3), (10_000, 5));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure(messages, rounds));
}

async fn measure(messages: u64, rounds: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    let (_nats, port) = port_of(|port| {
        Server::start("nats-server", &["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd", &path])
    })
    .await;
    let (_redis, redis) = port_of(|port| {
        Server::start("redis-server", &["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
    })
    .await;
    let url = format!("nats://127.0.0.1:{port}");
    let jet = jetstream::new(async_nats::connect(&url).await.unwrap());
    for name in [STREAM, "dead"] {
        let config =
            stream::Config { name: name.into(), subjects: vec![name.into()], ..stream::Config::default() };
        jet.create_stream(config).await.unwrap();
    }
    for n in 0..messages {
        jet.publish(STREAM, n.to_string().into()).await.unwrap().await.unwrap();
    }
    let bench = Bench { url, jet, messages, rounds };
    let mut report = Report::default();
    bench.redis(redis, &mut report).await;
    let file = format!("sqlite://{}", directory.path().join("once.db").display());
    let sqlite = onlyonce_sql::SqliteStore::builder(file).migrate().open().await.unwrap();
    bench.transaction(&sqlite, "consumer in a transaction of SQLite / bare transaction", &mut report).await;
    if let Ok(url) = std::env::var("ONLYONCE_TEST_POSTGRES_URL") {
        let postgres = onlyonce_sql::PostgresStore::builder(url).migrate().open().await.unwrap();
        bench
            .transaction(&postgres, "consumer in a transaction of PostgreSQL / bare transaction", &mut report)
            .await;
    }
    report.finish().expect("the summary is written");
}
