//! A message as it is kept: with headers that can be read.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::message::{Headers, OwnedHeaders, OwnedMessage};

/// A message whose headers can be read without a thought. The client panics at a header whose name is not UTF-8, so they are looked
/// at once, before the message is anywhere.
pub(super) struct Load {
    pub(super) message: OwnedMessage,
    /// Headers were left out, because their names can't be read.
    pub(super) garbled: bool,
}

impl Load {
    pub(super) fn of(mut message: OwnedMessage) -> Self {
        let headers = message.detach_headers();
        let names = 0..headers.as_ref().map_or(0, Headers::count);
        let garbled = headers.as_ref().is_some_and(|all| names.into_iter().any(|n| !is_readable(all, n)));
        let headers = if garbled { headers.map(|all| readable(&all)) } else { headers };
        Self { message: message.replace_headers(headers), garbled }
    }
}

fn is_readable(headers: &OwnedHeaders, n: usize) -> bool {
    catch_unwind(AssertUnwindSafe(|| headers.try_get(n).is_some())).is_ok()
}

fn readable(headers: &OwnedHeaders) -> OwnedHeaders {
    let names = (0..headers.count()).filter(|n| is_readable(headers, *n));
    names.fold(OwnedHeaders::new(), |kept, n| kept.insert(headers.get(n)))
}
