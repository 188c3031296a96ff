//! How the requests of a route are treated, read from its keys and from the defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, Method};
use onlyonce::http::{
    FingerprintOf, KeyFrom, MissingKey, On500, Options, SEQUENCE, StoreDown, StoredHeaders, spelled_pattern,
};
use onlyonce::{Mode, OnLapse, Order, Settings};

use super::file::Entry;
use super::source::{Given, Problems, Source};
use super::suggest::hint;
use super::units;
use crate::gateway::OWN;
use crate::stores;

/// What a route does.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) options: Options,
    /// The path to ask at, with `{key}` in it.
    pub(crate) ask: Option<String>,
    /// Calls need a one-time token; the field that it may be in, if not the usual one.
    pub(crate) token: Option<TokenPlace>,
}

impl Rules {
    /// Whether outcomes that nobody knows are asked for.
    pub(crate) fn asks(&self) -> bool {
        let settings = self.options.settings.as_ref();
        settings.is_some_and(|settings| matches!(settings.on_lapse, OnLapse::Ask { .. }))
    }

    /// The options without the question, where nobody can be asked: what is not known is held.
    pub(crate) fn without_question(&self) -> Options {
        let mut options = self.options.clone();
        if let Some(settings) = options.settings.as_mut().filter(|_| self.ask.is_none() && self.asks()) {
            settings.on_lapse = OnLapse::Hold;
        }
        options
    }
}

/// Where the token of a call is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TokenPlace {
    /// The name of the form field and query parameter, if it is not the usual one.
    pub(crate) field: Option<String>,
}

/// What tells two calls apart.
#[derive(Debug, Clone)]
enum Told {
    ByKey(KeyFrom),
    ByToken(TokenPlace),
}

/// A declared route.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) pattern: String,
    pub(crate) source: Source,
    pub(crate) rules: Rules,
}

/// Looks a key up in the route first, and then in the defaults.
pub(super) struct Reader<'a> {
    pub(super) route: Option<&'a Entry>,
    pub(super) settings: &'a BTreeMap<&'static str, Given>,
    pub(super) problems: &'a mut Problems,
}

