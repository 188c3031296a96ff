//! Bearer tokens, verified: pinned algorithms, a known key, and a time that is not over.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, JwkSet, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};

use super::claims::{self, Claims};
use super::scope::Word;
use crate::masked;

/// Verifies tokens.
pub(crate) struct Verifier {
    keys: Vec<Known>,
    algorithms: Vec<Algorithm>,
    issuer: Vec<String>,
    audience: Vec<String>,
    /// Some of the keys are of a set, in which those of several issuers may be.
    of_set: bool,
}

/// A key, and which tokens it is for.
struct Known {
    id: Option<String>,
    algorithm: Option<KeyAlgorithm>,
    key: DecodingKey,
}

/// Where keys are, and what is accepted.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    pub(crate) key: Option<&'a Path>,
    pub(crate) jwks: Option<&'a Path>,
    pub(crate) algorithms: &'a [String],
    pub(crate) issuer: &'a [String],
    pub(crate) audience: &'a [String],
}

impl Verifier {
    pub(crate) fn load(files: &Files<'_>) -> Result<Self, String> {
        if files.algorithms.is_empty() {
            return Err("[scope.jwt] names no algorithms: pin those that your tokens use, for instance algorithms = [\"RS256\"]".into());
        }
        let algorithms = files
            .algorithms
            .iter()
            .map(|name| name.parse().map_err(|_| format!("{name:?} is not a JWT algorithm; there are HS256, RS256, PS256, ES256, EdDSA and their larger forms")))
            .collect::<Result<Vec<Algorithm>, _>>()?;
        let mut keys = Vec::new();
        if let Some(path) = files.key {
            for algorithm in &algorithms {
                keys.push(Known {
                    id: None,
                    algorithm: Some((*algorithm).into()),
                    key: key(path, *algorithm)?,
                });
            }
        }
        if let Some(path) = files.jwks {
            keys.extend(jwks(path, &algorithms)?);
        }
        if keys.is_empty() {
            return Err("there is no key that tokens could be verified with".into());
        }
        let (issuer, audience) = (files.issuer.to_vec(), files.audience.to_vec());
        Ok(Self { keys, algorithms, issuer, audience, of_set: files.jwks.is_some() })
    }

    /// How many issuers are accepted, if they are named.
    pub(crate) fn issuers(&self) -> usize {
        self.issuer.iter().collect::<HashSet<_>>().len()
    }

    /// Whether tokens of several issuers may be accepted, none of whom is named.
    pub(crate) fn takes_any_issuer(&self) -> bool {
        self.of_set && self.issuer.is_empty()
    }

    /// What the bearer token of a request says about `claim`.
    pub(crate) fn claim(&self, headers: &HeaderMap, claim: &str) -> Word {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let token = match (values.next(), values.next()) {
            (None, _) => return Word::Absent("there is no bearer token".into()),
            (Some(value), None) => value.to_str().ok(),
            _ => return Word::Denied("there are several Authorization headers".into()),
        };
        let Some(token) = token else { return Word::Denied("the Authorization header is not text".into()) };
        let (scheme, token) = token.trim().split_once([' ', '\t']).unwrap_or((token, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            // Credentials of another kind, which are not ours to judge.
            return Word::Absent("there is no bearer token".into());
        }
        match self.verify(token.trim()) {
            Err(why) => Word::Denied(why.into()),
            Ok(claims) => claims::word(&claims, claim),
        }
    }

    /// The claims of a token, or why it does not hold. Nothing about its claims is told before its signature is verified.
    fn verify(&self, token: &str) -> Result<Claims, &'static str> {
        let head = decode_header(token).map_err(|_| "the token is not a JWT")?;
        if head.crit.is_some() {
            return Err("the token has extensions that must be understood (crit), and none are");
        }
        if !self.algorithms.contains(&head.alg) {
            return Err("the algorithm of the token is not accepted");
        }
        let mut rules = Validation::new(head.alg);
        rules.validate_nbf = true;
        rules.validate_aud = !self.audience.is_empty();
        if !self.audience.is_empty() {
            rules.set_audience(&self.audience);
            rules.required_spec_claims.insert("aud".into());
        }
        if !self.issuer.is_empty() {
            rules.set_issuer(&self.issuer);
            rules.required_spec_claims.insert("iss".into());
        }
        let fits = |known: &&Known| {
            (known.id.is_none() || head.kid.is_none() || known.id == head.kid)
                && known.algorithm.is_none_or(|algorithm| algorithm == KeyAlgorithm::from(head.alg))
                && known.key.family() == head.alg.family()
        };
        let mut why = "no key is known that the token could be signed with";
        for known in self.keys.iter().filter(fits) {
            match decode::<Claims>(token, &known.key, &rules) {
                Ok(data) => return Ok(data.claims),
                Err(error) => {
                    let reason = reason(error.kind());
                    // A key that verifies the signature says more than those that do not.
                    if why != UNSIGNED && reason != UNSIGNED {
                        return Err(reason);
                    }
                    why = reason;
                }
            }
        }
        Err(why)
    }
}

