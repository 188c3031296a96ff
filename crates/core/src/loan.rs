//! What a runner lends to the handler, such as the transaction in which the record is written.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// A thing that travels with the [`Permit`](crate::Permit): the handler takes it out, and gives it back before the call ends.
///
/// Clones are the same loan. Nothing here knows what is lent; the crate that lends it does.
///
/// ```
/// use onlyonce_core::{Loan, Return};
/// let loan = Loan::new(7_u32);
/// let seven: u32 = loan.take().expect("it is here");
/// assert!(loan.take::<u32>().is_none(), "only once at a time");
/// assert!(loan.give_back(seven).is_none(), "it was taken back");
/// assert!(matches!(loan.close::<u32>(), Return::Here(7)));
/// assert_eq!(loan.give_back(7_u32), Some(7), "too late");
/// ```
#[derive(Clone)]
pub struct Loan(Arc<Mutex<Slot>>);

enum Slot {
    Here(Box<dyn Any + Send>),
    Out,
    Closed,
}

/// What became of a loan when it was closed.
#[derive(Debug, PartialEq, Eq)]
pub enum Return<T> {
    /// It was here: never taken, or given back.
    Here(T),
    /// Somebody still has it, and will keep it.
    Out,
}

impl Loan {
    /// Lends this.
    pub fn new<T: Send + 'static>(thing: T) -> Self {
        Self(Arc::new(Mutex::new(Slot::Here(Box::new(thing)))))
    }

    /// Takes it out. `None` if somebody has it, if the call has ended, or if it is something else.
    #[must_use]
    pub fn take<T: Send + 'static>(&self) -> Option<T> {
        let mut slot = self.0.lock();
        match std::mem::replace(&mut *slot, Slot::Out) {
            Slot::Here(thing) => match thing.downcast() {
                Ok(thing) => Some(*thing),
                Err(other) => {
                    *slot = Slot::Here(other);
                    None
                }
            },
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Gives it back; it is returned if that is too late, because the call has ended.
    pub fn give_back<T: Send + 'static>(&self, thing: T) -> Option<T> {
        let mut slot = self.0.lock();
        if let Slot::Closed = *slot {
            return Some(thing);
        }
        *slot = Slot::Here(Box::new(thing));
        None
    }

    /// Ends the loan: from now on nothing can be taken or given back.
    #[must_use]
    pub fn close<T: Send + 'static>(&self) -> Return<T> {
        let was = std::mem::replace(&mut *self.0.lock(), Slot::Closed);
        match was {
            Slot::Here(thing) => thing.downcast().map_or(Return::Out, |thing| Return::Here(*thing)),
            Slot::Out | Slot::Closed => Return::Out,
        }
    }

    /// Whether it can be taken now.
    #[must_use]
    pub fn is_here(&self) -> bool {
        matches!(*self.0.lock(), Slot::Here(_))
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.0.lock() {
            Slot::Here(_) => "Loan(here)",
            Slot::Out => "Loan(out)",
            Slot::Closed => "Loan(closed)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_taken_as_what_it_is() {
        let loan = Loan::new("text".to_owned());
        assert_eq!(loan.take::<u32>(), None);
        assert!(loan.is_here(), "asking for something else does not lose it");
        assert_eq!(loan.take::<String>().as_deref(), Some("text"));
    }

    #[test]
    fn what_is_out_when_the_loan_is_closed_stays_out() {
        let loan = Loan::new(1_u8);
        let one: u8 = loan.take().unwrap();
        assert_eq!(loan.close::<u8>(), Return::Out);
        assert_eq!(loan.clone().give_back(one), Some(1));
        assert!(!loan.is_here());
    }
}
