//! Asking all nodes at once, for no longer than it takes to know.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use onlyonce_core::{ErrorKind, StoreError};

use super::node::Node;

/// The answers so far.
#[derive(Debug)]
pub(super) struct Votes<T> {
    pub(super) answers: Vec<(usize, T)>,
    pub(super) failures: Vec<StoreError>,
    pub(super) nodes: usize,
}

impl<T> Votes<T> {
    pub(super) fn count(&self, is: impl Fn(&T) -> bool) -> usize {
        self.answers.iter().filter(|(_, answer)| is(answer)).count()
    }

    /// How many have not answered.
    pub(super) fn open(&self) -> usize {
        self.nodes - self.answers.len() - self.failures.len()
    }

    /// Too few nodes answered. Ambiguous if one of those that did not may have done it.
    pub(super) fn failed(mut self, call: &'static str) -> StoreError {
        let answered = self.answers.len();
        let is_ambiguous =
            self.open() > 0 || self.failures.iter().any(|it| it.kind() == ErrorKind::Ambiguous);
        let kind = if is_ambiguous { ErrorKind::Ambiguous } else { ErrorKind::Unavailable };
        match self.failures.pop() {
            Some(cause) => StoreError::new(kind, "redlock", call, TooFew { answered, of: self.nodes, cause }),
            None => StoreError::new(kind, "redlock", call, "too few nodes agreed"),
        }
    }
}

#[derive(Debug)]
struct TooFew {
    answered: usize,
    of: usize,
    cause: StoreError,
}

impl std::fmt::Display for TooFew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "only {} of {} nodes answered", self.answered, self.of)
    }
}

impl std::error::Error for TooFew {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Asks all nodes, until all have answered or `is_enough`. The others are asked all the same, and their answers are taken by
/// a task, so that a node that went away without a word is noticed.
///
/// Every request is on its way when this is first polled: whatever is asked later comes later, on the same connections.
pub(super) async fn ask<T, F>(
    nodes: &[Arc<Node>],
    call: impl Fn(Arc<Node>) -> F,
    is_enough: impl Fn(&Votes<T>) -> bool,
) -> Votes<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let mut votes = Votes { answers: Vec::new(), failures: Vec::new(), nodes: nodes.len() };
    let mut pending: FuturesUnordered<_> = nodes
        .iter()
        .enumerate()
        .map(|(n, node)| {
            let call = call(Arc::clone(node));
            async move { (n, call.await) }
        })
        .collect();
    while let Some((n, answer)) = pending.next().await {
        match answer {
            Ok(answer) => votes.answers.push((n, answer)),
            Err(error) => votes.failures.push(error),
        }
        if is_enough(&votes) {
            break;
        }
    }
    if !pending.is_empty() {
        tokio::spawn(pending.for_each(|_| std::future::ready(())));
    }
    votes
}
