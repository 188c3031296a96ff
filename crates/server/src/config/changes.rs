//! What a reload changes, found by comparing: a setting that is added later can't be forgotten here.

use std::collections::BTreeMap;
use std::fmt;

use super::Everything;
use super::file::Entry;
use super::print;
use super::rules;
use super::settings::{Reload, SETTINGS};
use super::source::Given;

/// What a reload changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// What counts from now on, by name.
    pub(crate) applied: Vec<String>,
    /// What takes effect at the next start, with what stays in force until then.
    pub(crate) waiting: Vec<String>,
    /// What makes calls another call than they were.
    pub(crate) identity: Vec<String>,
}

/// What a change of identity means, in the words of whoever has to answer for it.
const FORGOTTEN: &str = "calls answered before are not recognised any more, and a retry of them runs again";

impl Everything {
    /// What is in force after `wanted` was read by a gateway that runs with `self`.
    pub(super) fn replaced_by(&self, mut wanted: Self) -> (Self, Changes) {
        let mut changes = Changes::default();
        for setting in SETTINGS {
            let (was, is) = (self.settings.get(setting.path), wanted.settings.get(setting.path));
            if parts(was) == parts(is) {
                continue;
            }
            let shown = |given: Option<&Given>| {
                given.map_or_else(|| "nothing".into(), |given| print::value(setting, given))
            };
            if setting.reload == Reload::NextStart {
                changes.waiting.push(format!("{} ({} stays in force)", setting.path, shown(was)));
                match was.cloned() {
                    Some(was) => wanted.settings.insert(setting.path, was),
                    None => wanted.settings.remove(setting.path),
                };
                continue;
            }
            changes.applied.push(setting.path.into());
            if setting.reload == Reload::ChangesIdentity {
                changes.identity.push(format!(
                    "{} was {} and is {}: {FORGOTTEN}",
                    setting.path,
                    shown(was),
                    shown(is)
                ));
            }
        }
        for (name, was, is) in
            [("[[route]]", &self.routes, &wanted.routes), ("[[forward]]", &self.forwards, &wanted.forwards)]
        {
            if all(was) != all(is) {
                changes.applied.push(name.into());
            }
        }
        if hosts(&self.forwards) != hosts(&wanted.forwards) {
            changes.identity.push(format!("the hosts of [[forward]] are others, and a call to such a host counts for that host alone: {FORGOTTEN}"));
        }
        for method in methods(self).into_iter().filter(|method| !methods(&wanted).contains(method)) {
            changes.identity.push(format!("{method} is protected on declared routes only: {FORGOTTEN}"));
        }
        changes.identity.extend(self.routes_told_apart_otherwise(&wanted));
        (wanted, changes)
    }

    /// Routes whose calls were recognised by something else.
    fn routes_told_apart_otherwise(&self, wanted: &Self) -> Vec<String> {
        let (was, is) = (recognised(&self.routes), recognised(&wanted.routes));
        let usual = |pattern: &str, all: &Self| {
            let method = pattern.split(' ').next().unwrap_or_default();
            methods(all).iter().any(|known| known == method).then(Recognised::default)
        };
        let patterns = was.keys().chain(is.keys().filter(|pattern| !was.contains_key(*pattern)));
        let told = patterns.filter_map(|pattern| {
            // What was not protected has no records.
            let was = was.get(pattern).cloned().or_else(|| usual(pattern, self))?;
            let is = is.get(pattern).cloned().or_else(|| usual(pattern, wanted));
            match is {
                None => Some(format!("{pattern} is no longer protected: {FORGOTTEN}")),
                Some(is) if is.key != was.key => {
                    Some(format!("the key of {pattern} was {:?} and is {:?}: {FORGOTTEN}", was.key, is.key))
                }
                Some(is) if is.fingerprint != was.fingerprint => Some(format!(
                    "the fingerprint of {pattern} is made of something else: a retry of a call that was answered before may be refused as another payload"
                )),
                Some(_) => None,
            }
        });
        told.collect()
    }
}

/// What the calls of a route are recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recognised {
    key: String,
    fingerprint: Vec<String>,
}

impl Default for Recognised {
    fn default() -> Self {
        Self { key: "header".into(), fingerprint: Vec::new() }
    }
}

fn recognised(routes: &[Entry]) -> BTreeMap<String, Recognised> {
    let of = |entry: &Entry| {
        let pattern = rules::pattern(&entry.values.get("match")?.text()).ok()?;
        let key = entry.values.get("key").map_or_else(|| "header".into(), Given::text);
        let fingerprint =
            entry.values.get("fingerprint").map(|given| given.parts.clone()).unwrap_or_default();
        Some((pattern, Recognised { key, fingerprint }))
    };
    routes.iter().filter_map(of).collect()
}

fn methods(all: &Everything) -> Vec<String> {
    let given = all.settings.get("defaults.methods");
    given.into_iter().flat_map(|given| &given.parts).map(|name| name.trim().to_ascii_uppercase()).collect()
}

fn parts(given: Option<&Given>) -> Option<&[String]> {
    given.map(|given| given.parts.as_slice())
}

fn all(entries: &[Entry]) -> Vec<BTreeMap<&'static str, &[String]>> {
    entries
        .iter()
        .map(|entry| entry.values.iter().map(|(name, given)| (*name, given.parts.as_slice())).collect())
        .collect()
}

/// Which requests have a host that counts: those of a forward with a host, as far as none before it takes them.
fn hosts(forwards: &[Entry]) -> Vec<Vec<Option<&[String]>>> {
    if !forwards.iter().any(|entry| entry.values.contains_key("host")) {
        return Vec::new();
    }
    forwards
        .iter()
        .map(|entry| ["host", "path", "method"].map(|name| parts(entry.values.get(name))).to_vec())
        .collect()
}

impl fmt::Display for Changes {
    /// What was applied.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.applied.is_empty() {
            f.write_str("nothing changed in it")
        } else {
            f.write_str(&self.applied.join(", "))
        }
    }
}

impl Changes {
    /// What whoever reloaded should know.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.identity.clone();
        if !self.waiting.is_empty() {
            let what = self.waiting.join(", ");
            warnings.push(format!("{what}: changed in the configuration, and taken at the next start only"));
        }
        warnings
    }
}
