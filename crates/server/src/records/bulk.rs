//! Changing records, one by one or all that a search finds.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use onlyonce::SequenceKey;
use serde_json::json;

use super::cli::Which;
use super::place::{Place, Seen, Wish};
use super::{PAGE, confirm};
use crate::admin::StateName;
use crate::failure::Failure;
use crate::say::{aside, complain, say};

pub(super) async fn apply(place: &Place, which: &Which, wish: Wish) -> Result<(), Failure> {
    if wish.reason().trim().is_empty() {
        return Err(Failure::usage("say why with --reason: it is written to the audit log"));
    }
    let meant =
        if which.ids.is_empty() { search(place, which, &wish).await? } else { named(place, which).await? };
    if which.ids.is_empty() {
        if meant.is_empty() {
            say(which, &wish, 0, &[]);
            return Ok(());
        }
        confirm(meant.len(), wish.name(), which)?;
    }
    let bar = progress(meant.len());
    let mut failed = Vec::new();
    for record in &meant {
        // The others are still worth changing.
        if let Err(why) = place.change(record, &wish).await {
            failed.push((record.id.clone(), why.to_string()));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    say(which, &wish, meant.len() - failed.len(), &failed);
    match failed.first() {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!("{} of {} were not changed", failed.len(), meant.len()))),
    }
}

async fn named(place: &Place, which: &Which) -> Result<Vec<Seen>, Failure> {
    if which.all || !which.search.is_everything() {
        return Err(Failure::usage("name records by id, by a search, or --all; not by two of these"));
    }
    let mut meant = Vec::new();
    for id in &which.ids {
        let seen = Seen::of(&place.show(id).await?.record);
        // The same may have been typed twice, in full and by its beginning.
        if !meant.contains(&seen) {
            meant.push(seen);
        }
    }
    Ok(meant)
}

async fn search(place: &Place, which: &Which, wish: &Wish) -> Result<Vec<Seen>, Failure> {
    let mut search = which.search.clone();
    match (search.is_everything(), which.all) {
        (true, false) => {
            return Err(Failure::usage(
                "which records? Name their ids, search by --state, --route, --scope, --key or --since, or say --all",
            ));
        }
        (false, true) => {
            return Err(Failure::usage("--all is all there are; leave out what would narrow it"));
        }
        (true, true) | (false, false) => {}
    }
    search.state = changeable(search.state, wish)?;
    // The highest number of a credential is no call: without it, lower ones would be let in again.
    let with_marks = which.all || search.route.is_some() || !matches!(wish, Wish::Forget { .. });
    let (mut meant, mut spared) = (Vec::new(), 0);
    let mut cursor = None;
    loop {
        let page = place.list(&search, cursor, PAGE).await?;
        let idle = page.records.iter().filter(|record| record.state != StateName::InProgress);
        for record in idle {
            if with_marks || !SequenceKey::is_mark(&record.route) {
                meant.push(Seen::of(record));
            } else {
                spared += 1;
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if spared > 0 {
        aside(&format!("(without {spared} marks of sequences: name them by id or --route, or say --all)\n"));
    }
    Ok(meant)
}

/// The state of the records that can be changed in this way, of those that are asked for.
fn changeable(asked: Option<StateName>, wish: &Wish) -> Result<Option<StateName>, Failure> {
    match (wish, asked) {
        (Wish::Forget { .. }, Some(StateName::InProgress)) => {
            Err(Failure::usage("what is in progress can't be forgotten; wait for its end"))
        }
        (Wish::Forget { .. }, asked) => Ok(asked),
        (_, None | Some(StateName::Unknown)) => Ok(Some(StateName::Unknown)),
        (_, Some(other)) => Err(Failure::usage(format!(
            "only unknown outcomes can be decided, and --state {} has none; leave it out, or forget those records",
            other.name()
        ))),
    }
}

fn progress(count: usize) -> ProgressBar {
    if count < 20 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} records, {eta} left");
    ProgressBar::new(count as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn say(which: &Which, wish: &Wish, done: usize, failed: &[(String, String)]) {
    if which.json {
        let failed: Vec<_> = failed.iter().map(|(id, why)| json!({ "id": id, "why": why })).collect();
        say!("{}", json!({ "action": wish.name(), "done": done, "failed": failed }));
        return;
    }
    for (id, why) in failed {
        complain(&format!("{id}: {why}"));
    }
    say!("{}: {done} record{}", wish.name(), if done == 1 { "" } else { "s" });
}
