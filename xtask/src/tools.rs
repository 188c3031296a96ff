//! The cargo tools that the steps call.

use crate::cmd::Cmd;
use crate::failure::Failure;

/// Named, so that a fresh machine gets the version this repository was tested with, whatever is the newest that day.
const NEXTEST: &str = "0.9.143";

pub(crate) fn ensure() -> Result<(), Failure> {
    component("rustfmt", "fmt")?;
    component("clippy", "clippy")?;
    if Cmd::cargo("nextest --version").works() {
        return Ok(());
    }
    println!("   cargo-nextest is missing: it is built once, which takes some minutes");
    Cmd::cargo("install --quiet --locked cargo-nextest --version").args([NEXTEST]).run()
}

/// A part of the toolchain: which one to add is the person's choice, so it is not added behind their back.
fn component(name: &str, command: &str) -> Result<(), Failure> {
    if Cmd::cargo(command).args(["--version"]).works() {
        return Ok(());
    }
    let how = format!("rustup component add {name}");
    Err(Failure::failed(format!("`cargo {command}` is missing. Add it and try again:\n\n    {how}\n")))
}
