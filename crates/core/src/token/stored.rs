//! Tokens that are records from when they are issued.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::background;
use crate::engine::Idempotency;
use crate::error::StoreError;
use crate::fingerprint::Fingerprint;
use crate::hex;
use crate::key::{Hash16, Key, Operation, RecordId, Scope};
use crate::policy::Mode;
use crate::record::{
    Answer, AttemptId, Begin, Claim, Label, Owner, Settled, Settlement, State, Takeover, Verdict,
};

/// How long issuing may take before another process would see it as lapsed; it is two calls.
const LEASE: Duration = Duration::from_secs(10);

/// What is kept of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) mode: Mode,
    pub(super) expires_millis: u64,
}

impl Issued {
    fn write(self) -> Answer {
        let mut bytes = vec![u8::from(self.mode == Mode::Reject)];
        bytes.extend(self.expires_millis.to_be_bytes());
        Answer(Bytes::from(bytes))
    }

    fn read(answer: &Answer) -> Option<Self> {
        let (mode, expires) = answer.0.split_first()?;
        let mode = if *mode == 0 { Mode::Replay } else { Mode::Reject };
        Some(Self { mode, expires_millis: u64::from_be_bytes(expires.try_into().ok()?) })
    }
}

/// Subject and action are part of the record's name: for anybody else there is no such token.
fn place(token: &str, subject: &Scope, action: &Operation) -> Option<(RecordId, Key)> {
    let bytes: [u8; 32] = hex::read(token)?;
    let key = Key::new(format!("issued:{}", hex::text(&bytes))).ok()?;
    Some((RecordId::of(subject, action, &key), key))
}

/// Keeps a new token for `retain`.
pub(super) async fn keep(
    once: &Idempotency,
    subject: &Scope,
    action: &Operation,
    issued: Issued,
    retain: Duration,
) -> Result<String, StoreError> {
    let token = hex::text(&rand::random::<[u8; 32]>());
    let (store, clock) = once.store_and_clock();
    let Some((id, key)) = place(&token, subject, action) else { unreachable!("it was made in this form") };
    let label =
        Label { route: Arc::from("token"), key: Hash16::of_key(&key), scope: Hash16::of_scope(subject) };
    let claim = Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: LEASE,
        retain_unsettled: retain.max(2 * LEASE),
        takeover: Takeover::Never,
        label,
    };
    let (begun, _) = background::insist_on_begin(&**store, &**clock, &id, &claim).await;
    let Begin::Acquired { fence, .. } = begun? else { unreachable!("256 random bits do not repeat") };
    let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
    let how = Settlement { verdict: Verdict::Completed(issued.write()), retain };
    background::insist_on_settle(&**store, &**clock, &id, &attempt, &how).await?;
    Ok(token)
}

/// What is kept of a token, if it is there for this subject and action.
pub(super) async fn look(
    once: &Idempotency,
    token: &str,
    subject: &Scope,
    action: &Operation,
) -> Result<Option<Issued>, StoreError> {
    let Some((id, _)) = place(token, subject, action) else { return Ok(None) };
    Ok(match once.outcome(&id).await?.map(|found| found.state) {
        Some(State::Completed(answer)) => Issued::read(&answer),
        _ => None,
    })
}

/// Deletes a token. Of many that try, one is told that it did.
pub(super) async fn delete(
    once: &Idempotency,
    token: &str,
    subject: &Scope,
    action: &Operation,
) -> Result<bool, StoreError> {
    let Some((id, _)) = place(token, subject, action) else { return Ok(false) };
    let Some(found) = once.outcome(&id).await? else { return Ok(false) };
    if !matches!(found.state, State::Completed(_)) {
        return Ok(false);
    }
    Ok(once.forget(&id, found.fence).await? == Settled::Applied)
}
