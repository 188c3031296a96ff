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
fn methods_that_would_protect_nothing_are_refused() {
    let upstream = Upstream::start();
    let setup = |methods: &str| Setup::new("memory:", &upstream).with(&["--methods", methods]);
    refused(setup(""), &["--methods", "the list is empty"]);
    refused(setup(","), &["the list is empty"]);
    refused(setup("PUSH"), &["\"PUSH\" is not a method", "did you mean"]);
    refused(setup("POST,get"), &["GET changes nothing"]);
    refused(
        Setup::new("memory:", &upstream).config("[defaults]\nmethods = []\n"),
        &["gateway.toml:2", "empty"],
    );
    for methods in ["post", "Put, Post"] {
        let gateway = setup(methods).start();
        let key = crate::stores::key("case");
        gateway.post("/pay", &key, "x");
        assert!(gateway.post("/pay", &key, "x").is_replayed(), "{methods}");
        assert!(!gateway.log().contains("WARN"), "{}", gateway.log());
    }
    let gateway = setup("PUT").start();
    assert!(gateway.log().contains("methods leaves out POST"), "{}", gateway.log());
}

#[test]
fn a_list_that_is_given_and_empty_is_no_way_to_switch_something_off() {
    let upstream = Upstream::start();
    let jwt =
        "[scope.jwt]\nkey = \"secret\"\nalgorithms = \"HS256\"\naudience = [\"pay\"]\nissuer = [\"iss\"]\n";
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("secret"), "x".repeat(40)).unwrap();
    let setup = |toml: &str| {
        let setup = Setup::new("memory:", &upstream).with(&["--scope", "jwt:sub"]);
        setup.home(home.path()).config(toml)
    };
    for flag in ["--jwt-audience", "--jwt-issuer", "--jwt-algorithms", "--token-secret"] {
        for nothing in ["", " ", ",", " , "] {
            refused(setup(jwt).with(&[flag, nothing]), &[flag, "empty"]);
            refused(setup(jwt).with(&[flag, nothing]).with(&["--check"]), &[flag, "empty"]);
        }
    }
    for nothing in ["[]", "[\"\"]", "\"\"", "\" \"", "[\"pay\", \"\"]"] {
        let toml = jwt.replace("[\"pay\"]", nothing);
        refused(setup(&toml), &["gateway.toml:4: ", "scope.jwt.audience", "empty"]);
    }
    refused(
        setup(jwt).variable("ONLYONCE_JWT_ISSUER", ","),
        &["ONLYONCE_JWT_ISSUER: ", "scope.jwt.issuer", "empty"],
    );
    for name in ["fingerprint", "keep_headers", "drop_headers"] {
        let route = format!("{jwt}[[route]]\nmatch = \"POST /x\"\n{name} = []\n");
        refused(setup(&route), &["gateway.toml:8: ", name, "empty"]);
    }
    // A variable that is empty is how one is taken back.
    let gateway = setup(jwt).variable("ONLYONCE_JWT_ISSUER", " ").start();
    assert_eq!(Request::new("GET", "/").send(gateway.address).status, 201);
}

/// What is wrong with a file, line by line.
fn problems(toml: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("g.toml"), toml).unwrap();
    let (code, said) = onlyonce(
        home.path(),
        &["gateway", "--check", "--config", "g.toml", "--scope", "none", "--upstream", "http://127.0.0.1:9"],
    );
    assert_eq!(code, 2, "{toml}: {said}");
    said
}

#[test]
fn routes_that_can_never_match_are_told_with_what_to_write_instead() {
    for (pattern, hint) in [
        ("* /star", "write a [[route]] for each"),
        ("POST /q?x=1", "write \"/q\""),
        ("POST /a#b", "write \"/a\""),
        ("POST /a b", "write \"/a%20b\""),
        ("PUSH /x", "is not a method"),
        ("POTS /x", "did you mean \"POST\"?"),
        ("GET /x", "GET changes nothing"),
        ("POST /_onlyonce/zzz", "the gateway's own"),
        ("POST x", "begin with a slash"),
        ("/x", "must be a method and a path"),
        ("POST /x/:id", "in braces"),
    ] {
        let said =
            problems(&format!("[[route]]\nmatch = \"POST /fine\"\n[[route]]\nmatch = \"{pattern}\"\n"));
        assert!(said.contains("g.toml:4: ") && said.contains(hint), "{pattern}: {said}");
        assert!(said.contains("1 problem\n"), "{said}");
    }
}

#[test]
fn routes_match_whatever_the_case_of_their_method_and_the_alphabet_of_their_path() {
    let upstream = Upstream::start();
    let config: String = ["post /low", " PATCH  /space ", "POST /ä/{id}"]
        .map(|pattern| format!("[[route]]\nmatch = \"{pattern}\"\nmissing = \"reject\"\n"))
        .concat();
    let gateway = Setup::new("memory:", &upstream).config(&config).start();
    for (method, path) in [("POST", "/low"), ("PATCH", "/space"), ("POST", "/%C3%A4/1")] {
        Request::new(method, path).header("x-tenant", "a").send(gateway.address).is(400, "key-missing");
    }
    assert_eq!(upstream.effects(), 0);
}

