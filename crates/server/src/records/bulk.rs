//! Changing records, one by one or all that a search finds.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::cli::Which;
use super::place::{Place, Wish};
use super::{PAGE, confirm};
use crate::admin::StateName;
use crate::failure::Failure;
use crate::say::{complain, say};

/// A record that is to be changed, as it was seen.
struct Meant {
    id: String,
    fence: u64,
}

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
        if let Err(why) = place.change(&record.id, record.fence, &wish).await {
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

async fn named(place: &Place, which: &Which) -> Result<Vec<Meant>, Failure> {
    if !which.search.is_everything() {
        return Err(Failure::usage("name records by id or by a search, not both"));
    }
    let mut meant = Vec::new();
    for id in &which.ids {
        let record = place.show(id).await?.record;
        meant.push(Meant { id: record.id, fence: record.fence });
    }
    Ok(meant)
}

async fn search(place: &Place, which: &Which, wish: &Wish) -> Result<Vec<Meant>, Failure> {
    let mut search = which.search.clone();
    if search.is_everything() {
        return Err(Failure::usage(
            "which records? Name their ids, or search by --state, --route, --scope, --key or --since",
        ));
    }
    // Only unknown outcomes can be decided.
    if !matches!(wish, Wish::Forget { .. }) {
        search.state = Some(StateName::Unknown);
    }
    let mut meant = Vec::new();
    let mut cursor = None;
    loop {
        let page = place.list(&search, cursor, PAGE).await?;
        let idle = page.records.into_iter().filter(|record| record.state != StateName::InProgress);
        meant.extend(idle.map(|record| Meant { id: record.id, fence: record.fence }));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(meant);
        }
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
