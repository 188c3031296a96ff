//! An engine on a faulty memory store whose time is moved by hand, and a body that leaves a trace in the ledger.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::codec::CodecError;
use onlyonce_core::{
    Answer, Bytes, Call, Class, Classify, Clock, Fingerprint, Hash16, Idempotency, Intent, Key, Label,
    ManualClock, MemoryStore, Operation, RecordId, Refusal, Scope, Settings, Snapshot, Started, State,
    StateKind, Store,
};
use onlyonce_testkit::{FaultyStore, Ledger};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const KEY: &str = "order-42";
const TICK: Duration = Duration::from_millis(5);

/// How a payment fails.
#[derive(Debug)]
pub(crate) enum Failed {
    /// An answer: the bank says no.
    Declined(String),
    /// Nothing happened.
    Down,
    /// Nobody knows.
    TimedOut,
    /// The body did not run.
    Refused(Refusal),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Classify for Failed {
    fn classify(&self) -> Class {
        match self {
            Self::Declined(_) => Class::Keep,
            Self::Down | Self::Refused(_) => Class::Release,
            Self::TimedOut => Class::Unknown,
        }
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        match self {
            Self::Declined(why) => Ok(why.clone().into()),
            other => Err(CodecError::Invalid(format!("{other:?} is not kept"))),
        }
    }

    fn revive(saved: Bytes) -> Result<Self, CodecError> {
        String::from_utf8(saved.into())
            .map(Self::Declined)
            .map_err(|error| CodecError::Invalid(error.to_string()))
    }
}

pub(crate) type Paid = Result<String, Failed>;

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) base: Arc<dyn Store>,
    pub(crate) faults: Arc<FaultyStore>,
    pub(crate) once: Idempotency,
    pub(crate) ledger: Ledger,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let clock = ManualClock::new();
        Self::on(Arc::new(MemoryStore::new().with_clock(clock.clone())), clock, settings)
    }

    pub(crate) fn on(base: Arc<dyn Store>, clock: ManualClock, settings: Settings) -> Self {
        let faults = Arc::new(FaultyStore::new(Arc::clone(&base)).with_clock(clock.clone()));
        let engine = Idempotency::builder_shared(Arc::clone(&faults) as _).clock(clock.clone());
        let once = engine.settings(settings).build().unwrap();
        Self { clock, base, faults, once, ledger: Ledger::in_memory() }
    }

    /// Another process on the same store, without faults of its own.
    pub(crate) fn neighbour(&self) -> Self {
        let settings = (**self.once.settings()).clone();
        let other = Self::on(Arc::clone(&self.base), self.clock.clone(), settings);
        Self { ledger: self.ledger.clone(), ..other }
    }

    /// The same engine, treating calls differently.
    pub(crate) fn treating(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = (**self.once.settings()).clone();
        change(&mut settings);
        Self { once: self.once.with_settings(settings).unwrap(), ..self.clone() }
    }

    pub(crate) fn call(&self, key: &str) -> Call {
        self.once.call("pay", key).input(&100)
    }

    /// Leaves a trace and gives a receipt that no other effect gives.
    pub(crate) async fn effect(&self, key: &str) -> Paid {
        let receipt = format!("receipt {} of {key}", self.ledger.effects().unwrap().len() + 1);
        self.ledger.record(key, &receipt).unwrap();
        Ok(receipt)
    }

    pub(crate) async fn pay(&self, key: &str) -> Paid {
        self.in_time(self.call(key).run(self.effect(key))).await
    }

    /// Pays, and must get an answer.
    pub(crate) async fn paid(&self, key: &str) -> String {
        self.pay(key).await.expect("a receipt")
    }

    /// Pays, and must be refused without the body having run.
    pub(crate) async fn refused(&self, key: &str) -> Refusal {
        let before = self.effects();
        match self.pay(key).await {
            Err(Failed::Refused(refusal)) => {
                assert_eq!(self.effects(), before, "the body ran");
                refusal
            }
            other => panic!("not refused, but {other:?}"),
        }
    }

    pub(crate) fn effects(&self) -> usize {
        self.ledger.effects().unwrap().len()
    }

    pub(crate) fn id(&self, key: &str) -> RecordId {
        RecordId::of(&Scope::shared(), &Operation::new("pay").unwrap(), &Key::new(key).unwrap())
    }

    /// The same call as [`Self::call`], for those who start by hand.
    pub(crate) fn intent(&self, key: &str) -> Intent {
        Intent {
            fingerprint: Fingerprint::of(&100).unwrap(),
            label: Label {
                route: "pay".into(),
                key: Hash16::of_key(&Key::new(key).unwrap()),
                scope: Hash16::of_scope(&Scope::shared()),
            },
            settings: Arc::clone(self.once.settings()),
        }
    }

    pub(crate) async fn start(&self, key: &str) -> Started {
        self.once.start(&self.id(key), &self.intent(key).into()).await.unwrap()
    }

    pub(crate) async fn run_by_hand(&self, key: &str) -> onlyonce_core::Running {
        match self.start(key).await {
            Started::Run(running) => running,
            other => panic!("not to be run: {other:?}"),
        }
    }

    pub(crate) async fn snapshot(&self, key: &str) -> Option<Snapshot> {
        self.base.get(&self.id(key)).await.unwrap()
    }

    pub(crate) async fn kind(&self, key: &str) -> Option<StateKind> {
        self.snapshot(key).await.map(|snapshot| snapshot.state.kind())
    }

    pub(crate) async fn stored(&self, key: &str) -> Option<Answer> {
        match self.snapshot(key).await?.state {
            State::Completed(answer) => Some(answer),
            _ => None,
        }
    }

    /// Leaves a record whose attempt ended without a word: its process died.
    pub(crate) async fn lapse(&self, key: &str) {
        let running = self.neighbour().run_by_hand(key).await;
        std::mem::forget(running);
        self.clock.advance(self.once.settings().lease);
        assert_eq!(self.kind(key).await, Some(StateKind::Lapsed));
    }

    /// Moves time on, a little at a time, until the future has ended.
    pub(crate) async fn in_time<T>(&self, future: impl Future<Output = T>) -> T {
        tokio::pin!(future);
        for _ in 0..20_000 {
            tokio::select! {
                biased;
                value = &mut future => return value,
                () = quiet() => self.clock.advance(TICK),
            }
        }
        panic!("it does not end");
    }

    /// Moves time on, a little at a time, until the record is in this state.
    pub(crate) async fn until(&self, key: &str, state: StateKind) {
        self.in_time(async {
            while self.kind(key).await != Some(state) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub(crate) async fn clock_sleep(&self, span: Duration) {
        self.clock.sleep(span).await;
    }

    /// Moves time on at once, and lets everybody do what was due.
    pub(crate) async fn pass(&self, span: Duration) {
        self.clock.advance(span);
        quiet().await;
    }
}

/// Lets every task go on until it waits: all of them share this thread.
pub(crate) async fn quiet() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
