//! `onlyonce records`: inspect and repair from the terminal.

mod actor;
mod bulk;
mod cli;
mod place;
mod remote;
mod resolve;
mod table;

pub(crate) use cli::RecordsArguments;

use std::io::{IsTerminal, stdin};

use crate::admin::IdWord;
use crate::failure::Failure;
use crate::say::{aside, say, text};
use cli::{Action, Which};
use place::{Place, Use, Wish};

/// How many rows `list` asks for at a time.
const PAGE: u32 = 200;

pub(crate) async fn run(arguments: RecordsArguments) -> Result<(), Failure> {
    let purpose = match arguments.action {
        Action::List { .. } | Action::Show { .. } => Use::Look,
        Action::Resolve { .. } | Action::Release { .. } | Action::Forget { .. } | Action::Purge { .. } => {
            Use::Change
        }
    };
    let place = Place::open(&arguments.place, purpose).await?;
    let done = act(&place, arguments.action).await;
    place.leave().await;
    done
}

async fn act(place: &Place, action: Action) -> Result<(), Failure> {
    match action {
        Action::List { search, limit, json } => list(place, &search, limit as usize, json).await,
        Action::Show { id, json } => show(place, &id, json).await,
        Action::Resolve { which, decision, answer } => {
            let wish = resolve::wish(&which, decision, &answer)?;
            bulk::apply(place, &which, Wish::Resolve(Box::new(wish))).await
        }
        Action::Release { which } => {
            let reason = which.reason.clone();
            bulk::apply(place, &which, Wish::Release { reason }).await
        }
        Action::Forget { which } | Action::Purge { which } => {
            let reason = which.reason.clone();
            bulk::apply(place, &which, Wish::Forget { reason }).await
        }
    }
}

async fn list(place: &Place, search: &cli::Search, limit: usize, json: bool) -> Result<(), Failure> {
    let mut records = Vec::new();
    let mut cursor = None;
    loop {
        let page = place.list(search, cursor, PAGE).await?;
        records.extend(page.records);
        cursor = page.next;
        if cursor.is_none() || records.len() >= limit {
            break;
        }
    }
    let more = cursor.is_some() || records.len() > limit;
    records.truncate(limit);
    if json {
        say!(
            "{}",
            serde_json::to_string_pretty(&records)
                .map_err(|error| Failure::because("can't be shown", &error))?
        );
    } else {
        text(&table::listing(&records));
    }
    if more {
        // Beside what was asked for, so that a program that reads it is told as well.
        aside(&format!("(there are more: --limit {})\n", limit.saturating_mul(10)));
    }
    Ok(())
}

async fn show(place: &Place, id: &IdWord, json: bool) -> Result<(), Failure> {
    let detail = place.show(id).await?;
    if json {
        say!(
            "{}",
            serde_json::to_string_pretty(&detail)
                .map_err(|error| Failure::because("can't be shown", &error))?
        );
    } else {
        text(&table::detail(&detail));
    }
    Ok(())
}

/// Asks before many records are changed.
fn confirm(count: usize, action: &str, which: &Which) -> Result<(), Failure> {
    if which.yes {
        return Ok(());
    }
    if !stdin().is_terminal() {
        return Err(Failure::usage(format!("this would {action} {count} records: add --yes to do it")));
    }
    text(&format!("{action} {count} records? Type the number to confirm: "));
    let mut said = String::new();
    match stdin().read_line(&mut said) {
        Ok(_) if said.trim() == count.to_string() => Ok(()),
        _ => Err(Failure::new("nothing was changed")),
    }
}
