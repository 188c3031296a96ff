//! What is read from where, and what is said when it is wrong.

use super::*;

fn load(
    toml: &str,
    flags: &[(&'static str, &str)],
    variables: &[(&str, &str)],
) -> Result<Config, Box<Unusable>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    std::fs::write(&path, toml).unwrap();
    let flags = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let find = |name: &str| {
        Ok(variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    };
    Config::load(&Typed { config: Some(path), flags }, find)
}

const GOOD: &str = "upstream = \"http://127.0.0.1:9000\"\n[scope]\nfrom = [\"header:x-tenant\"]\n";

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let toml = format!("listen = \"127.0.0.1:1\"\n{GOOD}");
    let port = |flags: &[(&'static str, &str)], variables: &[(&str, &str)]| {
        load(&toml, flags, variables).unwrap().listen.port()
    };
    let variable = ("ONLYONCE_LISTEN", "127.0.0.1:2");
    assert_eq!(port(&[("listen", "127.0.0.1:3")], &[variable]), 3);
    assert_eq!(port(&[], &[variable]), 2);
    assert_eq!(port(&[], &[]), 1);
    assert_eq!(load(GOOD, &[], &[]).unwrap().listen.port(), 8080);
}

#[test]
fn the_sample_of_the_documentation_is_valid() {
    let config = load(include_str!("../../../../docs/guide/gateway.toml"), &[], &[])
        .unwrap_or_else(|why| panic!("{}", why.problems));
    assert_eq!(config.routes.len(), 1);
    assert_eq!(config.routes[0].rules.ask.as_deref(), Some("/payments/by-key/{key}"));
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_line() {
    let toml = "listen = \"nowhere\"\nstore = \"mysq://x\"\n[defaults]\nlease = \"30\"\non_500 = \"relase\"\nmethods = [\"GET\"]\n\
                [[route]]\nmatch = \"POST payments\"\n[[route]]\nkey = \"body\"\n[limits]\nconnections = 0\n[tls]\ncert = \"/nowhere.pem\"\nkey = \"/nowhere.key\"\n";
    let problems = load(toml, &[], &[]).unwrap_err().problems;
    let told: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
    let all = told.join("\n");
    for part in [
        "c.toml:1: listen: \"nowhere\" is not an address",
        "c.toml:2: store: there is no store \"mysq\"",
        "c.toml:4: lease: \"30\" is not a duration",
        "c.toml:5: on_500: unknown value \"relase\"; did you mean \"release\"?",
        "GET changes nothing",
        "c.toml:10: key: \"body\" is no place for a key",
        "matches nothing",
        "c.toml:12: limits.connections",
        "/nowhere.pem",
        "there is no upstream",
        "header:NAME",
    ] {
        assert!(all.contains(part), "{part} is not in\n{all}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let flags = [("store", "redis://u:hunter2@h"), ("admin_token", "hunter2hunter2hunter2")];
    let config = load(GOOD, &flags, &[]).unwrap();
    assert!(!config.shown.contains("hunter2"), "{}", config.shown);
    assert!(config.shown.contains("redis://***@h") && config.shown.contains("# --store"), "{}", config.shown);
}

#[test]
fn an_admin_api_that_others_can_reach_needs_a_token_of_its_own() {
    let flags = [("admin", "0.0.0.0:8081")];
    let said = load(GOOD, &flags, &[]).unwrap_err().problems.to_string();
    assert!(said.contains("--admin: the admin API on 0.0.0.0:8081"), "{said}");
    assert!(load(GOOD, &flags, &[("ONLYONCE_ADMIN_TOKEN", "a-long-enough-token")]).is_ok());
}
