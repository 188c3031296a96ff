//! Whether the gateway lives, and whether it takes calls.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onlyonce::{
    AttemptId, Begin, Claim, Clock, ErrorKind, Fingerprint, Hash16, Label, Moment, Owner, RecordId,
    Settlement, Store, StoreError, SystemClock, Takeover, Verdict,
};
use tokio::sync::Mutex;

use super::Admin;

/// How long the store may take to show that it is there.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// How long it may take to say whether a new start is needed. Shorter than whoever watches waits by custom, which is a second: a disk that
/// hangs would hang after a new start too.
const HEALTHY_WITHIN: Duration = Duration::from_millis(500);
/// What was tried is believed for so long, so that whoever asks often does not write often.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// For how long a trial is there at most, if this process dies within it: its lease lasts as long, so that nobody is asked about it.
const TRIAL: Duration = Duration::from_secs(10);

/// How readiness is found out.
#[derive(Debug)]
pub(super) enum Readiness {
    /// The store knows by itself whether it takes new calls; it only has to answer.
    Known,
    /// Only a trial tells: a server may answer and take nothing new, because its memory is full or it has become a replica. With
    /// the time of the last that went well.
    Tried(Mutex<Option<Moment>>),
}

impl Readiness {
    pub(super) fn of(store: &str) -> Self {
        if crate::stores::is_of_one_process(store) { Self::Known } else { Self::Tried(Mutex::default()) }
    }

    async fn check(&self, store: &dyn Store) -> Result<(), StoreError> {
        match self {
            Self::Known => store.get(&RecordId::from_bytes([0; 32])).await.map(drop),
            Self::Tried(last) => {
                let mut last = last.lock().await;
                let now = SystemClock.now();
                if last.is_some_and(|last| now.since(last) < BELIEVED_FOR) {
                    return Ok(());
                }
                *last = None;
                try_out(store).await?;
                *last = Some(now);
                Ok(())
            }
        }
    }
}

/// Begins a call that nobody made, and gives it back at once.
async fn try_out(store: &dyn Store) -> Result<(), StoreError> {
    let owner = Owner::random();
    let mut id = [0; 32];
    id[..16].copy_from_slice(owner.as_bytes());
    let (id, nothing) = (RecordId::from_bytes(id), Hash16::from_bytes([0; 16]));
    let claim = Claim {
        owner,
        fingerprint: Fingerprint::empty(),
        lease: TRIAL,
        retain_unsettled: TRIAL,
        takeover: Takeover::Never,
        label: Label { route: "readiness".into(), key: nothing, scope: nothing },
    };
    let Begin::Acquired { fence, .. } = store.begin(&id, &claim).await? else { return Ok(()) };
    let back = Settlement { verdict: Verdict::Released, retain: Duration::ZERO };
    store.settle(&id, &AttemptId { owner, fence: Some(fence) }, &back).await.map(drop)
}

/// Fails only where nothing but a new start helps: whoever watches may start the process again.
pub(super) async fn healthy(State(admin): State<Arc<Admin>>) -> Response {
    let wrong = match tokio::time::timeout(HEALTHY_WITHIN, admin.look.take(admin.store.clone())).await {
        Ok(said) => said.err().map(|error| error.kind()),
        Err(_) => admin.look.last(),
    };
    match wrong {
        Some(ErrorKind::Rejected) => {
            let why = "the store has stopped; mend the disk, then start this process again\n";
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
        _ => "ok\n".into_response(),
    }
}

pub(super) async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    let unavailable = |why: &'static str| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    if admin.gate.is_draining() {
        return unavailable("draining\n");
    }
    let check = async {
        admin.look.take(admin.store.clone()).await?;
        admin.readiness.check(&*admin.store).await
    };
    match tokio::time::timeout(READY_WITHIN, check).await {
        Ok(Ok(())) => "ready\n".into_response(),
        Ok(Err(error)) => {
            onlyonce::seldom!(warn, error = &error as &dyn std::error::Error, "the store takes no new calls");
            unavailable("the store takes no new calls; the log says why\n")
        }
        Err(_) => unavailable("the store does not answer in time\n"),
    }
}
