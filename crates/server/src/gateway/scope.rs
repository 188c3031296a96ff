//! On whose behalf a request is made, as the configuration says.

use std::fmt;
use std::sync::Arc;

use axum::extract::Query;
use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::request::Parts;
use http::{HeaderName, Method};
use onlyonce::Scope;
use onlyonce::http::{Caller, ScopeFrom, spelled_path};

use super::cookies;
use super::front::OWN;
use super::jwt::Verifier;
use crate::config::{Forward, name_of};

/// What the scope is made of; empty for one scope for all.
#[derive(Debug)]
pub(crate) struct ScopeRule {
    parts: Vec<Part>,
    jwt: Option<Verifier>,
    /// Where a host has an upstream of its own, the same path there and elsewhere is not the same call.
    forwards: Arc<[Forward]>,
    /// Whether one of them has a host.
    by_host: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Header(HeaderName),
    Cookie(String),
    Jwt(String),
}

/// What one part of the scope says about a request, or why it says nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Says(String),
    Absent(String),
    /// It is there, and nobody can be sure what it says.
    Unclear(String),
    /// It does not verify.
    Denied(String),
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

    /// # Errors
    /// Every part that is wrong.
    pub(crate) fn parse(
        names: &[String],
        jwt: Option<Verifier>,
        forwards: &Arc<[Forward]>,
    ) -> Result<Self, Vec<String>> {
        let by_host = forwards.iter().any(|forward| forward.host.is_some());
        let forwards = Arc::clone(forwards);
        if names == ["none"] {
            return Ok(Self { parts: Vec::new(), jwt: None, forwards, by_host });
        }
        if names.iter().all(|name| name.is_empty()) {
            return Err(vec![Self::CHOICES.into()]);
        }
        let (mut parts, mut wrong) = (Vec::new(), Vec::new());
        for name in names {
            match Part::parse(name) {
                Ok(part) if parts.contains(&part) => wrong.push(format!("{name:?} is there twice")),
                Ok(part) => parts.push(part),
                Err(why) => wrong.push(why),
            }
        }
        if jwt.is_none() && parts.iter().any(|part| matches!(part, Part::Jwt(_))) {
            wrong.push("jwt: needs a key to verify tokens with: set key or jwks in [scope.jwt] (--jwt-key, --jwt-jwks), and algorithms".into());
        }
        let several = jwt.as_ref().is_some_and(|jwt| jwt.issuers() > 1);
        if several && names_without_issuer(&parts) {
            wrong.push(format!(
                "{} issuers may call two callers the same, and one would get the answers of the other; write --scope jwt:iss,{}",
                jwt.as_ref().map_or(0, Verifier::issuers),
                names.join(",")
            ));
        }
        if wrong.is_empty() { Ok(Self { parts, jwt, forwards, by_host }) } else { Err(wrong) }
    }

    /// What the operator should know at start.
    pub(crate) fn warnings(&self) -> Vec<&'static str> {
        let authorization = self.parts.contains(&Part::Header(http::header::AUTHORIZATION));
        let warning = "the scope is the authorization header: a refreshed token is another scope, so a retry after a refresh runs again; prefer jwt:sub";
        let mut warnings = if authorization { vec![warning] } else { Vec::new() };
        if self.jwt.as_ref().is_some_and(Verifier::takes_any_issuer) && names_without_issuer(&self.parts) {
            warnings.push("the key set may have keys of several issuers, who may call two callers the same: name the issuer that is meant with --jwt-issuer, or write --scope jwt:iss,jwt:…");
        }
        warnings
    }

    /// Whether a part of it is in a bearer token.
    pub(crate) fn reads_tokens(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Jwt(_)))
    }

    /// The headers that it is read from.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.parts.iter().map(|part| match part {
            Part::Header(name) => name,
            Part::Cookie(_) => &COOKIE,
            Part::Jwt(_) => &AUTHORIZATION,
        })
    }

    pub(crate) fn finder(self: Arc<Self>) -> ScopeFrom {
        ScopeFrom::with(move |request| self.find(request))
    }

    fn find(&self, request: &Parts) -> Caller {
        let host = self.host_that_counts(request);
        if self.parts.is_empty() {
            return match host {
                Some(host) => Scope::new(&host).into(),
                None => Caller::Known(Scope::shared()),
            };
        }
        let (mut said, mut missing) = (Vec::with_capacity(self.parts.len() + 1), Vec::new());
        for part in &self.parts {
            match part.find(request, self.jwt.as_ref()) {
                Word::Says(text) => said.push(Some(text)),
                Word::Absent(why) => {
                    said.push(None);
                    missing.push(why);
                }
                Word::Unclear(why) => return Caller::Absent(why.into()),
                Word::Denied(why) => return Caller::Denied(why.into()),
            }
        }
        // The host alone says nothing about the caller.
        if said.iter().all(Option::is_none) {
            return Caller::Absent(missing.join(", and ").into());
        }
        said.extend(host.map(Some));
        Scope::from_parts(said.iter().map(Option::as_deref)).into()
    }

    /// The host, if it decides on the upstream. Others do not count, so that a host that gets an upstream leaves their calls as they are.
    fn host_that_counts(&self, request: &Parts) -> Option<String> {
        if !self.by_host {
            return None;
        }
        let name = name_of(host(request)?);
        let taken_by = |method: &Method, path: &str| {
            let path = spelled_path(path);
            self.forwards.iter().find(|forward| forward.matches(method, Some(&name), &path))
        };
        let forward = if request.uri.path().starts_with(OWN) {
            // It is about another request, which it names.
            let (method, path) = named_in_query(request)?;
            taken_by(&method, &path)
        } else {
            taken_by(&request.method, request.uri.path())
        };
        forward.is_some_and(|forward| forward.host.is_some()).then(|| name.into_owned())
    }

    /// The scopes that a person may mean by their parts, in the order of the configuration, for searching.
    pub(crate) fn named(&self, text: &str) -> Vec<Scope> {
        named(text, self.parts.len().max(1))
    }
}

