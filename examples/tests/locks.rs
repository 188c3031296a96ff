//! The examples of locks, on a real Redis.

use std::process::{Command, Stdio};

fn url() -> String {
    let variable = "ONLYONCE_TEST_REDIS_URL";
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask services` and set what it prints"
        )
    })
}

#[test]
fn an_order_is_charged_once_though_two_customers_and_all_their_retries_pay_it_at_once() {
    let output = Command::new(env!("CARGO_BIN_EXE_locked_payment")).arg(url()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected = ["10 callers heard that they have paid, 10 that the order was paid already", "charges: 1"];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_job_runs_on_one_of_many_nodes_and_all_hear_who_did_it() {
    let day = format!("test-{:?}", std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos());
    let start = |node: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nightly"));
        command.args([url(), day.clone(), format!("node-{node}")]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let nodes: Vec<_> = (0..5).map(start).collect();
    let mut lines = Vec::new();
    for node in nodes {
        let output = node.wait_with_output().unwrap();
        assert!(output.status.success());
        lines.extend(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned));
    }
    let wrote: Vec<_> = lines.iter().filter(|line| line.contains("writes the report")).collect();
    assert_eq!(wrote.len(), 1, "{lines:?}");
    let by = wrote[0].split(' ').next().unwrap();
    let heard = format!("the report of {day} was written by {by}");
    assert_eq!(lines.iter().filter(|line| **line == heard).count(), 5, "{lines:?}");
}
