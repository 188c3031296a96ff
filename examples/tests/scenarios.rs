//! Every scenario tells the same story on every database, and its program tells it on SQLite without a server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, PgConnection, PgPool};

/// The URL in this variable. A missing server is a failure: nothing passes by not being run.
fn url_in(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    })
}

fn name() -> String {
    format!("scenario_{:016x}", rand::random::<u64>())
}

/// A database of its own.
async fn mysql() -> MySqlPool {
    let (url, name) = (url_in("ONLYONCE_TEST_MYSQL_URL"), name());
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    let create = format!("CREATE DATABASE {name}");
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
    MySqlPool::connect(&format!("{}/{name}", url.rsplit_once('/').unwrap().0)).await.unwrap()
}

/// A schema of its own.
async fn postgres() -> PgPool {
    let (url, name) = (url_in("ONLYONCE_TEST_POSTGRES_URL"), name());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let create = format!("CREATE SCHEMA {name}");
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
    PgPool::connect(&format!("{url}?options=-csearch_path%3D{name}")).await.unwrap()
}

macro_rules! scenario {
    ($name:ident, $program:expr, $told:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn on_sqlite_without_a_server() {
                let output = Command::new($program).output().unwrap();
                assert!(output.status.success(), "{output:?}");
                let printed = String::from_utf8(output.stdout).unwrap();
                assert_eq!(printed.lines().collect::<Vec<_>>(), $told);
            }

            #[tokio::test]
            async fn on_mysql() {
                assert_eq!(
                    onlyonce_examples::on_mysql::scenario::$name::story(mysql().await).await.unwrap(),
                    $told
                );
            }

            #[tokio::test]
            async fn on_postgres() {
                assert_eq!(
                    onlyonce_examples::on_postgres::scenario::$name::story(postgres().await).await.unwrap(),
                    $told
                );
            }
        }
    };
}

scenario!(
    create,
    env!("CARGO_BIN_EXE_create"),
    ["A-1: created, 100", "A-1: was there, 100", "A-2: created, 50", "A-1: was there, 100"]
);
scenario!(
    pay,
    env!("CARGO_BIN_EXE_pay"),
    [
        "order 1: paid, 50 left",
        "order 1: was paid",
        "order 2: not enough money, 50 left",
        "order 1: was paid"
    ]
);
scenario!(
    stock,
    env!("CARGO_BIN_EXE_stock"),
    [
        "A: 2 taken, version 2",
        "A: was taken before",
        "B: 2 taken, version 3",
        "C: only 1 there",
        "A: was taken before"
    ]
);
scenario!(
    message,
    env!("CARGO_BIN_EXE_message"),
    ["m-1: 10 points added", "m-1: handled before", "m-2: 5 points added", "m-1: handled before"]
);
scenario!(
    status_flow,
    env!("CARGO_BIN_EXE_status_flow"),
    [
        "123 is Placed and can't be Done",
        "123 is Paid",
        "123 was Paid",
        "123 is Done",
        "123 is Done and can't be Cancelled",
        "no order 9"
    ]
);
scenario!(
    form,
    env!("CARGO_BIN_EXE_form"),
    [
        "hello: posted",
        "hello: was sent before",
        "not mine: unknown token, open the form again",
        "made up: unknown token, open the form again"
    ]
);
