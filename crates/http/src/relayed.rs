//! The word of a proxy inside of the layer.

/// Put into a response's extensions by a service that relays to another server: an answer that breaks off half-way is then
/// told as a bad gateway (502) and not as a failed handler. Its body must fail if it was cut off, as [`WholeBody`](crate::WholeBody) does;
/// that all of its `Content-Length` has come is then not taken for its end.
///
/// A proxy says the rest with [`Class`](onlyonce_core::Class) in the same place: `Release` for a request that was never sent,
/// `Unknown` for one that was sent and not answered.
///
/// ```
/// use onlyonce_core::Class;
/// use onlyonce_http::Relayed;
/// let mut response = http::Response::new("the upstream refused the connection");
/// response.extensions_mut().insert(Relayed);
/// response.extensions_mut().insert(Class::Release);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relayed;