impl Reader<'_> {
    fn find(&self, name: &str) -> Option<&Given> {
        let own = self.route.and_then(|route| route.values.get(name));
        own.or_else(|| {
            self.settings
                .iter()
                .find(|(path, _)| path.strip_prefix("defaults.") == Some(name))
                .map(|found| found.1)
        })
    }

    fn read<T>(&mut self, name: &str, fallback: T, parse: impl Fn(&str) -> Result<T, String>) -> T {
        let Some(given) = self.find(name).cloned() else { return fallback };
        let parsed = parse(&given.text()).map_err(|why| format!("{name}: {why}"));
        self.take(name, &given.source, parsed).unwrap_or(fallback)
    }

    /// What is wrong with a default is told once, and not again by every route that has it.
    fn take<T>(&mut self, name: &str, source: &Source, parsed: Result<T, String>) -> Option<T> {
        let is_told = self.route.is_some_and(|route| !route.values.contains_key(name));
        if is_told { parsed.ok() } else { self.problems.take(source, parsed) }
    }

    fn list<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let Some(given) = self.find(name).cloned() else { return Vec::new() };
        let parsed = given.parts.iter().map(|part| parse(part).map_err(|why| format!("{name}: {why}")));
        parsed.filter_map(|part| self.take(name, &given.source, part)).collect()
    }

    pub(super) fn rules(&mut self, body_timeout: Duration) -> Rules {
        let usual = Settings::default();
        let ask = self.find("ask").cloned();
        let ask_after = self.read("ask_after", Duration::from_secs(60), units::duration);
        let on_lapse = self.read("on_lapse", OnLapse::Hold, |text| {
            one_of(
                text,
                &[
                    ("hold", OnLapse::Hold),
                    ("rerun", OnLapse::Rerun),
                    ("ask", OnLapse::Ask { after: ask_after }),
                ],
            )
        });
        let settings = Settings {
            mode: self.read("mode", Mode::Replay, |text| {
                one_of(text, &[("replay", Mode::Replay), ("reject", Mode::Reject)])
            }),
            on_lapse,
            lease: self.read("lease", usual.lease, units::duration),
            max_run: self.read("max_run", usual.max_run, units::duration),
            retain: self.read("retain", usual.retain, units::duration),
            retain_unsettled: self.read("retain_unsettled", usual.retain_unsettled, units::duration),
            wait: self.read("wait", usual.wait, units::duration),
            max_answer: usual.max_answer,
        };
        let (key, token) = match self.read("key", Told::ByKey(KeyFrom::default()), told) {
            Told::ByKey(key) => (key, None),
            Told::ByToken(place) => (KeyFrom::default(), Some(place)),
        };
        let order = self.read("order", Order::Unique, |text| {
            one_of(text, &[("any", Order::Unique), ("increasing", Order::Increasing)])
        });
        self.check_order(order, &key);
        self.check_unused(on_lapse, &key, token.is_some());
        let options = Options {
            key,
            order,
            missing_key: self.read("missing", MissingKey::Pass, |text| {
                one_of(text, &[("pass", MissingKey::Pass), ("reject", MissingKey::Reject)])
            }),
            fingerprint: self.fingerprint(),
            on_500: self.read("on_500", On500::Unknown, |text| {
                one_of(
                    text,
                    &[("unknown", On500::Unknown), ("release", On500::Release), ("keep", On500::Keep)],
                )
            }),
            store_down: if self.read("fail_open", false, yes) {
                StoreDown::FailOpen
            } else {
                StoreDown::Refuse
            },
            max_request: self.read("max_request", 1 << 20, units::size),
            request_patience: body_timeout,
            max_response: {
                let store = self.settings.get("store").map(Given::text);
                self.read("max_response", 1 << 20, |text| {
                    let bytes = units::size(text)?;
                    store.as_deref().map_or(Ok(bytes), |store| stores::fits(store, bytes))
                })
            },
            response_patience: self.read("buffer_response", Options::default().response_patience, |text| {
                units::span(text, Duration::ZERO, Duration::from_secs(3600))
            }),
            headers: StoredHeaders {
                allow: self.list("keep_headers", header),
                deny: self.list("drop_headers", header),
            },
            settings: Some(settings),
            ..Options::default()
        };
        let ask = ask.and_then(|given| {
            let path = ask_path(&given.text());
            self.problems.take(&given.source, path)
        });
        self.check_ask(on_lapse, ask.is_some(), token.is_some());
        Rules { options, ask, token }
    }

    /// What a route says and would not do.
    fn check_unused(&mut self, on_lapse: OnLapse, key: &KeyFrom, has_token: bool) {
        let Some(route) = self.route else { return };
        let told = [
            (
                "ask_after",
                !matches!(on_lapse, OnLapse::Ask { .. }),
                "ask_after is never used: add on_lapse = \"ask\"",
            ),
            ("missing", has_token, "missing: a call of this route always needs a token; leave missing out"),
            (
                "fingerprint",
                matches!(key, KeyFrom::Form(_)),
                "fingerprint: it names members of a JSON body, and the key is in a form; leave it out for the whole body",
            ),
        ];
        for (name, is_unused, why) in told {
            if let Some(given) = route.values.get(name).filter(|_| is_unused) {
                self.problems.add(&given.source, why);
            }
        }
        let names = |name: &str| route.values.get(name).map(|given| given.parts.clone()).unwrap_or_default();
        let dropped = names("drop_headers");
        for name in names("keep_headers") {
            let source = route.values.get("keep_headers").map_or(&route.source, |given| &given.source);
            let name = name.trim().to_ascii_lowercase();
            if OF_ONE_CONNECTION.contains(&name.as_str()) {
                self.problems.add(
                    source,
                    format!("keep_headers: {name} is never kept: it is made anew for every answer"),
                );
            }
            if dropped.iter().any(|dropped| dropped.trim().eq_ignore_ascii_case(&name)) {
                self.problems
                    .add(source, format!("{name} is both in keep_headers and in drop_headers; take one out"));
            }
        }
    }

    fn check_order(&mut self, order: Order, key: &KeyFrom) {
        if order == Order::Increasing
            && !matches!(key, KeyFrom::Sequence(_))
            && let Some(given) = self.find("order").cloned()
        {
            self.problems.add(&given.source, "order: only numbers have one: add key = \"sequence\"");
        }
    }

    fn check_ask(&mut self, on_lapse: OnLapse, has_ask: bool, has_token: bool) {
        let Some(route) = self.route else { return };
        if let (Some(given), true) = (route.values.get("ask"), has_token) {
            self.problems.add(
                &given.source,
                "ask: with key = \"token\" there is no {key} that your service could know; use another key, or on_lapse = \"hold\"",
            );
            return;
        }
        match (matches!(on_lapse, OnLapse::Ask { .. }), route.values.contains_key("ask")) {
            (true, false) => self.problems.add(
                &route.source,
                "on_lapse is \"ask\", and there is nothing to ask: add ask = \"GET /path/{key}\"",
            ),
            (false, true) if has_ask => {
                self.problems.add(&route.source, "ask is never used: add on_lapse = \"ask\"");
            }
            _ => {}
        }
    }

    fn fingerprint(&mut self) -> FingerprintOf {
        let members = self.list("fingerprint", |pointer| Ok(pointer.to_owned()));
        if members.is_empty() { FingerprintOf::Everything } else { FingerprintOf::Json(members) }
    }
}

