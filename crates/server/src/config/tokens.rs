//! One-time tokens: of which kind, for how long, and signed with what.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onlyonce::token::TokenKeys;

use super::{rules, units};
use crate::masked;
use crate::secret::{self, About};

/// How tokens are made.
#[derive(Debug, Clone)]
pub(crate) struct TokenSettings {
    pub(crate) kind: TokenKind,
    pub(crate) ttl: Duration,
    pub(crate) secrets: Secrets,
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// It carries all that is needed to judge it; issuing stores nothing.
    Signed,
    /// It is kept in the store from when it is issued.
    Stored,
    /// The same, and deleted before the call runs, of which there is no record.
    DeleteFirst,
}

/// What tokens are signed with.
#[derive(Debug, Clone)]
pub(crate) enum Secrets {
    Given(TokenKeys),
    /// In this file, which is made if it is not there.
    File(PathBuf),
    /// Nobody said.
    Nowhere,
}

pub(crate) const ABOUT: About = About {
    name: "the token secret",
    elsewhere: "name another place with --token-secret-file, or set ONLYONCE_TOKEN_SECRET",
};

impl TokenKind {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let known = [("signed", Self::Signed), ("stored", Self::Stored), ("delete_first", Self::DeleteFirst)];
        rules::one_of(text, &known)
    }
}

pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    units::span(text, Duration::from_secs(1), Duration::from_secs(24 * 3600))
}

/// The keys in a file, one `ID:SECRET` a line.
pub(crate) fn read_keys(file: &Path) -> Result<TokenKeys, String> {
    let text = secret::read(file, ABOUT).map_err(|failure| failure.to_string())?;
    parse_keys(text.lines()).map_err(|why| format!("{}: {why}", masked::file(file)))
}

/// Keys, the one that signs first. A secret without an id has the id 1. What is wrong is told without what was given.
pub(crate) fn parse_keys<'a>(texts: impl Iterator<Item = &'a str>) -> Result<TokenKeys, String> {
    let mut keys: Option<TokenKeys> = None;
    for text in texts.map(str::trim).filter(|text| !text.is_empty() && !text.starts_with('#')) {
        let (id, secret) = split(text)?;
        let added = match keys {
            None => TokenKeys::new(id, secret),
            Some(keys) => keys.also(id, secret),
        };
        keys = Some(added.map_err(|error| error.to_string())?);
    }
    keys.ok_or_else(|| "there is no secret; write ID:SECRET, with at least 32 random bytes".into())
}

/// A text without an id may be one whose id was mistyped, so a colon always has one before it.
fn split(text: &str) -> Result<(u32, &str), String> {
    let (id, secret) = match text.split_once(':') {
        None => (1, text),
        Some((id, secret)) => {
            let id = Some(id).filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()));
            let id = id.and_then(|id| id.parse().ok()).ok_or(
                "what stands before the colon of a secret is its id, a number up to 4294967295; write ID:SECRET, for instance 1:… with \
                 at least 32 random bytes",
            )?;
            (id, secret)
        }
    };
    if secret.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Err(format!(
            "the secret of token key {id} has white space or a control character in it; write it without"
        ));
    }
    Ok((id, secret))
}

/// The id alone.
pub(super) fn masked(text: &str) -> String {
    split(text).map_or_else(|_| masked::NOTHING.into(), |(id, _)| format!("{id}:{}", masked::NOTHING))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn secrets_have_ids_that_differ_and_are_long() {
        let keys = |texts: &[String]| parse_keys(texts.iter().map(String::as_str));
        assert!(keys(&[format!("2:{LONG}"), format!("1:{LONG}x")]).is_ok());
        assert!(keys(&[LONG.to_owned()]).is_ok());
        assert!(keys(&[LONG.to_owned(), format!("1:{LONG}")]).is_err_and(|why| why.contains("the id 1")));
        assert!(
            keys(&["7:short".to_owned()]).is_err_and(|why| why.contains("32") && !why.contains("short\""))
        );
        assert!(keys(&[]).is_err());
        for wrong in ["a:", ":", "-1:", "+1:", "4294967296:", "1 :", "1: ", "1:a\tb"] {
            let why = keys(&[format!("{wrong}{LONG}")]).unwrap_err();
            assert!(why.contains("write") && !why.contains(LONG), "{wrong}: {why}");
        }
    }

    #[test]
    fn only_the_id_is_shown() {
        assert_eq!(masked(&format!("7:{LONG}")), "7:***");
        assert_eq!(masked(LONG), "1:***");
        assert_eq!(masked(&format!("a:{LONG}")), "***");
    }
}
