//! What is wrong is told in one clear message, with exit code 2; what may come right later is not waited for.

use std::net::TcpListener;

use crate::client::Request;
use crate::program::{Setup, onlyonce};
use crate::upstream::Upstream;

#[track_caller]
fn refused(setup: Setup, hints: &[&str]) {
    let (code, said) = setup.fails();
    assert_eq!(code, 2, "{said}");
    for hint in hints {
        assert!(said.contains(hint), "{hint:?} is not in: {said}");
    }
    assert!(!said.contains("panicked") && !said.contains("hunter2"), "{said}");
}

#[test]
fn without_a_scope_the_choices_are_explained() {
    let upstream = Upstream::start();
    let bare = || Setup::bare().with(&["--upstream", &upstream.url()]).with(&["--store", "memory:"]);
    refused(bare(), &["--scope", "header:NAME", "cookie:NAME", "jwt:CLAIM", "none"]);
    refused(bare().with(&["--scope", "tenant"]), &["header:NAME"]);
    refused(bare().with(&["--scope", "jwt:sub"]), &["--jwt-key", "algorithms"]);
    refused(
        bare()
            .with(&["--scope", "jwt:sub"])
            .with(&["--jwt-key", "/nowhere"])
            .with(&["--jwt-algorithms", "RS256"]),
        &["/nowhere", "can't be read"],
    );
}

#[test]
fn a_scope_of_the_authorization_header_is_warned_about() {
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).with(&["--scope", "header:authorization"]).start();
    assert!(gateway.log().contains("a refreshed token is another scope"), "{}", gateway.log());
}

#[test]
fn an_upstream_that_is_not_there_does_not_stop_the_start() {
    let nobody = format!("127.0.0.1:{}", onlyonce_testkit::free_port());
    let setup = Setup::bare()
        .with(&["--upstream", &format!("http://{nobody}")])
        .with(&["--scope", "none"])
        .with(&["--store", "memory:"]);
    let gateway = setup.start();
    Request::new("GET", "/").send(gateway.address).is(502, "upstream-unreachable");
    let _upstream = Upstream::start();
    assert_eq!(Request::new("GET", "/readyz").send(gateway.admin.unwrap()).status, 200);
}

#[test]
fn a_port_in_use_says_so() {
    let upstream = Upstream::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(Setup::new("memory:", &upstream).with(&["--listen", &address]), &["in use", "--listen"]);
    refused(Setup::new("memory:", &upstream).with(&["--admin", &address]), &["in use", "--admin"]);
}

#[test]
fn a_wrong_file_is_told_with_all_its_lines() {
    let upstream = Upstream::start();
    let setup = || Setup::new("memory:", &upstream);
    refused(setup().config("listen = \n"), &["gateway.toml:1"]);
    refused(
        setup().config("[defaults]\nlese = \"1s\"\nretain = \"soon\"\n[[route]]\nmatch = \"GET /x\"\n"),
        &[
            "gateway.toml:2: unknown key \"lese\"",
            "did you mean \"lease\"?",
            "gateway.toml:3: retain: \"soon\" is not a duration",
            "GET changes nothing",
        ],
    );
    refused(setup().with(&["--config", "nowhere.toml"]), &["nowhere.toml can't be read"]);
    refused(setup().with(&["--lease", "soon"]), &["--lease: "]);
    refused(setup().config("[defaults]\nlease = \"1h\"\nmax_run = \"1m\"\n"), &["max_run"]);
}

#[test]
fn a_wrong_store_is_told_without_its_password() {
    let upstream = Upstream::start();
    refused(Setup::new("mysq://u:hunter2@h/db", &upstream), &["there is no store", "memory:", "redis://"]);
    refused(Setup::new("embedded:", &upstream), &["needs a directory"]);
    let (code, said) = Setup::new("redis://u:hunter2@127.0.0.1:1", &upstream).fails();
    assert!(code == 1 && said.contains("127.0.0.1:1") && !said.contains("hunter2"), "{code} {said}");
}

#[test]
fn a_certificate_that_can_not_be_read_is_told() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("empty.pem"), "nothing\n").unwrap();
    let setup = || Setup::new("memory:", &upstream).home(home.path());
    refused(
        setup().with(&["--tls-cert", "nowhere.pem"]).with(&["--tls-key", "nowhere.key"]),
        &["nowhere.pem", "can't be read"],
    );
    refused(setup().with(&["--tls-cert", "empty.pem"]).with(&["--tls-key", "empty.pem"]), &["empty.pem"]);
    refused(setup().with(&["--tls-cert", "empty.pem"]), &["needs tls.key"]);
}

#[test]
fn an_admin_api_that_others_can_reach_needs_a_token_of_its_own() {
    let upstream = Upstream::start();
    refused(
        Setup::new("memory:", &upstream).with(&["--admin", "0.0.0.0:0"]),
        &["can be reached from other machines"],
    );
}

#[test]
fn check_prints_what_is_in_force_and_where_it_comes_from() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join("g.toml"),
        "upstream = \"http://127.0.0.1:9\"\nstore = \"redis://u:hunter2@h\"\n[scope]\nfrom = \"none\"\n",
    )
    .unwrap();
    let (code, said) = onlyonce(home.path(), &["gateway", "--config", "g.toml", "--lease", "20s", "--check"]);
    assert_eq!(code, 0, "{said}");
    for part in ["lease = \"20s\"", "# --lease", "# g.toml:1", "# default", "redis://***@h", "is valid"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(!said.contains("hunter2"));
    let (code, said) = onlyonce(home.path(), &["gateway", "--check", "--listen", "x", "--store", "y"]);
    assert!(code == 2 && said.contains("4 problems"), "{code} {said}");
}

#[test]
fn variables_count_and_flags_win_over_them() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["gateway", "--check", "--scope", "none", "--retain", "2h"])
        .env("ONLYONCE_UPSTREAM", upstream.url())
        .env("ONLYONCE_RETAIN", "1h")
        .env("ONLYONCE_WAIT", "3s")
        .current_dir(home.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("retain = \"2h\"")
            && said.contains("wait = \"3s\"")
            && said.contains("# ONLYONCE_WAIT"),
        "{said}"
    );
}

#[test]
fn completions_and_help_are_there() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let (code, said) = onlyonce(home.path(), &["completions", shell]);
        assert!(code == 0 && said.contains("gateway") && said.contains("upstream"), "{shell}");
    }
    for words in [&["gateway", "--help"][..], &["records", "--help"]] {
        let (code, said) = onlyonce(home.path(), words);
        assert!(code == 0 && said.contains("Examples:"), "{said}");
    }
}