pub(super) fn one_of<T: Clone>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
    found.ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        format!("unknown value {text:?}; {}", hint(text, &names))
    })
}

pub(super) fn yes(text: &str) -> Result<bool, String> {
    one_of(text, &[("true", true), ("false", false)])
}

/// Those that change something, and can be made idempotent.
const PROTECTED: [&str; 4] = ["POST", "PATCH", "PUT", "DELETE"];
/// Those that change nothing.
const SAFE: [&str; 5] = ["GET", "HEAD", "OPTIONS", "CONNECT", "TRACE"];

/// A method that calls are protected with, in any case of letters.
pub(super) fn method(text: &str) -> Result<Method, String> {
    let name = text.trim().to_ascii_uppercase();
    if SAFE.contains(&name.as_str()) {
        return Err(format!(
            "{name} changes nothing and can't be made idempotent; name POST, PATCH, PUT or DELETE"
        ));
    }
    known_method(&name, &PROTECTED)
}

/// Any method.
pub(super) fn any_method(text: &str) -> Result<Method, String> {
    known_method(&text.trim().to_ascii_uppercase(), &[&PROTECTED[..], &SAFE].concat())
}

fn known_method(name: &str, known: &[&str]) -> Result<Method, String> {
    let found = known.contains(&name).then(|| Method::from_bytes(name.as_bytes()).ok()).flatten();
    found.ok_or_else(|| format!("{name:?} is not a method; {}", hint(name, known)))
}

/// A path as callers send it, in the spelling in which paths are compared: what is not ASCII is percent-encoded.
pub(super) fn path_as_sent(text: &str) -> Result<String, String> {
    let path = text.trim();
    if !path.starts_with('/') {
        return Err(format!("{text:?} must begin with a slash"));
    }
    if let Some((before, _)) = path.split_once(['?', '#']) {
        return Err(format!(
            "{text:?} is more than a path: a query and a fragment do not count; write {before:?}"
        ));
    }
    if path.contains(char::is_whitespace) {
        let written = path.split_whitespace().collect::<Vec<_>>().join("%20");
        return Err(format!("{text:?} has a space in it, which no path has; write {written:?}"));
    }
    let encoded = percent_encoding::utf8_percent_encode(path, percent_encoding::CONTROLS).to_string();
    let parses = encoded.replace(['{', '}'], "x").parse::<http::uri::PathAndQuery>();
    parses.map_err(|_| format!("{text:?} is not a path"))?;
    Ok(spelled_pattern(&encoded).into_owned())
}

