//! A server of its own: how it writes its binary log is settled when it starts, and a lock of all commits would meet other tests.
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::No;
use onlyonce_sql::{InTransaction as _, MySql, MySqlStore, OpenError, Tx};
use sqlx::{Connection as _, MySqlConnection};

/// A MariaDB that ends with its handle.
struct MariaDb {
    server: Child,
    url: String,
    folder: tempfile::TempDir,
}

impl MariaDb {
    async fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = format!("--user={}", String::from_utf8(user).unwrap().trim());
        let path = |option: &str, name: &str| format!("--{option}={}", folder.path().join(name).display());
        let data = path("datadir", "data");
        let install =
            ["--no-defaults", &user, &data, "--auth-root-authentication-method=normal", "--skip-test-db"];
        let installed = Command::new("mariadb-install-db").args(install).output();
        let installed = installed.expect("mariadb-install-db is installed: see `cargo xtask test`");
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let port = onlyonce_testkit::free_port();
        let server = Command::new("mariadbd")
            .args(["--no-defaults", &user, &data, &format!("--port={port}"), "--bind-address=127.0.0.1"])
            .args([path("socket", "s.sock"), path("pid-file", "pid")])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let url = format!("mysql://root@127.0.0.1:{port}/mysql");
        let mut started = Self { server, url, folder };
        started.answers().await;
        started
    }

    /// No longer than a server may take on a machine that has other things to do.
    async fn answers(&mut self) {
        for _ in 0..1200 {
            if MySqlConnection::connect(&self.url).await.is_ok() {
                return;
            }
            assert!(self.server.try_wait().unwrap().is_none(), "it ended: {}", self.said());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it does not answer: {}", self.said());
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[tokio::test]
async fn a_binary_log_by_statement_is_refused_and_said() {
    let server = MariaDb::start(&["--log-bin=binary", "--binlog-format=STATEMENT"]).await;
    let open = || MySqlStore::builder(&*server.url).migrate().open();
    let refused = open().await.unwrap_err();
    assert!(matches!(refused, OpenError::Unusable(_)), "{refused:?}");
    let said = refused.to_string();
    assert!(
        said.contains("binary log by statement") && said.contains("binlog_format to ROW or MIXED"),
        "{said}"
    );

    // As it says.
    let mut connection = MySqlConnection::connect(&server.url).await.unwrap();
    sqlx::query("SET GLOBAL binlog_format = 'MIXED'").execute(&mut connection).await.unwrap();
    open().await.unwrap();
}

/// Somebody stops a COMMIT that waits. What became of it is found out, and the connection is as good as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_commit_leaves_no_mark_on_its_connection() {
    let server = MariaDb::start(&[]).await;
    let store = MySqlStore::builder(&*server.url).migrate().max_connections(1).open().await.unwrap();
    let pool = store.pool().clone();
    sqlx::query("CREATE TABLE effects (name INT)").execute(&pool).await.unwrap();
    let id: i64 =
        sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)").fetch_one(&pool).await.unwrap();
    let once = store.same_transaction().build().unwrap();
    let mut other = MySqlConnection::connect(&server.url).await.unwrap();
    let (locked, lock) = tokio::sync::oneshot::channel::<()>();
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let call = tokio::spawn(once.call("pay", "k").in_transaction(move |mut tx: Tx<MySql>| async move {
        sqlx::query("INSERT INTO effects VALUES (1)").execute(&mut *tx).await.unwrap();
        let _ = tell.send(());
        let _ = lock.await;
        Ok::<_, No>("paid".to_owned())
    }));
    told.await.unwrap();
    // Commits wait for this one.
    sqlx::raw_sql("BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT").execute(&mut other).await.unwrap();
    let _ = locked.send(());
    let mut watch = MySqlConnection::connect(&server.url).await.unwrap();
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id} AND (INFO LIKE '%COMMIT%' OR STATE LIKE '%commit%' OR STATE LIKE '%backup%')"
    );
    while sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(waits.clone()))
        .fetch_one(&mut watch)
        .await
        .unwrap()
        == 0
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("KILL QUERY {id}"))).execute(&mut watch).await.unwrap();
    sqlx::raw_sql("BACKUP STAGE END").execute(&mut other).await.unwrap();
    let ended = call.await.unwrap();
    let effects = "SELECT COUNT(*) FROM effects WHERE name = 1";
    let done: i64 = sqlx::query_scalar(effects).fetch_one(&mut watch).await.unwrap();
    assert_eq!(i64::from(ended.is_ok()), done, "the caller is told what became of it: {ended:?}");
    sqlx::query("INSERT INTO effects VALUES (2)").execute(&pool).await.expect("the pool is everybody's");
    let committed: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM effects WHERE name = 2")
        .fetch_one(&mut watch)
        .await
        .unwrap();
    assert_eq!(committed, 1);
    let again = once.call("pay", "k").in_transaction(|mut tx: Tx<MySql>| async move {
        sqlx::query("INSERT INTO effects VALUES (1)").execute(&mut *tx).await.unwrap();
        Ok::<_, No>("paid".to_owned())
    });
    assert_eq!(again.await.unwrap(), "paid");
    let done: i64 = sqlx::query_scalar(effects).fetch_one(&mut watch).await.unwrap();
    assert_eq!(done, 1);
}
