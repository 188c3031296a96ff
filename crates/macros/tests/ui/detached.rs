use onlyonce::{Classify, Idempotency, Refusal, idempotent};

#[derive(Classify)]
enum PayError {
    #[unknown]
    Refused(Refusal),
}

impl From<Refusal> for PayError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

struct Shop {
    once: Idempotency,
    name: String,
}

impl Shop {
    #[idempotent(engine = self.once, key = id, detached)]
    async fn borrows(&self, id: u64) -> Result<String, PayError> {
        Ok(self.name.clone())
    }
}

fn main() {}
