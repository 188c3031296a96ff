//! States, and the moves that are allowed between them.

use std::fmt::{Debug, Write};

/// The states of something and the moves between them, declared once.
///
/// With the feature `macros` of `onlyonce` it is derived. `onlyonce::sql::guard::transition` moves a row of a table along it.
///
/// ```
/// use onlyonce_core::{StateMachine, Stored};
///
/// #[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// enum Order { Placed, Paid }
///
/// impl StateMachine for Order {
///     const NAME: &'static str = "Order";
///     const STATES: &'static [Self] = &[Self::Placed, Self::Paid];
///     fn targets(self) -> &'static [Self] {
///         match self { Self::Placed => &[Self::Paid], Self::Paid => &[] }
///     }
///     fn name(self) -> &'static str {
///         match self { Self::Placed => "Placed", Self::Paid => "Paid" }
///     }
///     fn stored(self) -> Stored {
///         Stored::Text(match self { Self::Placed => "placed", Self::Paid => "paid" })
///     }
/// }
///
/// assert!(Order::Placed.may_become(Order::Paid));
/// assert_eq!(Order::Paid.predicate("status"), "status IN ('placed')");
/// assert_eq!(Order::mermaid(), "stateDiagram-v2\n    [*] --> Placed\n    Placed --> Paid\n    Paid --> [*]\n");
/// ```
pub trait StateMachine: Copy + Eq + Debug + Send + Sync + 'static {
    /// The name of the machine, for people.
    const NAME: &'static str;

    /// All states; the first one is where everything begins.
    const STATES: &'static [Self];

    /// What this state may become.
    fn targets(self) -> &'static [Self];

    /// The name of the state, for people.
    fn name(self) -> &'static str;

    /// How the state is stored in a column.
    fn stored(self) -> Stored;

    /// Whether the machine has the move from this state to `to`.
    fn may_become(self, to: Self) -> bool {
        self.targets().contains(&to)
    }

    /// Whether some state can be reached again from itself: then a late duplicate of an old move may be legal again.
    fn has_cycle() -> bool {
        Self::STATES.iter().any(|start| {
            let mut reached: Vec<Self> = start.targets().to_vec();
            let mut place = 0;
            while let Some(state) = reached.get(place).copied() {
                if state == *start {
                    return true;
                }
                for next in state.targets() {
                    if !reached.contains(next) {
                        reached.push(*next);
                    }
                }
                place += 1;
            }
            false
        })
    }

    /// The SQL condition under which a row may be moved to this state, for updates that are written by hand. The column is put
    /// down as it is given.
    fn predicate(self, column: &str) -> String {
        let sources: Vec<String> = Self::STATES
            .iter()
            .filter(|state| state.may_become(self))
            .map(|state| state.stored().literal())
            .collect();
        if sources.is_empty() { "1 = 0".to_owned() } else { format!("{column} IN ({})", sources.join(", ")) }
    }

    /// The machine as a Mermaid state diagram, for documents.
    fn mermaid() -> String {
        let mut graph = String::from("stateDiagram-v2\n");
        if let Some(first) = Self::STATES.first() {
            let _ = writeln!(graph, "    [*] --> {}", first.name());
        }
        for state in Self::STATES {
            for target in state.targets() {
                let _ = writeln!(graph, "    {} --> {}", state.name(), target.name());
            }
            if state.targets().is_empty() {
                let _ = writeln!(graph, "    {} --> [*]", state.name());
            }
        }
        graph
    }
}

/// A state as it is stored in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stored {
    /// In a column of text.
    Text(&'static str),
    /// In a column of whole numbers.
    Integer(i64),
}

impl Stored {
    fn literal(self) -> String {
        match self {
            Self::Text(text) => format!("'{}'", text.replace('\'', "''")),
            Self::Integer(number) => number.to_string(),
        }
    }
}
