//! The macros of [onlyonce](https://docs.rs/onlyonce), which re-exports them: depend on that crate.

mod annotation;
mod arguments;
mod attribute;
mod classify;
mod function;
mod state_machine;
mod suggest;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes an async function or method run at most once per key, and gives every retry the same answer.
///
/// ```
/// use onlyonce::{Classify, Idempotency, MemoryStore, Refusal, idempotent};
///
/// #[derive(Debug, Classify)]
/// enum PayError {
///     #[keep]
///     Declined(String),
///     #[unknown]
///     Refused(Refusal),
/// }
///
/// impl From<Refusal> for PayError {
///     fn from(refusal: Refusal) -> Self {
///         Self::Refused(refusal)
///     }
/// }
///
/// struct Payments {
///     once: Idempotency,
/// }
///
/// impl Payments {
///     #[idempotent(engine = self.once, operation = "charge", key = order, scope = tenant, input = amount)]
///     async fn charge(&self, tenant: &str, order: String, amount: u64) -> Result<String, PayError> {
///         if amount > 1_000 {
///             return Err(PayError::Declined(order));
///         }
///         Ok(format!("{order} paid"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), PayError> {
/// let payments = Payments { once: Idempotency::new(MemoryStore::new()) };
/// let receipt = payments.charge("tenant-7", "order-42".into(), 100).await?;
/// assert_eq!(payments.charge("tenant-7", "order-42".into(), 100).await?, receipt);
/// # Ok(()) }
/// ```
///
/// # Arguments
/// They are Rust expressions that see the function's parameters. They are evaluated before the body, in this order, and
/// only look at what they name: the body may consume it. `?` in them leaves the function, and nothing has run.
///
/// | argument | meaning |
/// |---|---|
/// | `engine` | the `Idempotency`, or what dereferences to it |
/// | `key` | names the call among its retries; anything with `Display` that shows it in full: text, a number, a UUID |
/// | `scope` | on whose behalf, also with `Display`: the same key of another caller is another call. Left out, all share |
/// | `input` | the payload, `Serialize`: the same key with another payload is refused. Several are a tuple. Left out, it is not compared |
/// | `operation` | a string, by default the function's name. Functions with the same one share their keys; renaming it forgets them |
/// | `permit` | a name under which the body finds its `Permit` |
/// | `detached` | without a value: the body goes on when the caller goes away, in a task of its own; it can't borrow, so take `self: Arc<Self>` |
/// | `crate` | the path of `onlyonce`, if it is not `::onlyonce` |
///
/// # What the function must be
/// An `async fn` that returns `Result<T, E>`, where `T` is `Serialize` and `DeserializeOwned`, and `E` is
/// `Classify` (it [can be derived](macro@Classify)) and `From<Refusal>`.
///
/// # Cancel safety
/// As `Call::run`: dropped before the body's first poll the call is released, dropped later its outcome is unknown. With
/// `detached` it goes on.
#[proc_macro_attribute]
pub fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    attribute::expand(arguments.into(), item.into()).into()
}

/// Says for every case of an error what becomes of the call's record.
///
/// Each variant has exactly one of
/// - `#[keep]`: it is an answer, such as a business refusal; every retry gets it again. Its fields are stored, so they are
///   `Serialize` and `DeserializeOwned`;
/// - `#[release]`: nothing happened; a retry runs the call again;
/// - `#[unknown]`: nobody can know whether it happened; a retry is told so.
///
/// There is no default, because a wrong one would charge twice or never.
///
/// ```
/// use onlyonce::{Class, Classify, Refusal};
///
/// #[derive(Debug, Classify)]
/// enum PayError {
///     #[keep]
///     Declined { reason: String, try_again_in_days: Option<u32> },
///     #[release]
///     DatabaseDown(std::io::Error), // not stored, so it may hold anything
///     #[unknown]
///     GatewayTimedOut,
///     #[unknown]
///     Refused(Refusal),
/// }
///
/// let declined = PayError::Declined { reason: "no money".into(), try_again_in_days: Some(7) };
/// assert_eq!(declined.classify(), Class::Keep);
/// let again = PayError::revive(declined.save()?)?;
/// assert!(matches!(again, PayError::Declined { reason, .. } if reason == "no money"));
/// # Ok::<(), onlyonce::codec::CodecError>(())
/// ```
///
/// A kept case is stored as JSON under its own name and those of its fields: one that was renamed can't be replayed to
/// callers of the time before. A field that was added since and is an `Option` comes back as `None`.
///
/// A struct has its annotation on itself. `#[classify(crate = some::path)]` says where `onlyonce` is, if not at `::onlyonce`.
#[proc_macro_derive(Classify, attributes(keep, release, unknown, classify))]
pub fn derive_classify(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    classify::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Declares the moves between the states of something, once: for `guard::transition` of `onlyonce::sql`, for a diagram, and
/// for conditions that are written by hand.
///
/// The first variant is where everything begins. `#[to(…)]` says what a state may become; one without it is final.
///
/// ```
/// use onlyonce::StateMachine;
///
/// #[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
/// enum Order {
///     #[to(Paid, Cancelled)]
///     Placed,
///     #[to(ReadyToShip)]
///     Paid,
///     ReadyToShip,
///     Cancelled,
/// }
///
/// assert!(Order::Placed.may_become(Order::Paid));
/// assert!(!Order::Cancelled.may_become(Order::Paid));
/// assert_eq!(Order::Paid.predicate("status"), "status IN ('placed')");
/// assert!(Order::mermaid().contains("Placed --> Paid"));
/// ```
///
/// A state is stored as its name in snake case (`ready_to_ship`), or as `#[stored("…")]` says; or all are whole numbers:
/// `#[stored(1)]`. `#[machine(crate = some::path)]` says where `onlyonce` is, if not at `::onlyonce`.
#[proc_macro_derive(StateMachine, attributes(to, stored, machine))]
pub fn derive_state_machine(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state_machine::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
