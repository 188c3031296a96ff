//! An operator who is in a hurry: what would be ignored, or means something else than was written, is told with what to write.

use std::process::Command;

use tempfile::TempDir;

use crate::program::onlyonce;

const BASE: &str = "upstream = \"http://127.0.0.1:9\"\nstore = \"memory:\"\n";
const SCOPE: &str = "[scope]\nfrom = [\"none\"]\n";

/// What `--check` says about a file: its exit code, and its words.
fn check(toml: &str) -> (i32, String) {
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join("g.toml"), toml).unwrap();
    onlyonce(home.path(), &["gateway", "--config", "g.toml", "--check"])
}

#[track_caller]
fn refused(toml: &str, line: usize, hint: &str) {
    let (code, said) = check(toml);
    assert_eq!(code, 2, "{toml}: {said}");
    assert!(said.contains(&format!("g.toml:{line}: ")) && said.contains(hint), "{toml}: {said}");
}

#[test]
fn what_a_route_would_ignore_is_refused() {
    for (keys, hint) in [
        ("ask_after = \"5s\"", "ask_after is never used"),
        ("key = \"token\"\nmissing = \"pass\"", "always needs a token"),
        ("key = \"form:x\"\nfingerprint = [\"/a\"]", "JSON"),
        ("keep_headers = [\"x-a\"]\ndrop_headers = [\"X-A\"]", "both in keep_headers and in drop_headers"),
        ("keep_headers = [\"connection\"]", "never kept"),
        ("key = \"header:content-length\"", "meaning of its own"),
        ("key = \"header:connection\"", "meaning of its own"),
        ("max_response = \"0\"", "max_response must be at least 1 byte"),
        ("max_request = \"0\"", "max_request must be at least 1 byte"),
    ] {
        let (code, said) = check(&format!("{BASE}{SCOPE}[[route]]\nmatch = \"POST /a\"\n{keys}\n"));
        assert!(code == 2 && said.contains(hint) && said.contains("g.toml:"), "{keys}: {said}");
    }
    let twice = "[[route]]\nmatch = \"POST /a/{id}\"\n[[route]]\nmatch = \"POST /a/{x}\"\n";
    refused(&format!("{BASE}{SCOPE}{twice}"), 8, "is declared already, as \"POST /a/{id}\"");
    refused(&format!("{BASE}{SCOPE}[[route]]\nmatch = \"POST /a/{{}}\"\n"), 6, "{id}");
    refused(
        &format!("{BASE}{SCOPE}[defaults]\nmax_response = \"0\"\n"),
        6,
        "max_response must be at least 1 byte",
    );
}

#[test]
fn values_that_can_not_be_meant_are_refused() {
    for (section, key, hint) in [
        ("", "audit_log = \"\"", "it is empty"),
        ("", "admin_token_file = \"\"", "it is empty"),
        ("", "listen = \"127.0.0.1:80\"\nadmin = \"127.0.0.1:80\"", "the same address"),
        ("[tokens]", "secret_file = \" \"", "it is empty"),
        ("[limits]", "max_body = \"0\"", "unlimited"),
        ("[limits]", "max_head = \"1GiB\"", "16MiB"),
    ] {
        let toml = if section.is_empty() {
            format!("{key}\n{BASE}{SCOPE}")
        } else {
            format!("{BASE}{SCOPE}{section}\n{key}\n")
        };
        let (code, said) = check(&toml);
        assert!(code == 2 && said.contains(hint) && said.contains("g.toml:"), "{key}: {said}");
    }
}

#[test]
fn settings_that_nothing_uses_are_warned_about() {
    for (section, key, hint) in [
        ("[scope.jwt]", "issuer = [\"x\"]", "scope.jwt.issuer"),
        ("[scope.jwt]", "algorithms = [\"RS256\"]", "scope.jwt.algorithms"),
        ("[tokens]", "kind = \"stored\"", "tokens.kind"),
        ("[tokens]", "ttl = \"5m\"", "tokens.ttl"),
        ("[limits]", "keep_free = \"1GiB\"", "limits.keep_free"),
    ] {
        let (code, said) = check(&format!("{BASE}{SCOPE}{section}\n{key}\n"));
        assert!(code == 0 && said.contains("WARN"), "{key}: {said}");
        assert!(said.contains(&format!("{hint} is given, and nothing uses it")), "{key}: {said}");
    }
    for key in
        ["admin_token = \"0123456789abcdef01\"", "admin_token_file = \"a.token\"", "audit_log = \"a.log\""]
    {
        let (code, said) = check(&format!("admin = \"off\"\n{key}\n{BASE}{SCOPE}"));
        assert!(code == 0 && said.contains("nothing uses it"), "{key}: {said}");
    }
    let (code, said) = check(&format!(
        "admin_token = \"0123456789abcdef01\"\nadmin_token_file = \"a.token\"\n{BASE}{SCOPE}"
    ));
    assert!(code == 0 && said.contains("the token counts, and the file is not read"), "{said}");
    // What is used, or was not given, is not.
    let (code, said) = check(&format!(
        "{BASE}{SCOPE}[tokens]\nttl = \"5m\"\n[[route]]\nmatch = \"POST /a\"\nkey = \"token\"\n"
    ));
    assert!(code == 0 && !said.contains("WARN"), "{said}");
}

#[test]
fn a_file_that_can_not_be_read_is_one_problem() {
    let home = TempDir::new().unwrap();
    std::fs::create_dir(home.path().join("dir")).unwrap();
    std::fs::write(home.path().join("bytes"), b"\xff\xfe\x00").unwrap();
    std::fs::write(home.path().join("huge"), "a = 1\n".repeat(1 << 20)).unwrap();
    for (file, hint) in [
        ("dir", "Is a directory"),
        ("bytes", "not UTF-8"),
        ("huge", "larger than"),
        ("/dev/zero", "larger than"),
        ("nowhere", "No such file"),
    ] {
        let (code, said) = onlyonce(home.path(), &["gateway", "--config", file, "--check"]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("1 problem\n") && said.contains(hint) && said.contains(file), "{said}");
    }
}

#[test]
fn a_choice_of_log_lines_that_can_not_be_understood_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["id", "generate"])
        .env("RUST_LOG", "onlyonce=loud")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("WARN") && said.contains("RUST_LOG"), "{said}");
}

#[test]
fn a_place_of_records_that_can_not_be_meant_is_told_by_its_flag() {
    let home = TempDir::new().unwrap();
    for (words, hint) in [
        (["--store", ""], "the URL of the store is empty"),
        (["--admin", ""], "--admin: "),
        (["--admin", "x"], "--admin: "),
    ] {
        let (code, said) = onlyonce(home.path(), &["records", words[0], words[1], "list"]);
        assert!(code == 2 && said.contains(hint) && !said.contains("upstream"), "{words:?}: {said}");
    }
}
