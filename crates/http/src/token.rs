//! Routes whose calls need a one-time token instead of a key.

use http::HeaderName;
use http::request::Parts;
use onlyonce_core::token::{Token, Tokens};

use crate::key::is_form;
use crate::pairs;

/// The name of the form field and of the query parameter.
const FIELD: &str = "_once";

/// Where the token of a request is, and who judges it: in a header, else in the query, else in a field of an urlencoded form.
///
/// The subject of a token is the scope of the request, its action the method and path. So the answer to a token that was made
/// for somebody else, or for another form, is the same as to one that was never made.
///
/// ```
/// use onlyonce_core::{Idempotency, MemoryStore, token::{TokenKeys, Tokens}};
/// use onlyonce_http::{IdempotencyLayer, Options, ScopeFrom, TokenRule};
///
/// let once = Idempotency::new(MemoryStore::new());
/// let tokens = Tokens::signed(once.clone(), TokenKeys::random());
/// let layer = IdempotencyLayer::builder(once, ScopeFrom::header("x-user"))
///     .route("POST /orders", Options { token: Some(TokenRule::new(tokens)), ..Options::default() })
///     .build()?;
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone)]
pub struct TokenRule {
    pub(crate) tokens: Tokens,
    pub(crate) header: HeaderName,
    pub(crate) field: Box<str>,
}

/// What there is of a token in a request.
pub(crate) enum Found<'a> {
    Token(std::borrow::Cow<'a, str>),
    Nothing,
    /// Several, or one that is not text: nobody knows which one is meant.
    Unclear,
}

impl TokenRule {
    /// Tokens in the header `Onlyonce-Token`, or under the name `_once` in query or form.
    #[must_use]
    pub fn new(tokens: Tokens) -> Self {
        Self { tokens, header: HeaderName::from_static("onlyonce-token"), field: FIELD.into() }
    }

    /// The header.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// The name of the form field and of the query parameter.
    #[must_use]
    pub fn field(mut self, name: impl Into<Box<str>>) -> Self {
        self.field = name.into();
        self
    }

    /// The hidden field for a server-rendered form: `<input type="hidden" name="_once" value="…">`, to be written unescaped.
    #[must_use]
    pub fn hidden_field(&self, token: &Token) -> String {
        let name = self.field.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
        format!(r#"<input type="hidden" name="{name}" value="{}">"#, token.as_str())
    }

    pub(crate) fn find<'a>(&self, parts: &'a Parts, body: &'a [u8]) -> Found<'a> {
        let mut headers = parts.headers.get_all(&self.header).iter();
        match (headers.next(), headers.next()) {
            (Some(value), None) => {
                return value.to_str().map_or(Found::Unclear, |text| Found::Token(text.into()));
            }
            (Some(_), Some(_)) => return Found::Unclear,
            (None, _) => {}
        }
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let form = if is_form(&parts.headers) { body } else { &[] };
        match (pairs::find(query, &self.field), pairs::find(form, &self.field)) {
            (Ok(None), Ok(None)) => Found::Nothing,
            (Ok(Some(token)), Ok(None)) | (Ok(None), Ok(Some(token))) => Found::Token(token),
            _ => Found::Unclear,
        }
    }
}
