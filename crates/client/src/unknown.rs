//! Nobody knows.

use std::error::Error;
use std::fmt;

use http::StatusCode;

/// The call may have had its effect, and no answer to it could be had. **Retry it later with the same key**, as header of the
/// same request: then it happens at most once all the same.
///
/// ```
/// # fn look(error: reqwest_middleware::Error) {
/// use onlyonce_client::OutcomeUnknown;
/// if let Some(unknown) = OutcomeUnknown::of(&error) {
///     println!("{unknown}; the key is {}", unknown.key());
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct OutcomeUnknown {
    pub(crate) key: String,
    pub(crate) attempts: u32,
    pub(crate) server_says: Option<ServerSays>,
    pub(crate) last_status: Option<StatusCode>,
    pub(crate) cause: Option<Box<dyn Error + Send + Sync>>,
}

/// What the server said about the call when it was asked, if it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerSays {
    /// It runs.
    InProgress,
    /// It was done; yet its answer could not be had.
    Completed,
    /// It did not happen so far, and may be sent again.
    Failed,
    /// The server does not know either; a person has to look.
    Unknown,
    /// It has not arrived so far. A copy may still be under way.
    NotSeen,
}

impl OutcomeUnknown {
    /// The one that an error of the client is, if it is one.
    #[must_use]
    pub fn of(error: &reqwest_middleware::Error) -> Option<&Self> {
        match error {
            reqwest_middleware::Error::Middleware(error) => error.downcast_ref(),
            reqwest_middleware::Error::Reqwest(_) => None,
        }
    }

    pub(crate) fn caused_by(self, cause: Option<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: cause.or(self.cause), ..self }
    }

    /// The key to retry with.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How often it was sent.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// What the server's outcome query said, if there is one.
    #[must_use]
    pub fn server_says(&self) -> Option<ServerSays> {
        self.server_says
    }

    /// The status of the last attempt, if it was answered.
    #[must_use]
    pub fn last_status(&self) -> Option<StatusCode> {
        self.last_status
    }
}

impl fmt::Display for OutcomeUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is a secret of the caller and does not belong in a log: it is given by `key()`.
        write!(f, "the outcome is unknown after {} attempts", self.attempts)?;
        if let Some(status) = self.last_status {
            write!(f, " (the last one was answered with {})", status.as_u16())?;
        }
        match self.server_says {
            Some(ServerSays::InProgress) => f.write_str("; the server says that it still runs")?,
            Some(ServerSays::Completed) => f.write_str("; the server says that it was done")?,
            Some(ServerSays::Failed) => f.write_str("; the server says that it did not happen so far")?,
            Some(ServerSays::Unknown) => {
                f.write_str("; the server does not know either: look before you act")?
            }
            Some(ServerSays::NotSeen) => f.write_str("; the server has not seen it so far")?,
            None => {}
        }
        f.write_str("; retry later with the same key")
    }
}

impl Error for OutcomeUnknown {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}
