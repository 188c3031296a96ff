//! A slot of the Cluster moves under a record that runs (scenario 20): ASK while it moves, MOVED when it has.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use common::servers::OwnCluster;
use common::*;
use onlyonce_core::{Settled, StateKind, Store};
use redis::aio::MultiplexedConnection;

struct Primary {
    name: String,
    address: String,
    slots: Vec<(u16, u16)>,
    connection: MultiplexedConnection,
}

async fn ask(node: &mut MultiplexedConnection, words: &[&str]) -> String {
    let mut command = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| {
        command.arg(word);
    });
    let reply: redis::Value = command.query_async(node).await.unwrap();
    redis::from_redis_value(reply).unwrap_or_default()
}

async fn connect(address: &str) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn primaries(url: &str) -> Vec<Primary> {
    let first = url.trim_start_matches("redis-cluster://").split(',').next().unwrap().to_owned();
    let nodes = ask(&mut connect(&first).await, &["CLUSTER", "NODES"]).await;
    let mut primaries = Vec::new();
    for line in nodes.lines().filter(|line| line.contains("master")) {
        let words: Vec<_> = line.split(' ').collect();
        let address = words[1].split('@').next().unwrap().to_owned();
        let slots = words[8..].iter().filter(|range| !range.starts_with('[')).map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            (from.parse().unwrap(), to.parse().unwrap())
        });
        let connection = connect(&address).await;
        primaries.push(Primary { name: words[0].to_owned(), address, slots: slots.collect(), connection });
    }
    primaries
}

#[tokio::test]
async fn a_record_is_found_while_its_slot_moves_and_after() {
    // One of its own: on a shared one, others write to the same slot.
    let cluster = OwnCluster::start().await;
    let prefix = prefix();
    let store = open(cluster.url(), &prefix).await;
    let (moved, id) = (id(), id());
    let key = |id| key(&prefix, id);
    let mut primaries = primaries(&cluster.url()).await;
    let slot = ask(&mut primaries[0].connection, &["CLUSTER", "KEYSLOT", &key(moved)]).await;
    let number: u16 = slot.parse().unwrap();
    let owner = |primary: &Primary| primary.slots.iter().any(|(from, to)| (*from..=*to).contains(&number));
    let at = primaries.iter().position(owner).unwrap();
    let mut from = primaries.swap_remove(at);
    let mut to = primaries.swap_remove(0);

    let attempt = begin(&store, &moved).await.unwrap().unwrap();
    ask(&mut to.connection, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from.name]).await;
    ask(&mut from.connection, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to.name]).await;
    let (host, port) = to.address.split_once(':').unwrap();
    for key in [key(moved), index(&prefix, moved)] {
        ask(&mut from.connection, &["MIGRATE", host, port, &key, "0", "5000"]).await;
    }

    // The owner of the slot says ASK: the record is there already.
    assert_eq!(store.get(&moved).await.unwrap().unwrap().state.kind(), StateKind::Running);
    assert!(begin(&store, &moved).await.unwrap().is_none(), "a second attempt while the slot moves");
    assert_eq!(store.settle(&moved, &attempt, &completed("a")).await.unwrap(), Settled::Applied);

    let name = to.name.clone();
    for primary in [&mut to, &mut from].into_iter().chain(&mut primaries) {
        ask(&mut primary.connection, &["CLUSTER", "SETSLOT", &slot, "NODE", &name]).await;
    }
    // And now MOVED.
    assert_eq!(store.get(&moved).await.unwrap().unwrap().state.kind(), StateKind::Completed);
    assert!(begin(&store, &moved).await.unwrap().is_none(), "a second attempt after the slot has moved");
    assert!(begin(&store, &id).await.unwrap().is_some());
}
