//! A worker number that somebody else vouches for.

use std::sync::Arc;

use async_trait::async_trait;
use onlyonce_core::{Clock, InputError, SystemClock};

use super::{Grant, GrantError, Grants, Holder, Request};

/// A worker number that is given: by configuration, or by the ordinal of a StatefulSet's pod.
///
/// It is your word that nobody else has the number at the same time. Nothing is remembered over a restart: ids may repeat if
/// the clock is set back while the process is down. Leased numbers have neither weakness.
///
/// ```
/// use onlyonce_id::FixedWorker;
/// let configured = FixedWorker::new(7);
/// let of_pod = FixedWorker::from_ordinal("web-3")?; // the pod's host name
/// assert!(FixedWorker::from_ordinal("laptop").is_err());
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
#[derive(Debug, Clone)]
pub struct FixedWorker {
    worker: u64,
    clock: Arc<dyn Clock>,
}

impl FixedWorker {
    /// This number.
    #[must_use]
    pub fn new(worker: u64) -> Self {
        Self { worker, clock: Arc::new(SystemClock) }
    }

    /// The number at the end of a StatefulSet pod's name, such as `web-3`.
    ///
    /// # Errors
    /// If the name does not end with a dash and a number.
    pub fn from_ordinal(pod: &str) -> Result<Self, InputError> {
        let ordinal = pod.rsplit_once('-').filter(|(name, _)| !name.is_empty()).map(|(_, ordinal)| ordinal);
        let digits = ordinal.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|text| text.parse().ok()).map(Self::new).ok_or_else(|| {
            InputError::new(format!(
                "{pod:?} does not end with a dash and a number; a pod of a StatefulSet is called as in `web-3`"
            ))
        })
    }

    /// The ordinal of this pod, by the variable `POD_NAME`, or else `HOSTNAME`.
    ///
    /// # Errors
    /// If neither is set, or what is set is not a StatefulSet pod's name.
    pub fn from_pod() -> Result<Self, InputError> {
        let pod = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
        Self::from_ordinal(&pod.map_err(|_| InputError::new("neither POD_NAME nor HOSTNAME is set"))?)
    }

    /// Takes time from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

#[async_trait]
impl Grants for FixedWorker {
    async fn grant(&self, request: &Request) -> Result<Grant, GrantError> {
        if self.worker >= request.workers {
            let (worker, workers) = (self.worker, request.workers);
            return Err(GrantError::unavailable(InputError::new(format!(
                "worker {worker} does not fit: this layout has {workers}, from 0"
            ))));
        }
        // Asked again, it is the same window: from the beginning of this generator on.
        let from = if request.worker.is_some() { 0 } else { self.clock.wall_micros() / 1000 };
        Ok(Grant { worker: self.worker, from, until: u64::MAX })
    }

    async fn release(&self, _: Holder, _: u64, _: u64) -> Result<(), GrantError> {
        Ok(())
    }
}
