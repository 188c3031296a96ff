//! Scopes that are claims of verified tokens.

use std::path::Path;
use std::process::Command;

use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::client::{Answer, Request};
use crate::program::{Gateway, Setup};
use crate::stores::key;
use crate::upstream::Upstream;

const LATER: i64 = 99_999_999_999;

fn openssl(arguments: &[&str]) -> Vec<u8> {
    let done = Command::new("openssl").args(arguments).output().expect("openssl is needed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

/// A new private key for an algorithm, and its public key, both as PEM.
fn pair(algorithm: Algorithm) -> (EncodingKey, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    let kind: &[&str] = match algorithm {
        Algorithm::ES256 => &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        Algorithm::EdDSA => &["-algorithm", "ED25519"],
        _ => &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    };
    let private = openssl(&[&["genpkey"], kind].concat());
    std::fs::write(&file, &private).unwrap();
    let public = openssl(&["pkey", "-pubout", "-in", file.to_str().unwrap()]);
    let private = match algorithm {
        Algorithm::ES256 => EncodingKey::from_ec_pem(&private),
        Algorithm::EdDSA => EncodingKey::from_ed_pem(&private),
        _ => EncodingKey::from_rsa_pem(&private),
    };
    (private.unwrap(), public)
}

fn token(header: &Header, claims: &Value, key: &EncodingKey) -> String {
    encode(header, claims, key).unwrap()
}

fn of(sub: &str) -> Value {
    json!({ "sub": sub, "exp": LATER })
}

fn gateway(upstream: &Upstream, home: &Path, words: &[&[&str]]) -> Gateway {
    let setup = Setup::new("memory:", upstream).home(home).with(&["--scope", "jwt:sub"]);
    words.iter().fold(setup, |setup, words| setup.with(words)).start()
}

fn pay(gateway: &Gateway, token: &str, key: &str) -> Answer {
    let request = Request::new("POST", "/pay").header("idempotency-key", key).body("x");
    request.header("authorization", &format!("Bearer {token}")).send(gateway.address)
}

#[test]
fn keys_of_every_kind_verify_and_another_key_of_the_same_kind_does_not() {
    for (algorithm, name) in [
        (Algorithm::RS256, "RS256"),
        (Algorithm::PS256, "PS256"),
        (Algorithm::ES256, "ES256"),
        (Algorithm::EdDSA, "EdDSA"),
    ] {
        let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
        let ((right, public), (wrong, _)) = (pair(algorithm), pair(algorithm));
        std::fs::write(home.path().join("public.pem"), public).unwrap();
        let gateway =
            gateway(&upstream, home.path(), &[&["--jwt-key", "public.pem"], &["--jwt-algorithms", name]]);
        let (key, header) = (key("kinds"), Header::new(algorithm));
        assert_eq!(pay(&gateway, &token(&header, &of("ann"), &right), &key).status, 201, "{name}");
        let refreshed = json!({ "sub": "ann", "exp": LATER - 1 });
        assert!(pay(&gateway, &token(&header, &refreshed, &right), &key).is_replayed(), "{name}");
        assert!(!pay(&gateway, &token(&header, &of("bob"), &right), &key).is_replayed(), "{name}");
        let denied = pay(&gateway, &token(&header, &of("ann"), &wrong), &key);
        let challenge = denied.is(401, "scope-denied").header("www-authenticate");
        assert_eq!(challenge, Some("Bearer error=\"invalid_token\""));
        // Signed rightly, and changed afterwards.
        let (good, other) = (token(&header, &of("ann"), &right), token(&header, &of("eve"), &right));
        let parts = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        let (good, other) = (parts(&good), parts(&other));
        pay(&gateway, &format!("{}.{}.{}", good[0], other[1], good[2]), &key).is(401, "scope-denied");
        assert_eq!(upstream.effects(), 2, "{name}");
    }
}

#[test]
fn a_public_key_is_never_taken_for_a_secret() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let (_, public) = pair(Algorithm::RS256);
    std::fs::write(home.path().join("public.pem"), &public).unwrap();
    let gateway =
        gateway(&upstream, home.path(), &[&["--jwt-key", "public.pem"], &["--jwt-algorithms", "RS256"]]);
    // Everybody knows the public key: a token that is "signed" with it as a secret proves nothing.
    for secret in [public.as_slice(), public.trim_ascii()] {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let forged = token(&Header::new(algorithm), &of("ann"), &EncodingKey::from_secret(secret));
            pay(&gateway, &forged, &key("confused")).is(401, "scope-denied");
        }
    }
    assert_eq!(upstream.effects(), 0);
    // Nor can the gateway be set up so.
    let setup = Setup::new("memory:", &upstream).home(home.path()).with(&["--scope", "jwt:sub"]);
    let (code, said) =
        setup.with(&["--jwt-key", "public.pem"]).with(&["--jwt-algorithms", "RS256,HS256"]).fails();
    assert!(code == 2 && said.contains("must not be used as the secret"), "{said}");
}

