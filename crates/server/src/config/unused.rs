//! What was given and nothing uses: valid, and probably not meant.

use std::collections::BTreeMap;

use super::source::{Given, Source};
use super::{Rules, Speech, Target};

/// What there is that could use a setting.
pub(super) struct Uses<'a> {
    pub(super) jwt: bool,
    pub(super) admin: bool,
    pub(super) store: Option<&'a str>,
    pub(super) targets: Vec<&'a Target>,
    pub(super) rules: Vec<&'a Rules>,
}

impl Uses<'_> {
    /// Why a setting is of no use, if it is of none.
    fn none_of(&self, path: &str) -> Option<&'static str> {
        let has_tokens = || self.rules.iter().any(|rules| rules.token.is_some());
        let has_tls = || self.targets.iter().any(|target| target.speech == Speech::Tls);
        let is_embedded = || self.store.is_none_or(|store| store.starts_with("embedded:"));
        match path {
            _ if path.starts_with("scope.jwt.") && !self.jwt => Some("no part of the scope is jwt:"),
            _ if path.starts_with("tokens.") && !has_tokens() => Some("no [[route]] has key = \"token\""),
            "admin_token" | "admin_token_file" | "audit_log" if !self.admin => Some("admin is off"),
            "limits.keep_free" if !is_embedded() => Some("it is for an embedded store"),
            "upstream_tls.ca" if !has_tls() => Some("no upstream is https://"),
            _ => None,
        }
    }

    pub(super) fn warnings(&self, settings: &BTreeMap<&'static str, Given>) -> Vec<String> {
        let given = settings.iter().filter(|(_, given)| given.source != Source::Default);
        let unused = given.filter_map(|(path, given)| Some((path, given, self.none_of(path)?)));
        unused
            .map(|(path, given, why)| {
                format!("{}: {path} is given, and nothing uses it: {why}", given.source)
            })
            .collect()
    }
}