/// Whether claims count, and who made them does not.
fn names_without_issuer(parts: &[Part]) -> bool {
    let is_claim = |part: &Part| matches!(part, Part::Jwt(_));
    let is_issuer = |part: &Part| matches!(part, Part::Jwt(claim) if claim == "iss");
    parts.iter().any(is_claim) && !parts.iter().any(is_issuer)
}

/// The scopes that a person may mean by a text: one name, or parts with commas between them, of which there are at least so many.
pub(crate) fn named(text: &str, parts: usize) -> Vec<Scope> {
    let split = text.split(',').map(|part| Some(part.trim()).filter(|part| !part.is_empty()));
    let missing = parts.saturating_sub(split.clone().count());
    let several = Scope::from_parts(split.chain(std::iter::repeat_n(None, missing)));
    // A name may have a comma in it.
    let one = Scope::new(text).ok();
    let several = several.ok().filter(|several| one.as_ref() != Some(several));
    one.into_iter().chain(several).collect()
}

/// The method and the path that a question is about.
fn named_in_query(request: &Parts) -> Option<(Method, String)> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&request.uri).ok()?;
    let find = |name: &str| pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
    let method = find("method").map_or(Ok(Method::POST), |name| name.to_ascii_uppercase().parse());
    Some((method.ok()?, find("path")?))
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
            // The one that the service gets, wherever it was named.
            Self::Header(HOST) if let Some(host) = host(request) => {
                Word::of(host.as_bytes(), format_args!("the host"))
            }
            Self::Header(name) => {
                let mut values = request.headers.get_all(name).iter();
                match (values.next(), values.next()) {
                    (None, _) => Word::Absent(format!("the header {name} is missing")),
                    (Some(value), None) => Word::of(value.as_bytes(), format_args!("the header {name}")),
                    _ => Word::Unclear(format!("the header {name} is there more than once")),
                }
            }
            Self::Cookie(name) => cookies::find(&request.headers, name),
            Self::Jwt(claim) => match jwt {
                Some(verifier) => verifier.claim(&request.headers, claim),
                None => Word::Absent("there is no key to verify tokens with".into()),
            },
        }
    }
}

