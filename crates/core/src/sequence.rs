//! Calls that are numbered by their caller: (credential, sequence number) is the key.
//!
//! With [`Order::Unique`] every number runs once, in any order. With [`Order::Increasing`] a number must also be higher than all
//! that ran before. For that, a mark beside the records holds the highest number so far. It is a record of its own, whose label
//! says the number: a begin that takes it over at the fence that was seen writes the new one in the same step, so a crash
//! anywhere leaves a mark that is never too low. It also says which attempt raised it, so that a retry of the highest number
//! is told from a call that comes when the record of that number is long gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::background;
use crate::engine::Idempotency;
use crate::error::{ErrorKind, InputError, StoreError};
use crate::fingerprint::Fingerprint;
use crate::key::{Key, Operation, RecordId, Scope};
use crate::lease::Permit;
use crate::record::{
    AttemptId, Begin, Claim, Fence, Over, Owner, Settlement, Snapshot, State, Takeover, Verdict,
};
use crate::running::Running;
use crate::settings::MAX_SPAN;
use crate::store::Store;

const MARK: &str = "sequence mark";
const PREFIX: &str = "sequence ";
/// How long moving the mark may take before another call may do it: it is two calls.
const LEASE: Duration = Duration::from_secs(5);
/// How long the mark is kept after it was raised: without it, numbers of long ago would run.
pub(crate) const KEPT: Duration = MAX_SPAN;
/// By how much two clocks of a store may differ; more, by a thousandth, the longer they ran. Far less than a record is kept.
const SLACK: Duration = Duration::from_secs(1);
/// How often the mark may move away before a call gives up, and how long it waits for one who is just moving it.
const ROUNDS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// In which order numbers may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// In any order, each once.
    #[default]
    Unique,
    /// Each higher than all before.
    Increasing,
}

/// A caller and a number of its own: the name of one call.
///
/// ```
/// use onlyonce_core::SequenceKey;
/// let key = SequenceKey::new("partner-7", 42)?;
/// assert_eq!(key.sequence(), 42);
/// assert!(SequenceKey::new("", 42).is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SequenceKey {
    credential: Box<str>,
    sequence: u64,
}

/// A credential is nobody's business in a log.
impl fmt::Debug for SequenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SequenceKey(<credential>, {})", self.sequence)
    }
}

impl SequenceKey {
    /// The call that this credential numbers so.
    ///
    /// # Errors
    /// If the credential is empty.
    pub fn new(credential: &str, sequence: u64) -> Result<Self, InputError> {
        Scope::new(credential)?;
        Ok(Self { credential: credential.into(), sequence })
    }

    /// Who numbers.
    #[must_use]
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// The number.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether a record with this route is the mark that holds the highest number of a credential, and no call.
    #[must_use]
    pub fn is_mark(route: &str) -> bool {
        Mark::parse(route).is_some()
    }

    /// The key of a number, within the scope of its credential.
    #[must_use]
    pub fn key_of(sequence: u64) -> Key {
        Key::new(format!("{PREFIX}{sequence}")).expect("a number and a word are short")
    }
}

/// Whether a numbered call may run.
#[derive(Debug)]
#[must_use = "an attempt that is dropped is settled in the background"]
pub enum Admitted {
    /// It may, and its number is the highest now.
    Run(Running),
    /// It may not: a number at least as high came before.
    OutOfOrder {
        /// The highest number so far.
        last: u64,
    },
}

