//! What can go wrong between a client and its server.

use std::time::Duration;

/// How one exchange (a request and its reply) goes wrong.
///
/// TCP never loses bytes out of the middle of a connection, and neither does this: what is dropped in one direction stays
/// dropped on that connection, whose two ends know nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetFault {
    /// The server never gets the request, nor anything after it on this connection.
    DropRequest,
    /// The server does what it was asked; the client never gets the reply, nor anything after it on this connection.
    DropReply,
    /// The request takes that much longer. It arrives even if its sender has gone away meanwhile.
    DelayRequest(Duration),
    /// The reply takes that much longer.
    DelayReply(Duration),
    /// So many bytes of the request arrive, then both sides see a reset.
    ResetRequest {
        /// How many bytes.
        after: usize,
    },
    /// The server gets the whole request; so many bytes of its reply arrive, then both sides see a reset. With 0 it is a
    /// lost reply that the client hears of at once.
    ResetReply {
        /// How many bytes.
        after: usize,
    },
    /// The request arrives, followed by an end of stream; the reply still comes through.
    HalfCloseRequest,
    /// The request arrives; instead of the reply the client reads an end of stream, while the server still listens.
    HalfCloseReply,
}
