//! Steps in order: a headline each, how long it took, and a stop at the first that fails.

use crate::cmd::Cmd;
use crate::failure::Failure;
use crate::services::Services;
use crate::time::Stopwatch;

#[derive(Debug)]
pub(crate) struct Step {
    title: &'static str,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Call(fn() -> Result<(), Failure>),
    Commands(Vec<Cmd>),
    Served(Cmd),
    Nothing(&'static str),
}

impl Step {
    /// A step whose failure says itself what to do.
    pub(crate) fn call(title: &'static str, call: fn() -> Result<(), Failure>) -> Self {
        Self { title, work: Work::Call(call) }
    }

    pub(crate) fn command(title: &'static str, command: Cmd) -> Self {
        Self::commands(title, vec![command])
    }

    pub(crate) fn commands(title: &'static str, commands: Vec<Cmd>) -> Self {
        Self { title, work: Work::Commands(commands) }
    }

    /// A command that needs the private servers: they are started before it, and stopped after it whatever comes of it.
    pub(crate) fn served(title: &'static str, command: Cmd) -> Self {
        Self { title, work: Work::Served(command) }
    }

    /// A step with nothing to do for what was chosen, which it says: nothing is skipped in silence.
    pub(crate) fn nothing(title: &'static str, why: &'static str) -> Self {
        Self { title, work: Work::Nothing(why) }
    }

    fn run(&self) -> Result<(), Failure> {
        match &self.work {
            Work::Call(call) => call(),
            Work::Commands(commands) => commands.iter().try_for_each(run_or_say_how),
            Work::Served(command) => {
                let services = Services::start()?;
                services.tell(command.clone()).run().map_err(|why| {
                    let how = "start the servers with `cargo xtask services`, set the variables that it prints, and run";
                    Failure::failed(format!("{why}\n\nTo run just this step again, {how}:\n\n    {command}\n"))
                })
            }
            Work::Nothing(why) => {
                println!("   {why}");
                Ok(())
            }
        }
    }
}

fn run_or_say_how(command: &Cmd) -> Result<(), Failure> {
    command
        .run()
        .map_err(|why| Failure::failed(format!("{why}\n\nTo run just this step again:\n\n    {command}\n")))
}

pub(crate) fn run(steps: &[Step]) -> Result<(), Failure> {
    let whole = Stopwatch::start();
    let all = steps.len();
    for (n, step) in (1..).zip(steps) {
        let title = step.title;
        println!("\n== {n}/{all} {title}");
        let watch = Stopwatch::start();
        step.run().map_err(|why| {
            Failure::failed(format!("step {n}/{all} ({title}) failed after {}: {why}", watch.shown()))
        })?;
        println!("== {n}/{all} {title}: done in {}", watch.shown());
    }
    println!("\nAll {all} steps passed in {}.", whole.shown());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failing_step_stops_and_says_how_to_run_it_again() {
        let steps = [
            Step::nothing("first", "nothing to do"),
            Step::command("second", Cmd::new("false").args(["a b"])),
            Step::call("third", || panic!("a step after a failure ran")),
        ];
        let Err(Failure::Failed(why)) = run(&steps) else { panic!("it passed") };
        assert!(why.starts_with("step 2/3 (second) failed after"), "{why}");
        assert!(why.contains("To run just this step again:\n\n    false 'a b'\n"), "{why}");
    }
}
