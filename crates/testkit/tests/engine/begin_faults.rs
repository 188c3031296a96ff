//! The store fails at begin.

use std::time::Duration;

use onlyonce_core::{ErrorKind, OnLapse, Refusal, Settings, StateKind};
use onlyonce_testkit::{Fault, Op};

use crate::world::{Failed, KEY, LEASE, World, quiet};

fn kind(refusal: Refusal) -> ErrorKind {
    match refusal {
        Refusal::Store(error) => error.kind(),
        other => panic!("not the store's failure: {other:?}"),
    }
}

#[tokio::test]
async fn a_store_that_is_down_at_begin_lets_nothing_run_and_leaves_nothing() {
    let world = World::new();
    world.faults.next(Op::Begin, Fault::Unavailable, 1);
    assert_eq!(kind(world.refused(KEY).await), ErrorKind::Unavailable);
    assert_eq!((world.kind(KEY).await, world.faults.calls(Op::Begin)), (None, 1));
    world.paid(KEY).await;
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn a_begin_whose_reply_is_lost_is_repeated_and_recognised() {
    let world = World::new();
    world.faults.next(Op::Begin, Fault::ReplyLost, 2);
    world.paid(KEY).await;
    assert_eq!((world.effects(), world.faults.calls(Op::Begin)), (1, 3));
    let record = world.snapshot(KEY).await.unwrap();
    assert_eq!((record.attempts, record.state.kind()), (1, StateKind::Completed));
}

#[tokio::test]
async fn a_begin_whose_request_is_lost_is_repeated() {
    let world = World::new();
    world.faults.next(Op::Begin, Fault::RequestLost, 2);
    world.paid(KEY).await;
    assert_eq!((world.effects(), world.faults.calls(Op::Begin)), (1, 3));
}

#[tokio::test]
async fn a_begin_that_stays_ambiguous_runs_nothing_and_is_released_so_that_a_retry_runs() {
    for fault in [Fault::ReplyLost, Fault::RequestLost] {
        let world = World::new();
        world.faults.always(Op::Begin, fault);
        assert_eq!(kind(world.refused(KEY).await), ErrorKind::Ambiguous);
        world.faults.heal();
        if fault == Fault::ReplyLost {
            world.until(KEY, StateKind::Released).await;
        }
        world.paid(KEY).await;
        assert_eq!(world.effects(), 1);
    }
}

#[tokio::test]
async fn a_begin_that_lands_after_everybody_gave_up_is_released_too() {
    let world = World::new();
    world.faults.always(Op::Begin, Fault::LandsLate(Duration::from_secs(5)));
    assert_eq!(kind(world.refused(KEY).await), ErrorKind::Ambiguous);
    world.faults.heal();
    assert_eq!(world.kind(KEY).await, None);
    world.until(KEY, StateKind::Released).await;
    world.paid(KEY).await;
    assert_eq!(world.effects(), 1);
}

/// The repeat finds somebody else there, who then releases; only then does the first copy land.
#[tokio::test]
async fn a_copy_that_lands_late_after_its_repeat_was_refused_is_released() {
    let world = World::new();
    let other = world.neighbour().run_by_hand(KEY).await;
    world.faults.next(Op::Begin, Fault::LandsLate(Duration::from_secs(5)), 1);
    assert!(matches!(world.refused(KEY).await, Refusal::InProgress { .. }));
    other.release().await.unwrap();
    world
        .in_time(async {
            while world.snapshot(KEY).await.is_none_or(|seen| seen.attempts < 2) {
                quiet().await
            }
        })
        .await;
    world.until(KEY, StateKind::Released).await;
    world.paid(KEY).await;
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn an_ambiguous_takeover_is_left_unknown_and_not_released() {
    let after = Duration::from_secs(1);
    let world = World::with(Settings { on_lapse: OnLapse::Ask { after }, ..Settings::default() });
    world.lapse(KEY).await;
    world.pass(after).await;
    let lapsed_at = world.snapshot(KEY).await.unwrap().fence;
    // The first begin takes nothing over and sees the lapsed record; the second takes it over, and is never answered.
    world.faults.next(Op::Begin, Fault::Delay(Duration::ZERO), 1);
    world.faults.next(Op::Begin, Fault::ReplyLost, 4);
    assert_eq!(kind(world.refused(KEY).await), ErrorKind::Ambiguous);
    world
        .in_time(async {
            loop {
                let seen = world.snapshot(KEY).await.unwrap();
                if seen.fence > lapsed_at && seen.state.kind() != StateKind::Running {
                    break assert_eq!(seen.state.kind(), StateKind::Lapsed);
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    let held = world.treating(|settings| settings.on_lapse = OnLapse::Hold);
    assert!(matches!(held.refused(KEY).await, Refusal::Unknown { .. }));
}

#[tokio::test]
async fn a_caller_that_goes_away_while_begin_hangs_leaves_nothing_behind() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let world = World::new();
        world.faults.next(Op::Begin, fault, 1);
        tokio::select! {
            _ = world.call(KEY).run(world.effect(KEY)) => panic!("it hangs"),
            () = quiet() => {}
        }
        if fault == Fault::HangAfter {
            world.until(KEY, StateKind::Released).await;
        }
        world.paid(KEY).await;
        assert_eq!(world.effects(), 1);
    }
}

#[tokio::test]
async fn a_begin_that_is_refused_for_good_is_not_repeated() {
    let world = World::new();
    world.faults.next(Op::Begin, Fault::Rejected, 1);
    assert_eq!(kind(world.refused(KEY).await), ErrorKind::Rejected);
    assert_eq!(world.faults.calls(Op::Begin), 1);
}

#[tokio::test]
async fn the_lease_of_a_repeated_begin_counts_from_its_first_copy() {
    let world = World::new();
    world.faults.next(Op::Begin, Fault::ReplyLost, 1);
    let running = world.in_time(world.run_by_hand(KEY)).await;
    let remaining = running.permit().remaining().unwrap();
    assert!(remaining < LEASE, "{remaining:?} counts from the repeat");
    running.release().await.unwrap();
}

#[tokio::test]
async fn an_error_of_the_store_reaches_the_caller_as_its_own_type() {
    let world = World::new();
    world.faults.next(Op::Begin, Fault::Unavailable, 1);
    let error = world.pay(KEY).await.unwrap_err();
    assert!(matches!(error, Failed::Refused(refusal) if refusal.is_retryable()));
}

#[tokio::test]
async fn a_begin_that_took_longer_than_its_lease_is_not_run_and_frees_the_key() {
    let world = World::new();
    world.faults.next(Op::Begin, Fault::Delay(LEASE), 1);
    let heard = world.in_time(world.pay(KEY)).await;
    let Err(Failed::Refused(Refusal::Store(error))) = heard else { panic!("{heard:?}") };
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(world.effects(), 0);
    world.until(KEY, StateKind::Released).await;
    world.paid(KEY).await;
    assert_eq!(world.effects(), 1);
}
