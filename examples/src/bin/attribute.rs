//! `#[idempotent]` on the method of a service: the caller repeats an order, the warehouse ships it once.
//!
//! Key, scope and input are expressions over the parameters. They are read before the body, which may therefore consume the
//! order; its early `return` and `?` are classified like any other end.

use std::sync::Mutex;

use onlyonce::{Classify, Idempotency, MemoryStore, Refusal, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    id: u64,
    item: String,
    pieces: u32,
}

/// What every retry of the order gets again.
#[derive(Debug, Serialize, Deserialize)]
struct Shipment {
    parcel: usize,
    order: Order,
}

#[derive(Debug, Classify)]
enum ShipError {
    /// An answer: the shop has to offer something else.
    #[keep]
    OutOfStock { item: String, left: u32 },
    /// Nothing has left the house: the same order may be tried again.
    #[release]
    DoorIsJammed(std::io::Error),
    /// Somebody has to look.
    #[unknown]
    Refused(Refusal),
}

impl From<Refusal> for ShipError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<std::io::Error> for ShipError {
    fn from(cause: std::io::Error) -> Self {
        Self::DoorIsJammed(cause)
    }
}

struct Warehouse {
    once: Idempotency,
    stock: u32,
    parcels: Mutex<Vec<u64>>,
    knocks: Mutex<u32>,
}

impl Warehouse {
    /// Ships an order of a shop.
    #[idempotent(engine = self.once, operation = "ship", key = order.id, scope = shop, input = order)]
    async fn ship(&self, shop: &str, order: Order) -> Result<Shipment, ShipError> {
        if order.pieces > self.stock {
            return Err(ShipError::OutOfStock { item: order.item, left: self.stock });
        }
        self.open_the_door().await?;
        let mut parcels = self.parcels.lock().expect("no panic holds the lock");
        parcels.push(order.id);
        Ok(Shipment { parcel: parcels.len(), order })
    }

    /// Opens at the second knock.
    async fn open_the_door(&self) -> std::io::Result<()> {
        let mut knocks = self.knocks.lock().expect("no panic holds the lock");
        *knocks += 1;
        if *knocks == 1 { Err(std::io::Error::other("it is jammed")) } else { Ok(()) }
    }
}

#[tokio::main]
async fn main() {
    let warehouse = Warehouse {
        once: Idempotency::new(MemoryStore::new()),
        stock: 5,
        parcels: Mutex::default(),
        knocks: Mutex::default(),
    };
    let calls = [("shoes", 42, 1), ("shoes", 42, 1), ("shoes", 42, 1), ("shoes", 42, 2), ("books", 42, 1)];
    for (shop, id, pieces) in calls.into_iter().chain([("books", 43, 9), ("books", 43, 9)]) {
        let order = Order { id, item: shop.trim_end_matches('s').to_owned(), pieces };
        match warehouse.ship(shop, order).await {
            Ok(Shipment { parcel, order }) => println!("{shop} {id}: parcel {parcel} with {}", order.item),
            Err(ShipError::OutOfStock { item, left }) => println!("{shop} {id}: only {left} {item}s left"),
            Err(ShipError::DoorIsJammed(cause)) => println!("{shop} {id}: {cause}"),
            Err(ShipError::Refused(refusal)) => println!("{shop} {id}: {refusal}"),
        }
    }
    println!("shipped: {:?}", warehouse.parcels.lock().expect("no panic holds the lock"));
}
