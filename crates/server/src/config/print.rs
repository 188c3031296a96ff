//! The effective configuration, as TOML with the source of each value, and without secrets.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::file::Entry;
use super::settings::{Kind, SETTINGS, Setting};
use super::source::Given;
use super::tokens;
use crate::{masked, stores};

pub(super) fn show(settings: &BTreeMap<&'static str, Given>, routes: &[Entry], forwards: &[Entry]) -> String {
    let mut out = String::new();
    let mut section = "";
    for setting in SETTINGS {
        let Some(given) = settings.get(setting.path) else { continue };
        let (within, name) = setting.path.rsplit_once('.').unwrap_or(("", setting.path));
        if within != section {
            section = within;
            let _ = write!(out, "\n[{section}]\n");
        }
        line(&mut out, name, &value(setting, given), given);
    }
    for entry in routes {
        show_entry(&mut out, "route", entry);
    }
    for entry in forwards {
        show_entry(&mut out, "forward", entry);
    }
    out
}

fn show_entry(out: &mut String, kind: &str, entry: &Entry) {
    let _ = write!(out, "\n[[{kind}]]\n");
    for (name, given) in &entry.values {
        // Only URLs have something to hide; a question mark elsewhere is a query of a route.
        let shown = |part: &String| match part {
            part if *name == "upstream" => masked::address(part),
            part if part.contains("://") => masked::url(part),
            part => part.clone(),
        };
        let parts: Vec<String> = given.parts.iter().map(shown).collect();
        let text = match parts.as_slice() {
            [one] => format!("{one:?}"),
            many => format!("{many:?}"),
        };
        line(out, name, &text, given);
    }
}

fn line(out: &mut String, name: &str, value: &str, given: &Given) {
    let _ = writeln!(out, "{:<44} # {}", format!("{name} = {value}"), given.source);
}

pub(super) fn value(setting: &Setting, given: &Given) -> String {
    match setting.kind {
        Kind::Secret => "\"***\"".into(),
        Kind::Secrets => {
            format!("{:?}", given.parts.iter().map(|part| tokens::masked(part)).collect::<Vec<_>>())
        }
        Kind::Url if setting.path == "store" => format!("{:?}", stores::shown(&given.text())),
        Kind::Url => format!("{:?}", masked::address(&given.text())),
        Kind::Plain if setting.value == "FILE" => {
            format!("{:?}", masked::file(Path::new(&given.text())))
        }
        Kind::List => format!("{:?}", given.parts),
        // It may be the token.
        Kind::Plain if setting.path == "admin" && !given.text().contains(':') && given.text() != "off" => {
            format!("{:?}", masked::NOTHING)
        }
        Kind::Plain => match given.text().as_str() {
            yes @ ("true" | "false") => yes.to_owned(),
            number if number.parse::<u64>().is_ok() => number.to_owned(),
            text => format!("{text:?}"),
        },
    }
}
