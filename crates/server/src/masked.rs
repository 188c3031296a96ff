//! What may be shown of what was given: never a secret, also where one was given by mistake.

use std::fmt::Display;
use std::net::Ipv6Addr;
use std::path::Path;

/// Stands for what is not shown.
pub(crate) const NOTHING: &str = "***";

/// How files with keys, certificates and tokens are usually called.
const ENDINGS: &[&str] =
    &["pem", "key", "pub", "crt", "cer", "json", "jwk", "jwks", "secret", "secrets", "token", "txt", "log"];

/// The name of a file. Where a file is asked for, the key itself is given now and then: what is not there, and does not look like a
/// file either, is not shown.
pub(crate) fn file(path: &Path) -> String {
    let has_ending = || path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
    // The first folder of its name; that of `/nowhere` is the root.
    let folders = path.ancestors().skip(1).filter(|folder| *folder != Path::new(""));
    let mut folders: Vec<&Path> = folders.collect();
    if folders.len() > 1 && folders.last() == Some(&Path::new("/")) {
        folders.pop();
    }
    let has_folder = || folders.last().is_some_and(|folder| folder.is_dir());
    let text = path.display().to_string();
    let is_name = !text.contains(char::is_control) && (path.exists() || has_ending() || has_folder());
    if is_name { text } else { NOTHING.into() }
}

/// That a file can't be read, and why.
pub(crate) fn unreadable(what: &str, path: &Path, error: &dyn Display) -> String {
    let shown = file(path);
    let hint = if shown == NOTHING { "; the name of a file goes here, and not what is in it" } else { "" };
    format!("{what} {shown} can't be read: {error}{hint}")
}

/// The parameters of URLs whose values are no secrets.
const SHOWN: &[&str] = &[
    "table",
    "schema",
    "mode",
    "cache",
    "sslmode",
    "ssl-mode",
    "charset",
    "collation",
    "protocol",
    "db",
    "dbname",
    "application_name",
];

/// The URL without what must not be shown: user and password before the host, and the values of parameters unless they are known to be
/// no secret.
pub(crate) fn url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    // `host;user=sa;password=…`, as other drivers have it.
    let has_settings = host.contains('=') || place.contains('=') && place.contains(';');
    // A password with a question mark in it, or a parameter with an @: nobody can tell, so nothing is shown.
    if has_settings || query.is_some_and(|query| query.contains('@')) {
        return format!("{scheme}{NOTHING}");
    }
    let login = if host.len() < place.len() { "***@" } else { "" };
    let shown = query.map_or_else(String::new, |query| {
        // Some write a semicolon between two parameters.
        format!("?{}", query.split_inclusive(['&', ';']).map(parameter).collect::<String>())
    });
    format!("{scheme}{login}{host}{shown}")
}

/// A parameter of a query, with the sign that ends it.
fn parameter(text: &str) -> String {
    let pair = text.trim_end_matches(['&', ';']);
    let end = &text[pair.len()..];
    let is_plain = |value: &str| value.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    match pair.split_once('=') {
        Some((name, value)) if SHOWN.contains(&name) && is_plain(value) => text.to_owned(),
        Some((name, _)) => format!("{name}={NOTHING}{end}"),
        None if pair.is_empty() => text.to_owned(),
        None => format!("{NOTHING}{end}"),
    }
}

/// The same where the address of a service is asked for: what is no URL, and no `host:port` either, may be anything.
pub(crate) fn address(text: &str) -> String {
    let has_scheme = text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme));
    match text {
        text if has_scheme => url(text),
        text if is_host_and_port(text) => text.to_owned(),
        _ => NOTHING.into(),
    }
}

/// Whether it looks like the scheme of a URL.
pub(crate) fn is_scheme(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphabetic() || b"+-".contains(&byte));
    text == "h2c" || text.len() <= 20 && is_word
}

/// Whether it is a `host:port`, and can't be anything else.
pub(crate) fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map_or(Ok(host), Err);
    let is_host = match host {
        Ok(name) => {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        }
        Err(address) => address.parse::<Ipv6Addr>().is_ok(),
    };
    is_host && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_and_a_key_that_was_taken_for_one_is_not() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for name in ["keys/jwt.pem", "jwks.json", "./admin.token"] {
            assert_eq!(file(Path::new(name)), name);
        }
        for name in [here.join("Cargo.toml"), here.join("not-there")] {
            assert_eq!(file(&name), name.display().to_string());
        }
        for key in ["hunter2", "aGVsbG8/d29ybGQ=", "-----BEGIN PUBLIC KEY-----\nabc\n", "a\nb.pem", ""] {
            assert_eq!(file(Path::new(key)), NOTHING, "{key:?}");
        }
    }
}
