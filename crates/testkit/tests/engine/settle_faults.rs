//! The store fails when the answer is to be stored: the effect has happened, so the answer must not get lost.

use std::time::Duration;

use onlyonce_core::{Answer, OnLapse, Refusal, Settings, StateKind};
use onlyonce_testkit::{Fault, Op};

use crate::world::{Failed, KEY, World, quiet};

#[tokio::test]
async fn a_settlement_whose_reply_is_lost_is_repeated_and_stored() {
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::Unavailable] {
        let world = World::new();
        world.faults.next(Op::Settle, fault, 2);
        let receipt = world.paid(KEY).await;
        assert_eq!(world.kind(KEY).await, Some(StateKind::Completed), "{fault:?}");
        assert_eq!(world.paid(KEY).await, receipt);
        assert_eq!((world.effects(), world.faults.calls(Op::Settle)), (1, 3));
    }
}

#[tokio::test]
async fn while_the_store_is_down_the_answer_is_given_and_it_is_stored_later_and_replayed() {
    let world = World::new();
    world.faults.always(Op::Settle, Fault::Unavailable);
    let receipt = world.paid(KEY).await;
    assert_eq!(world.kind(KEY).await, Some(StateKind::Running));
    let waiting = world.treating(|settings| settings.wait = Duration::from_secs(60));
    assert!(matches!(world.refused(KEY).await, Refusal::InProgress { .. }));
    let duplicate = tokio::spawn(async move { waiting.paid(KEY).await });
    quiet().await;
    world.faults.heal();
    world.until(KEY, StateKind::Completed).await;
    assert_eq!(world.paid(KEY).await, receipt);
    assert_eq!(world.in_time(duplicate).await.unwrap(), receipt, "who waited is told what was stored");
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn the_lease_is_renewed_while_the_store_can_not_take_the_answer() {
    let world = World::new();
    world.faults.always(Op::Settle, Fault::Unavailable);
    let receipt = world.paid(KEY).await;
    for _ in 0..12 {
        world.pass(Duration::from_secs(9)).await;
    }
    assert_eq!(world.kind(KEY).await, Some(StateKind::Running), "three leases later it is still held");
    world.faults.heal();
    world.until(KEY, StateKind::Completed).await;
    assert_eq!(world.paid(KEY).await, receipt);
}

#[tokio::test]
async fn a_release_is_stored_later_too() {
    let world = World::new();
    world.faults.next(Op::Settle, Fault::Unavailable, 6);
    let failed: Result<String, _> = world.in_time(world.call(KEY).run(async { Err(Failed::Down) })).await;
    assert!(matches!(failed, Err(Failed::Down)));
    world.until(KEY, StateKind::Released).await;
    world.paid(KEY).await;
}

#[tokio::test]
async fn an_answer_that_the_store_refuses_is_left_out_and_what_was_done_stays_done() {
    let world = World::with(Settings { on_lapse: OnLapse::Rerun, ..Settings::default() });
    world.faults.next(Op::Settle, Fault::Rejected, 1);
    world.paid(KEY).await;
    assert_eq!(world.stored(KEY).await, Some(Answer::none()));
    assert!(matches!(world.refused(KEY).await, Refusal::Duplicate), "beside the flight");
    assert!(matches!(world.neighbour().refused(KEY).await, Refusal::Duplicate));
    assert_eq!(world.faults.calls(Op::Settle), 2, "refused for good is not repeated");
}

#[tokio::test]
async fn an_answer_that_the_store_refuses_later_is_left_out_too() {
    let world = World::new();
    world.faults.next(Op::Settle, Fault::Unavailable, 6);
    world.faults.next(Op::Settle, Fault::Rejected, 1);
    world.paid(KEY).await;
    world.until(KEY, StateKind::Completed).await;
    assert_eq!(world.stored(KEY).await, Some(Answer::none()));
    assert!(matches!(world.refused(KEY).await, Refusal::Duplicate));
}

#[tokio::test]
async fn a_doubt_stays_one_without_the_evidence_that_the_store_refuses() {
    let world = World::with(Settings { retain_unsettled: Duration::from_secs(7000), ..Settings::default() });
    let running = world.run_by_hand(KEY).await;
    world.faults.next(Op::Settle, Fault::Rejected, 1);
    running.unknown(Answer("504 from the bank".into())).await.unwrap();
    assert_eq!(world.kind(KEY).await, Some(StateKind::Lapsed), "at once, not when its lease is over");
}

#[tokio::test]
async fn a_store_that_refuses_every_settlement_leaves_the_record_to_lapse() {
    let world = World::new();
    world.faults.next(Op::Settle, Fault::Rejected, 3);
    world.paid(KEY).await;
    quiet().await;
    assert_eq!(world.faults.calls(Op::Settle), 3, "with its answer and without it, and once more later");
    world.pass(world.once.settings().lease).await;
    assert_eq!(world.kind(KEY).await, Some(StateKind::Lapsed));
    assert!(matches!(world.refused(KEY).await, Refusal::Unknown { .. }), "it is never run again");
}

#[tokio::test]
async fn a_settlement_that_lands_late_is_not_undone_by_its_repeats() {
    let world = World::new();
    world.faults.next(Op::Settle, Fault::LandsLate(Duration::from_secs(5)), 1);
    let receipt = world.paid(KEY).await;
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.paid(KEY).await, receipt);
    assert_eq!(world.kind(KEY).await, Some(StateKind::Completed));
}
