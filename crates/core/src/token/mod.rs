//! One-time tokens: asked for first, sent along with the call, good for one use by one subject for one action.
//!
//! A token's nonce is the key of a normal call, so that everything the engine promises holds for it: the first use runs, a
//! duplicate is refused or gets the stored answer, and a crash does not strand the user.
//!
//! ```
//! # use onlyonce_core::{Idempotency, MemoryStore, Refusal, Class, Classify, Bytes, codec::CodecError, Mode};
//! # use onlyonce_core::token::{TokenKeys, Tokens};
//! # #[derive(Debug)] enum OrderError { Refused(Refusal) }
//! # impl From<Refusal> for OrderError { fn from(refusal: Refusal) -> Self { Self::Refused(refusal) } }
//! # impl Classify for OrderError {
//! #     fn classify(&self) -> Class { Class::Release }
//! #     fn save(&self) -> Result<Bytes, CodecError> { Ok(Bytes::new()) }
//! #     fn revive(_: Bytes) -> Result<Self, CodecError> { Err(CodecError::Invalid("none is kept".into())) }
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let once = Idempotency::new(MemoryStore::new());
//! let tokens = Tokens::signed(once, TokenKeys::random()).mode(Mode::Reject);
//! let token = tokens.issue_for("alice", "order").await?;
//!
//! let order = tokens.redeem(&token, "alice", "order").await?;
//! assert_eq!(order.run(async { Ok::<_, OrderError>(7) }).await.unwrap(), 7);
//! let again = tokens.redeem(&token, "alice", "order").await?;
//! assert!(matches!(again.run(async { Ok::<u8, OrderError>(8) }).await, Err(OrderError::Refused(Refusal::Duplicate))));
//! assert!(tokens.redeem(&token, "mallory", "order").await.is_err());
//! # Ok(()) }
//! ```

mod keys;
mod signed;
mod stored;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::call::Call;
use crate::engine::Idempotency;
use crate::error::{InputError, StoreError};
use crate::key::{Key, Operation, Scope};
use crate::policy::Mode;
use crate::settings::{MAX_SPAN, Settings};

pub use keys::TokenKeys;
use signed::{Claims, binding};
use stored::Issued;

/// How long a token is good unless told otherwise: five minutes.
const TTL: Duration = Duration::from_secs(300);
/// By how much the clock of a process that still takes a token may be behind: its record is there until then.
const SKEW: Duration = Duration::from_secs(3600);

/// Issues and checks one-time tokens. Clones share everything.
#[derive(Debug, Clone)]
pub struct Tokens {
    once: Idempotency,
    kind: Kind,
    ttl: Duration,
    mode: Mode,
}

#[derive(Debug, Clone)]
enum Kind {
    Signed(Arc<TokenKeys>),
    Stored,
    DeleteFirst,
}

/// A token as it is given to a client. It is a secret: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The text: hexadecimal digits, safe in headers, forms, URLs and HTML.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for Token {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(<{} characters>)", self.0.len())
    }
}

/// What a token is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// Its call may be started.
    Valid(Ticket),
    /// Its time is over: no call may be started, but one that was made before has its answer.
    Expired(Ticket),
    /// Unknown, forged, damaged, or somebody else's. Which of these is nobody's business.
    Refused,
    /// [`Tokens::delete_first`]: it was deleted for this use; run now.
    Deleted,
    /// [`Tokens::delete_first`]: used, unknown, expired or somebody else's.
    Gone,
}

/// Leave to make one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The key of the call.
    pub key: Key,
    /// What a duplicate gets.
    pub mode: Mode,
    /// How long the token is still good.
    pub expires_in: Duration,
}

impl Ticket {
    /// The settings of its call: its own mode, and a record that outlives the token, however the call ends.
    #[must_use]
    pub fn settings(&self, like: &Settings) -> Settings {
        Settings { mode: self.mode, ..outliving(self.expires_in, like) }
    }
}

/// Settings under which a record outlives a token that is good for this long, on a process whose clock is behind too.
fn outliving(token: Duration, like: &Settings) -> Settings {
    let life = token.min(MAX_SPAN - SKEW) + SKEW;
    let (retain, retain_unsettled) = (like.retain.max(life), like.retain_unsettled.max(life));
    Settings { retain, retain_unsettled, ..like.clone() }
}

/// Why a token can't be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TokenError {
    /// Unknown, forged, damaged, or somebody else's.
    Refused,
    /// Its time is over.
    Expired,
    /// [`Tokens::delete_first`]: used, unknown, expired or somebody else's.
    Gone,
    /// The store failed: nothing may run.
    Store(StoreError),
    /// The subject or the action can't be used.
    Input(InputError),
}

impl Tokens {
    /// Tokens that are signed: issuing stores nothing.
    #[must_use]
    pub fn signed(once: Idempotency, keys: TokenKeys) -> Self {
        Self::new(once, Kind::Signed(Arc::new(keys)))
    }

    /// Tokens that are kept in the store from when they are issued: short ones, and they can be forgotten.
    #[must_use]
    pub fn stored(once: Idempotency) -> Self {
        Self::new(once, Kind::Stored)
    }

    /// Stored tokens that are deleted first, then the call runs, with no record of it: the literal flow of check-and-delete. A
    /// call that dies half-way can't be repeated, and used, unknown and expired look the same.
    #[must_use]
    pub fn delete_first(once: Idempotency) -> Self {
        Self::new(once, Kind::DeleteFirst)
    }

