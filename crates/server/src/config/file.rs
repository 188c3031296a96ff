//! The file, read into values that know their line.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{FORWARD_KEYS, Kind, LISTS, ROUTE_KEYS, SETTINGS};
use super::source::{Given, Problems, Source};
use super::suggest::hint;

/// A `[[route]]` or `[[forward]]`.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) source: Source,
    pub(crate) values: BTreeMap<&'static str, Given>,
}

#[derive(Debug, Default)]
pub(crate) struct File {
    /// By the path of the setting.
    pub(crate) settings: BTreeMap<&'static str, Given>,
    pub(crate) routes: Vec<Entry>,
    pub(crate) forwards: Vec<Entry>,
}

struct Walk<'a> {
    name: String,
    text: &'a str,
    file: File,
    problems: &'a mut Problems,
}

/// More than any configuration that a person writes.
const LARGEST: u64 = 1 << 20;

/// What is in the file; `None`, together with a problem, if it can't be read.
pub(crate) fn read(path: &Path, problems: &mut Problems) -> Option<File> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    let text = match read {
        Err(error) => Err(format!("can't be read: {error}")),
        Ok(_) if bytes.len() as u64 > LARGEST => Err("is larger than 1MiB, and so no configuration".into()),
        Ok(_) => String::from_utf8(bytes).map_err(|_| "is not UTF-8 text, as TOML is".into()),
    };
    let text = problems.take(&Source::Nowhere, text.map_err(|why| format!("the file {name} {why}")))?;
    Some(parse(&name, &text, problems))
}

pub(crate) fn parse(name: &str, text: &str, problems: &mut Problems) -> File {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut walk = Walk { name: name.to_owned(), text, file: File::default(), problems };
    for error in errors {
        let line = error.span().map_or(1, |span| walk.line(span.start));
        walk.problems.add(&Source::File { name: name.to_owned(), line }, error.message().trim());
    }
    walk.table("", table.get_ref());
    walk.file
}

impl Walk<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
    }

    fn source(&self, offset: usize) -> Source {
        Source::File { name: self.name.clone(), line: self.line(offset) }
    }

    fn table(&mut self, within: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let source = self.source(key.span().start);
            let name = key.get_ref();
            let path = if within.is_empty() { name.to_string() } else { format!("{within}.{name}") };
            match (path.as_str(), value.get_ref()) {
                ("route", DeValue::Array(entries)) => self.entries("route", ROUTE_KEYS, entries),
                ("forward", DeValue::Array(entries)) => self.entries("forward", FORWARD_KEYS, entries),
                ("route" | "forward", _) => {
                    self.problems.add(
                        &source,
                        format!("{name:?} must be a list of tables: write [[{name}]] and its keys below it"),
                    );
                }
                (_, DeValue::Table(inner)) if is_section(&path) => self.table(&path, inner),
                (_, other) if is_section(&path) => {
                    let found = other.type_str();
                    self.problems.add(
                        &source,
                        format!(
                            "{path:?} must be a table, not {found}: write [{path}] and its keys below it"
                        ),
                    );
                }
                _ => match SETTINGS.iter().find(|setting| setting.path == path) {
                    Some(setting) => {
                        let is_list = matches!(setting.kind, Kind::List | Kind::Secrets);
                        if let Some(given) = self.given(&path, source, value, is_list) {
                            self.file.settings.insert(setting.path, given);
                        }
                    }
                    None => self.unknown(&source, name, within),
                },
            }
        }
    }

    fn unknown(&mut self, source: &Source, name: &str, within: &str) {
        let known = known(within);
        let place = if within.is_empty() { String::new() } else { format!(" in [{within}]") };
        self.problems.add(source, format!("unknown key {name:?}{place}; {}", hint(name, &known)));
    }

    fn entries(&mut self, kind: &str, known: &[&'static str], entries: &[Spanned<DeValue<'_>>]) {
        for entry in entries {
            let source = self.source(entry.span().start);
            let DeValue::Table(table) = entry.get_ref() else {
                self.problems.add(&source, format!("write [[{kind}]] and its keys below it"));
                continue;
            };
            let mut values = BTreeMap::new();
            for (key, value) in table {
                let at = self.source(key.span().start);
                let name = key.get_ref();
                match known.iter().find(|known| *known == name) {
                    Some(known) => {
                        if let Some(given) = self.given(known, at, value, LISTS.contains(known)) {
                            values.insert(*known, given);
                        }
                    }
                    None => {
                        let why = format!("unknown key {name:?} in [[{kind}]]; {}", hint(name, known));
                        self.problems.add(&at, why);
                    }
                }
            }
            let entry = Entry { source, values };
            if kind == "route" { self.file.routes.push(entry) } else { self.file.forwards.push(entry) }
        }
    }

    fn given(
        &mut self,
        path: &str,
        source: Source,
        value: &Spanned<DeValue<'_>>,
        is_list: bool,
    ) -> Option<Given> {
        let parts = match value.get_ref() {
            DeValue::Array(list) if is_list => list.iter().map(|part| scalar(part.get_ref())).collect(),
            one => scalar(one).map(|text| vec![text]),
        };
        if parts.is_none() {
            let found = value.get_ref().type_str();
            let wanted = if is_list { "a text, or a list of texts" } else { "a text" };
            self.problems.add(&source, format!("{path:?} can't be {found}; write {wanted}"));
        }
        parts.map(|parts| Given { parts, source })
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}

fn is_section(path: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// What may stand within a section.
fn known(within: &str) -> Vec<&'static str> {
    let inside = |path: &'static str| {
        let rest = if within.is_empty() { Some(path) } else { path.strip_prefix(within)?.strip_prefix('.') };
        rest.map(|rest| rest.split('.').next().unwrap_or(rest))
    };
    let mut names: Vec<_> = SETTINGS.iter().filter_map(|setting| inside(setting.path)).collect();
    if within.is_empty() {
        names.extend(["route", "forward"]);
    }
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_told_with_its_line_and_a_suggestion() {
        let text = "lisen = \"x\"\n\n[defaults]\nlese = \"30s\"\nlease = { a = 1 }\n[[route]]\nmach = \"POST /\"\n[colours]\n";
        let mut problems = Problems::default();
        parse("f.toml", text, &mut problems);
        let mut told: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        told.sort();
        assert_eq!(told.len(), 5, "{told:#?}");
        assert_eq!(told[0], "f.toml:1: unknown key \"lisen\"; did you mean \"listen\"?");
        assert_eq!(told[1], "f.toml:4: unknown key \"lese\" in [defaults]; did you mean \"lease\"?");
        assert!(told[2].starts_with("f.toml:5: \"defaults.lease\" can't be"), "{}", told[2]);
        assert_eq!(told[3], "f.toml:7: unknown key \"mach\" in [[route]]; did you mean \"match\"?");
        assert!(told[4].starts_with("f.toml:8: unknown key \"colours\"; there are listen, "), "{}", told[4]);
    }

    #[test]
    fn what_is_not_toml_says_where() {
        let mut problems = Problems::default();
        parse("f.toml", "listen = \"127.0.0.1:1\"\nstore = \n", &mut problems);
        assert!(problems.0[0].to_string().starts_with("f.toml:2: "), "{problems}");
    }
}