#[test]
fn keys_of_a_set_are_found_by_their_id_and_only_for_what_they_are_meant() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let ((rsa, _), (ec, _), (sealing, _), (stranger, _)) =
        (pair(Algorithm::RS256), pair(Algorithm::ES256), pair(Algorithm::RS256), pair(Algorithm::RS256));
    let named = |key: &EncodingKey, algorithm, id: &str, purpose| {
        let mut jwk = Jwk::from_encoding_key(key, algorithm).unwrap();
        jwk.common.key_id = Some(id.to_owned());
        jwk.common.public_key_use = Some(purpose);
        jwk
    };
    let keys = vec![
        named(&rsa, Algorithm::RS256, "one", PublicKeyUse::Signature),
        named(&ec, Algorithm::ES256, "two", PublicKeyUse::Signature),
        named(&sealing, Algorithm::RS256, "seal", PublicKeyUse::Encryption),
    ];
    let mut set = serde_json::to_value(JwkSet { keys }).unwrap();
    // A kind of key that nobody here knows does not spoil the others.
    set["keys"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "kty": "OKP", "crv": "X448", "kid": "strange", "x": "AA" }));
    std::fs::write(home.path().join("keys.json"), set.to_string()).unwrap();
    let words: [&[&str]; 2] = [&["--jwt-jwks", "keys.json"], &["--jwt-algorithms", "RS256,ES256"]];
    let gateway = gateway(&upstream, home.path(), &words);
    let signed = |algorithm, id: Option<&str>, key: &EncodingKey| {
        token(&Header { kid: id.map(str::to_owned), ..Header::new(algorithm) }, &of("ann"), key)
    };
    for good in [
        signed(Algorithm::RS256, Some("one"), &rsa),
        signed(Algorithm::ES256, Some("two"), &ec),
        signed(Algorithm::RS256, None, &rsa),
    ] {
        assert_eq!(pay(&gateway, &good, &key("set")).status, 201);
    }
    for bad in [
        signed(Algorithm::RS256, Some("two"), &rsa),
        signed(Algorithm::RS256, Some("three"), &rsa),
        signed(Algorithm::RS256, Some("seal"), &sealing),
        signed(Algorithm::RS256, None, &sealing),
        signed(Algorithm::RS256, Some("one"), &stranger),
        signed(Algorithm::PS256, Some("one"), &rsa),
    ] {
        pay(&gateway, &bad, &key("set")).is(401, "scope-denied");
    }
    assert_eq!(upstream.effects(), 3);
}

#[test]
fn a_token_for_somebody_else_of_somebody_else_or_of_another_time_is_denied() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let (private, public) = pair(Algorithm::ES256);
    std::fs::write(home.path().join("public.pem"), public).unwrap();
    let words: [&[&str]; 4] = [
        &["--jwt-key", "public.pem"],
        &["--jwt-algorithms", "ES256"],
        &["--jwt-issuer", "https://issuer.example"],
        &["--jwt-audience", "shop"],
    ];
    let gateway = gateway(&upstream, home.path(), &words);
    let good =
        json!({ "sub": "ann", "exp": LATER, "iss": "https://issuer.example", "aud": ["shop", "bank"] });
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.to_owned(), value),
        };
        pay(&gateway, &token(&Header::new(Algorithm::ES256), &claims, &private), &key("claims"))
    };
    assert_eq!(with("iat", json!(1)).status, 201);
    for (name, value) in [
        ("aud", json!("bank")),
        ("aud", Value::Null),
        ("iss", json!("https://other.example")),
        ("iss", Value::Null),
        ("exp", json!(1_000_000_000)),
        ("exp", Value::Null),
        ("nbf", json!(LATER - 1)),
    ] {
        with(name, value.clone()).is(401, "scope-denied");
    }
    // It verifies, and does not say who it is about.
    with("sub", Value::Null).is(400, "scope-missing");
    assert_eq!(upstream.effects(), 1);
}

