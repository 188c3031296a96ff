//! What becomes of an attempt that ended without a word: Hold, Rerun, Ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::{Answer, OnLapse, Recovery, Refusal, Resolution, Settings, State, StateKind};
use onlyonce_testkit::{Fault, Op};

use crate::world::{Failed, KEY, LEASE, Paid, World, quiet};

const AFTER: Duration = Duration::from_secs(60);

fn asking() -> World {
    World::with(Settings { on_lapse: OnLapse::Ask { after: AFTER }, ..Settings::default() })
}

/// Pays with a recovery hook; says what was heard and how often the hook was asked.
async fn pay(world: &World, found: Recovery<&'static str>) -> (Paid, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let call = world.call(KEY).recover(move |permit| async move {
        assert_eq!(permit.attempt(), 2);
        count.fetch_add(1, Ordering::Relaxed);
        match found {
            Recovery::Done(receipt) => Recovery::Done(receipt.to_owned()),
            Recovery::NotDone => Recovery::NotDone,
            Recovery::Unknown => Recovery::Unknown,
        }
    });
    let heard = world.in_time(call.run(world.effect(KEY))).await;
    (heard, asked.load(Ordering::Relaxed))
}

#[tokio::test]
async fn held_a_lapsed_call_is_unknown_for_ever_and_never_run_again() {
    let world = World::new();
    world.lapse(KEY).await;
    for _ in 0..3 {
        let refusal = world.refused(KEY).await;
        assert!(matches!(refusal, Refusal::Unknown { retry_after: None, .. }), "{refusal:?}");
        assert!(!refusal.is_retryable());
        world.pass(Duration::from_secs(24 * 3600)).await;
    }
    assert_eq!(world.effects(), 0);
}

#[tokio::test]
async fn rerun_takes_over_with_a_higher_fence() {
    let world = World::with(Settings { on_lapse: OnLapse::Rerun, ..Settings::default() });
    world.lapse(KEY).await;
    let lapsed = world.snapshot(KEY).await.unwrap().fence;
    world.paid(KEY).await;
    let record = world.snapshot(KEY).await.unwrap();
    assert!(record.fence > lapsed);
    assert_eq!((record.attempts, record.state.kind()), (2, StateKind::Completed));
}

/// Leaves a record of which nobody knows whether it happened, and what was seen of it.
async fn leave_doubt(world: &World) -> Answer {
    let seen = Answer("504 from the bank".into());
    world.neighbour().run_by_hand(KEY).await.unknown(seen.clone()).await.unwrap();
    seen
}

async fn evidence(world: &World) -> Option<Answer> {
    match world.snapshot(KEY).await?.state {
        State::Lapsed { evidence, .. } => Some(evidence),
        _ => None,
    }
}

#[tokio::test]
async fn a_takeover_that_nobody_heard_of_leaves_what_was_seen() {
    let reruns = World::with(Settings { on_lapse: OnLapse::Rerun, ..Settings::default() });
    for world in [reruns, asking()] {
        let seen = leave_doubt(&world).await;
        let before = world.snapshot(KEY).await.unwrap().fence;
        world.pass(AFTER).await;
        world.faults.next(Op::Begin, Fault::Delay(Duration::ZERO), 1);
        world.faults.next(Op::Begin, Fault::ReplyLost, 4);
        world.refused(KEY).await;
        let put_back = async {
            while world.snapshot(KEY).await.is_none_or(|now| now.fence == before)
                || evidence(&world).await.is_none()
            {
                tokio::task::yield_now().await;
            }
        };
        world.in_time(put_back).await;
        assert_eq!(evidence(&world).await, Some(seen));
    }
}

#[tokio::test]
async fn an_attempt_that_takes_over_and_is_dropped_leaves_what_was_seen() {
    let world = World::with(Settings { on_lapse: OnLapse::Rerun, ..Settings::default() });
    let seen = leave_doubt(&world).await;
    let running = world.run_by_hand(KEY).await;
    assert_eq!(world.kind(KEY).await, Some(StateKind::Running));
    drop(running);
    world.until(KEY, StateKind::Lapsed).await;
    assert_eq!(evidence(&world).await, Some(seen));
}

