//! Worker numbers leased from a real MariaDB (or MySQL), a real PostgreSQL, and SQLite: the laws of the grants on Redis.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;
#[path = "../../id/tests/common/mod.rs"]
mod ids;

use std::time::Duration;

use common::{Served, table};
use onlyonce_id::{GrantError, Grants, Holder, IdError, Layout, Request, Snowflake};
use onlyonce_sql::{MySql, Postgres, SqlGrants, SqlStore, Sqlite};
use onlyonce_testkit::NetFault;

async fn open<DB: Served>(table: &str, group: &str) -> SqlGrants<DB> {
    SqlGrants::<DB>::open(&DB::url(), group).await.unwrap().table(table).unwrap()
}

/// Grants in a table of their own.
async fn new<DB: Served>() -> SqlGrants<DB> {
    let grants = open::<DB>(&table(), "shop").await;
    grants.migrate().await.unwrap();
    grants.migrate().await.unwrap();
    grants
}

/// The laws of every store of grants, on each database.
macro_rules! laws {
    ($module:ident, $database:ty: $($law:ident,)+) => {
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let grants = super::new::<$database>().await;
                crate::ids::laws::$law(async || grants.clone()).await;
            })+
        }
    };
    ($($law:ident,)+) => {
        laws!(laws_on_mysql, onlyonce_sql::MySql: $($law,)+);
        laws!(laws_on_postgres, onlyonce_sql::Postgres: $($law,)+);
        laws!(laws_on_sqlite, onlyonce_sql::Sqlite: $($law,)+);
    };
}

laws!(
    a_holder_keeps_its_number_and_what_is_given_back_is_given_on,
    a_window_is_renewed_and_one_that_is_over_is_given_on_without_overlap,
    a_zombie_neither_keeps_nor_shortens_what_is_somebody_elses,
    of_many_who_ask_at_once_each_has_a_number_of_its_own,
    windows_of_workers_that_come_and_go_never_overlap,
);

on_each!(who_never_heard_of_its_grant_finds_it_again, groups_share_a_table_and_no_numbers,);

async fn who_never_heard_of_its_grant_finds_it_again<DB: Served>() {
    let grants = new::<DB>().await;
    let request =
        Request { holder: Holder::random(), worker: None, workers: 2, span: Duration::from_secs(600) };
    let first = grants.grant(&request).await.unwrap();
    let again = grants.grant(&request).await.unwrap();
    assert_eq!((first.worker, first.from), (again.worker, again.from));
    let other = grants.grant(&Request { holder: Holder::random(), ..request }).await.unwrap();
    assert_ne!(other.worker, first.worker, "asking twice cost no number");
}

async fn groups_share_a_table_and_no_numbers<DB: Served>() {
    let (only, table) = (Layout::<41, 0, 12>::new(), table());
    let grants = open::<DB>(&table, "shop").await;
    let Err(IdError::Grant(GrantError::Unavailable(why))) = Snowflake::open(only, grants.clone()).await
    else {
        panic!("there is no table yet")
    };
    assert!(why.to_string().contains("SqlGrants::migrate"), "{why}");
    grants.migrate().await.unwrap();
    let _held = Snowflake::open(only, grants.clone()).await.unwrap();
    assert!(matches!(
        Snowflake::open(only, grants).await,
        Err(IdError::Grant(GrantError::Exhausted { workers: 1 }))
    ));
    let longest = "g".repeat(255);
    let another = open::<DB>(&table, &longest).await;
    Snowflake::open(only, another).await.unwrap().next().await.unwrap();
    for bad in ["", &format!("{longest}g")] {
        let error = SqlGrants::<DB>::open(&DB::url(), bad).await.unwrap_err();
        assert!(error.to_string().contains("bytes; give it 1 to 255"), "{error}");
    }
}

/// Four processes and 400,000 ids on each; the eight million are made with grants of Redis.
macro_rules! processes {
    ($($name:ident: $database:ty,)+) => {
        $(#[test]
        fn $name() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let table = table();
            runtime.block_on(async { open::<$database>(&table, "shop").await.migrate().await.unwrap() });
            // A process works on the same file of SQLite; see `Served`.
            let file = <$database as Served>::url().strip_prefix("sqlite://").map(str::to_owned).unwrap_or_default();
            ids::processes::repeat_nothing(stringify!($name), 4, 100_000, &format!("{table}|{file}"), async |orders| {
                let (table, file) = orders.split_once('|').unwrap();
                let url = if file.is_empty() { <$database as Served>::url() } else { format!("sqlite://{file}") };
                SqlGrants::<$database>::open(&url, "shop").await.unwrap().table(table).unwrap()
            });
        })+
    };
}

processes!(
    processes_repeat_no_id_on_mysql: MySql,
    processes_repeat_no_id_on_postgres: Postgres,
    processes_repeat_no_id_on_sqlite: Sqlite,
);

async fn a_grant_whose_reply_was_lost_is_found_again<DB: Served>() {
    let (name, records) = (table(), table());
    open::<DB>(&name, "shop").await.migrate().await.unwrap();
    drop(common::open_table::<DB>(&records).await);
    let (proxy, store): (_, SqlStore<DB>) = common::behind::<DB>(&records).await;
    let grants = SqlGrants::on(store.pool().clone(), "shop").unwrap().table(&name).unwrap();
    let holder = Holder::random();
    let request = Request { holder, worker: None, workers: 3, span: Duration::from_secs(600) };
    // Only what writes the grant carries the name of its holder.
    proxy.when(&holder.to_bytes(), NetFault::ResetReply { after: 0 });
    let unheard = grants.grant(&request).await;
    assert!(matches!(unheard, Err(GrantError::Unavailable(_))), "{unheard:?}");
    assert_eq!(proxy.traffic().faults, 1);
    proxy.heal().await;
    let found = grants.grant(&request).await.unwrap();
    let next = grants.grant(&Request { holder: Holder::random(), ..request }).await.unwrap();
    assert_eq!((found.worker, next.worker), (0, 1), "no number was lost with the reply");
}

#[tokio::test]
async fn a_grant_whose_reply_was_lost_is_found_again_on_mysql() {
    a_grant_whose_reply_was_lost_is_found_again::<MySql>().await;
}

#[tokio::test]
async fn a_grant_whose_reply_was_lost_is_found_again_on_postgres() {
    a_grant_whose_reply_was_lost_is_found_again::<Postgres>().await;
}

#[tokio::test]
async fn without_a_database_there_are_no_ids() {
    let (name, records) = (table(), table());
    open::<Postgres>(&name, "shop").await.migrate().await.unwrap();
    drop(common::open_table::<Postgres>(&records).await);
    let (proxy, store): (_, SqlStore<Postgres>) = common::behind(&records).await;
    let grants = SqlGrants::on(store.pool().clone(), "shop").unwrap().table(&name).unwrap();
    proxy.refuse().await;
    proxy.cut();
    let Err(error) = Snowflake::open(Layout::STANDARD, grants).await else { panic!("nobody listens") };
    assert!(matches!(error, IdError::Grant(GrantError::Unavailable(_))), "{error}");
}
