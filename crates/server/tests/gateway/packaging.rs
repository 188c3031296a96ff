//! What is packaged names programs, flags, files and paths that there are.

use std::path::{Path, PathBuf};
use std::process::Command;

use yaml_rust2::{Yaml, YamlLoader};

use crate::client::Request;
use crate::program::{Setup, onlyonce};
use crate::upstream::Upstream;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn packaged(file: &str) -> String {
    std::fs::read_to_string(root().join("packaging").join(file)).unwrap()
}

/// A command line is right if the configuration that it makes is.
fn is_valid(home: &Path, words: &[&str], variables: &[(&str, &str)]) {
    let done = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(words)
        .arg("--check")
        .envs(variables.iter().copied())
        .current_dir(home)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success() && said.contains("the configuration is valid"), "{words:?}: {said}");
}

#[test]
fn the_systemd_unit_is_valid_and_starts_the_gateway_with_flags_that_there_are() {
    let home = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_onlyonce");
    let unit = packaged("systemd/onlyonce-gateway.service");
    let here = home.path().join("onlyonce-gateway.service");
    std::fs::write(&here, unit.replace("/usr/local/bin/onlyonce", binary)).unwrap();
    let done = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&here).output();
    let done = done.expect("systemd-analyze is needed; `cargo xtask test` installs it");
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    // It may have something to say about units of the machine that it runs on.
    assert!(!said.contains("onlyonce"), "{said}");
    std::fs::copy(root().join("docs/guide/gateway.toml"), home.path().join("gateway.toml")).unwrap();
    let started: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("ExecStart")).collect();
    assert_eq!(started.len(), 2, "before and at the start");
    for line in started {
        let words: Vec<&str> = line.split_once("/usr/local/bin/onlyonce ").unwrap().1.split(' ').collect();
        let words: Vec<&str> = words
            .into_iter()
            .filter(|word| *word != "--check")
            .map(|word| if word == "/etc/onlyonce/gateway.toml" { "gateway.toml" } else { word })
            .collect();
        is_valid(home.path(), &words, &[]);
    }
    let span =
        |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u32>().unwrap();
    assert!(span("TimeoutStopSec=") > 30, "longer than limits.drain");
}

#[test]
fn the_image_is_built_from_what_there_is_and_its_example_is_valid() {
    let file = packaged("docker/Dockerfile");
    let home = tempfile::tempdir().unwrap();
    let line = |begins: &str| {
        file.lines()
            .find_map(|line| line.strip_prefix(begins))
            .unwrap_or_else(|| panic!("no {begins}"))
            .to_owned()
    };
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let needed = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let version = |text: &str| {
        let number: Vec<u32> = text.trim_matches('"').split('.').map(|part| part.parse().unwrap()).collect();
        (number[0], number[1])
    };
    let image = line("FROM rust:");
    assert!(version(image.split('-').next().unwrap()) >= version(needed), "{image} is older than {needed}");
    assert_eq!(line("RUN cargo "), "build --release --locked -p onlyonce-server");
    assert!(root().join("Cargo.lock").exists(), "--locked");
    assert!(line("COPY --from=build ").starts_with("/src/target/release/onlyonce /usr/local/bin/onlyonce"));
    assert!(line("USER ").parse::<u32>().is_ok_and(|user| user > 0), "runAsNonRoot needs a number");
    let words = |text: &str| text.trim_matches(['[', ']']).replace(['"', ','], "");
    assert_eq!(words(&line("ENTRYPOINT ")), "onlyonce");
    let command = words(&line("CMD "));
    let (code, said) = onlyonce(home.path(), &command.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 0, "{said}");
    let example = line("# docker run ");
    let example: Vec<&str> = example.split_once(" onlyonce gateway ").unwrap().1.split(' ').collect();
    is_valid(home.path(), &[&["gateway"], example.as_slice()].concat(), &[]);
}

/// All mappings with this key, wherever they are.
fn find<'a>(document: &'a Yaml, key: &str, found: &mut Vec<&'a Yaml>) {
    match document {
        Yaml::Hash(members) => {
            for (name, value) in members {
                if name.as_str() == Some(key) {
                    found.push(value);
                }
                find(value, key, found);
            }
        }
        Yaml::Array(items) => items.iter().for_each(|item| find(item, key, found)),
        _ => {}
    }
}

