//! Bearer tokens, verified: pinned algorithms, a known key, and a time that is not over.

use std::fmt;
use std::path::Path;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

/// Verifies tokens.
pub(crate) struct Verifier {
    /// With their id, where they have one.
    keys: Vec<(Option<String>, DecodingKey)>,
    algorithms: Vec<Algorithm>,
    issuer: Vec<String>,
    audience: Vec<String>,
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

/// What a token says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Says(String),
    /// There is no token, or it does not hold this claim.
    Absent,
    /// There is a token, and it does not verify.
    Denied,
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
                keys.push((None, key(path, *algorithm)?));
            }
        }
        if let Some(path) = files.jwks {
            keys.extend(jwks(path)?);
        }
        if keys.is_empty() {
            return Err("there is no key that tokens could be verified with".into());
        }
        Ok(Self { keys, algorithms, issuer: files.issuer.to_vec(), audience: files.audience.to_vec() })
    }

    /// What the bearer token of a request says about `claim`.
    pub(crate) fn claim(&self, headers: &HeaderMap, claim: &str) -> Claim {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let token = match (values.next(), values.next()) {
            (None, _) => return Claim::Absent,
            (Some(value), None) => value.to_str().ok(),
            _ => return Claim::Denied,
        };
        let Some(token) = token else { return Claim::Denied };
        let (scheme, token) = token.split_once(' ').unwrap_or((token, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            // Credentials of another kind, which are not ours to judge.
            return Claim::Absent;
        }
        let token = token.trim();
        match self.verify(token) {
            None => Claim::Denied,
            Some(claims) => match claims.get(claim) {
                Some(Value::String(text)) if !text.is_empty() => Claim::Says(text.clone()),
                Some(Value::Number(number)) => Claim::Says(number.to_string()),
                _ => Claim::Absent,
            },
        }
    }

    fn verify(&self, token: &str) -> Option<Map<String, Value>> {
        let head = decode_header(token).ok()?;
        if !self.algorithms.contains(&head.alg) {
            return None;
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
        let fits = |id: &Option<String>| id.is_none() || head.kid.is_none() || *id == head.kid;
        let candidates = self.keys.iter().filter(|(id, key)| fits(id) && key.family() == head.alg.family());
        candidates
            .into_iter()
            .find_map(|(_, key)| decode::<Map<String, Value>>(token, key, &rules).ok())
            .map(|data| data.claims)
    }
}

fn key(path: &Path, algorithm: Algorithm) -> Result<DecodingKey, String> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| format!("the JWT key {shown} can't be read: {error}"))?;
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

fn jwks(path: &Path) -> Result<Vec<(Option<String>, DecodingKey)>, String> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("the JWKS {shown} can't be read: {error}"))?;
    let set: JwkSet =
        serde_json::from_str(&text).map_err(|error| format!("{shown} is not a JWKS: {error}"))?;
    // Keys for other purposes, or of kinds that are not known, do not spoil the rest.
    Ok(set
        .keys
        .iter()
        .filter(|jwk| signs(jwk))
        .filter_map(|jwk| Some((jwk.common.key_id.clone(), DecodingKey::from_jwk(jwk).ok()?)))
        .collect())
}

fn signs(jwk: &Jwk) -> bool {
    jwk.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("algorithms", &self.algorithms).finish_non_exhaustive()
    }
}
