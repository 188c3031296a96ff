//! Taking a record: one of many, and never what runs or is done.

use std::sync::Arc;

use onlyonce_core::{Begin, Claim, Fence, Fingerprint, Over, State, StateKind, Takeover, Verdict};
use tokio::task::JoinSet;

use super::case::{Acquired, Case, LONG, answer, completed, ok, payload, random_hash};
use crate::harness::Harness;

const CONTENDERS: usize = 32;
const ROUNDS: usize = 4;

/// The first begin of a record acquires it, as attempt 1 over nothing.
pub async fn an_absent_record_is_acquired_over_nothing(harness: &dyn Harness) {
    let case = Case::new(harness);
    assert_eq!(case.get().await, None);
    let first = case.run().await;
    assert_eq!((first.attempt, first.over), (1, Over::Nothing));
    let snapshot = case.snapshot().await;
    assert_eq!((snapshot.state.kind(), snapshot.fence), (StateKind::Running, first.fence));
}

/// Of many concurrent begins of an absent record exactly one acquires it; the others see the winner run.
pub async fn exactly_one_of_many_begins_is_acquired(harness: &dyn Harness) {
    for _ in 0..ROUNDS {
        let case = Case::new(harness);
        one_wins(&case, Takeover::Never).await;
    }
}

/// Of many concurrent takeovers of a lapsed or released record exactly one acquires it.
pub async fn exactly_one_of_many_takeovers_is_acquired(harness: &dyn Harness) {
    for _ in 0..ROUNDS {
        let case = Case::new(harness);
        let first = case.settled(Verdict::Unknown(answer("?"))).await;
        let second = one_wins(&case, Takeover::Seen(first.fence)).await;
        assert_eq!(case.settle(&second.id(), Verdict::Released).await, onlyonce_core::Settled::Applied);
        one_wins(&case, Takeover::Never).await;
    }
}

async fn one_wins(case: &Case<'_>, takeover: Takeover) -> Acquired {
    let mut contenders = JoinSet::new();
    for _ in 0..CONTENDERS {
        let (store, id, claim) = (Arc::clone(&case.store), case.id, case.claim_over(takeover));
        contenders.spawn(async move { (ok(store.begin(&id, &claim).await), claim.owner) });
    }
    let (mut winners, mut seen) = (Vec::new(), Vec::new());
    for (begun, owner) in contenders.join_all().await {
        match begun {
            Begin::Acquired { fence, attempt, over } => {
                winners.push(Acquired { owner, fence, attempt, over })
            }
            Begin::Taken(snapshot) => seen.push((snapshot.fence, snapshot.state.kind())),
        }
    }
    let [winner] = winners[..] else {
        panic!("{} of {CONTENDERS} begins acquired: {winners:?}", winners.len())
    };
    assert!(seen.iter().all(|seen| *seen == (winner.fence, StateKind::Running)), "{seen:?}");
    winner
}

/// A record that runs is taken for everybody else, whatever they may take over.
pub async fn a_running_record_is_never_taken_over(harness: &dyn Harness) {
    let case = Case::new(harness);
    let first = case.run().await;
    for takeover in [Takeover::Never, Takeover::Allowed, Takeover::Seen(first.fence)] {
        let snapshot = case.taken(&case.claim_over(takeover)).await;
        assert_eq!(snapshot.fence, first.fence);
        assert!(
            matches!(snapshot.state, State::Running { lease_left } if lease_left <= LONG),
            "{snapshot:?}"
        );
    }
}

/// A completed record is taken for everybody, whatever they may take over, and shows its answer.
pub async fn a_completed_record_is_never_taken_over(harness: &dyn Harness) {
    let case = Case::new(harness);
    let first = case.settled(completed("receipt 7")).await;
    for takeover in [Takeover::Never, Takeover::Allowed, Takeover::Seen(first.fence)] {
        let snapshot = case.taken(&case.claim_over(takeover)).await;
        assert_eq!(snapshot.fence, first.fence);
        assert_eq!(snapshot.state, State::Completed(answer("receipt 7")));
    }
}

/// A begin that is refused leaves the record as it was: its lease, its payload, its label, its attempts.
pub async fn a_begin_that_is_refused_changes_nothing(harness: &dyn Harness) {
    let case = Case::new(harness);
    let first = case.acquire(&Claim { lease: case.unit() * 3, ..case.claim() }).await;
    let before = case.snapshot().await;
    let mut other = case.claim_over(Takeover::Allowed);
    other.fingerprint = payload("another payload");
    other.label.key = random_hash();
    let taken = case.taken(&other).await;
    case.taken(&case.claim()).await;
    let after = case.snapshot().await;
    for snapshot in [&taken, &after] {
        assert_eq!(snapshot.fence, first.fence);
        assert_eq!(snapshot.fingerprint, before.fingerprint);
        assert_eq!(snapshot.label, before.label);
        assert_eq!(snapshot.attempts, 1);
        assert!(snapshot.expires_in <= before.expires_in);
    }
    case.pass(4).await;
    assert_eq!(case.kind().await, StateKind::Lapsed, "the lease of {:?} was renewed by others", first.fence);
}

/// A begin with another payload is shown the payload of the record, version and all, in every state.
pub async fn another_payload_is_shown_the_first(harness: &dyn Harness) {
    for version in [Fingerprint::VERSION, Fingerprint::VERSION + 1] {
        let case = Case::new(harness);
        let first = Fingerprint::from_parts(version, rand::random());
        let claim = Claim { fingerprint: first, ..case.claim() };
        let acquired = case.acquire(&claim).await;
        assert_eq!(case.taken(&case.claim()).await.fingerprint, first);
        case.settle(&acquired.id(), Verdict::Released).await;
        let other_version = Fingerprint::from_parts(version + 1, *first.digest());
        for other in [payload("another"), other_version] {
            let refused = Claim { fingerprint: other, ..case.claim_over(Takeover::Allowed) };
            assert_eq!(case.taken(&refused).await.fingerprint, first);
        }
        let again = case.acquire(&Claim { fingerprint: first, ..case.claim() }).await;
        assert!(again.fence > Fence(0));
    }
}
