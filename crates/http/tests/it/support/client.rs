//! A client that shows whole answers.

use std::net::SocketAddr;

use axum::body::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    http: HyperClient<HttpConnector, Full<Bytes>>,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A request, being described.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

pub(crate) fn post(path: &str) -> Ask {
    Ask {
        method: Method::POST,
        path: path.into(),
        headers: Vec::new(),
        body: Bytes::from_static(b"{\"amount\":100}"),
    }
}

impl Ask {
    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, http: HyperClient::builder(TokioExecutor::new()).build_http() }
    }

    pub(crate) async fn send(&self, ask: Ask) -> Answer {
        let mut request =
            Request::builder().method(ask.method).uri(format!("http://{}{}", self.address, ask.path));
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let response = self.http.request(request.body(Full::new(ask.body)).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&'static str, &str)]) -> Answer {
        let ask = headers
            .iter()
            .fold(post(path).method(Method::GET).body(""), |ask, (name, value)| ask.header(name, *value));
        self.send(ask).await
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {:?}", self.body))
    }

    /// Checks that this is the given problem, with everything that every problem has.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, name: &str) -> Value {
        assert_eq!(self.status, status, "{:?}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["type"], format!("urn:onlyonce:problem:{name}"));
        assert_eq!(problem["status"], status);
        assert!(problem["instance"].as_str().unwrap().starts_with("urn:uuid:"));
        assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()));
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        assert!(problem["retryable"].is_boolean());
        assert!(self.header("link").unwrap().contains(&format!("#{name}>; rel=\"describedby\"")));
        problem
    }
}