impl Word {
    /// What these bytes say.
    pub(crate) fn of(value: &[u8], what: fmt::Arguments<'_>) -> Self {
        let is_visible = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
        match std::str::from_utf8(value) {
            Ok("") => Self::Absent(format!("{what} is empty")),
            Ok(text) if value.iter().all(is_visible) => Self::Says(text.to_owned()),
            _ => Self::Unclear(format!("{what} is not visible ASCII; send it percent-encoded, or as an id")),
        }
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
    use crate::config::Target;

    fn caller(rule: &[&str], headers: &[(&str, &str)]) -> Caller {
        find(rule, &(Arc::new([]) as Arc<[Forward]>), "/", headers)
    }

    fn find(rule: &[&str], forwards: &Arc<[Forward]>, uri: &str, headers: &[(&str, &str)]) -> Caller {
        let names: Vec<String> = rule.iter().map(ToString::to_string).collect();
        let rule = ScopeRule::parse(&names, None, forwards).unwrap();
        let request = headers
            .iter()
            .fold(http::Request::post(uri), |request, (name, value)| request.header(*name, *value));
        rule.find(&request.body(()).unwrap().into_parts().0)
    }

    fn forwards(host: &str, path: Option<&str>) -> Arc<[Forward]> {
        Arc::new([Forward {
            host: Some(host.into()),
            path: path.map(Into::into),
            methods: vec![Method::POST],
            target: Target::parse("http://h").unwrap(),
            source: crate::config::Source::Nowhere,
        }])
    }

    #[test]
    fn a_part_that_is_there_twice_is_never_guessed() {
        let rule = ["header:x-tenant", "cookie:sid"];
        assert!(matches!(caller(&rule, &[("x-tenant", "a")]), Caller::Known(_)));
        let absent = |headers: &[(&str, &str)], why: &str| {
            assert_eq!(caller(&rule, headers), Caller::Absent(why.to_owned().into()));
        };
        absent(&[("x-tenant", "a"), ("x-tenant", "b")], "the header x-tenant is there more than once");
        absent(
            &[("x-tenant", "a"), ("cookie", "sid=1; sid=2")],
            "the cookie sid is there more than once, at least to some services",
        );
        absent(
            &[("cookie", "other=1"), ("x-tenant", "")],
            "the header x-tenant is empty, and the cookie sid is missing",
        );
    }

    #[test]
    fn the_place_of_a_part_counts() {
        let rule = ["header:x-tenant", "cookie:sid"];
        assert_ne!(caller(&rule, &[("x-tenant", "a")]), caller(&rule, &[("cookie", "sid=a")]));
    }

    #[test]
    fn a_host_counts_where_it_has_an_upstream_of_its_own_and_nowhere_else() {
        let all = forwards("*.example", None);
        let at = |host| find(&["none"], &all, "/", &[("host", host)]);
        assert_ne!(at("a.example"), at("b.example"));
        for same in ["A.example", "a.example:80", "a.example:8080", "a.example.", "A.EXAMPLE.:1"] {
            assert_eq!(at("a.example"), at(same), "{same}");
        }
        assert_eq!((at("x"), at("y")), (Caller::Known(Scope::shared()), Caller::Known(Scope::shared())));
        let tenant = [("host", "x"), ("x-tenant", "t")];
        assert_eq!(find(&["header:x-tenant"], &all, "/", &tenant), caller(&["header:x-tenant"], &tenant));
        let nobody = find(&["header:x-tenant"], &all, "/", &[("host", "a.example")]);
        assert!(matches!(nobody, Caller::Absent(_)), "{nobody:?}");
    }

    #[test]
    fn a_question_has_the_scope_of_the_call_that_it_is_about() {
        let some = forwards("a.example", Some("/v2"));
        let at = |uri: &str| find(&["none"], &some, uri, &[("host", "a.example")]);
        assert_ne!(at("/v1"), at("/v2/x"));
        assert_eq!(at("/%762/x"), at("/v2/x"));
        assert_eq!(at("/_onlyonce/outcome?method=post&path=%2Fv2%2Fx"), at("/v2/x"));
        assert_eq!(at("/_onlyonce/outcome?path=/v2/x"), at("/v2/x"));
        assert_eq!(at("/_onlyonce/outcome?path=/v1"), at("/v1"));
        assert_eq!(at("/_onlyonce/outcome?method=PUT&path=/v2"), at("/v1"));
    }

    #[test]
    fn every_wrong_word_is_told() {
        let parse = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            ScopeRule::parse(&names, None, &(Arc::new([]) as Arc<[Forward]>))
        };
        for wrong in ["tenant", "header:", "cookie:", "jwt:", "header:a b", "jwt:sub"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
        assert!(parse(&["none", "header:a"]).is_err());
        assert_eq!(parse(&["tenant", "header:a", "user"]).unwrap_err().len(), 2);
    }
}
