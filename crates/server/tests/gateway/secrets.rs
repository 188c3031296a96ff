//! Secrets that were given wrongly: told with what to do, and never shown.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::client::Request;
use crate::program::Setup;
use crate::upstream::Upstream;

/// Runs the binary with variables of any bytes; returns its exit code and everything that it said.
fn run(home: &Path, variables: &[(&str, &[u8])], arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(arguments).current_dir(home);
    command.envs(variables.iter().map(|(name, value)| (name, OsStr::from_bytes(value))));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

const GATEWAY: [&str; 5] = ["gateway", "--upstream", "http://127.0.0.1:9", "--scope", "none"];

fn checked(home: &Path, variables: &[(&str, &[u8])], more: &[&str]) -> (i32, String) {
    run(home, variables, &[&GATEWAY[..], more, &["--check"]].concat())
}

#[test]
fn a_variable_that_is_not_text_is_refused_by_its_name() {
    let home = TempDir::new().unwrap();
    let value = b"hunter2-hunter2-hunter2-\xff";
    for name in [
        "ONLYONCE_LISTEN",
        "ONLYONCE_STORE",
        "ONLYONCE_ADMIN_TOKEN",
        "ONLYONCE_TOKEN_SECRET",
        "ONLYONCE_CONFIG",
    ] {
        for check in [true, false] {
            let (code, said) = if check {
                checked(home.path(), &[(name, value)], &[])
            } else {
                run(home.path(), &[(name, value)], &GATEWAY)
            };
            assert_eq!(code, 2, "{name}: {said}");
            assert!(said.contains(name) && said.contains("not UTF-8"), "{name}: {said}");
            assert!(!said.contains("hunter"), "{name}: {said}");
        }
    }
    for name in ["ONLYONCE_ADMIN_TOKEN", "ONLYONCE_ADMIN_URL"] {
        let (code, said) = run(home.path(), &[(name, value)], &["records", "list"]);
        assert_eq!(code, 2, "{name}: {said}");
        assert!(said.contains(name) && !said.contains("hunter"), "{name}: {said}");
    }
    // A flag wins over it, whatever it is.
    let (code, said) = checked(home.path(), &[("ONLYONCE_LISTEN", value)], &["--listen", "127.0.0.1:0"]);
    assert_eq!(code, 0, "{said}");
}

const LONG: &str = "hunter2-hunter2-hunter2-hunter2-x";

#[test]
fn token_secrets_that_are_malformed_are_told_without_what_was_given() {
    let home = TempDir::new().unwrap();
    for (secret, hint) in [
        (format!("a:{LONG}"), "ID:SECRET"),
        (format!(":{LONG}"), "ID:SECRET"),
        (format!("-1:{LONG}"), "ID:SECRET"),
        (format!("99999999999:{LONG}"), "ID:SECRET"),
        (format!("1:{LONG},b:{LONG}"), "ID:SECRET"),
        (format!("1:{LONG}\n2"), "control character"),
        (format!("1: {LONG}"), "white space"),
        ("1:".to_owned(), "at least 32"),
        ("1:hunter2".to_owned(), "at least 32"),
        (format!("1:{LONG},1:{LONG}x"), "two token keys with the id 1"),
    ] {
        let flag = format!("--token-secret={secret}");
        std::fs::write(home.path().join("s.secret"), secret.replace(',', "\n")).unwrap();
        let mut ways = vec![
            checked(home.path(), &[], &[&flag]),
            run(home.path(), &[], &[&GATEWAY[..], &[&flag]].concat()),
            checked(home.path(), &[("ONLYONCE_TOKEN_SECRET", secret.as_bytes())], &[]),
        ];
        // There a line is a secret of its own.
        if !secret.contains('\n') {
            ways.push(checked(home.path(), &[], &["--token-secret-file", "s.secret"]));
        }
        for (code, said) in ways {
            assert_eq!(code, 2, "{secret}: {said}");
            assert!(said.contains(hint) && !said.contains("hunter2"), "{secret}: {said}");
        }
    }
    let (code, said) = checked(home.path(), &[], &["--token-secret", &format!("7:{LONG},2:{LONG}x")]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\"7:***\", \"2:***\"") && !said.contains("hunter2"), "{said}");
}

