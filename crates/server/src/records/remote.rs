//! The admin API of a gateway, as a client sees it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::actor;
use super::cli::{PlaceArguments, Search};
use super::place::{Seen, Wish};
use crate::admin::{Detail, IdWord, Listing};
use crate::config::{Speech, Target};
use crate::failure::Failure;
use crate::{masked, secret, variable};

/// Where the admin API is, if no flag says so.
const VARIABLE: &str = "ONLYONCE_ADMIN_URL";
const PATIENCE: Duration = Duration::from_secs(60);
const MOST_READ: usize = 64 << 20;

pub(super) struct Remote {
    target: Target,
    token: String,
    who: String,
}

impl Remote {
    pub(super) fn new(arguments: &PlaceArguments) -> Result<Self, Failure> {
        let find = |name: &str| variable::find(name).map_err(Failure::usage);
        let (source, url) = match &arguments.admin {
            Some(url) => ("--admin", Some(url.clone())),
            None => (VARIABLE, find(VARIABLE)?),
        };
        let target = Target::parse(url.as_deref().unwrap_or("http://127.0.0.1:8081"));
        let target = target.map_err(|why| {
            Failure::usage(format!("{source}: {}", why.replace("an upstream", "the address of an admin API")))
        })?;
        let token_file = match &arguments.token_file {
            Some(file) => Some(file.clone()),
            None => find("ONLYONCE_ADMIN_TOKEN_FILE")?.map(PathBuf::from),
        };
        if target.speech != Speech::Http1 {
            return Err(Failure::usage(
                "the admin API is spoken to by http://; use a tunnel to reach it from elsewhere",
            ));
        }
        let who = actor::name(arguments.who.as_deref());
        Ok(Self { target, token: token(token_file.as_deref())?, who })
    }

    pub(super) async fn list(
        &self,
        search: &Search,
        cursor: Option<String>,
        limit: u32,
    ) -> Result<Listing, Failure> {
        let state = search.state.map(|state| state.name().to_owned());
        let (limit, clone) = (Some(limit.to_string()), Option::<String>::clone);
        let parameters = [
            ("state", state),
            ("route", clone(&search.route)),
            ("scope", clone(&search.scope)),
            ("q", clone(&search.key)),
            ("since", clone(&search.since)),
            ("cursor", cursor),
            ("limit", limit),
        ];
        self.ask(Method::GET, &format!("/api/records{}", query(&parameters)), None).await
    }

    pub(super) async fn show(&self, id: &IdWord) -> Result<Detail, Failure> {
        self.ask(Method::GET, &format!("/api/records/{}", id.as_str()), None).await
    }

    pub(super) async fn change(&self, seen: &Seen, wish: &Wish) -> Result<(), Failure> {
        let (path, fence) = (format!("/api/records/{}", encoded(&seen.id)), seen.fence);
        let _: Value = match wish {
            Wish::Resolve(decision) => {
                let decision = crate::admin::Resolve { fence: Some(fence), ..(**decision).clone() };
                let body = serde_json::to_value(decision)
                    .map_err(|error| Failure::because("can't be sent", &error))?;
                self.ask(Method::POST, &format!("{path}/resolve"), Some(body)).await?
            }
            Wish::Release { reason } => {
                let body = json!({ "reason": reason, "fence": fence });
                self.ask(Method::POST, &format!("{path}/release"), Some(body)).await?
            }
            Wish::Forget { reason } => {
                let parameters = [
                    ("reason", Some(reason.clone())),
                    ("fence", Some(fence.to_string())),
                    ("state", Some(seen.state.name().to_owned())),
                ];
                self.ask(Method::DELETE, &format!("{path}{}", query(&parameters)), None).await?
            }
        };
        Ok(())
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Failure> {
        let changes = method != Method::GET;
        let asked = tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await;
        let late = |_| Lost::Answer("the admin API does not answer in time".into());
        let (status, body) = match asked.unwrap_or_else(|over| Err(late(over))) {
            Ok(answer) => answer,
            Err(Lost::Request(why)) => return Err(why),
            // It was sent, and may have been done.
            Err(Lost::Answer(why)) if changes => {
                return Err(Failure::new(format!("{why}; it may have been changed: look again")));
            }
            Err(Lost::Answer(why)) => return Err(Failure::new(why)),
        };
        if status.is_success() {
            // What else it said is nobody's business: it may be another service.
            return serde_json::from_slice(&body).map_err(|_| {
                Failure::new(
                    "what answers is not an admin API of this release: check its address (--admin), and its release",
                )
            });
        }
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("no reason was given");
        let failure = Failure::new(format!("the admin API answers {status}: {detail}"));
        // What it can't understand was asked for wrongly.
        Err(if status == StatusCode::BAD_REQUEST { failure.into_usage() } else { failure })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, Bytes), Lost> {
        let address = &self.target.authority;
        let unreachable = |error: &dyn std::error::Error| {
            Lost::Request(Failure::because(
                &format!(
                    "the admin API on {address} is not reached; is the gateway running? Name another with --admin, or a store with --store"
                ),
                error,
            ))
        };
        let socket = TcpStream::connect((self.target.host.as_str(), self.target.port)).await;
        let socket = socket.map_err(|error| unreachable(&error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
        let (mut sender, connection) = handshake.map_err(|error| unreachable(&error))?;
        tokio::spawn(connection);
        let text = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.target.base))
            .header("host", address.as_str())
            .header("authorization", format!("Bearer {}", self.token))
            .header("onlyonce-actor", self.who.as_bytes())
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(text)))
            .map_err(|error| Lost::Request(Failure::because("the request can't be made", &error)))?;
        let broken = |error: &dyn std::fmt::Display| {
            Lost::Answer(format!("the connection to the admin API on {address} broke: {error}"))
        };
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_READ).collect().await;
        let body = body.map_err(|error| broken(&error))?;
        Ok((status, body.to_bytes()))
    }
}

/// What did not arrive.
enum Lost {
    /// The request: nothing was done.
    Request(Failure),
    /// The answer to it.
    Answer(String),
}

fn query(parameters: &[(&str, Option<String>)]) -> String {
    let pairs =
        parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))));
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn token(file: Option<&Path>) -> Result<String, Failure> {
    let of = |text: &str, place: &str| match secret::line(text) {
        Ok(token) => Ok(token.to_owned()),
        Err(why) => Err(Failure::usage(format!("the token in {place} can't be sent: {why}"))),
    };
    if let Some(file) = file {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| masked::unreadable("the token file", file, &error));
        return of(&text.map_err(Failure::usage)?, &masked::file(file));
    }
    if let Some(token) = variable::find("ONLYONCE_ADMIN_TOKEN").map_err(Failure::usage)? {
        return of(&token, "ONLYONCE_ADMIN_TOKEN");
    }
    let usual = ["onlyonce-data/admin.token", "onlyonce-admin.token"];
    let found = usual.iter().find_map(|file| Some((file, std::fs::read_to_string(file).ok()?)));
    match found {
        Some((file, text)) => of(&text, file),
        None => Err(Failure::usage(
            "which token? Name its file with --token-file (the gateway prints it at its start), or set ONLYONCE_ADMIN_TOKEN",
        )),
    }
}

impl std::fmt::Debug for Remote {
    // Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("target", &self.target).finish_non_exhaustive()
    }
}
