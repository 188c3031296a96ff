//! Variables of the environment that say something to this program.

use std::env::VarError;

/// The text of a variable. An empty one is how one is taken back in a shell or a container: it counts as not given.
///
/// # Errors
/// If it is not text: what was meant is not known, and it may be a secret, so that only its name is told.
pub(crate) fn find(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(format!("the variable {name} is not UTF-8 text; set it again, or unset it"))
        }
    }
}
