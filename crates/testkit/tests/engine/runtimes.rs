//! The engine outlives the runtimes that its calls come from, and what panics in the background.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::lock::{Locks, MemoryLocks};
use onlyonce_core::{Answer, Idempotency, MemoryStore, Settings, StateKind, Store, SystemClock};
use onlyonce_testkit::{Fault, FaultyStore, Op};
use tokio::runtime::Runtime;

use crate::world::{KEY, Paid, World};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A world in real time: a runtime that ends takes its timers along.
fn world(settings: Settings) -> World {
    let base: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let faults = Arc::new(FaultyStore::new(Arc::clone(&base)).with_clock(SystemClock));
    let once = Idempotency::builder_shared(Arc::clone(&faults) as _).settings(settings).build().unwrap();
    World { base, faults, once, ..World::new() }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("in vain: {what}");
}

fn kind(world: &World) -> Option<StateKind> {
    futures_util::FutureExt::now_or_never(world.kind(KEY)).expect("memory answers at once")
}

fn until(world: &World, state: StateKind) {
    wait_for("the record to be in its state", || kind(world) == Some(state));
}

fn pay(world: &World) -> impl Future<Output = Paid> + use<> {
    let world = world.clone();
    async move { world.call(KEY).run(world.effect(KEY)).await }
}

#[test]
fn a_settlement_outlives_the_runtime_that_it_was_pending_on() {
    let world = world(Settings::default());
    let first = runtime();
    world.faults.always(Op::Settle, Fault::Unavailable);
    let receipt = first.block_on(pay(&world)).unwrap();
    let tried = world.faults.calls(Op::Settle);
    wait_for("the background to try", || world.faults.calls(Op::Settle) > tried);
    drop(first);
    world.faults.heal();
    until(&world, StateKind::Completed);
    assert_eq!(runtime().block_on(pay(&world)).unwrap(), receipt);
    assert_eq!(world.effects(), 1);
}

#[test]
fn an_attempt_that_ends_with_its_runtime_is_settled() {
    for polled in [true, false] {
        let world = world(Settings::default());
        let first = runtime();
        let mut running = first.block_on(world.run_by_hand(KEY));
        if polled {
            running.begun();
        }
        first.spawn(async move {
            std::future::pending::<()>().await;
            drop(running);
        });
        drop(first);
        until(&world, if polled { StateKind::Lapsed } else { StateKind::Released });
    }
}

#[test]
fn leases_are_renewed_after_the_runtime_of_the_first_call_has_ended() {
    let lease = Duration::from_secs(3);
    let world = world(Settings { lease, ..Settings::default() });
    let (first, second) = (runtime(), runtime());
    first.block_on(async { world.run_by_hand("another order").await.release().await }).unwrap();
    let running = second.block_on(world.run_by_hand(KEY));
    drop(first);
    let renewed = world.faults.calls(Op::Renew);
    wait_for("two renewals", || world.faults.calls(Op::Renew) >= renewed + 2);
    second.block_on(running.complete(Answer("a".into()))).unwrap();
}

#[test]
fn a_renewal_that_was_under_way_when_its_runtime_ended_is_made_again() {
    let lease = Duration::from_secs(3);
    let world = world(Settings { lease, ..Settings::default() });
    let (first, second) = (runtime(), runtime());
    let running = first.block_on(world.run_by_hand(KEY));
    world.faults.next(Op::Renew, Fault::HangBefore, 1);
    wait_for("a renewal that hangs", || world.faults.calls(Op::Renew) > 0);
    drop(first);
    wait_for("two more", || world.faults.calls(Op::Renew) >= 3);
    second.block_on(running.complete(Answer("a".into()))).unwrap();
}

#[test]
fn a_lock_is_renewed_and_released_after_its_runtime_has_ended() {
    let server = MemoryLocks::new();
    let locks = Locks::new(server.clone());
    let first = runtime();
    let guard = first.block_on(locks.key("report").ttl(Duration::from_secs(3)).acquire()).unwrap();
    drop(first);
    let mut least = guard.remaining();
    wait_for("a renewal", || {
        let (before, now) = (least, guard.remaining());
        least = now;
        now > before
    });
    drop(guard);
    wait_for("the release", || server.is_empty());
}

#[tokio::test]
async fn what_panics_in_the_background_is_done_again() {
    let world = World::new();
    world.faults.next(Op::Settle, Fault::Unavailable, 4);
    world.faults.next(Op::Settle, Fault::Panic, 2);
    world.faults.next(Op::Renew, Fault::Panic, 1);
    world.faults.next(Op::Sweep, Fault::Panic, 1);
    let receipt = world.paid(KEY).await;
    world.until(KEY, StateKind::Completed).await;
    assert_eq!(world.paid(KEY).await, receipt);
    let running = world.run_by_hand("order-43").await;
    for _ in 0..60 {
        world.pass(Duration::from_secs(3)).await;
    }
    assert!(!running.permit().is_lost(), "a renewal that panicked is made again");
    assert!(world.faults.calls(Op::Sweep) > 1, "and so is a sweep");
    running.release().await.unwrap();
}

#[test]
fn a_call_that_was_polled_outside_of_a_runtime_leaves_the_next_ones_their_renewals() {
    let lease = Duration::from_secs(3);
    let world = world(Settings { lease, ..Settings::default() });
    let outside = std::panic::AssertUnwindSafe(|| futures_util::FutureExt::now_or_never(pay(&world)));
    assert!(std::panic::catch_unwind(outside).is_err(), "there is no runtime");
    let runtime = runtime();
    let _running = runtime.block_on(world.run_by_hand(KEY));
    wait_for("two renewals", || world.faults.calls(Op::Renew) >= 2);
}