impl Idempotency {
    /// Lets a numbered call run if its number is higher than all before it: for adapters, right after
    /// [`start`](Self::start) and before the handler. A retry of the highest number is let in, too, while its record is kept.
    ///
    /// # Errors
    /// If the store fails; then the call must not run, and is released.
    pub async fn admit(
        &self,
        running: Running,
        scope: &Scope,
        operation: &Operation,
        sequence: u64,
    ) -> Result<Admitted, StoreError> {
        self.may_order().map_err(|why| StoreError::new(ErrorKind::Rejected, "sequence", "admit", why))?;
        let id = RecordId::of(scope, operation, &Key::new(MARK).expect("it is short"));
        let (store, clock) = self.store_and_clock();
        let retain = self.settings().retain;
        for _ in 0..ROUNDS {
            let found = store.get(&id).await?;
            let takeover = match &found {
                // Only if there still is none: one that came since may hold a higher number. No attempt has fence 0.
                None => Takeover::Seen(Fence(0)),
                Some(found) => {
                    let mark = Mark::read(found)?;
                    let may_be_retry = sequence == mark.number && running.over() != Over::Nothing;
                    let raised = KEPT.saturating_sub(found.expires_in);
                    if may_be_retry
                        && is_retry(&**store, running.permit().clone(), (&mark, raised), retain).await?
                    {
                        return Ok(Admitted::Run(running));
                    }
                    if sequence <= mark.number {
                        running.give_back().await?;
                        return Ok(Admitted::OutOfOrder { last: mark.number });
                    }
                    if matches!(found.state, State::Running { .. }) {
                        clock.sleep(PAUSE).await;
                        continue;
                    }
                    Takeover::Seen(found.fence)
                }
            };
            let mark = Mark { number: sequence, raised_by: running.permit().fence() };
            let mut label = running.label().clone();
            label.route = mark.write();
            let claim = Claim {
                owner: Owner::random(),
                fingerprint: Fingerprint::empty(),
                lease: LEASE,
                retain_unsettled: KEPT,
                takeover,
                label,
            };
            let (begun, _) = background::insist_on_begin(&**store, &**clock, &id, &claim).await;
            let begun = match begun {
                // Many move the mark at once; it did not happen, and is worth another look.
                Err(error) if error.kind() == ErrorKind::Busy => {
                    clock.sleep(PAUSE).await;
                    continue;
                }
                begun => begun?,
            };
            if let Begin::Acquired { fence, .. } = begun {
                let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
                let how = Settlement { verdict: Verdict::Released, retain: KEPT };
                background::insist_on_settle(&**store, &**clock, &id, &attempt, &how).await?;
                return Ok(Admitted::Run(running));
            }
            // Somebody was faster.
            clock.sleep(PAUSE).await;
        }
        Err(StoreError::new(
            ErrorKind::Busy,
            "sequence",
            "admit",
            "too many calls of one credential at a time",
        ))
    }
}

impl Idempotency {
    /// Whether calls can be let in by [`Order::Increasing`]: not in a transaction of the business, with which a call is undone, but not the
    /// highest number beside it; nothing could run under that number any more.
    ///
    /// # Errors
    /// If not; says what to do instead.
    pub fn may_order(&self) -> Result<(), InputError> {
        if self.has_leases() {
            return Ok(());
        }
        Err(InputError::new(
            "Order::Increasing does not go together with same_transaction(): number the rows in the transaction itself, with \
             guard::sequence(…).strictly_increasing(), or use an engine with leases",
        ))
    }
}

/// Whether a call with the highest number goes on with the record of the attempt that raised the mark. If that record is gone,
/// the number was used, and what is there now was made by calls that were refused.
async fn is_retry(
    store: &dyn Store,
    permit: Permit,
    (mark, raised): (&Mark, Duration),
    retain: Duration,
) -> Result<bool, StoreError> {
    let Some(record) = store.get(&permit.record_id()).await? else { return Ok(false) };
    // A fence is the time of its attempt; so this is when the record was made, as far as the store's clocks agree.
    let made = permit.fence().0.saturating_sub(micros(record.age));
    let slack = (SLACK + record.age / 1000).min(retain / 2);
    // And it is as old as the mark: fences may be ahead of the time where a clock was set back.
    let is_old_enough = record.age.saturating_add(slack) >= raised;
    Ok(is_old_enough && made <= mark.raised_by.0.saturating_add(micros(slack)))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The highest number, and the attempt that raised it.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    number: u64,
    raised_by: Fence,
}

impl Mark {
    fn write(&self) -> Arc<str> {
        Arc::from(format!("{PREFIX}{} @{}", self.number, self.raised_by))
    }

    fn parse(route: &str) -> Option<Self> {
        let text = route.strip_prefix(PREFIX)?;
        // Without its attempt it is of an earlier release: then nothing passes for a retry.
        let (number, fence) = text.split_once(" @").unwrap_or((text, "0"));
        Some(Self { number: number.parse().ok()?, raised_by: Fence(fence.parse().ok()?) })
    }

    fn read(mark: &Snapshot) -> Result<Self, StoreError> {
        Self::parse(&mark.label.route)
            .ok_or_else(|| StoreError::corrupt("sequence", "admit", "the mark of a sequence can't be read"))
    }
}
