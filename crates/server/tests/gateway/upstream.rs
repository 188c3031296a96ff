//! A service that does what its paths say, and remembers every effect that it had: the ledger that nobody can fake.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as the upstream saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug)]
struct State {
    seen: Mutex<Vec<Seen>>,
    counter: AtomicU64,
    gate: AtomicBool,
}

#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state =
            State { seen: Mutex::default(), counter: AtomicU64::new(0), gate: AtomicBool::new(false) };
        let upstream = Self { address, state: Arc::new(state) };
        let served = upstream.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || served.serve(socket));
            }
        });
        upstream
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// How many requests came that change something.
    pub(crate) fn effects(&self) -> usize {
        self.seen().iter().filter(|seen| seen.method != "GET").count()
    }

    /// How many effects a key had.
    pub(crate) fn effects_of(&self, key: &str) -> usize {
        let is = |seen: &&Seen| seen.method != "GET" && seen.header("idempotency-key") == Some(key);
        self.seen().iter().filter(is).count()
    }

    /// Lets requests to `/gated` go on.
    pub(crate) fn open(&self) {
        self.state.gate.store(true, Ordering::SeqCst);
    }

    fn serve(&self, socket: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(socket.try_clone().ok()?);
        let mut socket = socket;
        loop {
            let seen = read(&mut reader)?;
            self.state.seen.lock().unwrap().push(seen.clone());
            let n = self.state.counter.fetch_add(1, Ordering::SeqCst) + 1;
            let mut answer = self.answer(&seen, n, &mut socket)?;
            if seen.method == "HEAD" {
                let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
                answer.truncate(end + 4);
            }
            socket.write_all(&answer).ok()?;
        }
    }

    /// `None` closes the connection.
    fn answer(&self, seen: &Seen, n: u64, socket: &mut TcpStream) -> Option<Vec<u8>> {
        let path = seen.path.split('?').next().unwrap_or_default();
        let body = format!("effect {n} of {} bytes", seen.body.len());
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        Some(match words.as_slice() {
            // /status/503/retry-after/1 and the like: any status, and any one header
            ["status", status] => answer(status, "", &body),
            ["status", status, name, value] => answer(status, &format!("{name}: {value}\r\n"), &body),
            ["gated"] => {
                for _ in 0..12_000 {
                    if self.state.gate.load(Ordering::SeqCst) {
                        return Some(answer("201", "", &body));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                return None;
            }
            ["slow", millis] => {
                std::thread::sleep(Duration::from_millis(millis.parse().unwrap()));
                answer("201", "", &body)
            }
            ["reset"] => return None,
            ["truncated"] => {
                socket.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\nhalf").ok()?;
                return None;
            }
            ["large", bytes] => answer("201", "location: /orders/7\r\n", &"x".repeat(bytes.parse().unwrap())),
            ["large", bytes, "after", millis] => {
                std::thread::sleep(Duration::from_millis(millis.parse().unwrap()));
                answer("201", "", &"x".repeat(bytes.parse().unwrap()))
            }
            ["stream"] => {
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").ok()?;
                for piece in 0..3 {
                    let piece = format!("data: {piece}\n\n");
                    socket.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).ok()?;
                    std::thread::sleep(Duration::from_millis(50));
                }
                b"0\r\n\r\n".to_vec()
            }
            ["headers"] => answer(
                "201",
                "set-cookie: s=secret\r\nlink: a\r\nlink: b\r\nx-request-id: 1\r\nlocation: /orders/7\r\nx-hop: 1\r\nconnection: x-hop\r\n",
                &body,
            ),
            ["many-headers", count] => {
                let headers: String =
                    (0..count.parse().unwrap()).map(|n: u32| format!("x-{n}: y\r\n")).collect();
                answer("201", &headers, &body)
            }
            ["form"] => answer("303", "location: /done\r\n", ""),
            ["echo"] => answer("201", "", &String::from_utf8_lossy(&seen.body)),
            ["by-key", key] => answer("200", "", &format!("found {key}")),
            ["gone", _] => answer("404", "onlyonce-outcome: release\r\n", "never came"),
            ["unsure", _] => answer("404", "", "no idea"),
            ["ws"] => {
                socket.write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n").ok()?;
                let mut buffer = [0; 64];
                while let Ok(read @ 1..) = socket.read(&mut buffer) {
                    socket.write_all(&buffer[..read]).ok()?;
                }
                return None;
            }
            // Exactly what the request asks for.
            ["raw"] => seen.body.clone(),
            // Ten bytes of a hundred, and then no word.
            ["stalls", content] => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/{content}\r\ncontent-length: 100\r\n\r\n0123456789"
                );
                socket.write_all(head.as_bytes()).ok()?;
                std::thread::sleep(Duration::from_secs(120));
                return None;
            }
            // So many pieces, with so many milliseconds before each.
            ["drips", content, pieces, millis] => {
                let (pieces, millis) = (pieces.parse().unwrap(), millis.parse().unwrap());
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/{content}\r\ntransfer-encoding: chunked\r\n\r\n"
                );
                socket.write_all(head.as_bytes()).ok()?;
                for _ in 0..pieces {
                    std::thread::sleep(Duration::from_millis(millis));
                    socket.write_all(b"4\r\ndrip\r\n").ok()?;
                }
                b"0\r\n\r\n".to_vec()
            }
            // With the headers that the request asks for, separated by bars.
            ["says"] => {
                let lines = seen.header("x-says").unwrap_or_default().split('|');
                answer("201", &lines.map(|line| format!("{line}\r\n")).collect::<String>(), &body)
            }
            ["trails"] => {
                let trailer = seen.header("x-says").unwrap_or_default();
                let name = trailer.split(':').next().unwrap_or_default();
                format!("HTTP/1.1 201 Created\r\ntrailer: {name}\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n{trailer}\r\n\r\n")
                    .into_bytes()
            }
            _ => answer("201", "content-type: text/plain\r\n", &body),
        })
    }
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Whatever\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let head = line(reader)?;
    let mut words = head.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers = fields(reader)?;
    let mut seen = Seen { method, path, headers, body: Vec::new(), trailers: Vec::new() };
    if seen.header("transfer-encoding") == Some("chunked") {
        loop {
            let length = usize::from_str_radix(line(reader)?.trim(), 16).ok()?;
            if length == 0 {
                seen.trailers = fields(reader)?;
                break;
            }
            let mut piece = vec![0; length + 2];
            reader.read_exact(&mut piece).ok()?;
            seen.body.extend_from_slice(&piece[..length]);
        }
    } else if let Some(length) = seen.header("content-length") {
        seen.body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut seen.body).ok()?;
    }
    Some(seen)
}

/// A line, whatever its bytes are.
fn line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok().filter(|read| *read > 0)?;
    Some(String::from_utf8_lossy(&line).into_owned())
}

/// Headers or trailers, up to the empty line.
fn fields(reader: &mut BufReader<TcpStream>) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = line(reader)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { return Some(fields) };
        fields.push((name.to_lowercase(), value.trim().to_owned()));
    }
}
