//! Keeping a lease while the body runs, and losing it.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Answer, Finished, ManualClock, MemoryStore, OnLapse, Prior, Refusal, Settings, State, StateKind,
};
use onlyonce_testkit::{Fault, Op};

use crate::world::{KEY, LEASE, Paid, World, quiet};

async fn lease_left(world: &World) -> Duration {
    match world.snapshot(KEY).await.unwrap().state {
        State::Running { lease_left } => lease_left,
        other => panic!("it does not run: {other:?}"),
    }
}

#[tokio::test]
async fn a_lease_is_renewed_at_a_third() {
    let world = World::new();
    let running = world.run_by_hand(KEY).await;
    quiet().await;
    for renewals in 1..=5 {
        world.pass(LEASE / 3 - Duration::from_millis(1)).await;
        assert_eq!(world.faults.calls(Op::Renew), renewals - 1, "too early");
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(world.faults.calls(Op::Renew), renewals);
        assert_eq!(lease_left(&world).await, LEASE);
    }
    assert!(!running.permit().is_lost());
    assert_eq!(running.permit().remaining(), Some(LEASE));
    running.release().await.unwrap();
}

#[tokio::test]
async fn after_the_end_nothing_is_renewed() {
    let world = World::new();
    world.paid(KEY).await;
    world.pass(LEASE * 3).await;
    assert_eq!(world.faults.calls(Op::Renew), 0);
}

#[tokio::test]
async fn one_renewal_that_fails_is_made_up_for_before_the_lease_is_over() {
    for fault in [Fault::Unavailable, Fault::RequestLost, Fault::ReplyLost] {
        let world = World::new();
        let running = world.run_by_hand(KEY).await;
        world.faults.next(Op::Renew, fault, 1);
        for _ in 0..8 {
            world.pass(LEASE / 6).await;
        }
        assert!(!running.permit().is_lost(), "{fault:?}");
        assert_eq!(world.kind(KEY).await, Some(StateKind::Running));
        running.release().await.unwrap();
    }
}

#[tokio::test]
async fn the_body_hears_at_its_local_deadline_that_the_lease_is_lost_even_when_renewals_hang() {
    for fault in [Fault::HangBefore, Fault::HangAfter, Fault::Unavailable] {
        let world = World::new();
        let running = world.run_by_hand(KEY).await;
        world.faults.always(Op::Renew, fault);
        let permit = running.permit().clone();
        let lost = tokio::spawn(async move { permit.lost().await });
        for _ in 0..29 {
            world.pass(Duration::from_secs(1)).await;
        }
        assert!(!lost.is_finished() && !running.permit().is_lost(), "{fault:?}: lost too early");
        world.pass(Duration::from_secs(1)).await;
        assert!(lost.is_finished() && running.permit().is_lost(), "{fault:?}: not told");
        drop(running);
    }
}

#[tokio::test]
async fn the_body_hears_at_once_when_the_store_says_that_the_lease_is_lost() {
    // The store's clock runs ahead of the engine's: by its own, the engine still has two thirds of its lease.
    let (ahead, clock) = (ManualClock::new(), ManualClock::new());
    let world = World::on(Arc::new(MemoryStore::new().with_clock(ahead.clone())), clock, Settings::default());
    let running = world.run_by_hand(KEY).await;
    ahead.advance(LEASE);
    world.pass(LEASE / 3).await;
    assert!(running.permit().is_lost());
    assert_eq!(running.permit().remaining(), Some(LEASE - LEASE / 3));
    world.pass(LEASE).await;
    assert_eq!(world.faults.calls(Op::Renew), 1, "what is lost is not renewed");
    drop(running);
}

#[tokio::test]
async fn renewals_stop_at_max_run_and_then_the_lease_runs_out() {
    let world = World::with(Settings { max_run: LEASE * 2, ..Settings::default() });
    let running = world.run_by_hand(KEY).await;
    quiet().await;
    for _ in 0..9 {
        world.pass(LEASE / 3).await;
    }
    assert!(running.permit().is_lost());
    assert_eq!(world.kind(KEY).await, Some(StateKind::Lapsed));
    assert_eq!(world.faults.calls(Op::Renew), 5, "at a third of a lease, until two leases are over");
    drop(running);
}

#[tokio::test]
async fn the_answer_of_a_zombie_gives_way_to_the_stored_answer_of_its_successor() {
    let world = World::with(Settings { on_lapse: OnLapse::Rerun, ..Settings::default() });
    world.faults.always(Op::Renew, Fault::HangBefore);
    let (let_go, wait) = tokio::sync::oneshot::channel::<()>();
    let zombie = {
        let world = world.clone();
        tokio::spawn(async move {
            let body = async {
                let _ = wait.await;
                Ok("the zombie's".to_owned())
            };
            let heard: Paid = world.call(KEY).run(body).await;
            heard
        })
    };
    quiet().await;
    world.pass(LEASE).await;
    let receipt = world.neighbour().paid(KEY).await;
    let_go.send(()).unwrap();
    assert_eq!(world.in_time(zombie).await.unwrap().unwrap(), receipt);
    assert_eq!(world.paid(KEY).await, receipt);
}

#[tokio::test]
async fn a_zombie_whose_successor_still_runs_is_told_so() {
    let world = World::with(Settings { on_lapse: OnLapse::Rerun, ..Settings::default() });
    world.faults.always(Op::Renew, Fault::HangBefore);
    let zombie = world.run_by_hand(KEY).await;
    world.pass(LEASE).await;
    let successor = world.neighbour().run_by_hand(KEY).await;
    assert!(successor.permit().fence() > zombie.permit().fence());
    let finished = zombie.complete(Answer("late".into())).await.unwrap();
    let Finished::Superseded(Prior::Refused(refusal)) = finished else { panic!("{finished:?}") };
    assert!(matches!(refusal, Refusal::InProgress { .. }), "{refusal:?}");
    successor.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_past_its_lease_still_stores_its_answer_if_nobody_took_over() {
    let world = World::new();
    world.faults.always(Op::Renew, Fault::HangBefore);
    let body = async {
        world.pass(LEASE * 2).await;
        world.effect(KEY).await
    };
    let receipt = world.call(KEY).run(body).await.unwrap();
    assert_eq!(world.paid(KEY).await, receipt);
    assert_eq!(world.effects(), 1);
}
