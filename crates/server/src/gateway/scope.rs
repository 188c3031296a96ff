//! On whose behalf a request is made, as the configuration says.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::header::{COOKIE, HOST};
use http::request::Parts;
use onlyonce::Scope;
use onlyonce::http::{Caller, ScopeFrom};

use super::jwt::{Claim, Verifier};

/// What the scope is made of; empty for one scope for all.
#[derive(Debug)]
pub(crate) struct ScopeRule {
    parts: Vec<Part>,
    jwt: Option<Verifier>,
    /// Where hosts have different upstreams, the same path on two hosts is not the same call.
    by_host: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Header(HeaderName),
    Cookie(String),
    Jwt(String),
}

/// What one part of the scope says about a request.
enum Word {
    Says(String),
    Absent,
    /// It is there twice: nobody knows which one is meant.
    Ambiguous,
    Denied,
}

impl ScopeRule {
    pub(crate) const CHOICES: &str = "\
--scope is missing: it says who a caller is, so that two callers with the same key never share an answer. Choose one:
  --scope header:NAME    a header that your authentication sets, for instance header:x-tenant
  --scope cookie:NAME    a session cookie
  --scope jwt:CLAIM      a claim of the bearer token, for instance jwt:sub; verified with --jwt-key or --jwt-jwks
  --scope A,B            several of these together
  --scope none           one scope for all: only where keys can't be guessed and answers are not personal
There is no default, because it would either mix tenants or break retries after a token refresh.";

    pub(crate) fn parse(names: &[String], jwt: Option<Verifier>, by_host: bool) -> Result<Self, String> {
        if names == ["none"] {
            return Ok(Self { parts: Vec::new(), jwt: None, by_host });
        }
        if names.is_empty() {
            return Err(Self::CHOICES.into());
        }
        let parts = names.iter().map(|name| Part::parse(name)).collect::<Result<Vec<_>, _>>()?;
        if jwt.is_none() && parts.iter().any(|part| matches!(part, Part::Jwt(_))) {
            return Err("jwt: needs a key to verify tokens with: set key or jwks in [scope.jwt] (--jwt-key, --jwt-jwks), and algorithms".into());
        }
        Ok(Self { parts, jwt, by_host })
    }

    /// What the operator should know at start.
    pub(crate) fn warnings(&self) -> Vec<&'static str> {
        let authorization = self.parts.contains(&Part::Header(http::header::AUTHORIZATION));
        let warning = "the scope is the authorization header: a refreshed token is another scope, so a retry after a refresh runs again; prefer jwt:sub";
        if authorization { vec![warning] } else { Vec::new() }
    }

    pub(crate) fn finder(self: Arc<Self>) -> ScopeFrom {
        ScopeFrom::with(move |request| self.find(request))
    }

    fn find(&self, request: &Parts) -> Caller {
        let host = self.by_host.then(|| host(request).unwrap_or_default().to_ascii_lowercase());
        if self.parts.is_empty() {
            return match host {
                Some(host) => {
                    Scope::from_parts([Some(host.as_str()).filter(|host| !host.is_empty())]).ok().into()
                }
                None => Caller::Known(Scope::shared()),
            };
        }
        let mut said = Vec::with_capacity(self.parts.len() + 1);
        for part in &self.parts {
            match part.find(request, self.jwt.as_ref()) {
                Word::Says(text) => said.push(Some(text)),
                Word::Absent => said.push(None),
                Word::Ambiguous => return Caller::Absent,
                Word::Denied => return Caller::Denied,
            }
        }
        // The host alone says nothing about the caller.
        if said.iter().all(Option::is_none) {
            return Caller::Absent;
        }
        said.extend(host.map(|host| Some(host).filter(|host| !host.is_empty())));
        Scope::from_parts(said.iter().map(Option::as_deref)).ok().into()
    }

    /// The scope that a person means by its parts, in the order of the configuration, for searching.
    pub(crate) fn named(&self, text: &str) -> Option<Scope> {
        if self.parts.len() < 2 && !self.by_host {
            return Scope::new(text).ok();
        }
        Scope::from_parts(text.split(',').map(|part| Some(part.trim()).filter(|part| !part.is_empty()))).ok()
    }
}

/// The host that a request is for: in HTTP/2 it is part of the target.
pub(crate) fn host(request: &Parts) -> Option<&str> {
    let named = request.headers.get(HOST).and_then(|value| value.to_str().ok());
    request.uri.authority().map(http::uri::Authority::as_str).or(named)
}

