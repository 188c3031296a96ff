//! Every setting there is: its place in the file, its flag, its default. A new setting is one line here.

/// One setting. Its flag is `--name`, its variable `ONLYONCE_NAME`, with `-` for `_` in the one and capitals in the other.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Where it stands in the file.
    pub(crate) path: &'static str,
    /// Its own name, for flag and variable.
    pub(crate) name: &'static str,
    /// What it is if nobody says; empty for nothing.
    pub(crate) default: &'static str,
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    pub(crate) reload: Reload,
}

/// What a change of a setting means to a gateway that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reload {
    /// It counts from the next connection or request on: everything that can change is made anew from the configuration.
    Applies,
    /// It applies, and calls that were answered before are not recognised any more.
    ChangesIdentity,
    /// What is in force stays in force until the next start.
    NextStart,
}

/// What may be shown of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    List,
    /// A URL that may hold a password.
    Url,
    Secret,
    /// Several secrets, each with an id before it, which may be shown.
    Secrets,
}

impl Setting {
    pub(crate) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    pub(crate) fn variable(&self) -> String {
        format!("ONLYONCE_{}", self.name.to_uppercase())
    }
}

const fn plain(
    path: &'static str,
    name: &'static str,
    default: &'static str,
    value: &'static str,
    help: &'static str,
) -> Setting {
    Setting { path, name, default, value, help, kind: Kind::Plain, reload: Reload::Applies }
}

const fn of(kind: Kind, setting: Setting) -> Setting {
    Setting { kind, ..setting }
}

const fn fixed(setting: Setting) -> Setting {
    Setting { reload: Reload::NextStart, ..setting }
}

const fn identity(setting: Setting) -> Setting {
    Setting { reload: Reload::ChangesIdentity, ..setting }
}

