//! Who reads a refusal: a program, or a person whose browser has sent a form.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::language::Language;

/// How a refusal is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Audience {
    pub(crate) language: Language,
    /// A page, and not a JSON document.
    pub(crate) wants_page: bool,
}

impl Audience {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        // Browsers name HTML first when they show the answer; `fetch` and other programs do not name it at all.
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let wants_page = accept.split(',').next().is_some_and(|first| first.trim().starts_with("text/html"));
        Self { language: Language::of(headers), wants_page }
    }
}
