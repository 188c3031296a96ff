use onlyonce::Classify;

#[derive(Classify)]
enum PayError {
    #[keep]
    Declined,
    TimedOut,
    #[release]
    #[unknown]
    Down,
    #[keep(always)]
    Closed,
}

#[derive(Classify)]
struct Failed;

#[derive(Classify)]
#[classify(krate = onlyonce)]
#[keep]
struct Elsewhere;

#[derive(Classify)]
union Either {
    one: u8,
    other: u8,
}

fn main() {}
