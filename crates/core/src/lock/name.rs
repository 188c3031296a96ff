//! What a lock is called.

use std::fmt;
use std::sync::Arc;

use crate::error::InputError;
use crate::key::MAX_KEY_BYTES;

/// The name of a lock: 1 to 255 bytes of text. It is written in clear to the backend and to logs: no secrets.
///
/// ```
/// use onlyonce_core::lock::LockName;
/// assert_eq!(LockName::new("order:42")?.as_str(), "order:42");
/// assert!(LockName::new("").is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Takes the text as a name.
    ///
    /// # Errors
    /// If it is empty or too long.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InputError> {
        let text = text.into();
        match text.len() {
            0 => Err(InputError::new("the key of a lock is empty; name what it guards, such as order:42")),
            1..=MAX_KEY_BYTES => Ok(Self(text)),
            n => {
                Err(InputError::new(format!("the key of a lock has {n} bytes; the limit is {MAX_KEY_BYTES}")))
            }
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
