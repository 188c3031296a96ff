//! The steps that `test` and `check` are made of.

use crate::cmd::Cmd;
use crate::step::Step;
use crate::workspace::Choice;
use crate::{bench, features, needs, services, tools};

pub(crate) fn tools() -> Step {
    Step::call("tools", || {
        tools::ensure()?;
        needs::ensure(needs::TESTS)?;
        needs::ensure(needs::BENCHES)
    })
}

pub(crate) fn format(choice: &Choice<'_>) -> Step {
    Step::command("format", Cmd::cargo("fmt --check").args(choice.flags_or("--all")))
}

pub(crate) fn clippy(choice: &Choice<'_>) -> Step {
    let clippy = Cmd::cargo("clippy --all-targets --all-features").args(choice.flags());
    Step::command("clippy", clippy.args(["--", "-D", "warnings"]))
}

pub(crate) fn rustdoc(choice: &Choice<'_>) -> Step {
    let doc = Cmd::cargo("doc --no-deps --all-features").args(choice.flags());
    Step::command("rustdoc", doc.env("RUSTDOCFLAGS", "-D warnings"))
}

pub(crate) fn each_feature_alone(choice: &Choice<'_>) -> Step {
    let title = "each feature alone";
    match features::checks(choice) {
        checks if checks.is_empty() => Step::nothing(title, "none of the chosen packages is published"),
        checks => Step::commands(title, checks),
    }
}

pub(crate) fn tests(choice: &Choice<'_>) -> Step {
    // A chosen package may have no tests of its own; a workspace without any would be a mistake, and fails.
    let no_tests = if choice.is_whole() { "fail" } else { "warn" };
    let tests = Cmd::cargo("nextest run --all-features --no-tests").args([no_tests]);
    let tests = tests.args(choice.flags());
    if services::are_needed(choice) { Step::served("tests", tests) } else { Step::command("tests", tests) }
}

pub(crate) fn doc_tests(choice: &Choice<'_>) -> Step {
    let title = "doc tests";
    // Cargo refuses `--doc` for a package that has no library.
    if !choice.packages.iter().any(|package| package.has_doc_tests()) {
        return Step::nothing(title, "none of the chosen packages has a library");
    }
    let libraries = choice.only(|package| package.has_doc_tests());
    Step::command(title, Cmd::cargo("test --doc --all-features").args(libraries.flags()))
}

/// For the whole workspace only: most programs measure several packages at once.
pub(crate) fn benches(choice: &Choice<'_>) -> Step {
    let title = "benchmarks start";
    if choice.is_whole() { Step::call(title, bench::each_starts) } else { Step::nothing(title, NOT_WHOLE) }
}

pub(crate) fn counts(choice: &Choice<'_>) -> Step {
    let title = "counts";
    if choice.is_whole() { Step::call(title, bench::no_count_grew) } else { Step::nothing(title, NOT_WHOLE) }
}

const NOT_WHOLE: &str = "only without --only";
