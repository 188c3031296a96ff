//! What was asked for and could not be written is a failure: a file with a part of it must not pass for the whole.

use std::fs::File;
use std::io::pipe;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::program::Setup;
use crate::upstream::Upstream;

/// The exit code, and what stands in standard error.
fn run(home: &Path, out: impl Into<Stdio>, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let output = command.args(arguments).current_dir(home).stdout(out).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_output_that_could_not_be_written_is_a_failure_and_a_reader_that_left_is_none() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    assert_eq!(gateway.post("/pay", "k", "{}").status, 201);
    let (admin, file) = (format!("http://{}", gateway.admin.unwrap()), gateway.token_file());
    let records = ["records", "--admin", &admin, "--token-file", file.to_str().unwrap()];
    let home = TempDir::new().unwrap();
    let check = ["gateway", "--upstream", "http://h", "--scope", "none", "--check"];
    let lines: [&[&str]; 11] = [
        &["completions", "bash"],
        &["--help"],
        &["--version"],
        &["gateway", "--help"],
        &["help", "records"],
        &check,
        &["id", "generate"],
        &["id", "generate", "--count", "100000"],
        &["id", "decode", "0197a6f0-7c3e-7bb1-a3cd-2f0d6c7f4b11"],
        &[&records[..], &["list"]].concat(),
        &[&records[..], &["list", "--json"]].concat(),
    ];
    for words in lines {
        let (code, said) = run(home.path(), File::options().write(true).open("/dev/full").unwrap(), words);
        assert_eq!(code, 1, "{words:?}: {said}");
        assert!(said.contains("could not be written") && said.contains("No space left"), "{words:?}: {said}");
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let (code, said) = run(home.path(), writer, words);
        assert_eq!((code, said.as_str()), (0, ""), "{words:?}");
    }
}