fn only<'a>(document: &'a Yaml, key: &str) -> &'a Yaml {
    let mut found = Vec::new();
    find(document, key, &mut found);
    assert_eq!(found.len(), 1, "{key}");
    found[0]
}

#[test]
fn the_sidecar_is_valid_yaml_around_a_valid_configuration_and_its_probes_are_answered() {
    let text = packaged("kubernetes/sidecar.yaml");
    let documents = YamlLoader::load_from_str(&text).unwrap();
    let kinds: Vec<_> = documents.iter().filter_map(|document| document["kind"].as_str()).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "Service"]);
    let home = tempfile::tempdir().unwrap();
    let toml = documents[0]["data"]["gateway.toml"].as_str().unwrap();
    std::fs::write(home.path().join("gateway.toml"), toml).unwrap();
    let pod = &documents[1]["spec"]["template"]["spec"];
    let sidecar = pod["containers"]
        .as_vec()
        .unwrap()
        .iter()
        .find(|one| one["name"].as_str() == Some("onlyonce"))
        .unwrap();
    let words: Vec<&str> =
        sidecar["args"].as_vec().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let words: Vec<&str> = words
        .into_iter()
        .map(|word| if word.ends_with("gateway.toml") { "gateway.toml" } else { word })
        .collect();
    let variables: Vec<(&str, &str)> = sidecar["env"]
        .as_vec()
        .unwrap()
        .iter()
        .map(|variable| match variable["name"].as_str().unwrap() {
            name @ "ONLYONCE_STORE" => (name, "redis://:password@redis"),
            name @ "ONLYONCE_ADMIN_TOKEN" => (name, "0123456789abcdef"),
            other => panic!("{other}"),
        })
        .collect();
    is_valid(home.path(), &words, &variables);
    // The ports are those of the configuration, and the service leads to the first.
    let ports: Vec<(&str, i64)> = sidecar["ports"]
        .as_vec()
        .unwrap()
        .iter()
        .map(|port| (port["name"].as_str().unwrap(), port["containerPort"].as_i64().unwrap()))
        .collect();
    for (port, key) in ports.iter().zip(["listen", "admin"]) {
        let address = toml.lines().find(|line| line.starts_with(key)).unwrap();
        assert!(address.contains(&format!(":{}\"", port.1)), "{port:?}: {address}");
    }
    assert_eq!(only(&documents[2], "targetPort").as_str(), Some(ports[0].0));
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() > 30, "longer than limits.drain");
    let upstream = Upstream::start();
    let gateway = Setup::new("memory:", &upstream).start();
    for probe in ["readinessProbe", "livenessProbe"] {
        let ask = &only(&documents[1], probe)["httpGet"];
        assert_eq!(ask["port"].as_str(), Some(ports[1].0));
        let answer = Request::new("GET", ask["path"].as_str().unwrap()).send(gateway.admin.unwrap());
        assert_eq!(answer.status, 200, "{probe}");
    }
}

#[test]
fn completions_are_scripts_that_the_shell_understands() {
    let home = tempfile::tempdir().unwrap();
    let (code, script) = onlyonce(home.path(), &["completions", "bash"]);
    assert_eq!(code, 0);
    std::fs::write(home.path().join("onlyonce.bash"), script).unwrap();
    // What the shell would offer after `onlyonce gateway --up`.
    let ask = "source ./onlyonce.bash; COMP_WORDS=(onlyonce gateway --up); COMP_CWORD=2; \
               _onlyonce onlyonce --up gateway; echo \"${COMPREPLY[@]}\"";
    let done = Command::new("bash").args(["--norc", "-c", ask]).current_dir(home.path()).output().unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(
        said.contains("--upstream") && said.contains("--upstream-ca") && !said.contains("--listen"),
        "{said}"
    );
}

/// Debug information would be four fifths of the binary.
#[test]
fn what_is_shipped_has_no_debug_information_and_what_is_measured_has() {
    let manifest = include_str!("../../../../Cargo.toml");
    let of = |profile: &str| {
        let rest = manifest.split(&format!("[profile.{profile}]\n")).nth(1).unwrap();
        rest.split("\n[").next().unwrap()
    };
    assert!(
        of("release").contains("strip = \"debuginfo\"") && !of("release").contains("debug = "),
        "{}",
        of("release")
    );
    assert!(of("bench").contains("strip = \"none\"") && of("bench").contains("debug = \"line-tables-only\""));
}
