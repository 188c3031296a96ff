//! The same key with another payload is a mistake of the caller, whatever state the record is in.

use onlyonce_core::{OnLapse, Refusal, Settings, StateKind};

use crate::world::{Failed, KEY, World};

/// Pays another sum under the same key; says why it was refused.
async fn other_payload(world: &World) -> Refusal {
    let before = world.effects();
    let heard = world.in_time(world.once.call("pay", KEY).input(&999).run(world.effect(KEY))).await;
    assert_eq!(world.effects(), before, "the body ran");
    match heard {
        Err(Failed::Refused(refusal)) => refusal,
        other => panic!("not refused, but {other:?}"),
    }
}

async fn is_refused_everywhere(world: &World) {
    let before = world.snapshot(KEY).await.unwrap();
    for engine in [world, &world.neighbour()] {
        assert!(matches!(other_payload(engine).await, Refusal::Mismatch));
    }
    let after = world.snapshot(KEY).await.unwrap();
    assert_eq!((after.fence, after.fingerprint), (before.fence, before.fingerprint));
}

#[tokio::test]
async fn another_payload_is_refused_while_the_first_runs() {
    let world = World::new().treating(|settings| settings.wait = settings.lease);
    let running = world.run_by_hand(KEY).await;
    is_refused_everywhere(&world).await;
    running.release().await.unwrap();
}

#[tokio::test]
async fn another_payload_is_refused_after_the_first_is_completed() {
    let world = World::new();
    let receipt = world.paid(KEY).await;
    is_refused_everywhere(&world).await;
    assert_eq!(world.paid(KEY).await, receipt);
}

#[tokio::test]
async fn another_payload_is_refused_after_the_first_was_released() {
    let world = World::new();
    world.run_by_hand(KEY).await.release().await.unwrap();
    assert_eq!(world.kind(KEY).await, Some(StateKind::Released));
    is_refused_everywhere(&world).await;
    world.paid(KEY).await;
}

#[tokio::test]
async fn another_payload_is_refused_after_the_first_lapsed_even_where_it_may_be_rerun() {
    let world = World::with(Settings { on_lapse: OnLapse::Rerun, ..Settings::default() });
    world.lapse(KEY).await;
    is_refused_everywhere(&world).await;
    world.paid(KEY).await;
}

#[tokio::test]
async fn another_payload_may_run_once_the_first_has_expired() {
    let world = World::new();
    world.paid(KEY).await;
    world.pass(world.once.settings().retain).await;
    let heard = world.once.call("pay", KEY).input(&999).run(world.effect(KEY)).await;
    assert!(heard.is_ok());
    assert_eq!(world.effects(), 2);
}