impl Part {
    fn parse(name: &str) -> Result<Self, String> {
        match name.split_once(':') {
            Some(("header", name)) => {
                name.parse().map(Self::Header).map_err(|_| format!("{name:?} is not the name of a header"))
            }
            Some(("cookie", name)) if !name.is_empty() => Ok(Self::Cookie(name.into())),
            Some(("jwt", claim)) if !claim.is_empty() => Ok(Self::Jwt(claim.into())),
            _ if name == "none" => Err("\"none\" stands alone".into()),
            _ => Err(format!("{name:?} is none of header:NAME, cookie:NAME, jwt:CLAIM, none")),
        }
    }

    fn find(&self, request: &Parts, jwt: Option<&Verifier>) -> Word {
        match self {
            Self::Header(name) => one(request.headers.get_all(name).iter().map(|value| value.to_str().ok())),
            Self::Cookie(name) => {
                let cookies = request.headers.get_all(COOKIE);
                let pairs =
                    cookies.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
                let named =
                    pairs.filter_map(|pair| pair.trim().split_once('=')).filter(|pair| pair.0 == name);
                one(named.map(|pair| Some(pair.1)))
            }
            Self::Jwt(claim) => match jwt.map(|verifier| verifier.claim(&request.headers, claim)) {
                Some(Claim::Says(text)) => Word::Says(text),
                Some(Claim::Denied) => Word::Denied,
                Some(Claim::Absent) | None => Word::Absent,
            },
        }
    }
}

/// The one value there is. One that is not text can't be compared, and counts as ambiguous.
fn one<'a>(mut values: impl Iterator<Item = Option<&'a str>>) -> Word {
    match (values.next(), values.next()) {
        (None, _) | (Some(Some("")), None) => Word::Absent,
        (Some(Some(text)), None) => Word::Says(text.to_owned()),
        _ => Word::Ambiguous,
    }
}

impl fmt::Display for ScopeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.is_empty() {
            return f.write_str("none");
        }
        for (n, part) in self.parts.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            match part {
                Part::Header(name) => write!(f, "{comma}header:{name}")?,
                Part::Cookie(name) => write!(f, "{comma}cookie:{name}")?,
                Part::Jwt(claim) => write!(f, "{comma}jwt:{claim}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(rule: &[&str], by_host: bool, headers: &[(&str, &str)]) -> Caller {
        let names: Vec<String> = rule.iter().map(ToString::to_string).collect();
        let rule = ScopeRule::parse(&names, None, by_host).unwrap();
        let request = headers
            .iter()
            .fold(http::Request::post("/"), |request, (name, value)| request.header(*name, *value));
        rule.find(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_part_that_is_there_twice_is_never_guessed() {
        let rule = ["header:x-tenant", "cookie:sid"];
        assert!(matches!(caller(&rule, false, &[("x-tenant", "a")]), Caller::Known(_)));
        assert_eq!(caller(&rule, false, &[("x-tenant", "a"), ("x-tenant", "b")]), Caller::Absent);
        assert_eq!(caller(&rule, false, &[("x-tenant", "a"), ("cookie", "sid=1; sid=2")]), Caller::Absent);
        assert_eq!(caller(&rule, false, &[("cookie", "other=1"), ("x-tenant", "")]), Caller::Absent);
    }

    #[test]
    fn the_place_of_a_part_counts() {
        let rule = ["header:x-tenant", "cookie:sid"];
        assert_ne!(caller(&rule, false, &[("x-tenant", "a")]), caller(&rule, false, &[("cookie", "sid=a")]));
    }

    #[test]
    fn hosts_with_upstreams_of_their_own_do_not_share_records() {
        let at = |host| caller(&["none"], true, &[("host", host)]);
        assert_ne!(at("a.example"), at("b.example"));
        assert_eq!(at("a.example"), at("A.example"));
        assert_eq!(caller(&["header:x-tenant"], true, &[("host", "a")]), Caller::Absent);
    }

    #[test]
    fn wrong_words_are_refused() {
        for wrong in ["tenant", "header:", "cookie:", "jwt:", "header:a b", "jwt:sub"] {
            assert!(ScopeRule::parse(&[wrong.to_owned()], None, false).is_err(), "{wrong}");
        }
        assert!(ScopeRule::parse(&["none".to_owned(), "header:a".to_owned()], None, false).is_err());
    }
}
