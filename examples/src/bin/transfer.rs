//! Idempotency in code, without HTTP: a transfer that a job may repeat as often as it likes.
//!
//! A business refusal ("not enough money") is an answer and comes back on every retry; a broken database frees the key.

use std::sync::Mutex;
use std::time::Duration;

use onlyonce::{Classify, Idempotency, MemoryStore, Refusal};

#[derive(Debug, Classify)]
enum TransferError {
    #[keep]
    NotEnoughMoney,
    #[release]
    DatabaseDown,
    #[unknown]
    Refused(Refusal),
}

impl From<Refusal> for TransferError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A bank whose database is down at the first try.
#[derive(Debug)]
struct Bank {
    once: Idempotency,
    balance: Mutex<u64>,
    tries: Mutex<u32>,
}

impl Bank {
    async fn transfer(&self, key: &str, amount: u64) -> Result<u64, TransferError> {
        self.once.call("transfer", key).input(&amount).run(self.move_money(amount)).await
    }

    async fn move_money(&self, amount: u64) -> Result<u64, TransferError> {
        let first_try = {
            let mut tries = self.tries.lock().expect("no panic holds the lock");
            *tries += 1;
            *tries == 1
        };
        if first_try {
            return Err(TransferError::DatabaseDown);
        }
        let mut balance = self.balance.lock().expect("no panic holds the lock");
        *balance = balance.checked_sub(amount).ok_or(TransferError::NotEnoughMoney)?;
        Ok(*balance)
    }
}

#[tokio::main]
async fn main() {
    let bank =
        Bank { once: Idempotency::new(MemoryStore::new()), balance: Mutex::new(150), tries: Mutex::new(0) };
    for (key, amount) in [("t-1", 100), ("t-1", 100), ("t-1", 100), ("t-2", 100), ("t-2", 100), ("t-1", 999)]
    {
        match bank.transfer(key, amount).await {
            Ok(balance) => println!("{key} {amount}: done, {balance} left"),
            Err(TransferError::Refused(refusal)) => println!("{key} {amount}: {refusal}"),
            Err(error) => println!("{key} {amount}: {error:?}"),
        }
    }
    bank.once.drain(Duration::from_secs(1)).await;
    println!("balance: {}", bank.balance.lock().expect("no panic holds the lock"));
}
