//! An HTTP client whose retries are safe.
//!
//! ```no_run
//! # async fn pay() -> Result<(), Box<dyn std::error::Error>> {
//! use onlyonce_client::{OnlyOnce, OutcomeUnknown};
//! use reqwest_middleware::ClientBuilder;
//!
//! let client = ClientBuilder::new(onlyonce_client::http().build()?).with(OnlyOnce::new()).build();
//! match client.post("http://localhost:8080/payments").body("{\"amount\":100}").send().await {
//!     Ok(answer) => println!("{}", answer.status()),
//!     Err(error) => match OutcomeUnknown::of(&error) {
//!         Some(unknown) => println!("keep this, and retry with it later: {}", unknown.key()),
//!         None => return Err(error.into()), // it was never sent
//!     },
//! }
//! # Ok(()) }
//! ```
//!
//! ```text
//!  call ─▶ one key, for good ─▶ attempt ─▶ an answer ──────────────────────────▶ Ok(response)
//!              ▲                   │
//!              │                   ├ never sent, 408, 425, 429, 409 in progress,
//!              │                   │ time-out, reset, 5xx: the same key again
//!              └── full jitter, ◀──┘            │
//!                  Retry-After        attempts, time or retry allowance used up
//!                                               │
//!                        nothing can have happened ─▶ the last answer or error, as it is
//!                        it may have happened ─▶ the outcome query ─▶ the stored answer, or OutcomeUnknown with the key
//! ```
//!
//! It works with every server that takes an idempotency key: onlyonce, Stripe, and those like them. A request that has a key
//! already keeps it.
//!
//! Features: `tower` for a layer around any client that is a tower service, with the same key, retries and errors; `tls` for `https://` by rustls with ring. Without it, `reqwest` does what its own features say.

mod allowance;
mod body;
mod builder;
mod call;
mod middleware;
mod outcome;
mod pause;
mod peek;
mod sending;
#[cfg(feature = "tower")]
mod service;
mod unknown;
mod verdict;

/// A `reqwest` client to put the middleware on, with ring for TLS if the feature `tls` is on. (A client that is built without a
/// provider for TLS panics; this is the place where it is chosen.)
///
/// It does not follow the redirects of keyed calls: they are given back, as the answers that they are. Leave its redirect policy as
/// it is. A client of your own that follows redirects can't be told to stop, so that more is in doubt: a call that it took elsewhere,
/// and a connection that was refused, as nobody can see whether that was the first.
pub fn http() -> reqwest::ClientBuilder {
    #[cfg(feature = "tls")]
    // An error means that the program has chosen a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::custom(sending::redirect));
    builder.connector_layer(sending::Dialling)
}

pub use body::Passed;
pub use builder::{Builder, OutcomeQuery};
pub use call::{CallKey, OnlyOnce};
pub use reqwest;
pub use reqwest_middleware;
#[cfg(feature = "tower")]
pub use service::{AnswerBody, OnlyOnceService};
pub use unknown::{OutcomeUnknown, ServerSays};
