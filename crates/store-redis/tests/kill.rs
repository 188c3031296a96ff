//! The engine on this store, in processes that are killed and paused.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::path::Path;
use std::sync::Arc;

use onlyonce_core::Store;
use onlyonce_testkit::{CrowdTest, KillTest};

/// Each round and its victims share a prefix, made from the directory that they share.
fn open(url: String, directory: &Path) -> Arc<dyn Store> {
    let name = directory.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(common::open(url, &format!("kill:{name}:")));
    // The connection lives on it, for as long as the victim does.
    std::mem::forget(runtime);
    Arc::new(store)
}

#[test]
fn nothing_happens_twice_when_processes_on_a_redis_are_killed_and_paused() {
    let report = KillTest::new("nothing_happens_twice_when_processes_on_a_redis_are_killed_and_paused")
        .kills(8)
        .pauses(2)
        .run(|directory| open(common::url(), directory));
    assert!(report.summary.effects > 100, "{report:?}");
}

#[test]
fn nothing_happens_twice_when_processes_on_a_cluster_are_killed_and_paused() {
    let report = KillTest::new("nothing_happens_twice_when_processes_on_a_cluster_are_killed_and_paused")
        .kills(6)
        .pauses(1)
        .run(|directory| open(common::cluster_url(), directory));
    assert!(report.summary.effects > 100, "{report:?}");
}

/// `ONLYONCE_KILLS` says how many; see `cargo xtask soak`.
#[test]
fn of_all_duplicates_of_each_of_200_keys_from_4_processes_one_has_its_effect() {
    let kills: u64 = std::env::var("ONLYONCE_KILLS").map_or(8, |kills| kills.parse().unwrap());
    let report = CrowdTest::new("of_all_duplicates_of_each_of_200_keys_from_4_processes_one_has_its_effect")
        .processes(4)
        .keys(200.max(kills * 20))
        .kills(kills)
        .pauses(kills / 2)
        .run(|directory| open(common::url(), directory));
    assert!(report.summary.effects >= 150, "{report:?}");
    println!("{report:?}");
}

mod zombie {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use onlyonce_core::{Idempotency, Resolution, Settings, Settled, State, StateKind};
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use common::calls::{NoAnswer, engine};

    const DIRECTORY: &str = "ONLYONCE_ZOMBIE_DIRECTORY";
    const NAME: &str =
        "zombie::one_that_was_frozen_past_its_lease_is_refused_and_its_caller_hears_what_is_stored";

    async fn once(directory: &Path) -> Idempotency {
        let settings = Settings { lease: Duration::from_millis(600), ..Settings::default() };
        let name = directory.file_name().unwrap().to_str().unwrap();
        engine(Arc::new(common::open(common::url(), &format!("zombie:{name}:")).await), settings)
    }

    async fn answered(once: &Idempotency, key: &str, answer: &'static str) -> String {
        once.call("effect", key).run(async { Ok::<_, NoAnswer>(answer.to_owned()) }).await.unwrap()
    }

    /// The holder: it is frozen within its effect.
    async fn hold(directory: &Path) {
        let here = directory.to_owned();
        let effect = async move {
            std::fs::write(here.join("started"), "").unwrap();
            while !here.join("go-on").exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok::<_, NoAnswer>("zombie".to_owned())
        };
        let heard = once(directory).await.call("effect", "key").run(effect).await;
        std::fs::write(directory.join("heard"), format!("{heard:?}")).unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_was_frozen_past_its_lease_is_refused_and_its_caller_hears_what_is_stored() {
        if let Some(directory) = std::env::var_os(DIRECTORY) {
            return hold(Path::new(&directory)).await;
        }
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().to_owned();
        let mut holder = Command::new(std::env::current_exe().unwrap());
        holder.args([NAME, "--exact", "--nocapture"]).env(DIRECTORY, &directory).stdout(Stdio::null());
        let mut holder = holder.spawn().unwrap();
        common::servers::until("the effect has begun", || directory.join("started").exists()).await;
        kill_process(Pid::from_child(&holder), Signal::STOP).unwrap();

        let once = once(&directory).await;
        let id = once.call("effect", "key").record_id().unwrap();
        let seen = loop {
            let found = once.outcome(&id).await.unwrap().unwrap();
            if found.state.kind() == StateKind::Lapsed {
                break found.fence;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        // The answer as a call would have stored it.
        answered(&once, "sample", "by a person").await;
        let sample = once.call("effect", "sample").record_id().unwrap();
        let State::Completed(answer) = once.outcome(&sample).await.unwrap().unwrap().state else { panic!() };
        let decided = Resolution::Happened(answer);
        assert_eq!(once.resolve(&id, seen, decided).await.unwrap(), Settled::Applied);
        std::fs::write(directory.join("go-on"), "").unwrap();
        kill_process(Pid::from_child(&holder), Signal::CONT).unwrap();
        assert!(holder.wait().unwrap().success());
        let heard = std::fs::read_to_string(directory.join("heard")).unwrap();
        assert_eq!(heard, r#"Ok("by a person")"#, "the zombie's caller hears what is stored");
        let again = answered(&once, "key", "a second run").await;
        assert_eq!(again, "by a person", "the zombie's completion is refused");
    }
}
