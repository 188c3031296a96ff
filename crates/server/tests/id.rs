//! `onlyonce id`, as it is typed.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeSet;
use std::process::{Command, Output};

fn onlyonce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onlyonce")).arg("id").args(arguments).output().unwrap()
}

fn lines(arguments: &[&str]) -> Vec<String> {
    let output = onlyonce(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(Into::into).collect()
}

#[test]
fn ids_come_one_a_line_all_different_and_sorted() {
    for arguments in [
        &["generate", "--count", "20000"][..],
        &["generate", "--count", "20000", "--prefix", "order"],
        &["generate", "--count", "20000", "--kind", "snowflake", "--worker", "7", "--sortable"],
    ] {
        let ids = lines(arguments);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 20_000);
        assert!(ids.is_sorted());
    }
    assert_eq!(lines(&["generate"]).len(), 1);
    assert_eq!(lines(&["generate", "--count", "100", "--kind", "uuid-v4"]).len(), 100);
}

#[test]
fn what_was_generated_can_be_decoded() {
    let id = &lines(&["generate", "--kind", "snowflake", "--worker", "7"])[0];
    let told = lines(&["decode", id]).join("\n");
    assert!(told.contains("snowflake") && told.contains("worker     7"), "{told}");
    let id =
        &lines(&["generate", "--kind", "snowflake", "--worker", "3", "--sortable", "--layout", "javascript"])
            [0];
    let told = lines(&["decode", id, "--layout", "javascript", "--json"]).join("");
    assert!(told.contains("\"worker\":3"), "{told}");
    let id = &lines(&["generate", "--prefix", "order"])[0];
    let told = lines(&["decode", id]).join("\n");
    assert!(told.contains("order") && told.contains("time       20"), "{told}");
    let told = lines(&["decode", "1541815603606036480", "--layout", "twitter"]).join("\n");
    assert!(told.contains("2022-06-28T16:07:40.105Z"), "{told}");
}

#[test]
fn mistakes_are_explained() {
    for (arguments, code, said) in [
        (&["decode", "rubbish"][..], 2, "not a UUID"),
        (&["decode", "order_rubbish"], 2, "26 digits"),
        (&["decode", "9223372036854775808"], 2, "63 bits"),
        (&["generate", "--kind", "snowflake"], 2, "--worker"),
        (&["generate", "--kind", "snowflake", "--worker", "1024"], 2, "0 to 1023"),
        (&["generate", "--count", "0"], 2, "--count"),
        (&["generate", "--prefix", "No"], 2, "lower-case"),
        (&["generate", "--worker", "3"], 2, "write --kind snowflake"),
        (&["generate", "--layout", "standard"], 2, "write --kind snowflake"),
        (&["generate", "--sortable"], 2, "write --kind snowflake"),
        (&["generate", "--prefix", "order", "--worker", "3"], 2, "write --kind snowflake"),
        (&["generate", "--kind", "uuid-v4", "--sortable"], 2, "write --kind snowflake"),
        (&["decode", "0197a6f0-7c3e-7bb1-a3cd-2f0d6c7f4b11", "--layout", "twitter"], 2, "leave it out"),
        (&["decode", "order_01h455vb4pex5vsknk084sn02q", "--layout", "twitter"], 2, "leave it out"),
    ] {
        let output = onlyonce(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(said), "{error}");
    }
}