#[tokio::test]
async fn a_resolution_that_does_not_go_through_leaves_what_was_seen() {
    for fault in [Fault::HangBefore, Fault::Unavailable, Fault::Rejected] {
        let world = World::new();
        let seen = leave_doubt(&world).await;
        let before = world.snapshot(KEY).await.unwrap().fence;
        let (once, id) = (world.once.clone(), world.id(KEY));
        // More than the resolution itself makes, so that what puts the doubt back has to insist as well.
        let times = if fault == Fault::Unavailable { 6 } else { 1 };
        world.faults.next(Op::Settle, fault, times);
        let answer = Resolution::Happened(Answer("by hand".into()));
        tokio::select! {
            resolved = world.in_time(once.resolve(&id, before, answer)) => assert!(resolved.is_err()),
            () = world.clock_sleep(Duration::from_secs(20)) => assert_eq!(fault, Fault::HangBefore),
        }
        world.until(KEY, StateKind::Lapsed).await;
        assert!(world.snapshot(KEY).await.unwrap().fence > before, "{fault:?}");
        assert_eq!(evidence(&world).await, Some(seen), "{fault:?}");
    }
}

#[tokio::test]
async fn what_was_seen_is_put_back_however_long_the_store_is_away() {
    let world = World::new();
    let seen = leave_doubt(&world).await;
    let before = world.snapshot(KEY).await.unwrap().fence;
    world.faults.always(Op::Settle, Fault::Unavailable);
    let answer = Resolution::Happened(Answer("by hand".into()));
    let resolved = world.in_time(world.once.resolve(&world.id(KEY), before, answer)).await;
    assert!(resolved.is_err());
    for _ in 0..20 {
        world.pass(world.once.settings().lease).await;
    }
    assert_ne!(evidence(&world).await, Some(seen.clone()), "it can't be put back yet");
    world.faults.heal();
    let put_back = async {
        while evidence(&world).await.as_ref() != Some(&seen) {
            tokio::task::yield_now().await;
        }
    };
    world.in_time(put_back).await;
}

#[tokio::test]
async fn before_its_time_nobody_is_asked_and_the_caller_hears_when() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER / 3).await;
    let (heard, asked) = pay(&world, Recovery::NotDone).await;
    let Err(Failed::Refused(Refusal::Unknown { retry_after: Some(later), .. })) = heard else {
        panic!("{heard:?}")
    };
    assert_eq!((later, asked, world.effects()), (AFTER - AFTER / 3, 0, 0));
}

#[tokio::test]
async fn found_done_the_answer_is_stored_and_the_body_does_not_run() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    let (heard, asked) = pay(&world, Recovery::Done("found at the bank")).await;
    assert_eq!((heard.unwrap().as_str(), asked), ("found at the bank", 1));
    let (heard, asked) = pay(&world, Recovery::NotDone).await;
    assert_eq!(
        (heard.unwrap().as_str(), asked),
        ("found at the bank", 0),
        "a retry is not asked about again"
    );
    assert_eq!(world.effects(), 0);
}

#[tokio::test]
async fn found_done_with_what_can_not_be_kept_it_is_done_all_the_same() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    for _ in 0..2 {
        let call = world.call(KEY).recover(|_| async { Recovery::Done(f64::NAN) });
        let heard = world.in_time(call.run(async { Ok::<_, Failed>(1.0) })).await;
        assert!(matches!(heard, Err(Failed::Refused(Refusal::Duplicate))), "{heard:?}");
        assert_eq!(world.kind(KEY).await, Some(StateKind::Completed));
    }
}

#[tokio::test]
async fn found_not_done_the_body_runs() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    let (heard, asked) = pay(&world, Recovery::NotDone).await;
    assert_eq!((heard.is_ok(), asked, world.effects()), (true, 1, 1));
    assert_eq!(world.kind(KEY).await, Some(StateKind::Completed));
}

