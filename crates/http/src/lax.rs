//! Requests that some services take for another method or path than they name, and that would so get past the rules of a route.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, Method};

use crate::routes::{Route, Routes};
use crate::{pairs, path};

/// Why nobody can be sure which rules a request falls under.
pub(crate) fn ambiguity(routes: &Routes, parts: &Parts, own: Option<&Arc<Route>>) -> Option<String> {
    let method = parts.method.as_str();
    // Methods have a case, and there are services that do not know it.
    if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let upper = method.to_ascii_uppercase();
        if Method::from_bytes(upper.as_bytes())
            .is_ok_and(|method| routes.named(&method, &path::of(parts)).is_some())
        {
            return Some(format!("some services take its method {method} for {upper}; write {upper}"));
        }
    }
    // A form may be sent with its method in the query.
    let query = parts.uri.query().unwrap_or_default();
    let is_other = |method: &str| Replaces::Method.leads_elsewhere(routes, parts, method, own);
    if pairs::all_alike(query.as_bytes(), "_method").any(|value| methods_in(&value).any(is_other)) {
        return Some(
            "some services read the method from _method in its query, and other rules hold there".into(),
        );
    }
    parts.headers.keys().find_map(|name| {
        let replaces = Replaces::of(name)?;
        let values = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        // Some services take the first of a list, others the last.
        let mut pieces = values.flat_map(|value| std::iter::once(value).chain(value.split([',', ';'])));
        let other = pieces.any(|piece| replaces.leads_elsewhere(routes, parts, piece.trim(), own));
        other.then(|| {
            format!("some services read {} from {name}, and other rules hold there", replaces.what())
        })
    })
}

/// What services may read in a value that stands for a method: some trim it, some cut it at a NUL, some take one of a list.
fn methods_in(value: &[u8]) -> impl Iterator<Item = &str> {
    let words = value.split(|byte| !byte.is_ascii_alphanumeric() && !b"-_".contains(byte));
    words.filter_map(|word| std::str::from_utf8(word).ok()).filter(|word| !word.is_empty())
}

/// Whether some services go by this header instead of the method or path of a request, for instance `X-HTTP-Method-Override`.
#[must_use]
pub fn stands_in_for_target(name: &HeaderName) -> bool {
    Replaces::of(name).is_some()
}

/// What a header stands in for, to services that heed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaces {
    Method,
    Path,
}

impl Replaces {
    fn of(name: &HeaderName) -> Option<Self> {
        let name = name.as_str();
        // Most names are told by their length.
        if !name.starts_with('x') || !matches!(name.len(), 13 | 14 | 17 | 22) {
            return None;
        }
        match name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-").as_str() {
            "x-http-method-override" | "x-http-method" | "x-method-override" => Some(Self::Method),
            "x-original-url" | "x-rewrite-url" => Some(Self::Path),
            _ => None,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Method => "the method",
            Self::Path => "the path",
        }
    }

    /// Whether such a service would see a call under other rules, or one that nobody can be sure about.
    fn leads_elsewhere(self, routes: &Routes, parts: &Parts, value: &str, own: Option<&Arc<Route>>) -> bool {
        if self == Self::Path && path::has_hidden_steps(&path::spelled(path_of(value))) {
            return true;
        }
        self.route(routes, parts, value).is_some_and(|route| own.is_none_or(|own| !Arc::ptr_eq(own, route)))
    }

    /// The route of the call that such a service would see.
    fn route<'a>(self, routes: &'a Routes, parts: &Parts, value: &str) -> Option<&'a Arc<Route>> {
        match self {
            Self::Method => {
                let method = Method::from_bytes(value.to_ascii_uppercase().as_bytes()).ok()?;
                routes.named(&method, &path::of(parts))
            }
            Self::Path => {
                let path = path_of(value.split(['?', '#']).next().unwrap_or_default());
                let rooted = if path.starts_with('/') { path.into() } else { format!("/{path}") };
                routes.named(&parts.method, &path::spelled(&rooted))
            }
        }
    }
}

/// The path of a URL, with or without scheme and authority.
fn path_of(url: &str) -> &str {
    let is_scheme =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    match url.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_the_path_behind_its_authority() {
        for (url, path) in [
            ("/pay", "/pay"),
            ("https://shop/pay", "/pay"),
            ("HTTP://user@shop:80/a/b", "/a/b"),
            ("https://shop", "/"),
            ("/to/https://shop/pay", "/to/https://shop/pay"),
            ("pay", "pay"),
        ] {
            assert_eq!(path_of(url), path);
        }
    }
}