/// A pattern such as `POST /orders/{id}` as the layer matches it, or why no request could.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    let Some((name, path)) = text.trim().split_once(char::is_whitespace) else {
        return Err(format!(
            "the route {text:?} must be a method and a path, such as \"POST /orders/{{id}}\""
        ));
    };
    let wrong = |why: String| format!("the route {text:?} never matches: {why}");
    let method = match name {
        "*" | "ANY" | "any" => Err("a route has one method; write a [[route]] for each of them".into()),
        name => method(name),
    };
    let path = path_as_sent(path).map_err(wrong)?;
    let method = method.map_err(wrong)?;
    if path.starts_with(OWN) {
        return Err(wrong(format!("{OWN}… is the gateway's own")));
    }
    Ok(format!("{method} {path}"))
}

fn header(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_| format!("{text:?} is not the name of a header"))
}

/// Headers that belong to one connection, or are made anew for every answer: never kept, whatever a list says.
pub(crate) const OF_ONE_CONNECTION: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The name of a header that may hold a key. Some have a meaning of their own for everybody who reads them.
fn key_header(text: &str) -> Result<HeaderName, String> {
    let name = header(text)?;
    let is_taken = ["host", "cookie", "expect"].contains(&name.as_str())
        || OF_ONE_CONNECTION.contains(&name.as_str())
        || name.as_str().starts_with("content-");
    if is_taken {
        return Err(format!(
            "{name} has a meaning of its own and is no place for a key; write header:NAME with another name"
        ));
    }
    Ok(name)
}

fn told(text: &str) -> Result<Told, String> {
    match text.split_once(':') {
        None if text == "token" => Ok(Told::ByToken(TokenPlace::default())),
        Some(("token", "")) => Err("token: needs the name of a field behind it, or write just token".into()),
        Some(("token", field)) => Ok(Told::ByToken(TokenPlace { field: Some(field.to_owned()) })),
        _ => key_from(text).map(Told::ByKey),
    }
}

fn key_from(text: &str) -> Result<KeyFrom, String> {
    match text.split_once(':') {
        None if text == "header" => Ok(KeyFrom::default()),
        None if text == "sequence" => Ok(KeyFrom::Sequence(SEQUENCE)),
        Some(("sequence", name)) => key_header(name).map(KeyFrom::Sequence),
        Some(("header", name)) => key_header(name).map(KeyFrom::Header),
        Some(("json", pointer)) => Ok(KeyFrom::Json(pointer.into())),
        Some(("form", field)) => Ok(KeyFrom::Form(field.into())),
        Some(("query", parameter)) => Ok(KeyFrom::Query(parameter.into())),
        _ => Err(format!(
            "{text:?} is no place for a key; write header, header:NAME, json:/order_id, form:_once, query:request_id, sequence or token"
        )),
    }
}

fn ask_path(text: &str) -> Result<String, String> {
    let example = "write for instance ask = \"GET /payments/by-key/{key}\"";
    let Some(path) = text.strip_prefix("GET ") else {
        return Err(format!("ask: asking must change nothing, so it is a GET; {example}"));
    };
    if !path.starts_with('/') || !path.contains("{key}") {
        // Not repeated: somebody may have written a URL with a password.
        return Err(format!("ask must be a path with {{key}} in it, and not a URL; {example}"));
    }
    // Everything but the key must be a path already.
    let sample = path.replace("{key}", "k");
    sample.parse::<http::uri::PathAndQuery>().map_err(|_| format!("ask is not a path; {example}"))?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_where_ask_wants_a_path_is_not_repeated() {
        for text in ["GET http://u:hunter2@ledger/{key}", "GET /{key} hunter2"] {
            let why = ask_path(text).unwrap_err();
            assert!(
                why.contains("ask = \"GET /payments/by-key/{key}\"") && !why.contains("hunter2"),
                "{why}"
            );
        }
    }
}