const UNSIGNED: &str = "the signature of the token does not verify";

/// Why a token was not accepted, without what would have been.
fn reason(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::MissingRequiredClaim(claim) => match claim.as_str() {
            "exp" => "the token has no exp",
            "aud" => "the token has no aud",
            "iss" => "the token has no iss",
            _ => "the token lacks a claim",
        },
        ErrorKind::InvalidClaimFormat(_) => "a time in the token is not a number",
        ErrorKind::Json(_) | ErrorKind::Utf8(_) => {
            "the claims of the token can't be read, or one is there twice"
        }
        _ => UNSIGNED,
    }
}

fn key(path: &Path, algorithm: Algorithm) -> Result<DecodingKey, String> {
    let shown = masked::file(path);
    let bytes = std::fs::read(path).map_err(|error| masked::unreadable("the JWT key", path, &error))?;
    let key = match algorithm {
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => {
            let secret = bytes.trim_ascii();
            if secret.starts_with(b"-----BEGIN") {
                return Err(format!(
                    "{shown} holds a public key, which must not be used as the secret of {algorithm:?}"
                ));
            }
            if secret.len() < 16 {
                return Err(format!("the secret in {shown} is shorter than 16 bytes and can be guessed"));
            }
            return Ok(DecodingKey::from_secret(secret));
        }
        Algorithm::ES256 | Algorithm::ES384 => DecodingKey::from_ec_pem(&bytes),
        Algorithm::EdDSA => DecodingKey::from_ed_pem(&bytes),
        _ => DecodingKey::from_rsa_pem(&bytes),
    };
    key.map_err(|error| format!("{shown} is not a PEM public key for {algorithm:?}: {error}"))
}

fn jwks(path: &Path, algorithms: &[Algorithm]) -> Result<Vec<Known>, String> {
    let shown = masked::file(path);
    let text = std::fs::read_to_string(path).map_err(|error| masked::unreadable("the JWKS", path, &error))?;
    // The parser's own words repeat what it found, which may be a secret.
    let set: JwkSet = serde_json::from_str(&text).map_err(|error| {
        format!("{shown} is not a JWKS, from line {}, column {} on", error.line(), error.column())
    })?;
    // Keys for other purposes, or of kinds that are not known, do not spoil the rest.
    let usable = set.keys.iter().filter(|jwk| verifies(jwk, algorithms)).filter_map(|jwk| {
        let common = &jwk.common;
        Some(Known {
            id: common.key_id.clone(),
            algorithm: common.key_algorithm,
            key: DecodingKey::from_jwk(jwk).ok()?,
        })
    });
    let usable: Vec<Known> = usable.collect();
    if usable.is_empty() {
        return Err(format!(
            "none of the {} keys in {shown} may verify signatures of {algorithms:?}: look at their kty, use, key_ops and alg",
            set.keys.len()
        ));
    }
    Ok(usable)
}

/// Whether a key is there to verify signatures with, as far as it says what it is for.
fn verifies(jwk: &Jwk, algorithms: &[Algorithm]) -> bool {
    let common = &jwk.common;
    let for_signatures =
        common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    let to_verify =
        common.key_operations.as_ref().is_none_or(|allowed| allowed.contains(&KeyOperations::Verify));
    let accepted =
        |algorithm: KeyAlgorithm| algorithms.iter().any(|pinned| KeyAlgorithm::from(*pinned) == algorithm);
    for_signatures && to_verify && common.key_algorithm.is_none_or(accepted)
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("algorithms", &self.algorithms).finish_non_exhaustive()
    }
}