#[test]
fn a_token_that_does_not_verify_is_denied_and_never_taken_for_absent() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("secret"), "a-secret-that-is-long-enough\n").unwrap();
    let gateway = Setup::new("memory:", &upstream)
        .home(home.path())
        .with(&["--scope", "jwt:sub"])
        .with(&["--jwt-key", "secret"])
        .with(&["--jwt-algorithms", "HS256"])
        .start();
    let token = |sub: &str, expires: i64, secret: &str, algorithm| {
        let claims = serde_json::json!({ "sub": sub, "exp": expires });
        let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
        jsonwebtoken::encode(&jsonwebtoken::Header::new(algorithm), &claims, &key).unwrap()
    };
    use jsonwebtoken::Algorithm::{HS256, HS384};
    let (secret, later) = ("a-secret-that-is-long-enough", 99_999_999_999);
    let pay = |token: &str, key: &str| {
        let request = Request::new("POST", "/pay").header("idempotency-key", key).body("x");
        request.header("authorization", &format!("Bearer {token}")).send(gateway.address)
    };
    let key = key("jwt");
    let first = pay(&token("ann", later, secret, HS256), &key);
    assert_eq!(first.status, 201);
    let refreshed = pay(&token("ann", later - 1, secret, HS256), &key);
    assert!(refreshed.is_replayed(), "a refreshed token is the same caller");
    assert!(!pay(&token("bob", later, secret, HS256), &key).is_replayed());
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJhbm4iLCJleHAiOjk5OTk5OTk5OTk5fQ.";
    for wrong in [
        token("ann", 1_000_000_000, secret, HS256).as_str(),
        &token("ann", later, "another-secret-long-enough", HS256),
        &token("ann", later, secret, HS384),
        none,
        "nonsense",
        "",
    ] {
        pay(wrong, &key).is(401, "scope-denied");
    }
    Request::new("POST", "/pay")
        .header("idempotency-key", &key)
        .body("x")
        .send(gateway.address)
        .is(400, "scope-missing");
    assert_eq!(upstream.effects(), 2);
}

const SECRET: &str = "a-secret-that-is-long-enough";

/// A gateway whose callers are named by a claim of tokens that are signed with [`SECRET`].
fn by_claim(upstream: &Upstream, home: &Path, claim: &str) -> Gateway {
    std::fs::write(home.join("secret"), SECRET).unwrap();
    let scope = format!("jwt:{claim}");
    gateway(upstream, home, &[&["--scope", &scope], &["--jwt-key", "secret"], &["--jwt-algorithms", "HS256"]])
}

/// A token of these claims, letter by letter.
fn signed(head: &str, claims: &str) -> String {
    use jsonwebtoken::crypto::sign;
    let message = format!("{}.{}", base64_url(head.as_bytes()), base64_url(claims.as_bytes()));
    let signature =
        sign(message.as_bytes(), &EncodingKey::from_secret(SECRET.as_bytes()), Algorithm::HS256).unwrap();
    format!("{message}.{signature}")
}

fn base64_url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letters = bytes.chunks(3).flat_map(|piece| {
        let number =
            (0..3).fold(0, |number, at| number << 8 | u32::from(piece.get(at).copied().unwrap_or(0)));
        (0..=piece.len()).map(move |at| char::from(LETTERS[(number >> (18 - 6 * at) & 63) as usize]))
    });
    letters.collect()
}

const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

#[test]
fn claims_that_differ_are_two_callers_however_alike_they_look() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let gateway = by_claim(&upstream, home.path(), "tenant");
    let (key, tenants) = (
        key("numbers"),
        [
            "42",
            "\"42\"",
            "\"=42\"",
            "-42",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551617",
            "18446744073709551999",
            "184467440737095516170000000000",
        ],
    );
    let call = |tenant: &str| {
        pay(&gateway, &signed(HS256, &format!("{{\"exp\":{LATER},\"tenant\":{tenant}}}")), &key)
    };
    for replayed in [false, true] {
        for tenant in tenants {
            let answer = call(tenant);
            assert_eq!((answer.status, answer.is_replayed()), (201, replayed), "{tenant}");
        }
    }
    assert_eq!(upstream.effects(), tenants.len());
    for nobody in ["1.5", "1e3", "true", "null", "[42]", "{}", "\"\""] {
        let told = call(nobody);
        assert!(told.is(400, "scope-missing").text().contains("claim tenant"), "{}", told.text());
    }
    // Two services could read it differently.
    call("1,\"tenant\":2").is(401, "scope-denied");
    assert_eq!(upstream.effects(), tenants.len());
}

