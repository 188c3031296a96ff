//! Worker numbers leased from a real Redis.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use common::{laws, processes};
use onlyonce_id::{GrantError, IdError, Layout, RedisGrants, Snowflake};

const PROCESSES: usize = 8;
const IDS: usize = 1_000_000;

fn url() -> String {
    std::env::var("ONLYONCE_TEST_REDIS_URL").expect(
        "ONLYONCE_TEST_REDIS_URL is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints",
    )
}

fn group() -> String {
    format!("test-{:016x}", rand::random::<u64>())
}

macro_rules! laws {
    ($($law:ident,)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let group = group();
            laws::$law(async || RedisGrants::open(&url(), &group).unwrap()).await;
        })+
    };
}

laws!(
    a_holder_keeps_its_number_and_what_is_given_back_is_given_on,
    a_window_is_renewed_and_one_that_is_over_is_given_on_without_overlap,
    a_zombie_neither_keeps_nor_shortens_what_is_somebody_elses,
    of_many_who_ask_at_once_each_has_a_number_of_its_own,
    windows_of_workers_that_come_and_go_never_overlap,
);

#[test]
fn eight_processes_with_clocks_set_back_and_forth_repeat_none_of_eight_million_ids() {
    processes::repeat_nothing(
        "eight_processes_with_clocks_set_back_and_forth_repeat_none_of_eight_million_ids",
        PROCESSES,
        IDS,
        &group(),
        async |group| RedisGrants::open(&url(), group).unwrap(),
    );
}

#[tokio::test]
async fn without_a_redis_there_are_no_ids() {
    // Nobody listens there.
    let grants = RedisGrants::open("redis://127.0.0.1:1", "nobody").unwrap();
    let Err(error) = Snowflake::open(Layout::STANDARD, grants).await else { panic!("nobody listens") };
    assert!(matches!(error, IdError::Grant(GrantError::Unavailable(_))), "{error}");
}