#[test]
fn forwards_that_never_get_a_request_are_told() {
    let upstream = "upstream = \"http://127.0.0.1:9\"\n";
    for (keys, hint) in [
        ("host = \"\"\n", "is not the name of a host"),
        ("host = \"a b\"\n", "is not the name of a host"),
        ("host = \"*.*.x\"\n", "is not the name of a host"),
        ("host = \"a.example:8080\"\n", "has a port"),
        ("host = \"ä.example\"\n", "xn--"),
        ("method = \"fetch\"\n", "\"FETCH\" is not a method"),
        ("method = []\n", "the list is empty"),
        ("path = \"v2\"\n", "begin with a slash"),
        ("path = \"/v2?x\"\n", "write \"/v2\""),
        ("path = \"/_onlyonce/x\"\n", "the gateway's own"),
    ] {
        let said = problems(&format!("[[forward]]\n{keys}{upstream}"));
        assert!(
            said.contains("g.toml:2: ") && said.contains(hint) && said.contains("1 problem\n"),
            "{keys}: {said}"
        );
    }
    for (first, second) in [
        ("", "host = \"a.example\"\n"),
        ("path = \"/v2\"\n", "path = \"/v2/x\"\n"),
        ("host = \"a\"\n", "host = \"A.\"\n"),
    ] {
        let said = problems(&format!("[[forward]]\n{first}{upstream}[[forward]]\n{second}{upstream}"));
        assert!(said.contains("never gets a request: the one of g.toml:"), "{first} {second}: {said}");
    }
}

#[test]
fn a_wrong_kind_of_value_says_which_kind_is_wanted() {
    for (toml, hint) in [
        ("limits = 5\n", "g.toml:1: \"limits\" must be a table"),
        ("[[limits]]\ndrain = \"1s\"\n", "\"limits\" must be a table"),
        ("[route]\nmatch = \"POST /x\"\n", "write [[route]]"),
        ("forward = \"x\"\n", "write [[forward]]"),
        ("listen = [\"a\", \"b\"]\n", "\"listen\" can't be array; write a text"),
        ("audit_log = 1.5\n", "\"audit_log\" can't be float; write a text"),
    ] {
        let said = problems(toml);
        assert!(said.contains(hint) && said.contains("1 problem\n"), "{toml}: {said}");
    }
}

#[test]
fn what_is_wrong_is_told_once_by_the_name_that_was_written() {
    let routes = "[[route]]\nmatch = \"POST /a\"\n[[route]]\nmatch = \"POST /b\"\n";
    for (toml, hint) in [
        ("[defaults]\nretain = \"soon\"\n", "g.toml:2: retain: \"soon\" is not a duration"),
        ("[defaults]\nlease = \"0s\"\n", "g.toml:2: lease is 0s; it must be between 10ms and 1d"),
        ("[defaults]\nretain = \"99999d\"\n", "it must be between 1ms and 3660d"),
        (
            "[limits]\nbody_timeout = \"0s\"\n",
            "g.toml:2: limits.body_timeout: \"0s\" is not between 1ms and 1h",
        ),
        ("[limits]\nresponse_timeout = \"0s\"\n", "limits.response_timeout: \"0s\""),
        ("[limits]\nconnect_timeout = \"0s\"\n", "limits.connect_timeout: \"0s\""),
        ("[limits]\nheader_timeout = \"0s\"\n", "limits.header_timeout: \"0s\""),
    ] {
        let said = problems(&format!("{toml}{routes}"));
        assert!(said.contains(hint) && said.contains("1 problem\n"), "{toml}: {said}");
    }
    let home = tempfile::tempdir().unwrap();
    let words = ["gateway", "--check", "--upstream", "http://127.0.0.1:9", "--scope", "tenant,header:x,user"];
    let (code, said) = onlyonce(home.path(), &words);
    assert!(
        code == 2 && said.contains("\"tenant\" is none of") && said.contains("\"user\" is none of"),
        "{said}"
    );
}

#[test]
fn a_valid_file_with_questions_is_not_warned_about() {
    let upstream = Upstream::start();
    let config: String = (0..4)
        .map(|n| {
            format!("[[route]]\nmatch = \"POST /{n}\"\non_lapse = \"ask\"\nask = \"GET /by-key/{{key}}\"\n")
        })
        .collect();
    let gateway = Setup::new("memory:", &upstream).config(&config).start();
    assert!(!gateway.log().contains("WARN"), "{}", gateway.log());
}