#[test]
fn a_token_with_an_extension_that_must_be_understood_is_denied() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let gateway = by_claim(&upstream, home.path(), "sub");
    let claims = format!("{{\"exp\":{LATER},\"sub\":\"ann\"}}");
    assert_eq!(pay(&gateway, &signed(HS256, &claims), &key("crit")).status, 201);
    for crit in ["[\"b64\"],\"b64\":false", "[\"exp\"],\"exp\":1", "[]", "\"b64\"", "[\"x\"]", "[\"alg\"]"] {
        let head = format!("{{\"alg\":\"HS256\",\"crit\":{crit}}}");
        pay(&gateway, &signed(&head, &claims), &key("crit")).is(401, "scope-denied");
    }
    assert_eq!(upstream.effects(), 1);
}

#[test]
fn whose_token_does_not_hold_is_told_why_and_so_is_the_log() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    std::fs::write(home.path().join("secret"), SECRET).unwrap();
    // Of many refusals only one now and then is told at the usual level.
    let gateway = Setup::new("memory:", &upstream)
        .home(home.path())
        .variable("RUST_LOG", "debug")
        .with(&["--scope", "jwt:sub"])
        .with(&["--jwt-key", "secret"])
        .with(&["--jwt-algorithms", "HS256"])
        .with(&["--jwt-issuer", "the-issuer"])
        .with(&["--jwt-audience", "the-shop"])
        .start();
    let claims = |changes: &[(&str, Value)]| {
        let mut claims = json!({ "sub": "ann", "exp": LATER, "iss": "the-issuer", "aud": "the-shop" });
        for (name, value) in changes {
            match value {
                Value::Null => claims.as_object_mut().unwrap().remove(*name),
                value => claims.as_object_mut().unwrap().insert((*name).to_owned(), value.clone()),
            };
        }
        claims.to_string()
    };
    assert_eq!(pay(&gateway, &signed(HS256, &claims(&[])), &key("why")).status, 201);
    let good = signed(HS256, &claims(&[]));
    for (token, why) in [
        (signed(HS256, &claims(&[("exp", json!(1))])), "the token has expired"),
        (signed(HS256, &claims(&[("exp", Value::Null)])), "the token has no exp"),
        (signed(HS256, &claims(&[("nbf", json!(LATER))])), "the token is not valid yet"),
        (signed(HS256, &claims(&[("aud", json!("other"))])), "the token is for another audience"),
        (signed(HS256, &claims(&[("aud", Value::Null)])), "the token has no aud"),
        (signed(HS256, &claims(&[("iss", json!("other"))])), "the token is of another issuer"),
        (signed("{\"alg\":\"HS384\"}", &claims(&[])), "the algorithm of the token is not accepted"),
        (format!("{good}x"), "the signature of the token does not verify"),
        ("nonsense".into(), "the token is not a JWT"),
    ] {
        let told = pay(&gateway, &token, &key("why"));
        assert!(told.is(401, "scope-denied").text().contains(why), "{why}: {}", told.text());
        assert_eq!(told.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        assert!(gateway.log().contains(why), "{why}");
        assert!(!told.text().contains("the-issuer") && !told.text().contains("the-shop"), "{}", told.text());
    }
    let nobody = Request::new("POST", "/pay").header("idempotency-key", &key("why")).body("x");
    let told = nobody.send(gateway.address);
    assert!(told.is(400, "scope-missing").text().contains("there is no bearer token"), "{}", told.text());
    let told = pay(&gateway, &signed(HS256, &claims(&[("sub", Value::Null)])), &key("why"));
    assert!(told.is(400, "scope-missing").text().contains("the token has no claim sub"), "{}", told.text());
}

