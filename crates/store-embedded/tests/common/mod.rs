//! What the tests of this crate share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "every test binary takes its part, and helpers are tests too"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::{
    Answer, AttemptId, Begin, Claim, Clock, Fence, Fingerprint, Hash16, Key, Label, ManualClock, Moment,
    Operation, Owner, RecordId, Scope, Settled, Settlement, Sleep, State, Store, StoreError, Takeover,
    Uptime, Verdict,
};
use onlyonce_store_embedded::EmbeddedStore;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn id(n: u64) -> RecordId {
    RecordId::of(&Scope::shared(), &Operation::http("POST", "/"), &Key::new(n.to_string()).unwrap())
}

pub(crate) fn claim() -> Claim {
    Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(30),
        retain_unsettled: 24 * HOUR,
        takeover: Takeover::Never,
        label: Label {
            route: "POST /".into(),
            key: Hash16::of_key(&Key::new("k").unwrap()),
            scope: Hash16::of_scope(&Scope::shared()),
        },
    }
}

/// The answer of record `n`: some short, some longer than a block of the engine.
pub(crate) fn answer(n: u64) -> Answer {
    let length = if n.is_multiple_of(7) { 5_000 } else { 50 };
    Answer(n.to_string().bytes().cycle().take(length).collect::<Vec<_>>().into())
}

pub(crate) async fn begin(store: &dyn Store, n: u64) -> Result<AttemptId, StoreError> {
    let claim = claim();
    match store.begin(&id(n), &claim).await? {
        Begin::Acquired { fence, .. } => Ok(AttemptId { owner: claim.owner, fence: Some(fence) }),
        Begin::Taken(taken) => panic!("record {n} is taken: {taken:?}"),
    }
}

pub(crate) async fn settle(
    store: &dyn Store,
    n: u64,
    attempt: &AttemptId,
    verdict: Verdict,
) -> Result<(), StoreError> {
    let settled = store.settle(&id(n), attempt, &Settlement { verdict, retain: HOUR }).await?;
    assert_eq!(settled, Settled::Applied);
    Ok(())
}

pub(crate) async fn complete(store: &dyn Store, n: u64) -> Result<Fence, StoreError> {
    let attempt = begin(store, n).await?;
    settle(store, n, &attempt, Verdict::Completed(answer(n))).await?;
    Ok(attempt.fence.unwrap())
}

/// How a record that was acknowledged as completed shows itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    AsAcknowledged,
    FailsClosed,
    Lost(String),
}

pub(crate) async fn show(store: &dyn Store, n: u64) -> Shown {
    match store.get(&id(n)).await {
        Ok(Some(found)) if found.state == State::Completed(answer(n)) => Shown::AsAcknowledged,
        Ok(other) => Shown::Lost(format!("record {n}: {other:?}")),
        Err(_) => Shown::FailsClosed,
    }
}

/// Wall and steady clock, each moved by itself.
#[derive(Debug, Clone)]
pub(crate) struct TwoClocks {
    pub(crate) steady: ManualClock,
    wall: Arc<AtomicU64>,
    /// The number of the boot, where the system tells; zero where it does not.
    boot: Arc<AtomicU64>,
    booted: Arc<AtomicU64>,
}

impl TwoClocks {
    pub(crate) fn new() -> Self {
        Self {
            steady: ManualClock::new(),
            wall: Arc::new(AtomicU64::new(ManualClock::START_WALL_MICROS)),
            boot: Arc::default(),
            booted: Arc::default(),
        }
    }

    /// The clocks of a machine that tells its boots apart.
    pub(crate) fn machine() -> Self {
        let clock = Self::new();
        clock.boot_again();
        clock
    }

    pub(crate) fn boot_again(&self) {
        self.boot.fetch_add(1, Ordering::SeqCst);
        self.booted.store(self.steady.now().as_micros(), Ordering::SeqCst);
    }

    pub(crate) fn set_wall_forward(&self, span: Duration) {
        self.wall.fetch_add(span.as_micros() as u64, Ordering::SeqCst);
    }

    pub(crate) fn set_wall_back(&self, span: Duration) {
        self.wall.fetch_sub(span.as_micros() as u64, Ordering::SeqCst);
    }

    pub(crate) fn pass(&self, span: Duration) {
        self.steady.advance(span);
        self.set_wall_forward(span);
    }
}

impl Clock for TwoClocks {
    fn now(&self) -> Moment {
        self.steady.now()
    }

    fn wall_micros(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.steady.sleep(span)
    }

    fn uptime(&self) -> Option<Uptime> {
        let boot = self.boot.load(Ordering::SeqCst);
        let booted = Moment::from_micros(self.booted.load(Ordering::SeqCst));
        let since_boot = Moment::from_micros(0).plus(self.steady.now().since(booted));
        (boot > 0).then(|| Uptime { boot: u128::from(boot).to_be_bytes(), since_boot })
    }
}

/// A command that runs one test of this binary again, as a process of its own.
pub(crate) fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("ONLYONCE_TEST_CHILD", test);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Whether this process is such a child.
pub(crate) fn is_child(test: &str) -> bool {
    std::env::var("ONLYONCE_TEST_CHILD").is_ok_and(|child| child == test)
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Opens, waiting for a killed process to be gone from the lock.
pub(crate) fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(path).unwrap()
}

/// What the files take on disk, room made in advance not counted.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::symlink_metadata(path).unwrap();
    if meta.is_dir() {
        std::fs::read_dir(path).unwrap().map(|entry| disk_bytes(&entry.unwrap().path())).sum()
    } else {
        meta.blocks() * 512
    }
}
