//! Deliveries, over as many connections as it takes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::Consumer;
use tokio::time::sleep;

use super::delivery::{RabbitDelivery, requeue};
use super::link::{Link, Open};
use crate::adapter::{BrokerError, Delivery, Source};

/// Pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub(super) struct RabbitSource {
    link: Link,
    /// `None` while the connection is lost.
    line: Option<Line>,
    pause: Duration,
}

struct Line {
    open: Open,
    consumer: Consumer,
}

impl RabbitSource {
    pub(super) async fn start(link: Link, open: Open) -> Result<Self, BrokerError> {
        let consumer = link.consume(&open).await?;
        Ok(Self { link, line: Some(Line { open, consumer }), pause: FIRST_PAUSE })
    }

    async fn reconnect(&self) -> Result<Line, BrokerError> {
        let open = self.link.open().await?;
        let consumer = self.link.consume(&open).await?;
        Ok(Line { open, consumer })
    }
}

#[async_trait]
impl Source for RabbitSource {
    async fn next(&mut self) -> Box<dyn Delivery> {
        loop {
            let Some(line) = &mut self.line else {
                sleep(self.pause).await;
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                match self.reconnect().await {
                    Ok(line) => self.line = Some(line),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(
                            error,
                            queue = self.link.queue,
                            "RabbitMQ can't be reached, will retry"
                        );
                    }
                }
                continue;
            };
            match line.consumer.next().await {
                Some(Ok(delivery)) => {
                    self.pause = FIRST_PAUSE;
                    return Box::new(RabbitDelivery::new(delivery, Arc::clone(&line.open.leaving)));
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, queue = self.link.queue, "the connection to RabbitMQ is lost");
                    self.line = None;
                }
                None => {
                    tracing::warn!(queue = self.link.queue, "RabbitMQ has cancelled the consumer");
                    self.line = None;
                }
            }
        }
    }

    async fn stop(&mut self) {
        let Some(line) = &mut self.line else { return };
        line.open.cancel(&self.link.tag).await;
        // Cancelled, it yields what came before, and then ends.
        while let Some(Ok(delivery)) = line.consumer.next().await {
            requeue(&delivery).await;
        }
    }

    async fn close(self: Box<Self>) {
        if let Some(line) = self.line {
            // Whatever was not acked is delivered again once this is closed.
            line.open.close().await;
        }
    }
}
