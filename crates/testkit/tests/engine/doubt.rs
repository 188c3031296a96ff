//! What becomes of an attempt that ended without a word: Hold, Rerun, Ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::{OnLapse, Recovery, Refusal, Settings, StateKind};
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
        found
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