#[test]
fn variables_that_mean_nothing_are_warned_about_and_empty_ones_do_not_count() {
    let upstream = Upstream::start();
    let setup = Setup::new("memory:", &upstream)
        .variable("ONLYONCE_RETAINS", "1h")
        .variable("ONLYONCE_SERVICE_HOST", "10.0.0.1")
        .variable("ONLYONCE_ADMIN_TOKEN", "")
        .variable("ONLYONCE_WAIT", "");
    let gateway = setup.start();
    let log = gateway.log();
    assert!(log.contains("ONLYONCE_RETAINS means nothing; did you mean ONLYONCE_RETAIN?"), "{log}");
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
    assert_eq!(gateway.admin("GET", "/api/stats", "").status, 200, "the token is the one in the file");
}

#[test]
fn a_wrong_store_is_told_without_its_password() {
    let upstream = Upstream::start();
    refused(Setup::new("mysq://u:hunter2@h/db", &upstream), &["there is no store", "memory:", "redis://"]);
    refused(Setup::new("embedded:", &upstream), &["needs a directory"]);
    let home = tempfile::tempdir().unwrap();
    let check = |url: &str| {
        onlyonce(
            home.path(),
            &["gateway", "--check", "--scope", "none", "--upstream", "http://h", "--store", url],
        )
    };
    for url in [
        "redis-cluster://u:hunter2@h1",
        "redis://u:hunter2@h:x",
        "mysql://u:hunter2@h:x/db",
        "redis-sentinel://u:hunter2@h:1",
    ] {
        let (code, said) = check(url);
        assert!(code == 2 && said.contains("--store: store: ") && !said.contains("hunter2"), "{url}: {said}");
    }
    assert_eq!(check("redis-cluster://u:hunter2@h1:1;h2:2").0, 0);
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
fn with_log_lines_for_machines_a_failure_is_one_too() {
    let home = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["--log", "json", "gateway", "--check"])
        .env("RUST_LOG", "info")
        .current_dir(home.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("there is no upstream"), "{said}");
    for line in said.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
    }
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

#[test]
fn an_answer_larger_than_the_store_takes_is_refused_before_the_start() {
    let home = tempfile::TempDir::new().unwrap();
    let check = |store: &str, size: &str| {
        let words = ["gateway", "--check", "--scope", "none", "--upstream", "http://h", "--store", store];
        onlyonce(home.path(), &[&words[..], &["--max-response", size, "--memory", "2GiB"]].concat())
    };
    for (store, most, more) in [
        ("embedded:data", "64MiB", "65MiB"),
        ("memory:", "1023MiB", "1GiB"),
        ("sqlite:once.db", "900MiB", "901MiB"),
        ("redis://h", "511MiB", "512MiB"),
        ("postgres://h/db", "1000MiB", "1001MiB"),
    ] {
        assert_eq!(check(store, most).0, 0, "{store}");
        let (code, said) = check(store, more);
        assert_eq!(code, 2, "{store}: {said}");
        assert!(said.contains("max_response") && said.contains(most), "{store}: {said}");
        let (code, said) = Setup::bare()
            .with(&["--store", store])
            .with(&["--scope", "none"])
            .with(&["--upstream", "http://127.0.0.1:9"])
            .with(&["--max-response", more])
            .with(&["--memory", "2GiB"])
            .fails();
        assert!(code == 2 && said.contains(most), "{store}: {said}");
    }
    let said =
        problems("store = \"embedded:data\"\n[[route]]\nmatch = \"POST /x\"\nmax_response = \"2GiB\"\n");
    assert!(said.contains("64MiB") && said.contains(":4"), "{said}");
}

#[test]
fn an_answer_larger_than_a_server_takes_is_refused_at_the_start() {
    let (code, said) = Setup::bare()
        .with(&["--store", &crate::stores::url_in("ONLYONCE_TEST_MYSQL_URL")])
        .with(&["--scope", "none"])
        .with(&["--upstream", "http://127.0.0.1:9"])
        .with(&["--max-response", "1100MiB"])
        .with(&["--memory", "2GiB"])
        .fails();
    assert!(code == 2 && said.contains("max_response") && said.contains("max_allowed_packet"), "{said}");
}

#[test]
fn an_upstream_that_can_not_be_meant_is_refused_with_what_to_write() {
    let upstream = Upstream::start();
    for wrong in [
        "http://127.0.0.1:99999",
        "http://127.0.0.1:abc",
        "http://127.0.0.1:",
        "http://127.0.0.1:0",
        "http://127.0.0.1:80:80",
        "http://127.0.0.1:-1",
        "http://",
        "http://:9000",
        "http://[::1",
        "http://256.0.0.1",
        "http://a b",
        "http://a/../b",
        "http://a#b",
        "http://a?b",
        "127.0.0.1:9000",
        "tcp://a",
    ] {
        let write = "write a URL such as \"http://127.0.0.1:9000\"";
        // What stands behind a question mark might be a secret.
        let shown = wrong.replace("?b", "?***");
        refused(
            Setup::new("memory:", &upstream).with(&["--upstream", wrong]),
            &["--upstream", &shown, write],
        );
        let config = format!("[[forward]]\npath = \"/x\"\nupstream = \"{wrong}\"\n");
        refused(Setup::new("memory:", &upstream).config(&config), &["gateway.toml:3", &shown, write]);
    }
}
