//! What `#[derive(StateMachine)]` makes of an enum.

use onlyonce::{StateMachine, Stored};

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
enum Order {
    #[to(Paid, Cancelled)]
    Placed,
    #[to(ReadyToShip)]
    Paid,
    #[stored("ready")]
    ReadyToShip,
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
enum Step {
    #[to(Second)]
    #[stored(1)]
    First,
    #[to(First)]
    #[stored(2)]
    Second,
}

#[test]
fn only_the_declared_moves_are_allowed() {
    let allowed: Vec<(Order, Order)> = Order::STATES
        .iter()
        .flat_map(|from| Order::STATES.iter().map(move |to| (*from, *to)))
        .filter(|(from, to)| from.may_become(*to))
        .collect();
    let declared =
        [(Order::Placed, Order::Paid), (Order::Placed, Order::Cancelled), (Order::Paid, Order::ReadyToShip)];
    assert_eq!(allowed, declared);
}

#[test]
fn a_state_is_stored_as_it_says_or_as_its_name() {
    assert_eq!(Order::Placed.stored(), Stored::Text("placed"));
    assert_eq!(Order::ReadyToShip.stored(), Stored::Text("ready"));
    assert_eq!(Step::Second.stored(), Stored::Integer(2));
    assert_eq!(Order::ReadyToShip.name(), "ReadyToShip");
}

#[test]
fn the_predicate_names_the_states_that_may_become_it() {
    assert_eq!(Order::Cancelled.predicate("o.status"), "o.status IN ('placed')");
    assert_eq!(Order::Placed.predicate("status"), "1 = 0");
    assert_eq!(Step::First.predicate("step"), "step IN (2)");
}

#[test]
fn the_graph_is_the_machine() {
    let expected = "stateDiagram-v2
    [*] --> Placed
    Placed --> Paid
    Placed --> Cancelled
    Paid --> ReadyToShip
    ReadyToShip --> [*]
    Cancelled --> [*]
";
    assert_eq!(Order::mermaid(), expected);
}

#[test]
fn a_circle_is_seen() {
    assert!(!Order::has_cycle());
    assert!(Step::has_cycle());
}

mod shadows {
    #![allow(dead_code, reason = "the names are the point")]
    pub(crate) use onlyonce as elsewhere;

    struct Stored;
    #[allow(non_camel_case_types)]
    struct str;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, elsewhere::StateMachine)]
    #[machine(crate = self::elsewhere)]
    pub(crate) enum Machine {
        #[to(r#Final)]
        Self_,
        r#Final,
    }
}

#[test]
fn nothing_of_ours_meets_the_names_of_the_type() {
    assert!(shadows::Machine::Self_.may_become(shadows::Machine::Final));
}
