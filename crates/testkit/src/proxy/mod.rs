//! A network that fails on purpose, before a real server.

mod fault;
mod gate;
mod line;
mod plan;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use fault::NetFault;
use gate::Gate;
use plan::Plan;

/// Stands between a client and a real server and passes bytes on, except where told otherwise. It knows no protocol: an
/// exchange begins with the first bytes of the client after bytes of the server.
///
/// Faults are scripted for the next exchanges ([`next`](Self::next)), for a request that contains certain bytes
/// ([`when`](Self::when)), for all of them ([`always`](Self::always)), or drawn from a seed
/// ([`at_random`](Self::at_random)); the whole server can be made to refuse connections ([`refuse`](Self::refuse)) or to fall
/// silent ([`black_hole`](Self::black_hole)). Dropping the proxy ends its connections.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// use onlyonce_testkit::{FaultProxy, NetFault};
/// use tokio::{io::{AsyncReadExt, AsyncWriteExt}, net::{TcpListener, TcpStream}};
/// let server = TcpListener::bind("127.0.0.1:0").await?;
/// let proxy = FaultProxy::start(server.local_addr()?.to_string()).await?;
/// proxy.next(NetFault::ResetReply { after: 0 }, 1);
///
/// let mut client = TcpStream::connect(proxy.address()).await?;
/// client.write_all(b"charge").await?;
/// let (mut accepted, _) = server.accept().await?;
/// let mut request = [0; 6];
/// accepted.read_exact(&mut request).await?; // the server gets it …
/// accepted.write_all(b"done").await?;
/// assert!(client.read(&mut request).await.is_err()); // … and the client never hears of it
/// # Ok(()) }
/// ```
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    gate: Gate,
    accepting: JoinHandle<()>,
}

/// What all connections of a proxy share.
pub(crate) struct Shared {
    server: String,
    plan: Mutex<Plan>,
    black_hole: AtomicBool,
    cuts: watch::Sender<Cuts>,
    counts: Counts,
}

/// How often connections were to be reset.
#[derive(Debug, Default, Clone, Copy)]
struct Cuts {
    all: u64,
    lossy: u64,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    exchanges: AtomicU64,
    faults: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

/// What went through a proxy so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Connections of clients.
    pub connections: u64,
    /// Exchanges that began: with one request at a time on a connection, the round trips.
    pub exchanges: u64,
    /// Exchanges that were given a fault.
    pub faults: u64,
    /// Bytes that the server was given.
    pub to_server: u64,
    /// Bytes that clients were given.
    pub to_client: u64,
}

impl FaultProxy {
    /// A proxy on a free port of 127.0.0.1 before the server at `host:port`, without faults yet.
    ///
    /// # Errors
    /// If there is no port to listen on.
    pub async fn start(server: impl Into<String>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            server: server.into(),
            plan: Mutex::default(),
            black_hole: AtomicBool::new(false),
            cuts: watch::Sender::default(),
            counts: Counts::default(),
        });
        let (address, gate, accepting) = gate::open(Arc::clone(&shared))?;
        Ok(Self { address, shared, gate, accepting })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The next `times` exchanges, on whatever connection, go wrong like this. Later scripts follow.
    pub fn next(&self, fault: NetFault, times: usize) {
        self.shared.plan.lock().next(fault, times);
    }

    /// The next request with these bytes in it goes wrong like this, before any other script. They are looked for in what
    /// arrives at a time: choose a few bytes of a small request, such as `COMMIT`.
    pub fn when(&self, contains: &[u8], fault: NetFault) {
        self.shared.plan.lock().when(contains, fault);
    }

    /// All exchanges that no script speaks for go wrong like this, until [`heal`](Self::heal).
    pub fn always(&self, fault: NetFault) {
        self.shared.plan.lock().always(fault);
    }

    /// Of a thousand exchanges that no script speaks for, `rate` go wrong, each with one of `faults`. The order of draws
    /// depends only on the seed; which exchange comes when does not.
    pub fn at_random(&self, seed: u64, rate: u16, faults: &[NetFault]) {
        self.shared.plan.lock().at_random(seed, rate, faults);
    }

    /// Resets all connections, and refuses new ones until [`heal`](Self::heal).
    pub async fn refuse(&self) {
        self.gate.shut().await;
        self.cut();
    }

    /// From now on nothing arrives in either direction, on old connections and new ones, and nobody is told, until
    /// [`heal`](Self::heal).
    pub fn black_hole(&self) {
        self.shared.black_hole.store(true, Ordering::SeqCst);
    }

    /// Resets all connections. New ones are let through.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| cuts.all += 1);
    }

    /// From now on nothing goes wrong. Connections that lost bytes are reset: they would never speak again.
    pub async fn heal(&self) {
        *self.shared.plan.lock() = Plan::default();
        self.shared.black_hole.store(false, Ordering::SeqCst);
        self.shared.cuts.send_modify(|cuts| cuts.lossy += 1);
        self.gate.open().await;
    }

    /// What went through so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Traffic {
            connections: read(&counts.connections),
            exchanges: read(&counts.exchanges),
            faults: read(&counts.faults),
            to_server: read(&counts.to_server),
            to_client: read(&counts.to_client),
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultProxy")
            .field("address", &self.address)
            .field("server", &self.shared.server)
            .field("traffic", &self.traffic())
            .finish_non_exhaustive()
    }
}

fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::SeqCst);
}
