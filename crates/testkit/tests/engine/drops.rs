//! Callers that go away, and bodies that panic.

use std::sync::Arc;

use onlyonce_core::{Answer, Class, OnLapse, Refusal, Settings, StateKind};
use onlyonce_testkit::{Fault, Op};
use tokio::sync::oneshot;

use crate::world::{Failed, KEY, Paid, World, quiet};

#[tokio::test]
async fn dropped_before_its_body_is_polled_a_call_is_released() {
    let world = World::new();
    drop(world.run_by_hand(KEY).await);
    world.until(KEY, StateKind::Released).await;
    world.paid(KEY).await;
}

#[tokio::test]
async fn dropped_before_its_body_is_polled_a_takeover_is_left_unknown() {
    let world = World::with(Settings { on_lapse: OnLapse::Rerun, ..Settings::default() });
    world.lapse(KEY).await;
    let before = world.snapshot(KEY).await.unwrap().fence;
    drop(world.run_by_hand(KEY).await);
    quiet().await;
    let after = world.snapshot(KEY).await.unwrap();
    assert!(after.fence > before);
    assert_eq!(after.state.kind(), StateKind::Lapsed);
}

#[tokio::test]
async fn dropped_after_its_body_was_polled_a_call_is_unknown() {
    let world = World::new();
    tokio::select! {
        _ = world.call(KEY).run(std::future::pending::<Paid>()) => panic!("it never ends"),
        () = quiet() => {}
    }
    world.until(KEY, StateKind::Lapsed).await;
    assert!(matches!(world.refused(KEY).await, Refusal::Unknown { .. }));
}

#[tokio::test]
async fn dropped_while_it_settles_a_call_is_settled_in_the_background_as_it_wanted() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let world = World::new();
        world.faults.next(Op::Settle, fault, 1);
        tokio::select! {
            _ = world.call(KEY).run(world.effect(KEY)) => panic!("it hangs"),
            () = quiet() => {}
        }
        world.until(KEY, StateKind::Completed).await;
        quiet().await;
        assert_eq!(world.paid(KEY).await, format!("receipt 1 of {KEY}"));
        assert_eq!(world.effects(), 1);
    }
}

#[tokio::test]
async fn a_body_that_panics_leaves_its_outcome_unknown() {
    let world = World::new();
    let panicking = {
        let world = world.clone();
        tokio::spawn(async move {
            let body = async {
                world.effect(KEY).await?;
                panic!("after the effect")
            };
            let _: Paid = world.call(KEY).run(body).await;
        })
    };
    assert!(panicking.await.unwrap_err().is_panic(), "inline, the panic is the caller's");
    world.until(KEY, StateKind::Lapsed).await;
    assert!(matches!(world.refused(KEY).await, Refusal::Unknown { .. }));
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn a_detached_body_that_panics_leaves_its_outcome_unknown_and_its_caller_alive() {
    let world = World::new();
    let body = async { panic!("in a task of its own") };
    let heard: Paid = world.call(KEY).run_detached(body).await;
    assert!(matches!(heard, Err(Failed::Refused(Refusal::Unknown { .. }))), "{heard:?}");
    world.until(KEY, StateKind::Lapsed).await;
}

#[tokio::test]
async fn a_detached_call_goes_on_when_its_caller_goes_away() {
    let world = World::new();
    let (let_go, wait) = oneshot::channel::<()>();
    let inside = world.clone();
    let body = async move {
        let _ = wait.await;
        inside.effect(KEY).await
    };
    tokio::select! {
        _ = world.call(KEY).run_detached(body) => panic!("it waits"),
        () = quiet() => {}
    }
    assert_eq!(world.kind(KEY).await, Some(StateKind::Running));
    let_go.send(()).unwrap();
    world.until(KEY, StateKind::Completed).await;
    world.paid(KEY).await;
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn a_call_that_is_never_polled_leaves_nothing() {
    let world = World::new();
    drop(world.call(KEY).run(world.effect(KEY)));
    quiet().await;
    assert_eq!((world.kind(KEY).await, world.faults.calls(Op::Begin)), (None, 0));
}

#[tokio::test]
async fn an_engine_that_goes_away_still_settles_what_was_dropped() {
    let world = World::new();
    let (base, id) = (Arc::clone(&world.base), world.id(KEY));
    let mut running = world.run_by_hand(KEY).await;
    running.begun();
    drop((running, world));
    quiet().await;
    let record = base.get(&id).await.unwrap().unwrap();
    assert_eq!(record.state.kind(), StateKind::Lapsed);
    assert_eq!(record.attempts, 1);
}

#[tokio::test]
async fn an_error_that_leaves_doubt_is_unknown_and_keeps_its_evidence() {
    let world = World::new();
    let heard: Paid = world.call(KEY).run(async { Err(Failed::TimedOut) }).await;
    assert!(matches!(heard, Err(Failed::TimedOut)), "the first caller hears what happened");
    assert_eq!(onlyonce_core::Classify::classify(&Failed::TimedOut), Class::Unknown);
    assert!(matches!(world.refused(KEY).await, Refusal::Unknown { .. }));

    let running = world.run_by_hand("order-43").await;
    running.unknown(Answer("504 from the bank".into())).await.unwrap();
    let Refusal::Unknown { evidence, .. } = world.refused("order-43").await else { panic!("not unknown") };
    assert_eq!(evidence, Answer("504 from the bank".into()));
}
