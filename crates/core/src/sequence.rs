//! Calls that are numbered by their caller: (credential, sequence number) is the key.
//!
//! With [`Order::Unique`] every number runs once, in any order. With [`Order::Increasing`] a number must also be higher than all
//! that ran before. For that, a mark beside the records holds the highest number so far. It is a record of its own, whose label
//! says the number: a begin that takes it over at the fence that was seen writes the new one in the same step, so a crash
//! anywhere leaves a mark that is never too low.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::background;
use crate::engine::Idempotency;
use crate::error::{ErrorKind, InputError, StoreError};
use crate::fingerprint::Fingerprint;
use crate::key::{Key, Operation, RecordId, Scope};
use crate::record::{
    AttemptId, Begin, Claim, Fence, Over, Owner, Settlement, Snapshot, State, Takeover, Verdict,
};
use crate::running::Running;

const MARK: &str = "sequence mark";
const PREFIX: &str = "sequence ";
/// How long moving the mark may take before another call may do it: it is two calls.
const LEASE: Duration = Duration::from_secs(5);
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
    /// [`start`](Self::start) and before the handler. A retry of the highest number is let in, too.
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
        let mark = RecordId::of(scope, operation, &Key::new(MARK).expect("it is short"));
        let (store, clock) = self.store_and_clock();
        for _ in 0..ROUNDS {
            let found = store.get(&mark).await?;
            let takeover = match &found {
                // Only if there still is none: one that came since may hold a higher number. No attempt has fence 0.
                None => Takeover::Seen(Fence(0)),
                Some(found) => {
                    let last = number(found)?;
                    let is_retry = sequence == last && running.over() != Over::Nothing;
                    if is_retry {
                        return Ok(Admitted::Run(running));
                    }
                    if sequence <= last {
                        running.release().await?;
                        return Ok(Admitted::OutOfOrder { last });
                    }
                    if matches!(found.state, State::Running { .. }) {
                        clock.sleep(PAUSE).await;
                        continue;
                    }
                    Takeover::Seen(found.fence)
                }
            };
            let retain = self.settings().retain_unsettled;
            let mut label = running.label().clone();
            label.route = Arc::from(format!("{PREFIX}{sequence}"));
            let claim = Claim {
                owner: Owner::random(),
                fingerprint: Fingerprint::empty(),
                lease: LEASE,
                retain_unsettled: retain,
                takeover,
                label,
            };
            let (begun, _) = background::insist_on_begin(&**store, &**clock, &mark, &claim).await;
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
                let how = Settlement { verdict: Verdict::Released, retain };
                background::insist_on_settle(&**store, &**clock, &mark, &attempt, &how).await?;
                return Ok(Admitted::Run(running));
            }
        }
        Err(StoreError::new(
            ErrorKind::Busy,
            "sequence",
            "admit",
            "too many calls of one credential at a time",
        ))
    }
}

/// The number that a mark holds.
fn number(mark: &Snapshot) -> Result<u64, StoreError> {
    let number = mark.label.route.strip_prefix(PREFIX).and_then(|number| number.parse().ok());
    number.ok_or_else(|| StoreError::corrupt("sequence", "admit", "the mark of a sequence can't be read"))
}
