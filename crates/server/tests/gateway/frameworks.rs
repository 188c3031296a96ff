//! Services that were not written by us, made idempotent without a change.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use onlyonce_testkit::free_port;

use crate::client::Request;
use crate::program::{Setup, eventually, post};
use crate::stores::key;
use crate::upstream::Upstream;

struct Service {
    process: Child,
    address: SocketAddr,
}

impl Service {
    fn start(mut command: Command, port: u16) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        eventually(|| TcpStream::connect(address).is_ok());
        Self { process, address }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where packages are installed once: beside the build, so that a clean build has clean packages.
pub(crate) fn workshop(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Installs a Python package into a place of its own, unless it is there.
pub(crate) fn install(folder: &Path, module: &str, package: &str) {
    let python = folder.join("venv/bin/python");
    let is_there = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if is_there.is_ok_and(|done| done.status.success()) {
        return;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")));
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package];
    run(Command::new(&python).args(pip));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Charges are counted by the service itself, in the way of its framework.
fn is_made_idempotent(service: &Service) {
    // The upstream of the setup is replaced by the service.
    let gateway = Setup::new("memory:", &Upstream::start())
        .with(&["--upstream", &service.url()])
        .with(&["--wait", "20s"])
        .start();
    let (key, address) = (key("framework"), gateway.address);
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let request = post("/payments", &key, "{\"amount\":100}");
            std::thread::spawn(move || request.send(address))
        })
        .collect();
    let answers: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    assert!(
        answers.iter().all(|answer| answer.status == 201 && answer.body == answers[0].body),
        "{answers:?}"
    );
    assert!(answers[0].json()["receipt"] == 1, "{}", answers[0].text());
    gateway.post("/payments", &key, "{\"amount\":999}").is(422, "payload-mismatch");
    assert_eq!(
        gateway.post("/payments", "", "{\"amount\":100}").json()["receipt"],
        2,
        "without a key nothing changes"
    );
    assert_eq!(Request::new("GET", "/payments").send(gateway.address).json()["count"], 2);
}

#[test]
fn a_flask_service_is_made_idempotent_without_a_change() {
    let folder = workshop("flask");
    let python = folder.join("venv/bin/python");
    install(&folder, "flask", "flask");
    std::fs::write(folder.join("service.py"), include_str!("frameworks/service.py")).unwrap();
    let port = free_port();
    let mut command = Command::new(&python);
    command.arg(folder.join("service.py")).arg(port.to_string());
    is_made_idempotent(&Service::start(command, port));
}

#[test]
fn an_express_service_is_made_idempotent_without_a_change() {
    let folder = workshop("express");
    if !folder.join("node_modules/express/package.json").exists() {
        std::fs::write(folder.join("package.json"), "{\"private\":true}").unwrap();
        run(Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", "express"])
            .current_dir(&folder));
    }
    std::fs::write(folder.join("service.cjs"), include_str!("frameworks/service.cjs")).unwrap();
    let port = free_port();
    let mut command = Command::new("node");
    command.arg(folder.join("service.cjs")).arg(port.to_string());
    is_made_idempotent(&Service::start(command, port));
}
