//! A private redis-server that keeps nothing and ends with its handle.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Server {
    port: u16,
    child: Child,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("redis-server is installed");
        let server = Self { port, child };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
