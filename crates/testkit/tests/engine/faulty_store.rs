//! Faults do what they say.

use std::time::Duration;

use crate::world::{KEY, World, quiet};
use onlyonce_core::{
    Begin, Claim, ErrorKind, Fingerprint, Owner, RecordId, Settings, StateKind, Store, Takeover,
};
use onlyonce_testkit::{Fault, FaultyStore, Op, Rates};

fn claim(world: &World) -> Claim {
    let Settings { lease, retain_unsettled, .. } = Settings::default();
    Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease,
        retain_unsettled,
        takeover: Takeover::Never,
        label: world.intent(KEY).label,
    }
}

async fn begin(world: &World, fault: Fault) -> Option<ErrorKind> {
    world.faults.next(Op::Begin, fault, 1);
    let begun = world.faults.begin(&world.id(KEY), &claim(world)).await;
    begun.err().map(|error| error.kind())
}

#[tokio::test]
async fn what_fails_before_did_not_happen() {
    let world = World::new();
    assert_eq!(begin(&world, Fault::Unavailable).await, Some(ErrorKind::Unavailable));
    assert_eq!(begin(&world, Fault::RequestLost).await, Some(ErrorKind::Ambiguous));
    assert_eq!(begin(&world, Fault::Rejected).await, Some(ErrorKind::Rejected));
    assert_eq!(begin(&world, Fault::Corrupt).await, Some(ErrorKind::Corrupt));
    assert_eq!(world.kind(KEY).await, None);
}

#[tokio::test]
async fn what_fails_after_did_happen() {
    let world = World::new();
    assert_eq!(begin(&world, Fault::ReplyLost).await, Some(ErrorKind::Ambiguous));
    assert_eq!(world.kind(KEY).await, Some(StateKind::Running));
}

#[tokio::test]
async fn what_lands_late_happens_later() {
    let world = World::new();
    assert_eq!(begin(&world, Fault::LandsLate(Duration::from_secs(3))).await, Some(ErrorKind::Ambiguous));
    quiet().await;
    assert_eq!(world.kind(KEY).await, None);
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.kind(KEY).await, Some(StateKind::Running));
}

#[tokio::test]
async fn a_delay_passes_by_the_given_clock() {
    let world = World::new();
    world.faults.next(Op::Begin, Fault::Delay(Duration::from_secs(3)), 1);
    let (faults, id, claim) = (world.faults.clone(), world.id(KEY), claim(&world));
    let delayed = tokio::spawn(async move { faults.begin(&id, &claim).await });
    quiet().await;
    assert!(!delayed.is_finished());
    world.pass(Duration::from_secs(3)).await;
    assert!(matches!(delayed.await.unwrap(), Ok(Begin::Acquired { .. })));
}

#[tokio::test]
async fn what_hangs_never_ends_before_or_after_it_happened() {
    for (fault, left) in [(Fault::HangBefore, None), (Fault::HangAfter, Some(StateKind::Running))] {
        let world = World::new();
        world.faults.next(Op::Begin, fault, 1);
        let (id, claim) = (world.id(KEY), claim(&world));
        tokio::select! {
            _ = world.faults.begin(&id, &claim) => panic!("it ended"),
            () = quiet() => {}
        }
        assert_eq!(world.kind(KEY).await, left);
    }
}

#[tokio::test]
async fn scripts_of_one_call_follow_each_other_and_leave_other_calls_alone() {
    let world = World::new();
    world.faults.next(Op::Get, Fault::Unavailable, 2);
    world.faults.next(Op::Get, Fault::RequestLost, 1);
    let id = world.id(KEY);
    assert_eq!(world.faults.sweep(1).await.unwrap(), 0);
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(world.faults.get(&id).await.err().map(|error| error.kind()));
    }
    let (down, lost) = (Some(ErrorKind::Unavailable), Some(ErrorKind::Ambiguous));
    assert_eq!(heard, [down, down, lost, None]);
    world.faults.always(Op::Get, Fault::Unavailable);
    assert!(world.faults.get(&id).await.is_err());
    world.faults.heal();
    assert!(world.faults.get(&id).await.is_ok());
}

#[tokio::test]
async fn the_same_seed_fails_the_same_calls_of_a_record_whatever_goes_on_besides() {
    const RATES: Rates = Rates { unavailable: 200, request_lost: 100, reply_lost: 100, ..Rates::NONE };
    async fn heard(seed: u64, besides: u8) -> Vec<Option<ErrorKind>> {
        let world = World::new();
        let faults = FaultyStore::new(world.base.clone());
        faults.at_random(seed, RATES);
        let mut heard = Vec::new();
        for _ in 0..200 {
            for other in 0..besides {
                let _ = faults.get(&RecordId::from_bytes([other; 32])).await;
            }
            heard.push(faults.get(&world.id(KEY)).await.err().map(|error| error.kind()));
        }
        heard
    }
    let alone = heard(7, 0).await;
    assert_eq!(alone, heard(7, 3).await);
    assert_ne!(alone, heard(8, 0).await);
    let failed = alone.iter().filter(|heard| heard.is_some()).count();
    assert!((40..=120).contains(&failed), "{failed} of 200 failed; about 80 should");
}