    fn new(once: Idempotency, kind: Kind) -> Self {
        let mode = once.settings().mode;
        Self { once, kind, ttl: TTL, mode }
    }

    /// How long tokens are good (5 min; at most ten years).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.min(MAX_SPAN - SKEW);
        self
    }

    /// What a duplicate gets: the stored answer, or a refusal. As the engine's settings say, unless told otherwise.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether a call with a token leaves a record; not with [`delete_first`](Self::delete_first).
    #[must_use]
    pub const fn leave_records(&self) -> bool {
        !matches!(self.kind, Kind::DeleteFirst)
    }

    /// How long new tokens are good.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.ttl
    }

    /// The same settings, but that a record outlives every token that was issued until now.
    #[must_use]
    pub fn outlived(&self, settings: &Settings) -> Settings {
        outliving(self.ttl, settings)
    }

    /// A token for this subject and action.
    ///
    /// # Errors
    /// If the store fails; signed tokens need none.
    pub async fn issue(&self, subject: &Scope, action: &Operation) -> Result<Token, StoreError> {
        let expires_millis = self.now_millis().saturating_add(millis(self.ttl));
        let token = match &self.kind {
            Kind::Signed(keys) => {
                let bound_to = binding(subject, action);
                let claims = Claims { mode: self.mode, expires_millis, nonce: rand::random(), bound_to };
                signed::write(&claims, keys)
            }
            Kind::Stored => {
                let issued = Issued { mode: self.mode, expires_millis };
                // Longer than it is good, so that an expired one is not taken for an unknown one.
                stored::keep(&self.once, subject, action, issued, (2 * self.ttl).min(MAX_SPAN)).await?
            }
            Kind::DeleteFirst => {
                let issued = Issued { mode: self.mode, expires_millis };
                stored::keep(&self.once, subject, action, issued, self.ttl).await?
            }
        };
        Ok(Token(token))
    }

    /// [`issue`](Self::issue) for names.
    ///
    /// # Errors
    /// If a name is empty, or the store fails.
    pub async fn issue_for(&self, subject: &str, action: &str) -> Result<Token, TokenError> {
        Ok(self.issue(&Scope::new(subject)?, &Operation::new(action)?).await?)
    }

    /// What a token is worth to this subject for this action. Only [`delete_first`](Self::delete_first) uses it up; otherwise
    /// the call does, under the ticket's key.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn check(
        &self,
        token: &str,
        subject: &Scope,
        action: &Operation,
    ) -> Result<Checked, StoreError> {
        let (nonce, mode, expires_millis) = match &self.kind {
            Kind::Signed(keys) => match signed::read(token, keys) {
                Some(claims) if claims.bound_to == binding(subject, action) => {
                    (crate::hex::text(&claims.nonce), claims.mode, claims.expires_millis)
                }
                _ => return Ok(Checked::Refused),
            },
            Kind::Stored => match stored::look(&self.once, token, subject, action).await? {
                // In one case only, or the same token in capitals would be another call.
                Some(issued) => (token.to_ascii_lowercase(), issued.mode, issued.expires_millis),
                None => return Ok(Checked::Refused),
            },
            Kind::DeleteFirst => {
                let deleted = stored::delete(&self.once, token, subject, action).await?;
                return Ok(if deleted { Checked::Deleted } else { Checked::Gone });
            }
        };
        // Not a key that a client could have chosen for a call of its own.
        let Ok(key) = Key::new(format!("token:{nonce}")) else { return Ok(Checked::Refused) };
        let expires_in = Duration::from_millis(expires_millis.saturating_sub(self.now_millis()));
        let ticket = Ticket { key, mode, expires_in };
        Ok(if expires_in.is_zero() { Checked::Expired(ticket) } else { Checked::Valid(ticket) })
    }

    /// The call that a token stands for, to be run at most once.
    ///
    /// # Errors
    /// If the token is not good for it. That it was used before is not an error here: the call says so when it is run.
    pub async fn redeem(&self, token: &str, subject: &str, action: &str) -> Result<Call, TokenError> {
        let (scope, operation) = (Scope::new(subject)?, Operation::new(action)?);
        match self.check(token, &scope, &operation).await? {
            Checked::Valid(ticket) => {
                let once = self.once.with_settings(ticket.settings(self.once.settings()))?;
                Ok(once.call(action, ticket.key.as_str()).scope(subject))
            }
            // It runs once because it could be deleted only once; the key is one that nobody used before.
            Checked::Deleted => Ok(self.once.call(action, format!("deleted:{token}")).scope(subject)),
            Checked::Expired(_) => Err(TokenError::Expired),
            Checked::Refused => Err(TokenError::Refused),
            Checked::Gone => Err(TokenError::Gone),
        }
    }

    fn now_millis(&self) -> u64 {
        self.once.clock().wall_micros() / 1000
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the token is not good for this; ask for a new one",
            Self::Expired => "the token has expired; ask for a new one",
            Self::Gone => "the token was used, or was never good; this is a duplicate",
            Self::Store(_) => "the token could not be checked, because the store failed; nothing was done",
            Self::Input(_) => "the subject or the action of the token can't be used",
        })
    }
}

impl Error for TokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(cause) => Some(cause),
            Self::Input(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<StoreError> for TokenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<InputError> for TokenError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}
