use onlyonce::StateMachine;

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
enum Moves {
    #[to(Payed, Elsewhere, Placed)]
    Placed,
    #[to(Done, Done)]
    Paid,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
enum Values {
    #[stored(1)]
    One,
    #[stored(1)]
    Two,
    Three,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
enum Shapes {
    Plain,
    #[to(Plain)]
    #[to(Plain)]
    Twice,
    Held { by: u8 },
    #[stored(1.5)]
    Half,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
struct NoEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
enum Generic<T> {
    Only(T),
}

fn main() {}
