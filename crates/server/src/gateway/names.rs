//! The headers that identity, routing, conditions and the gateway's own words rest on: one list for all that is asked about them.
//!
//! Nobody may strike them out on the way to the service (`Connection: x-tenant`), say them once more by a name that some services
//! can't tell from theirs (`X_Tenant`: CGI, WSGI and PHP see variables), or say them in a trailer.

use std::borrow::Cow;
use std::collections::HashSet;

use http::HeaderName;
use http::header::{CONNECTION, HeaderMap, TRAILER};
use onlyonce::http::{KeyFrom, stands_in_for_target};

use super::scope::ScopeRule;
use crate::config::Rules;

/// Rested on whatever the configuration says.
const ALWAYS: [&str; 15] = [
    "host",
    "authorization",
    "cookie",
    "transfer-encoding",
    "content-type",
    "content-length",
    "content-encoding",
    "content-range",
    "range",
    "max-forwards",
    "idempotency-key",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];
/// The same by their beginning: the gateway's own words, and conditions.
const BEGINNINGS: [&str; 2] = ["onlyonce-", "if-"];
/// Meant for the service, and about the body. They may come in a trailer (`Content-Digest`), and a name of somebody's own may begin
/// alike (`content_id`); but nobody strikes them out.
const ABOUT_THE_BODY: &str = "content-";

/// Which headers count.
#[derive(Debug)]
pub(crate) struct Names {
    exact: HashSet<String>,
    folded: HashSet<String>,
    /// Whether one of them is not made of letters, digits and dashes, so that a name which is may be its twin.
    has_odd: bool,
}

impl Names {
    pub(crate) fn new<'a>(scope: &ScopeRule, rules: impl Iterator<Item = &'a Rules>) -> Self {
        let keys = rules.filter_map(|rules| match &rules.options.key {
            KeyFrom::Header(name) | KeyFrom::Sequence(name) => Some(name.to_string()),
            KeyFrom::Json(_) | KeyFrom::Query(_) | KeyFrom::Form(_) => None,
        });
        let of_scope = scope.headers().map(ToString::to_string);
        let exact: HashSet<String> =
            ALWAYS.map(String::from).into_iter().chain(keys).chain(of_scope).collect();
        let has_odd = exact.iter().any(|name| folded(name) != name.as_str());
        let folded = exact.iter().map(|name| folded(name).into_owned()).collect();
        Self { exact, folded, has_odd }
    }

    /// Why services could see another request than the one that is judged here.
    pub(crate) fn ambiguity(&self, headers: &HeaderMap) -> Option<String> {
        self.struck_out(headers).or_else(|| self.doubled(headers))
    }

    fn struck_out(&self, headers: &HeaderMap) -> Option<String> {
        headers.get_all(CONNECTION).iter().find_map(|value| {
            let Ok(value) = value.to_str() else { return Some("its Connection can't be read".into()) };
            let mut named =
                value.split(',').map(|name| name.trim_matches([' ', '\t', '"']).to_ascii_lowercase());
            let name = named.find(|name| self.counts(name) || folded(name).starts_with(ABOUT_THE_BODY))?;
            Some(format!("Connection names {name}, without which the service would see another request"))
        })
    }

    fn doubled(&self, headers: &HeaderMap) -> Option<String> {
        let twin = headers.keys().map(HeaderName::as_str).find(|name| self.is_twin(name))?;
        let meant = folded(twin);
        let meant = self.exact.iter().find(|name| folded(name) == meant).map_or(&*meant, |name| name);
        Some(format!("some services can't tell its header {twin} from {meant}"))
    }

    /// Whether a name is another one than that of a header that counts, and the same to some services.
    fn is_twin(&self, name: &str) -> bool {
        let folded = folded(name);
        let is_odd = matches!(folded, Cow::Owned(_));
        let is_alike =
            is_odd && begins_as_one(&folded) || (is_odd || self.has_odd) && self.folded.contains(&*folded);
        is_alike && !self.exact.contains(name)
    }

    /// Whether something rests on a header, in whatever spelling.
    pub(crate) fn counts(&self, name: &str) -> bool {
        let folded = folded(name);
        self.folded.contains(&*folded)
            || begins_as_one(&folded)
            || name.parse().is_ok_and(|name| stands_in_for_target(&name))
    }

    /// Whether a service that takes trailers for headers would see another request than the one that was judged by its headers.
    pub(crate) fn changes_by_trailer(&self, name: &HeaderName) -> bool {
        self.counts(name.as_str()) || *name == TRAILER
    }
}

fn begins_as_one(folded: &str) -> bool {
    BEGINNINGS.iter().any(|beginning| folded.starts_with(beginning))
}

/// Whether a header would make a question without a body another one to some service: about a body, about another method or path, or
/// for a part of the answer only.
pub(super) fn misleads(name: &HeaderName) -> bool {
    let folded = folded(name.as_str());
    folded.starts_with(ABOUT_THE_BODY)
        || folded.starts_with("if-")
        || folded == "range"
        || stands_in_for_target(name)
}

/// A name as services see it that keep headers in variables: nothing but letters and digits tells two apart.
pub(crate) fn folded(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Forward;

    fn names(scope: &str) -> Names {
        let scope = ScopeRule::parse(&[scope.into()], None, &(Arc::new([]) as Arc<[Forward]>)).unwrap();
        Names::new(&scope, std::iter::empty())
    }

    #[test]
    fn a_twin_is_another_name_that_some_services_read_alike() {
        let names = names("header:x-tenant");
        for twin in [
            "x_tenant",
            "x.tenant",
            "onlyonce_fence",
            "onlyonce_anything",
            "idempotency_key",
            "content_length",
            "if_match",
            "if-none_match",
        ] {
            assert!(names.is_twin(twin), "{twin}");
        }
        for own in [
            "x-tenant",
            "onlyonce-token",
            "idempotency-key",
            "x_other",
            "xtenant",
            "x-request-id",
            "if-match",
            "content_id",
        ] {
            assert!(!names.is_twin(own), "{own}");
        }
    }

    #[test]
    fn a_scope_with_an_underscore_has_a_twin_with_a_dash() {
        let names = names("header:x_tenant");
        assert!(names.is_twin("x-tenant") && !names.is_twin("x_tenant"));
    }

    #[test]
    fn a_header_of_the_scope_is_no_twin_of_itself_whatever_it_begins_with() {
        let names = names("header:if_user");
        assert!(!names.is_twin("if_user") && names.is_twin("if-user") && names.is_twin("if.user"));
    }

    #[test]
    fn what_a_request_is_judged_by_may_not_follow_in_a_trailer() {
        let names = names("header:x-tenant");
        let changes = |name| names.changes_by_trailer(&HeaderName::from_static(name));
        for name in [
            "if-match",
            "if_match",
            "if-none-match",
            "x-http-method-override",
            "x_original_url",
            "range",
            "x_tenant",
        ] {
            assert!(changes(name), "{name}");
        }
        for name in ["x-checksum", "content-digest", "grpc-status", "iff"] {
            assert!(!changes(name), "{name}");
        }
    }
}
