use onlyonce::Classify;

struct Opaque;

#[derive(Classify)]
enum PayError {
    #[keep]
    Declined { reason: Opaque },
    #[release]
    Down(Opaque),
}

fn main() {}
