//! The language of messages to people.

use http::header::{ACCEPT_LANGUAGE, HeaderMap};

use crate::weighted::weighted;

/// A language in which problems are explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// 简体中文.
    Chinese,
}

impl Language {
    /// The language that the client likes best of those that there are; English if it does not say.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
        let wishes = values.flat_map(|value| value.split(',')).filter_map(wish);
        let mut best = (0.0, Self::English);
        for (language, weight) in wishes {
            if weight > best.0 {
                best = (weight, language);
            }
        }
        best.1
    }

    /// The tag for `Content-Language`.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh-CN",
        }
    }
}

/// One entry of `Accept-Language`, such as `zh-CN;q=0.8`.
fn wish(entry: &str) -> Option<(Language, f32)> {
    let (tag, weight) = weighted(entry)?;
    let language = match tag.to_ascii_lowercase().split('-').next()? {
        "en" | "*" => Language::English,
        "zh" => Language::Chinese,
        _ => return None,
    };
    Some((language, weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_liked_language_wins() {
        for (value, expected) in [
            ("zh-CN,zh;q=0.9,en;q=0.8", Language::Chinese),
            ("en-GB, zh;q=0.9", Language::English),
            ("fr, zh;q=0.5, en;q=0.4", Language::Chinese),
            ("fr", Language::English),
            ("zh;q=0", Language::English),
            ("zh-Hans", Language::Chinese),
            ("*, zh;q=0.1", Language::English),
            ("zh;q=rubbish", Language::English),
            ("", Language::English),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_LANGUAGE, value.parse().unwrap());
            assert_eq!(Language::of(&headers), expected, "{value}");
        }
    }
}