#[test]
fn an_admin_token_that_no_header_could_carry_is_refused() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("admin.token");
    for (token, hint) in [
        (format!("{LONG}\n{LONG}"), "several lines"),
        (format!("{LONG}\n\n"), "several lines"),
        (format!("{LONG}\tx"), "white space"),
        (format!(" {LONG}"), "white space"),
        (format!("{LONG}\u{1b}[31m"), "control character"),
        (format!("{LONG}\u{e9}"), "not ASCII"),
        ("hunter2".to_owned(), "fewer than 16"),
    ] {
        std::fs::write(&file, &token).unwrap();
        for (code, said) in [
            checked(home.path(), &[], &["--admin-token", &token]),
            checked(home.path(), &[("ONLYONCE_ADMIN_TOKEN", token.as_bytes())], &[]),
            checked(home.path(), &[], &["--admin-token-file", "admin.token"]),
            run(home.path(), &[], &[&GATEWAY[..], &["--admin-token-file", "admin.token"]].concat()),
        ] {
            assert_eq!(code, 2, "{token:?}: {said}");
            assert!(said.contains(hint) && !said.contains("hunter2"), "{token:?}: {said}");
        }
        if !hint.contains("fewer") {
            for (variables, more) in [
                (&[][..], &["--token-file", "admin.token"][..]),
                (&[("ONLYONCE_ADMIN_TOKEN", token.as_bytes())], &[]),
            ] {
                let (code, said) = run(home.path(), variables, &[&["records"][..], more, &["list"]].concat());
                assert_eq!(code, 2, "{token:?}: {said}");
                assert!(said.contains(hint) && !said.contains("hunter2"), "{token:?}: {said}");
            }
        }
    }
}

#[test]
fn one_end_of_a_line_behind_an_admin_token_is_no_part_of_it() {
    let upstream = Upstream::start();
    for end in ["", "\n", "\r\n"] {
        let home = TempDir::new().unwrap();
        std::fs::write(home.path().join("admin.token"), format!("{LONG}{end}")).unwrap();
        let gateway = Setup::new("memory:", &upstream).home(home.path());
        let gateway = gateway.with(&["--admin-token-file", "admin.token"]).start();
        let asked = Request::new("GET", "/api/stats").header("authorization", &format!("Bearer {LONG}"));
        assert_eq!(asked.send(gateway.admin.unwrap()).status, 200, "{end:?}");
        let admin = format!("http://{}", gateway.admin.unwrap());
        let (code, said) =
            run(home.path(), &[], &["records", "--admin", &admin, "--token-file", "admin.token", "list"]);
        assert_eq!(code, 0, "{end:?}: {said}");
    }
}