#[tokio::test]
async fn found_unknown_it_stays_unknown_and_is_asked_about_again_after_the_same_time() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    let (heard, asked) = pay(&world, Recovery::Unknown).await;
    assert!(
        matches!(heard, Err(Failed::Refused(Refusal::Unknown { retry_after: Some(AFTER), .. }))),
        "{heard:?}"
    );
    assert_eq!((asked, world.kind(KEY).await), (1, Some(StateKind::Lapsed)));
    let (_, asked) = pay(&world, Recovery::NotDone).await;
    assert_eq!(asked, 0);
    assert_eq!(world.effects(), 0);
}

#[tokio::test]
async fn without_a_hook_asking_is_the_same_as_not_knowing() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    assert!(matches!(world.refused(KEY).await, Refusal::Unknown { .. }));
    assert_eq!(world.kind(KEY).await, Some(StateKind::Lapsed));
}

#[tokio::test]
async fn a_hook_that_goes_away_or_panics_leaves_it_unknown() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    let hanging = world.call(KEY).recover(|_| std::future::pending::<Recovery<String>>());
    tokio::select! {
        _ = hanging.run(world.effect(KEY)) => panic!("the hook hangs"),
        () = quiet() => {}
    }
    world.until(KEY, StateKind::Lapsed).await;
    world.pass(AFTER).await;
    let panicking = world.call(KEY).recover(|_| async { panic!("the hook") as Recovery<String> });
    let inside = world.clone();
    let heard = panicking.run_detached(async move { inside.effect(KEY).await }).await;
    assert!(matches!(heard, Err(Failed::Refused(Refusal::Unknown { .. }))), "{heard:?}");
    world.until(KEY, StateKind::Lapsed).await;
    assert_eq!(world.effects(), 0);
}

#[tokio::test]
async fn of_many_who_ask_at_once_one_asks() {
    let world = asking().treating(|settings| settings.wait = Duration::from_secs(600));
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move { pay(&world, Recovery::NotDone).await })
        })
        .collect();
    let (mut asked_in_all, mut receipts) = (0, Vec::new());
    for call in calls {
        let (heard, asked) = world.in_time(call).await.unwrap();
        asked_in_all += asked;
        receipts.push(heard.unwrap());
    }
    receipts.dedup();
    assert_eq!((asked_in_all, receipts.len(), world.effects()), (1, 1, 1));
}

#[tokio::test]
async fn found_not_done_after_the_lease_is_lost_the_body_does_not_run() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    world.faults.always(Op::Renew, Fault::HangBefore);
    let clock = world.clock.clone();
    let call = world.call(KEY).recover(move |permit| async move {
        clock.advance(LEASE);
        assert!(permit.is_lost());
        Recovery::<String>::NotDone
    });
    let heard: Paid = call.run(world.effect(KEY)).await;
    assert!(matches!(heard, Err(Failed::Refused(Refusal::Unknown { .. }))), "{heard:?}");
    assert_eq!(world.effects(), 0);
    assert_eq!(world.kind(KEY).await, Some(StateKind::Lapsed));
}

#[tokio::test]
async fn who_asks_too_late_runs_if_the_one_before_was_released() {
    let world = asking();
    world.lapse(KEY).await;
    world.pass(AFTER).await;
    // The first look is quick; the takeover comes late.
    world.faults.next(Op::Begin, Fault::Delay(Duration::ZERO), 1);
    world.faults.next(Op::Begin, Fault::Delay(Duration::from_secs(1)), 1);
    let late = tokio::spawn({
        let world = world.clone();
        async move { world.call(KEY).recover(async |_| Recovery::<String>::NotDone).run(world.effect(KEY)).await }
    });
    quiet().await;
    let before = world.neighbour();
    let call = before.call(KEY).recover(async |_| Recovery::<String>::NotDone);
    let released: Paid = call.run(async { Err(Failed::Down) }).await;
    assert!(matches!(released, Err(Failed::Down)), "{released:?}");
    world.clock.advance(Duration::from_secs(1));
    let heard: Paid = late.await.unwrap();
    assert!(heard.is_ok(), "{heard:?}");
    assert_eq!(world.effects(), 1);
}
