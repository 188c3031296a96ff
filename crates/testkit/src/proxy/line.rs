//! One connection: a task for each direction, so that a delayed request still arrives when its sender has gone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::fault::NetFault;
use super::{Cuts, Shared, count};

/// What both directions of a connection know.
struct Line {
    shared: Arc<Shared>,
    now: Mutex<Exchange>,
    /// True when this connection is to be reset.
    reset: watch::Sender<bool>,
}

/// The exchange that is under way.
struct Exchange {
    fault: Option<NetFault>,
    answered: bool,
    requests_lost: bool,
    replies_lost: bool,
    /// Bytes of it so far.
    requested: usize,
    replied: usize,
}

/// What becomes of some bytes.
enum Fate {
    Pass,
    Late(Duration),
    Lost,
    /// So many of them arrive, then a reset.
    Cut(usize),
    /// They arrive, then an end of stream.
    Last,
    /// An end of stream comes in their place.
    End,
}

#[derive(Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

pub(super) async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let cuts = shared.cuts.subscribe();
    let Ok(server) = TcpStream::connect(&shared.server).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let now = Mutex::new(Exchange {
        fault: None,
        answered: true,
        requests_lost: false,
        replies_lost: false,
        requested: 0,
        replied: 0,
    });
    let line = Arc::new(Line { shared, now, reset: watch::Sender::new(false) });
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        line.direct(Direction::ToServer, from_client, to_server, cuts.clone()),
        line.direct(Direction::ToClient, from_server, to_client, cuts),
    );
}

impl Line {
    /// Carries one direction until its end, or until the connection is reset.
    async fn direct(
        &self,
        direction: Direction,
        from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        mut cuts: watch::Receiver<Cuts>,
    ) {
        let mut reset = self.reset.subscribe();
        let ended = tokio::select! {
            biased;
            _ = reset.wait_for(|reset| *reset) => false,
            () = self.is_cut(&mut cuts) => false,
            ended = self.copy(direction, from, &mut to) => ended.is_ok(),
        };
        if !ended {
            // Without the end of stream that dropping would send before the reset.
            let _ = to.as_ref().set_zero_linger();
            to.forget();
        }
    }

    async fn copy(
        &self,
        direction: Direction,
        mut from: OwnedReadHalf,
        to: &mut OwnedWriteHalf,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        let mut ended = false;
        loop {
            let n = from.read(&mut buffer).await?;
            if n == 0 {
                if self.loses(direction) {
                    // An end of stream is lost like bytes are: nobody hears of it before the connection is reset.
                    std::future::pending::<()>().await;
                }
                return if ended { Ok(()) } else { to.shutdown().await };
            }
            let bytes = &buffer[..n];
            let fate = match direction {
                Direction::ToServer => self.requested(bytes),
                Direction::ToClient => self.replied(n),
            };
            match fate {
                _ if ended => {}
                Fate::Lost => {}
                Fate::Pass => self.pass(direction, to, bytes).await?,
                Fate::Late(by) => {
                    tokio::time::sleep(by).await;
                    self.pass(direction, to, bytes).await?;
                }
                Fate::Cut(after) => {
                    self.pass(direction, to, &bytes[..after.min(n)]).await?;
                    if after <= n {
                        self.reset.send_replace(true);
                        std::future::pending::<()>().await;
                    }
                }
                Fate::Last => {
                    self.pass(direction, to, bytes).await?;
                    to.shutdown().await?;
                    ended = true;
                }
                Fate::End => {
                    to.shutdown().await?;
                    ended = true;
                }
            }
        }
    }

    async fn pass(&self, direction: Direction, to: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
        let counts = &self.shared.counts;
        match direction {
            Direction::ToServer => count(&counts.to_server, bytes.len()),
            Direction::ToClient => count(&counts.to_client, bytes.len()),
        }
        to.write_all(bytes).await
    }

    /// Whether what goes in this direction is lost, now or since earlier.
    fn loses(&self, direction: Direction) -> bool {
        let mut now = self.now.lock();
        let lost = match direction {
            Direction::ToServer => &mut now.requests_lost,
            Direction::ToClient => &mut now.replies_lost,
        };
        *lost |= self.shared.black_hole.load(Ordering::SeqCst);
        *lost
    }

    /// Ends when all connections are reset, or those that lost bytes and this is one.
    async fn is_cut(&self, cuts: &mut watch::Receiver<Cuts>) {
        let before = cuts.borrow().all;
        loop {
            let over = cuts.changed().await.is_err();
            let lossy = {
                let now = self.now.lock();
                now.requests_lost || now.replies_lost
            };
            if over || lossy || cuts.borrow().all != before {
                return;
            }
        }
    }

    fn requested(&self, bytes: &[u8]) -> Fate {
        let mut now = self.now.lock();
        let drawn = if std::mem::take(&mut now.answered) {
            count(&self.shared.counts.exchanges, 1);
            (now.fault, now.requested, now.replied) = (None, 0, 0);
            self.shared.plan.lock().fault(bytes)
        } else {
            self.shared.plan.lock().matched(bytes)
        };
        if let Some(fault) = drawn {
            count(&self.shared.counts.faults, 1);
            now.fault = Some(fault);
        }
        let before = now.requested;
        now.requested += bytes.len();
        now.requests_lost |= now.fault == Some(NetFault::DropRequest);
        let fault = now.fault;
        drop(now);
        if self.loses(Direction::ToServer) {
            return Fate::Lost;
        }
        match fault {
            Some(NetFault::DelayRequest(by)) => Fate::Late(by),
            Some(NetFault::ResetRequest { after }) => Fate::Cut(after.saturating_sub(before)),
            Some(NetFault::HalfCloseRequest) => Fate::Last,
            _ => Fate::Pass,
        }
    }

    fn replied(&self, n: usize) -> Fate {
        let mut now = self.now.lock();
        now.answered = true;
        let before = now.replied;
        now.replied += n;
        now.replies_lost |= now.fault == Some(NetFault::DropReply);
        let fault = now.fault;
        drop(now);
        if self.loses(Direction::ToClient) {
            return Fate::Lost;
        }
        match fault {
            Some(NetFault::DelayReply(by)) => Fate::Late(by),
            Some(NetFault::ResetReply { after }) => Fate::Cut(after.saturating_sub(before)),
            Some(NetFault::HalfCloseReply) => Fate::End,
            _ => Fate::Pass,
        }
    }
}
