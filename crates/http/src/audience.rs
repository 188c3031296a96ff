//! Who reads a refusal: a program, or a person whose browser has sent a form.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::language::Language;
use crate::weighted::weighted;

/// How a refusal is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Audience {
    pub(crate) language: Language,
    /// A page, and not a JSON document.
    pub(crate) wants_page: bool,
}

impl Audience {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self { language: Language::of(headers), wants_page: wants_page(headers) }
    }
}

/// Browsers name HTML, and like it best, when they show the answer; `fetch` and other programs do not name it at all.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut best = (0.0, "");
    for (kind, weight) in accept.split(',').filter_map(weighted) {
        if weight > best.0 {
            best = (weight, kind);
        }
    }
    best.1.eq_ignore_ascii_case("text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_for_who_likes_it_best() {
        for (accept, expected) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("text/html; charset=utf-8", true),
            ("application/json;q=0.5, text/html", true),
            ("text/html;q=0", false),
            ("text/html;q=0.1, application/json", false),
            ("application/json, text/html", false),
            ("*/*", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(Audience::of(&headers).wants_page, expected, "{accept}");
        }
    }
}
