//! `host` and `host:port`, as they stand in URLs and in Host headers.

use std::net::Ipv6Addr;

/// The host, without the brackets of an address, and the port if there is one. An empty port is none.
///
/// # Errors
/// What is wrong with it. Stricter than the standard's grammar, which lets a name hold nearly anything: what is not a name to every
/// service is none.
pub(crate) fn host_and_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or("its bracket is not closed")?;
            if host.parse::<Ipv6Addr>().is_err() {
                return Err("what is in brackets is not an IPv6 address");
            }
            let port = behind.strip_prefix(':');
            if port.is_none() && !behind.is_empty() {
                return Err("something else than a port is behind the address");
            }
            (host, port.unwrap_or_default())
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            check_name(host)?;
            (host, port)
        }
    };
    if port.is_empty() {
        return Ok((host, None));
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| port.parse().ok()).flatten();
    number.map(|port| (host, Some(port))).ok_or("its port is not a number up to 65535")
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let labels = name.strip_suffix('.').unwrap_or(name);
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    if name.contains('@') {
        Err("it names a user, which has no place there")
    } else if name.is_empty() {
        Err("it names no host")
    } else if !name.bytes().all(is_of_name) {
        Err("it holds a character that no host's name has")
    } else if labels.split('.').any(str::is_empty) {
        Err("it has two dots without a name between them")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for (text, expected) in [
            ("a", ("a", None)),
            ("A.example.:80", ("A.example.", Some(80))),
            ("a_b-c.d:", ("a_b-c.d", None)),
            ("127.0.0.1:65535", ("127.0.0.1", Some(65535))),
            ("[::1]", ("::1", None)),
            ("[2001:db8::1]:443", ("2001:db8::1", Some(443))),
        ] {
            assert_eq!(host_and_port(text), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            ":80",
            "a:b",
            "a:65536",
            "a:80:80",
            "a:+1",
            "a:-1",
            "a b",
            "u@a",
            "a/b",
            "a%2eb",
            "a..b",
            ".a",
            ".",
            "[::1",
            "::1",
            "[::1]80",
            "[::1]:x",
            "[a]",
            "[]",
            "[1.2.3.4]",
            "caf\u{e9}",
            "a,b",
            "a;b",
            "\"a\"",
            "a\\b",
        ] {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
    }
}
