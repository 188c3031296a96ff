//! The kill harness bites: a store that forgets with its process is caught.
#![cfg(unix)]

use std::panic::catch_unwind;
use std::sync::Arc;

use onlyonce_core::MemoryStore;
use onlyonce_testkit::KillTest;

#[test]
fn a_store_that_forgets_with_its_process_is_caught() {
    let name = "a_store_that_forgets_with_its_process_is_caught";
    let caught = catch_unwind(|| KillTest::new(name).pauses(2).run(|_| Arc::new(MemoryStore::new())));
    let said = *caught.expect_err("it was not caught").downcast::<String>().expect("a message");
    assert!(said.contains("2 effects"), "{said}");
}

#[test]
fn a_victim_that_survives_its_crash_point_is_caught() {
    let name = "a_victim_that_survives_its_crash_point_is_caught";
    let test =
        || KillTest::new(name).crash_at("NO_SUCH_VARIABLE", "here").run(|_| Arc::new(MemoryStore::new()));
    let said = *catch_unwind(test).expect_err("it was not caught").downcast::<String>().expect("a message");
    assert!(said.contains("came past here"), "{said}");
}
