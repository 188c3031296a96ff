//! A server of its own, because how it writes its binary log is settled when it starts.
#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onlyonce_sql::{MySqlStore, OpenError};
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
