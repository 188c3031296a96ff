//! Looking at a record, ending a doubt, forgetting, and how long records are kept.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Answer, Fence, ManualClock, MemoryStore, Refusal, Resolution, Settings, Settled, State, StateKind,
};
use onlyonce_testkit::{Fault, Op};

use crate::world::{Failed, KEY, LEASE, Paid, World, quiet};

async fn fence(world: &World) -> Fence {
    world.snapshot(KEY).await.unwrap().fence
}

async fn resolve(world: &World, seen: Fence, resolution: Resolution) -> Settled {
    world.once.resolve(&world.id(KEY), seen, resolution).await.unwrap()
}

/// The stored form of a receipt, as another call of the same kind left it.
async fn stored_receipt(world: &World) -> (String, Answer) {
    let receipt = world.paid("another order").await;
    (receipt, world.stored("another order").await.unwrap())
}

#[tokio::test]
async fn the_outcome_of_a_call_can_be_asked_for() {
    let world = World::new();
    let id = world.id(KEY);
    assert_eq!(world.once.outcome(&id).await.unwrap(), None);
    let running = world.run_by_hand(KEY).await;
    assert_eq!(world.once.outcome(&id).await.unwrap().unwrap().state.kind(), StateKind::Running);
    running.complete(Answer("a".into())).await.unwrap();
    let outcome = world.once.outcome(&id).await.unwrap().unwrap();
    assert_eq!(outcome.state, State::Completed(Answer("a".into())));
    assert_eq!(world.call(KEY).record_id().unwrap(), id);
}

#[tokio::test]
async fn resolved_as_happened_a_lapsed_call_has_that_answer() {
    let world = World::new();
    let (receipt, answer) = stored_receipt(&world).await;
    world.lapse(KEY).await;
    let seen = fence(&world).await;
    assert_eq!(resolve(&world, seen, Resolution::Happened(answer)).await, Settled::Applied);
    assert_eq!(world.paid(KEY).await, receipt);
    assert_eq!(world.effects(), 1, "only the other order's");
}

#[tokio::test]
async fn resolved_as_not_happened_a_lapsed_call_runs_again() {
    let world = World::new();
    world.lapse(KEY).await;
    assert_eq!(resolve(&world, fence(&world).await, Resolution::DidNotHappen).await, Settled::Applied);
    world.paid(KEY).await;
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn a_resolution_is_lost_on_what_runs_is_done_is_absent_or_has_moved_on() {
    let world = World::new();
    assert_eq!(resolve(&world, Fence(1), Resolution::DidNotHappen).await, Settled::Lost, "absent");
    let running = world.run_by_hand(KEY).await;
    assert_eq!(
        resolve(&world, fence(&world).await, Resolution::DidNotHappen).await,
        Settled::Lost,
        "running"
    );
    running.unknown(Answer::none()).await.unwrap();
    let stale = Fence(fence(&world).await.0 - 1);
    assert_eq!(resolve(&world, stale, Resolution::DidNotHappen).await, Settled::Lost, "stale");
    assert_eq!(world.kind(KEY).await, Some(StateKind::Lapsed));
    assert_eq!(resolve(&world, fence(&world).await, Resolution::DidNotHappen).await, Settled::Applied);
    world.paid(KEY).await;
    assert_eq!(resolve(&world, fence(&world).await, Resolution::DidNotHappen).await, Settled::Lost, "done");
}

#[tokio::test]
async fn a_resolution_goes_through_although_replies_are_lost() {
    let world = World::new();
    world.lapse(KEY).await;
    let seen = fence(&world).await;
    world.faults.next(Op::Begin, Fault::ReplyLost, 2);
    world.faults.next(Op::Settle, Fault::ReplyLost, 2);
    let resolved = world.in_time(resolve(&world, seen, Resolution::DidNotHappen)).await;
    assert_eq!(resolved, Settled::Applied);
    assert_eq!(world.kind(KEY).await, Some(StateKind::Released));
}

#[tokio::test]
async fn a_zombie_can_not_overwrite_what_a_person_resolved() {
    let world = World::new();
    let (receipt, answer) = stored_receipt(&world).await;
    world.faults.always(Op::Renew, Fault::HangBefore);
    let (let_go, wait) = tokio::sync::oneshot::channel::<()>();
    let inside = world.clone();
    let zombie = tokio::spawn(async move {
        let body = async {
            let _ = wait.await;
            Ok("the zombie's".to_owned())
        };
        let heard: Paid = inside.call(KEY).run(body).await;
        heard
    });
    quiet().await;
    world.pass(LEASE).await;
    assert_eq!(resolve(&world, fence(&world).await, Resolution::Happened(answer)).await, Settled::Applied);
    let_go.send(()).unwrap();
    assert_eq!(zombie.await.unwrap().unwrap(), receipt);
    assert_eq!(world.paid(KEY).await, receipt);
}

#[tokio::test]
async fn a_forgotten_call_runs_again_but_not_while_it_runs_or_after_it_moved_on() {
    let world = World::new();
    let id = world.id(KEY);
    let running = world.run_by_hand(KEY).await;
    let first = fence(&world).await;
    assert_eq!(world.once.forget(&id, first).await.unwrap(), Settled::Lost);
    running.release().await.unwrap();
    world.paid(KEY).await;
    assert_eq!(world.once.forget(&id, first).await.unwrap(), Settled::Lost);
    assert_eq!(world.once.forget(&id, fence(&world).await).await.unwrap(), Settled::Applied);
    world.paid(KEY).await;
    assert_eq!(world.effects(), 2);
}

#[tokio::test]
async fn an_answer_is_kept_for_retain_and_then_the_call_runs_again() {
    let retain = Duration::from_secs(100);
    let world = World::with(Settings { retain, ..Settings::default() });
    let first = world.paid(KEY).await;
    world.pass(retain - Duration::from_secs(1)).await;
    assert_eq!(world.paid(KEY).await, first);
    world.pass(Duration::from_secs(1)).await;
    assert_ne!(world.paid(KEY).await, first);
    assert_eq!(world.effects(), 2);
}

#[tokio::test]
async fn a_doubt_is_kept_for_retain_unsettled_and_not_for_retain() {
    let (retain, retain_unsettled) = (Duration::from_secs(100), Duration::from_secs(1000));
    let world = World::with(Settings { retain, retain_unsettled, ..Settings::default() });
    let heard: Paid = world.call(KEY).run(async { Err(Failed::TimedOut) }).await;
    assert!(matches!(heard, Err(Failed::TimedOut)));
    world.pass(retain_unsettled - Duration::from_secs(1)).await;
    assert!(matches!(world.refused(KEY).await, Refusal::Unknown { .. }));
    world.pass(Duration::from_secs(1)).await;
    world.paid(KEY).await;
}

#[tokio::test]
async fn the_engine_sweeps_expired_records_and_goes_on_after_a_failure() {
    let clock = ManualClock::new();
    let memory = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let settings = Settings { retain: Duration::from_secs(10), ..Settings::default() };
    let world = World::on(Arc::clone(&memory) as _, clock, settings);
    for n in 0..200 {
        world.paid(&n.to_string()).await;
    }
    world.faults.next(Op::Sweep, Fault::Unavailable, 1);
    assert_eq!(memory.len(), 200);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!((world.faults.calls(Op::Sweep), memory.len()), (1, 200));
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(memory.len(), 0);
}