#[test]
fn a_secret_that_was_given_by_mistake_is_shown_nowhere() {
    let home = TempDir::new().unwrap();
    let pem = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n";
    let jwt =
        ["gateway", "--upstream", "http://127.0.0.1:9", "--scope", "jwt:sub", "--jwt-algorithms", "HS256"];
    let with = |more: &[&str]| [&GATEWAY[..], more].concat().join("\u{0}");
    let jwt = |more: &[&str]| [&jwt[..], more].concat().join("\u{0}");
    let store = "postgres://u:hunter2@h/db";
    for line in [
        jwt(&["--jwt-key", "hunter2"]),
        jwt(&[&format!("--jwt-key={pem}")]),
        jwt(&["--jwt-jwks", r#"{"keys":["hunter2"]}"#]),
        with(&["--tls-cert", "c.pem", &format!("--tls-key={pem}")]),
        with(&["--tls-key", "c.pem", &format!("--tls-cert={pem}")]),
        with(&[&format!("--upstream-ca={pem}")]),
        with(&["--store", "hunter2"]),
        with(&["--store", "u:hunter2@h/db"]),
        with(&["--store", "hunter2:x@h/db"]),
        with(&["--store", "postgre://u:hunter2@h/db"]),
        with(&["--store", "postgres://u:hunter2@h:x/db"]),
        with(&["--store", "redis://u:hunter2@h:x"]),
        with(&["--store", "redis:u:hunter2@h"]),
        with(&["--store", "hunter2://h"]),
        with(&["--store", "Server=db;Database=x;User Id=sa;Password=hunter2"]),
        with(&["--store", "AccountName=a;AccountKey=hunter2=="]),
        with(&["--store", "sqlserver://h:1433;user=sa;password=hunter2"]),
        with(&["--store", "mysql://u:hunter2@h/db?table=a;password=hunter2"]),
        with(&["--store", "mysql://h/db?table=hunter2-x%3B"]),
        with(&["--store", "mysql:hunter2"]),
        with(&["--upstream", "hunter2"]),
        with(&["--admin", "hunter2"]),
        with(&["hunter2"]),
        with(&["--store", "memory:", store]),
        with(&["--admin-tokn", "hunter2"]),
        with(&["--admin-tokn=hunter2"]),
        with(&["-phunter2"]),
        store.to_owned(),
        ["records", store, "list"].join("\u{0}"),
        ["records", "--store", "memory:", "list", "hunter2"].join("\u{0}"),
        ["records", "--store", "hunter2", "list"].join("\u{0}"),
        ["records", "--admin", "http://u:hunter2@h", "list"].join("\u{0}"),
        ["records", "--admin", "hunter2", "list"].join("\u{0}"),
        ["records", "--token-file", "hunter2", "list"].join("\u{0}"),
        ["demo", store].join("\u{0}"),
    ] {
        let words: Vec<&str> = line.split('\u{0}').collect();
        let is_gateway = words[0] == "gateway";
        for check in [true, false].into_iter().filter(|check| is_gateway || !check) {
            let words = [&words[..], if check { &["--check"] } else { &[] }].concat();
            let (code, said) = run(home.path(), &[], &words);
            assert_eq!(code, 2, "{words:?}: {said}");
            assert!(!said.contains("hunter2"), "{words:?}: {said}");
        }
    }
    // A file that is to be made is not shown either, unless it looks like one.
    for flag in ["--admin-token-file", "--token-secret-file"] {
        let (code, said) = checked(home.path(), &[], &[flag, "hunter2hunter2hunter2"]);
        assert!(code == 0 && !said.contains("hunter2"), "{said}");
        let (code, said) = checked(home.path(), &[], &[flag, "./my.token"]);
        assert!(code == 0 && said.contains("./my.token"), "{said}");
    }
}

#[test]
fn a_password_in_a_forward_is_shown_nowhere() {
    let home = TempDir::new().unwrap();
    for url in ["http://u:hunter2@h", "u:hunter2@h", "http://h?password=hunter2", "ftp://u:hunter2@h/x"] {
        let toml = format!(
            "upstream = \"http://h\"\n[scope]\nfrom = [\"none\"]\n[[forward]]\nhost = \"a\"\nupstream = \"{url}\"\n"
        );
        std::fs::write(home.path().join("g.toml"), toml).unwrap();
        let (code, said) = run(home.path(), &[], &["gateway", "--config", "g.toml", "--check"]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("[[forward]]") && said.contains("is not an upstream"), "{said}");
        assert!(!said.contains("hunter2"), "{url}: {said}");
    }
}

#[test]
fn what_is_in_a_key_file_is_not_shown_where_it_can_not_be_read() {
    let home = TempDir::new().unwrap();
    let jwks = [
        r#"{"keys":["hunter2"]}"#,
        r#"{"keys":[{"kty":"hunter2"}]}"#,
        r#"{"keys":[{"kty":"oct","k":["hunter2"]}]}"#,
        r#"{"keys":[{"kty":"oct","k":"hunter2","alg":"hunter2"}]}"#,
        "hunter2",
    ];
    for text in jwks {
        std::fs::write(home.path().join("k.json"), text).unwrap();
        let scope = ["gateway", "--upstream", "http://h", "--scope", "jwt:sub", "--jwt-algorithms", "HS256"];
        let words = [&scope[..], &["--jwt-jwks", "k.json", "--check"]].concat();
        let (code, said) = run(home.path(), &[], &words);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("k.json") && !said.contains("hunter2"), "{text}: {said}");
    }
    for toml in [
        "admin_token = hunter2\n",
        "admin_token = \"hunter2\n",
        "store = \"redis://u:hunter2@h\" x\n",
        "= hunter2\n",
    ] {
        std::fs::write(home.path().join("g.toml"), toml).unwrap();
        let (code, said) = run(home.path(), &[], &["gateway", "--config", "g.toml", "--check"]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("g.toml:1: ") && !said.contains("hunter2"), "{toml}: {said}");
    }
}

#[test]
fn an_address_of_the_admin_api_that_is_wrong_is_told_by_where_it_was_given() {
    let home = TempDir::new().unwrap();
    let variable: (&str, &[u8]) = ("ONLYONCE_ADMIN_URL", b"127.0.0.1:8081");
    let (code, said) = run(home.path(), &[variable], &["records", "list"]);
    assert!(code == 2 && said.contains("ONLYONCE_ADMIN_URL: \"127.0.0.1:8081\""), "{said}");
    assert!(!said.contains("--admin"), "{said}");
    let (code, said) = run(home.path(), &[variable], &["records", "--admin", "x", "list"]);
    assert!(code == 2 && said.contains("--admin: ") && !said.contains("ONLYONCE_ADMIN_URL"), "{said}");
}
