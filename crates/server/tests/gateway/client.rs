//! The simplest client there is: one request a connection, and what came back, byte for byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    head: String,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self {
            head: format!("{method} {path} HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n"),
            body: Vec::new(),
        }
    }

    /// The same without the one Host that every request has.
    pub(crate) fn without_host(mut self) -> Self {
        self.head = self.head.replace("host: shop.example\r\n", "");
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [format!("{}content-length: {}\r\n\r\n", self.head, self.body.len()).as_bytes(), &self.body].concat()
    }

    pub(crate) fn send(&self, address: SocketAddr) -> Answer {
        self.try_send(address).unwrap()
    }

    pub(crate) fn try_send(&self, address: SocketAddr) -> std::io::Result<Answer> {
        let mut socket = connect(address)?;
        socket.write_all(&self.bytes())?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Answer::parse(&answer, self.head.starts_with("HEAD "))
            .ok_or_else(|| std::io::Error::other("no whole answer came"))
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(socket)
}

/// Writes bytes, and reads until the other end closes or is silent for `patience`.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8], patience: Duration) -> String {
    let mut socket = connect(address).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    // The other end may close before it has read everything.
    let _ = socket.write_all(bytes);
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = socket.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..read]);
    }
    let _ = socket.shutdown(Shutdown::Both);
    String::from_utf8_lossy(&answer).into_owned()
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8], bodiless: bool) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<_> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = Self { status, headers, body: bytes[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = unchunk(&answer.body)?;
        }
        let length = answer.header("content-length").map(|length| length.parse::<usize>().unwrap());
        (bodiless || length.is_none_or(|length| length == answer.body.len())).then_some(answer)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The name of the problem, or nothing.
    pub(crate) fn problem(&self) -> String {
        if self.header("content-type") != Some("application/problem+json") {
            return String::new();
        }
        let kind = self.json()["type"].as_str().unwrap_or_default().to_owned();
        kind.trim_start_matches("urn:onlyonce:problem:").to_owned()
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16, problem: &str) -> &Self {
        assert_eq!((self.status, self.problem().as_str()), (status, problem), "{}", self.text());
        self
    }
}

fn unchunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        bytes = &bytes[end + 2..];
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(bytes.get(..length)?);
        bytes = bytes.get(length + 2..)?;
    }
}
