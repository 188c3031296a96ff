//! As much of WebDriver as the tests need: a chromedriver of our own, and a Chromium with a profile of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onlyonce::client::reqwest::{self, Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take that a browser does, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scripts {
    On,
    Off,
}

pub struct Browser {
    http: Client,
    session: String,
    driver: Child,
    _profile: TempDir,
}

impl Browser {
    /// A driver, and the port that it says it listens on.
    fn driver() -> Option<(Child, u16)> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is missing: `cargo xtask test` installs chromium and chromium-driver");
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            line.strip_suffix('.')?.rsplit_once("successfully on port ")?.1.parse::<u16>().ok()
        });
        let Some(port) = port else {
            driver.wait().unwrap();
            return None;
        };
        Some((driver, port))
    }

    pub async fn start(scripts: Scripts) -> Self {
        // It takes a port of its choice twice, for IPv4 and IPv6, and ends if somebody has the second.
        let started = (0..10).find_map(|_| Self::driver());
        let (driver, port) = started.expect("chromedriver says on which port it listens");
        let profile = tempfile::tempdir().unwrap();
        let mut arguments: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-proxy-server",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        .map(Into::into)
        .into();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        if scripts == Scripts::Off {
            arguments.push("--blink-settings=scriptEnabled=false".into());
        }
        let wish = json!({ "capabilities": { "alwaysMatch": {
            "pageLoadStrategy": "normal",
            "goog:chromeOptions": { "args": arguments },
        } } });
        let http = onlyonce::client::http().no_proxy().timeout(PATIENCE).build().unwrap();
        let driver_url = format!("http://127.0.0.1:{port}/session");
        let session = ask(&http, Method::POST, &driver_url, &wish).await;
        let session = format!("{driver_url}/{}", session["sessionId"].as_str().unwrap());
        Self { http, session, driver, _profile: profile }
    }

    async fn post(&self, command: &str, body: Value) -> Value {
        ask(&self.http, Method::POST, &format!("{}/{command}", self.session), &body).await
    }

    async fn get(&self, command: &str) -> Value {
        ask(&self.http, Method::GET, &format!("{}/{command}", self.session), &Value::Null).await
    }

    pub async fn go(&self, url: &str) {
        self.post("url", json!({ "url": url })).await;
    }

    pub async fn back(&self) {
        self.post("back", json!({})).await;
    }

    /// Waits until the browser shows this page.
    pub async fn arrive(&self, url: &str) {
        let mut seen = Value::Null;
        for _ in 0..600 {
            seen = self.get("url").await;
            if seen == url {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let page = self.get("source").await;
        panic!("the browser is at {seen} and not at {url}: {page}");
    }

    /// Runs a script in the page.
    pub async fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    async fn find(&self, selector: &str) -> Value {
        self.post("element", json!({ "using": "css selector", "value": selector })).await
    }

    pub async fn click(&self, selector: &str) {
        self.clicks(selector, 1, 0).await;
    }

    /// Two clicks with nothing between them.
    pub async fn double_click(&self, selector: &str) {
        self.clicks(selector, 2, 0).await;
    }

    /// Clicks with so many milliseconds after each.
    pub async fn clicks(&self, selector: &str, times: usize, pause: u64) {
        let element = self.find(selector).await;
        let click = [
            json!({ "type": "pointerDown", "button": 0 }),
            json!({ "type": "pointerUp", "button": 0 }),
            json!({ "type": "pause", "duration": pause }),
        ];
        let mut actions =
            vec![json!({ "type": "pointerMove", "duration": 0, "origin": element, "x": 0, "y": 0 })];
        actions.extend(std::iter::repeat_n(click, times).flatten());
        let pointer = json!({ "type": "pointer", "id": "mouse", "actions": actions });
        self.post("actions", json!({ "actions": [pointer] })).await;
    }

    /// Enter, twice, in a field.
    pub async fn enter_twice(&self, selector: &str) {
        let element = self.find(selector).await;
        let id = element.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.post(&format!("element/{id}/click"), json!({})).await;
        let enter = "\u{E007}";
        let press =
            [json!({ "type": "keyDown", "value": enter }), json!({ "type": "keyUp", "value": enter })];
        let actions: Vec<Value> = std::iter::repeat_n(press, 2).flatten().collect();
        let keys = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("actions", json!({ "actions": [keys] })).await;
    }

    pub async fn tab(&self) -> Value {
        self.get("window").await
    }

    /// Opens a tab and goes there.
    pub async fn new_tab(&self) -> Value {
        let tab = self.post("window/new", json!({ "type": "tab" })).await["handle"].clone();
        self.switch(&tab).await;
        tab
    }

    pub async fn switch(&self, tab: &Value) {
        self.post("window", json!({ "handle": tab })).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // chromedriver ends its browser when it is told to end; killed, it would leave it behind.
        let session = self.session.clone();
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let http = onlyonce::client::http().no_proxy().timeout(PATIENCE).build().unwrap();
                let _ = http.delete(session).send().await;
            });
        });
        let _ = ended.join();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

async fn ask(http: &Client, method: Method, url: &str, body: &Value) -> Value {
    let request = http.request(method.clone(), url);
    let request = if method == Method::POST { request.body(body.to_string()) } else { request };
    let response: reqwest::Response = request.send().await.unwrap();
    let status = response.status();
    let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert!(status.is_success(), "{url}: {answer}");
    answer["value"].clone()
}