#[test]
fn a_key_of_a_set_verifies_only_what_it_says_it_is_for() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let (private, _) = pair(Algorithm::RS256);
    let jwk = |changes: Value| {
        let mut jwk =
            serde_json::to_value(Jwk::from_encoding_key(&private, Algorithm::RS256).unwrap()).unwrap();
        jwk.as_object_mut().unwrap().remove("alg");
        jwk.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        jwk
    };
    let start = |keys: Value| {
        std::fs::write(home.path().join("keys.json"), json!({ "keys": keys }).to_string()).unwrap();
        Setup::new("memory:", &upstream)
            .home(home.path())
            .with(&["--scope", "jwt:sub"])
            .with(&["--jwt-jwks", "keys.json"])
            .with(&["--jwt-algorithms", "RS256,PS256"])
    };
    let other =
        serde_json::to_value(Jwk::from_encoding_key(&pair(Algorithm::RS256).0, Algorithm::RS256).unwrap())
            .unwrap();
    let call = |gateway: &Gateway, algorithm| {
        pay(gateway, &token(&Header::new(algorithm), &of("ann"), &private), &key("meant")).status
    };
    for (changes, rs, ps) in [
        (json!({}), 201, 201),
        (json!({ "use": "sig", "key_ops": ["verify"] }), 201, 201),
        (json!({ "key_ops": ["sign", "verify"] }), 201, 201),
        (json!({ "alg": "RS256" }), 201, 401),
        (json!({ "alg": "PS256" }), 401, 201),
        (json!({ "alg": "PS512" }), 401, 401),
        (json!({ "alg": "RSA-OAEP" }), 401, 401),
        (json!({ "alg": "something-new" }), 401, 401),
        (json!({ "use": "enc" }), 401, 401),
        (json!({ "use": "tls" }), 401, 401),
        (json!({ "key_ops": ["encrypt"] }), 401, 401),
        (json!({ "key_ops": ["sign"] }), 401, 401),
        (json!({ "key_ops": [] }), 401, 401),
        (json!({ "use": "sig", "key_ops": ["encrypt", "wrapKey"] }), 401, 401),
        (json!({ "use": "enc", "key_ops": ["verify"] }), 401, 401),
    ] {
        let gateway = start(json!([jwk(changes.clone()), other])).start();
        assert_eq!(
            (call(&gateway, Algorithm::RS256), call(&gateway, Algorithm::PS256)),
            (rs, ps),
            "{changes}"
        );
    }
    // A set of which nothing is left is no set.
    let (code, said) = start(json!([jwk(json!({ "key_ops": ["encrypt"] }))])).fails();
    assert!(code == 2 && said.contains("key_ops"), "{said}");
}

#[test]
fn a_name_that_two_issuers_may_give_is_no_scope_without_the_issuer() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    std::fs::write(home.path().join("secret"), "x".repeat(40)).unwrap();
    let setup = |scope: &str, issuers: &str| {
        let setup = Setup::new("memory:", &upstream).home(home.path()).with(&["--scope", scope]);
        let setup = setup.with(&["--jwt-key", "secret"]).with(&["--jwt-algorithms", "HS256"]);
        setup.with(&["--jwt-issuer", issuers])
    };
    for more in [&[][..], &["--check"]] {
        for scope in ["jwt:sub", "jwt:tenant", "header:x-tenant,jwt:sub"] {
            let setup = setup(scope, "https://a,https://b");
            let (code, said) = if more.is_empty() { setup } else { setup.with(more) }.fails();
            assert!(code == 2 && said.contains("--scope") && said.contains("jwt:iss,"), "{said}");
        }
    }
    for (scope, issuers) in [("jwt:sub", "https://a"), ("jwt:sub", "https://a,https://a")] {
        assert!(!setup(scope, issuers).start().log().contains("WARN"));
    }
    let gateway = setup("jwt:iss,jwt:sub", "https://a,https://b").start();
    assert!(!gateway.log().contains("WARN"), "{}", gateway.log());
    let (key, secret) = (key("issuers"), EncodingKey::from_secret("x".repeat(40).as_bytes()));
    let of = |issuer: &str| {
        token(&Header::new(Algorithm::HS256), &json!({ "sub": "1", "iss": issuer, "exp": LATER }), &secret)
    };
    assert_eq!(pay(&gateway, &of("https://a"), &key).status, 201);
    assert!(!pay(&gateway, &of("https://b"), &key).is_replayed());
    assert!(pay(&gateway, &of("https://a"), &key).is_replayed());
}

#[test]
fn a_key_set_without_an_issuer_is_warned_about() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let (private, _) = pair(Algorithm::RS256);
    let set = JwkSet { keys: vec![Jwk::from_encoding_key(&private, Algorithm::RS256).unwrap()] };
    std::fs::write(home.path().join("jwks.json"), serde_json::to_vec(&set).unwrap()).unwrap();
    let warned = |more: &[&[&str]]| {
        let words = [&["--jwt-jwks", "jwks.json"][..], &["--jwt-algorithms", "RS256"]];
        // The log of the one before is there, too.
        let _ = std::fs::remove_file(home.path().join("log"));
        gateway(&upstream, home.path(), &[&words, more].concat()).log().contains("jwt:iss")
    };
    assert!(warned(&[]));
    assert!(!warned(&[&["--jwt-issuer", "https://a"]]));
    assert!(!warned(&[&["--scope", "jwt:iss,jwt:sub"]]));
}
