//! What leaves the queue: to wait in a delay queue, or for good, to the dead letter.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::{BasicProperties, Connection, ErrorKind};
use parking_lot::Mutex;

use super::confirmed::{Confirmed, Routed};
use super::delay::{self, Form};
use super::link::Target;
use crate::adapter::BrokerError;
use crate::patience::in_time;

/// Publishes what leaves the queue, and waits until the broker has it. Each way has channels of its own: what holds
/// up one does not hold up the other.
pub(super) struct Leaving {
    connection: Arc<Connection>,
    pub(super) queue: String,
    dead: Target,
    to_dead: Confirmed,
    to_wait: Confirmed,
    delays: Mutex<BTreeMap<(u64, Form), Delays>>,
    /// Beyond this connection: the broker ends one on which it is asked for what it can't make.
    plain: Arc<AtomicBool>,
}

/// What is known of a delay queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delays {
    Ready,
    /// There is one of its name that is none of ours, or it can't be made in this form.
    Foreign,
}

/// The reply code for a queue that was made with other arguments, or with some that are not known.
const PRECONDITION_FAILED: u16 = 406;
/// From here on: not known, not allowed, not made, or an error inside. The connection is over.
const HARD: u16 = 500;

impl Leaving {
    pub(super) fn on(
        connection: &Arc<Connection>,
        queue: String,
        dead: Target,
        plain: Arc<AtomicBool>,
    ) -> Self {
        let [to_dead, to_wait] = [(); 2].map(|()| Confirmed::on(Arc::clone(connection)));
        let connection = Arc::clone(connection);
        Self { connection, queue, dead, to_dead, to_wait, delays: Mutex::default(), plain }
    }

    /// To come back after the pause, or a longer one where the delay queue for it can't be used.
    pub(super) async fn later(
        &self,
        pause: Duration,
        payload: &[u8],
        properties: BasicProperties,
    ) -> Result<(), BrokerError> {
        for (tier, form) in delay::tiers(pause).flat_map(|tier| Form::ALL.map(|form| (tier, form))) {
            // The second time, if somebody has deleted the queue since it was made.
            for _ in 0..2 {
                if self.delay_queue(tier, form).await? == Delays::Foreign {
                    break;
                }
                let name = delay::name(&self.queue, tier, form).into();
                match self.to_wait.publish("".into(), name, payload, properties.clone()).await? {
                    Routed::Stored => return Ok(()),
                    Routed::Nowhere => self.delays.lock().remove(&(tier, form)),
                };
            }
        }
        let why = format!(
            "no delay queue of {} for {pause:?} or more can be used; delete those of other making",
            self.queue
        );
        Err(BrokerError::new("put a message off", why))
    }

    async fn delay_queue(&self, tier: u64, form: Form) -> Result<Delays, BrokerError> {
        if form == Form::Quorum && self.plain.load(Ordering::Relaxed) {
            return Ok(Delays::Foreign);
        }
        let known = self.delays.lock().get(&(tier, form)).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let name = delay::name(&self.queue, tier, form);
        let making = async {
            // A question that is answered with no ends its channel, so it has one of its own.
            let channel = self.connection.create_channel().await?;
            let (options, arguments) =
                (QueueDeclareOptions::durable(), delay::arguments(&self.queue, tier, form));
            match channel.queue_declare(name.as_str().into(), options, arguments).await {
                Ok(_) => channel.close(200, "made".into()).await.map(|()| Delays::Ready),
                Err(error) if refused_with(&error, |code| code == PRECONDITION_FAILED) => Ok(Delays::Foreign),
                Err(error) => {
                    // Something else is wrong with it, which would be wrong with the next one too, on the next connection.
                    let hopeless = form == Form::Quorum && refused_with(&error, |code| code >= HARD);
                    self.plain.fetch_or(hopeless, Ordering::Relaxed);
                    Err(error)
                }
            }
        };
        let found = in_time("make a delay queue", making).await?;
        if found == Delays::Foreign {
            tracing::warn!(
                queue = name,
                "the delay queue was made with other arguments, or the broker knows no such queues; another one is used instead"
            );
        }
        self.delays.lock().insert((tier, form), found);
        Ok(found)
    }

    pub(super) async fn dead(&self, payload: &[u8], properties: BasicProperties) -> Result<(), BrokerError> {
        let Target { exchange, key } = &self.dead;
        match self.to_dead.publish(exchange.as_str().into(), key.as_str().into(), payload, properties).await?
        {
            Routed::Stored => Ok(()),
            Routed::Nowhere => {
                Err(BrokerError::new("publish", format!("no queue is bound for {exchange:?} {key:?}")))
            }
        }
    }
}

fn refused_with(error: &lapin::Error, code: impl Fn(u16) -> bool) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error) if code(error.get_id()))
}

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaving").field("queue", &self.queue).finish_non_exhaustive()
    }
}