/// In the order in which the effective configuration is printed: those without a section first.
pub(crate) const SETTINGS: &[Setting] = &[
    fixed(plain("listen", "listen", "127.0.0.1:8080", "ADDR", "Where callers connect")),
    fixed(plain("admin", "admin", "127.0.0.1:8081", "ADDR", "Where the admin API listens, or \"off\"")),
    fixed(of(
        Kind::Url,
        plain(
            "store",
            "store",
            "embedded:./onlyonce-data",
            "URL",
            "Where records are kept: memory:, embedded:PATH, redis://…, rediss://…, redis-cluster://h1:p,h2:p, redis-sentinel://h1:p,h2:p/NAME, mysql://…, postgres://…, sqlite:PATH (?table=NAME for another table)",
        ),
    )),
    fixed(plain(
        "strict",
        "strict",
        "false",
        "BOOL",
        "Whether a store that may lose what it has acknowledged is refused at start, instead of a warning",
    )),
    of(
        Kind::Url,
        plain(
            "upstream",
            "upstream",
            "",
            "URL",
            "The service to protect: http://, https://, or h2c:// for HTTP/2 without TLS",
        ),
    ),
    of(
        Kind::Secret,
        plain(
            "admin_token",
            "admin_token",
            "",
            "TOKEN",
            "The bearer token of the admin API; better given by ONLYONCE_ADMIN_TOKEN or a file",
        ),
    ),
    plain(
        "admin_token_file",
        "admin_token_file",
        "",
        "FILE",
        "The file with that token; made at first start if it is not there",
    ),
    plain(
        "audit_log",
        "audit_log",
        "",
        "FILE",
        "Where changes to records are written down, with who and why",
    ),
    plain(
        "trust_forwarded",
        "trust_forwarded",
        "false",
        "BOOL",
        "Whether X-Forwarded-Proto and -Host of callers are believed",
    ),
    identity(of(
        Kind::List,
        plain(
            "scope.from",
            "scope",
            "",
            "WHAT",
            "Who a caller is: header:NAME, cookie:NAME, jwt:CLAIM, a comma list of these, or none",
        ),
    )),
    plain(
        "scope.jwt.key",
        "jwt_key",
        "",
        "FILE",
        "The PEM public key that tokens are verified with; for HS algorithms the secret",
    ),
    plain(
        "scope.jwt.jwks",
        "jwt_jwks",
        "",
        "FILE",
        "A JWKS file with the keys that tokens are verified with",
    ),
    of(
        Kind::List,
        plain(
            "scope.jwt.algorithms",
            "jwt_algorithms",
            "",
            "LIST",
            "The algorithms that are accepted, for instance RS256,ES256",
        ),
    ),
    of(
        Kind::List,
        plain(
            "scope.jwt.issuer",
            "jwt_issuer",
            "",
            "LIST",
            "The issuers that are accepted; any, if none is named",
        ),
    ),
    of(
        Kind::List,
        plain(
            "scope.jwt.audience",
            "jwt_audience",
            "",
            "LIST",
            "The audiences that are accepted; any, if none is named",
        ),
    ),
    of(
        Kind::Secrets,
        plain(
            "tokens.secret",
            "token_secret",
            "",
            "ID:SECRET",
            "What one-time tokens are signed with, a comma list: the first signs, the others are still accepted; better given by ONLYONCE_TOKEN_SECRET or a file",
        ),
    ),
    plain(
        "tokens.secret_file",
        "token_secret_file",
        "",
        "FILE",
        "The file with them, one ID:SECRET a line; made at the first start at which a route needs tokens",
    ),
    plain("tokens.kind", "token_kind", "signed", "KIND", "What tokens are: signed, stored or delete_first"),
    plain("tokens.ttl", "token_ttl", "5m", "SPAN", "How long a token is good"),
    plain(
        "defaults.mode",
        "mode",
        "replay",
        "MODE",
        "What a duplicate gets: replay (the same answer) or reject (409)",
    ),
    plain(
        "defaults.lease",
        "lease",
        "30s",
        "SPAN",
        "How long an attempt may be silent; renewed at a third of it",
    ),
    plain("defaults.max_run", "max_run", "10m", "SPAN", "For how long an attempt is renewed"),
    plain("defaults.retain", "retain", "24h", "SPAN", "How long answers are kept, from completion"),
    plain(
        "defaults.retain_unsettled",
        "retain_unsettled",
        "30d",
        "SPAN",
        "How long every other record is kept",
    ),
    plain("defaults.wait", "wait", "0s", "SPAN", "How long a duplicate waits for the first to finish"),
    plain(
        "defaults.on_lapse",
        "on_lapse",
        "hold",
        "WHAT",
        "When an attempt ended without a word: hold, rerun or ask",
    ),
    plain("defaults.on_500", "on_500", "unknown", "WHAT", "What a 500 means: unknown, release or keep"),
    plain("defaults.max_request", "max_request", "1MiB", "SIZE", "The largest body of a request with a key"),
    plain("defaults.max_response", "max_response", "1MiB", "SIZE", "The largest answer that is kept"),
    plain(
        "defaults.buffer_response",
        "buffer_response",
        "5s",
        "SPAN",
        "How long an answer is held back to be kept whole; then, or with 0s at once, it is passed on as it comes and not kept",
    ),
    plain("defaults.missing", "missing", "pass", "WHAT", "A request without a key: pass or reject"),
    plain(
        "defaults.fail_open",
        "fail_open",
        "false",
        "BOOL",
        "Whether requests are passed unprotected while the store is down",
    ),
    of(
        Kind::List,
        plain(
            "defaults.methods",
            "methods",
            "POST,PATCH",
            "LIST",
            "The methods that are protected everywhere; routes add others",
        ),
    ),
    fixed(plain(
        "limits.connections",
        "connections",
        "4096",
        "N",
        "How many connections callers may have open",
    )),
    plain(
        "limits.header_timeout",
        "header_timeout",
        "15s",
        "SPAN",
        "How long the head of a request may take to come",
    ),
    plain(
        "limits.body_timeout",
        "body_timeout",
        "30s",
        "SPAN",
        "How long a body with a key may take, and how long any other may stall",
    ),
    plain(
        "limits.idle_timeout",
        "idle_timeout",
        "60s",
        "SPAN",
        "How long a connection may be without a request",
    ),
    fixed(plain(
        "limits.memory",
        "memory",
        "256MiB",
        "SIZE",
        "The memory for all that is buffered: bodies with a key, answers, what waits for its reader",
    )),
    plain("limits.max_head", "max_head", "64KiB", "SIZE", "The largest head of a request"),
    plain("limits.max_body", "max_body", "unlimited", "SIZE", "The largest body of a request without a key"),
    plain(
        "limits.connect_timeout",
        "connect_timeout",
        "5s",
        "SPAN",
        "How long connecting to an upstream may take",
    ),
    plain(
        "limits.response_timeout",
        "response_timeout",
        "60s",
        "SPAN",
        "How long an upstream may take to begin its answer, and be silent within it",
    ),
    fixed(plain(
        "limits.keep_free",
        "keep_free",
        "64MiB",
        "SIZE",
        "With less room than this on the disk, an embedded store takes no new calls; those that run can still end",
    )),
    plain(
        "limits.upstream_idle",
        "upstream_idle",
        "auto",
        "SPAN",
        "How long a connection to an upstream may have idled that a call with a key uses: auto (learned, 2s at most), or a span; 0s for a fresh one each time",
    ),
    plain("limits.drain", "drain", "30s", "SPAN", "How long requests may go on after SIGTERM"),
    plain("tls.cert", "tls_cert", "", "FILE", "The certificate chain to serve TLS with, as PEM"),
    plain("tls.key", "tls_key", "", "FILE", "Its private key, as PEM"),
    plain(
        "upstream_tls.ca",
        "upstream_ca",
        "",
        "FILE",
        "The authorities to trust for https:// upstreams, as PEM; the system's, if none is named",
    ),
];

/// The keys of a `[[route]]`.
pub(crate) const ROUTE_KEYS: &[&str] = &[
    "match",
    "key",
    "order",
    "missing",
    "mode",
    "lease",
    "max_run",
    "retain",
    "retain_unsettled",
    "wait",
    "on_lapse",
    "on_500",
    "max_request",
    "max_response",
    "buffer_response",
    "ask",
    "ask_after",
    "fail_open",
    "fingerprint",
    "keep_headers",
    "drop_headers",
];

/// The keys of a `[[forward]]`.
pub(crate) const FORWARD_KEYS: &[&str] = &["host", "path", "method", "upstream"];

/// The keys of a `[[route]]` or `[[forward]]` that may be lists.
pub(crate) const LISTS: &[&str] = &["method", "fingerprint", "keep_headers", "drop_headers"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_names_are_each_used_once() {
        for (n, setting) in SETTINGS.iter().enumerate() {
            let same = |other: &Setting| other.path == setting.path || other.name == setting.name;
            assert!(!SETTINGS[..n].iter().any(same), "{}", setting.path);
        }
    }
}
