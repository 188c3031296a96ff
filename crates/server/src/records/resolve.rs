//! What a person says about an unknown outcome, asked for where it is missing and shown before it is stored.

use std::fmt::Write as _;
use std::io::{IsTerminal, stdin};

use super::cli::{AnswerArguments, Decision, Which};
use super::table;
use crate::admin::{Outcome, Resolve};
use crate::failure::Failure;
use crate::say::aside;

/// How much of the body is shown.
const SHOWN: usize = 500;

/// The decision. An answer is for ever what retries get, so its status is never guessed, and a person sees it first.
pub(super) fn wish(which: &Which, decision: Decision, answer: &AnswerArguments) -> Result<Resolve, Failure> {
    let outcome = if decision.not_done { Outcome::NotDone } else { Outcome::Completed };
    let status = match (outcome, answer.status) {
        (Outcome::Completed, None) => Some(ask_for_status(which)?),
        (_, given) => given,
    };
    let wish = Resolve {
        outcome,
        reason: which.reason.clone(),
        fence: None,
        status,
        headers: answer.headers()?,
        body: answer.body()?,
    };
    wish.deed().map_err(Failure::usage)?;
    if outcome == Outcome::Completed {
        aside(&preview(&wish));
        // A search is confirmed by the number of its records.
        if !which.yes && !which.ids.is_empty() && stdin().is_terminal() {
            aside("Store this answer? Type yes to confirm: ");
            if read_line()? != "yes" {
                return Err(Failure::new("nothing was changed"));
            }
        }
    }
    Ok(wish)
}

fn ask_for_status(which: &Which) -> Result<u16, Failure> {
    let missing =
        "--completed needs --answer-status: the status that retries get from now on, for instance 201";
    if which.yes || !stdin().is_terminal() {
        return Err(Failure::usage(missing));
    }
    aside("Which status do retries get from now on? ");
    read_line()?.parse().map_err(|_| Failure::usage(missing))
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    stdin().read_line(&mut line).map_err(|error| Failure::because("nothing was changed", &error))?;
    Ok(line.trim().to_owned())
}

/// The answer as retries will get it.
fn preview(wish: &Resolve) -> String {
    let mut text = format!("retries will get: {}\n", wish.status.unwrap_or_default());
    for (name, value) in &wish.headers {
        let _ = writeln!(text, "  {}", table::printable(&format!("{name}: {value}")));
    }
    let shown: String = wish.body.chars().take(SHOWN).collect();
    let more = if shown.len() < wish.body.len() { "…" } else { "" };
    match wish.body.len() {
        0 => text.push_str("  an empty body\n"),
        bytes => {
            let _ = writeln!(text, "  {bytes} bytes: {}{more}", table::printable(&shown));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_be_stored_is_shown_and_can_not_write_to_the_terminal() {
        let wish = Resolve {
            outcome: Outcome::Completed,
            reason: "r".into(),
            fence: None,
            status: Some(201),
            headers: [("location".to_owned(), "/orders/7".to_owned())].into(),
            body: "\u{1b}[31m".to_owned() + &"x".repeat(2 * SHOWN),
        };
        let shown = preview(&wish);
        assert!(shown.contains("201") && shown.contains("location: /orders/7"), "{shown}");
        assert!(shown.contains("1005 bytes") && shown.contains('…') && !shown.contains('\u{1b}'), "{shown}");
    }
}
