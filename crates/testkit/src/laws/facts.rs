//! What a record shows about itself.

use onlyonce_core::{Claim, RecordId, Settled, State, StateKind, Takeover, Verdict};

use super::case::{Case, KEPT, LONG, answer, completed, payload, random_hash, unknown};
use crate::harness::Harness;

/// The label and the payload digest come back as they were begun with; a later attempt brings its own label.
pub async fn labels_and_payloads_are_kept(harness: &dyn Harness) {
    let case = Case::new(harness);
    let mut claim = case.claim();
    for route in ["POST /orders/{id}", "größe 'x' \"y\" \\ \u{1f980}\t;--", "", &"r".repeat(200)] {
        claim = Claim { owner: case.claim().owner, ..claim };
        claim.label.route = route.into();
        claim.label.key = random_hash();
        let attempt = case.acquire(&claim).await;
        for snapshot in [case.snapshot().await, case.taken(&case.claim()).await] {
            assert_eq!(snapshot.label, claim.label);
            assert_eq!(snapshot.fingerprint, payload("the payload"));
        }
        assert_eq!(case.settle(&attempt.id(), Verdict::Released).await, Settled::Applied);
        assert_eq!(case.snapshot().await.label, claim.label);
    }
}

/// Attempts are numbered from 1, and the record shows how many there were.
pub async fn attempts_are_counted(harness: &dyn Harness) {
    let case = Case::new(harness);
    for number in 1..=4 {
        let verdict = if number % 2 == 0 { Verdict::Released } else { unknown("?") };
        let claim = case.claim_over(Takeover::Allowed);
        let attempt = case.acquire(&claim).await;
        assert_eq!(attempt.attempt, number);
        assert_eq!(case.acquire(&claim).await.attempt, number, "a repeat is the same attempt");
        assert_eq!(case.settle(&attempt.id(), verdict).await, Settled::Applied);
        assert_eq!(case.snapshot().await.attempts, number);
    }
}

/// The age of a record counts from its first attempt, over takeovers and settlements.
pub async fn age_counts_from_the_first_attempt(harness: &dyn Harness) {
    let case = Case::new(harness);
    case.settled(Verdict::Released).await;
    assert!(case.snapshot().await.age < case.unit() * 2);
    case.pass(4).await;
    let second = case.run().await;
    assert!(case.snapshot().await.age >= case.unit() * 3, "a takeover made the record younger");
    assert_eq!(case.settle(&second.id(), completed("a")).await, Settled::Applied);
    assert!(case.snapshot().await.age >= case.unit() * 3);
}

/// A record has lapsed since its lease was over, or since it was settled as unknown; not since it began.
pub async fn a_lapse_counts_from_the_end_of_the_attempt(harness: &dyn Harness) {
    let (silent, unsure) = (Case::new(harness), Case::new(harness));
    let unit = silent.unit();
    silent.acquire(&Claim { lease: unit * 2, ..silent.claim() }).await;
    let attempt = unsure.run().await;
    silent.pass(2).await;
    assert_eq!(unsure.settle(&attempt.id(), unknown("?")).await, Settled::Applied);
    silent.pass(2).await;
    for case in [&silent, &unsure] {
        let snapshot = case.snapshot().await;
        let State::Lapsed { since, .. } = snapshot.state else { panic!("not lapsed: {snapshot:?}") };
        assert!(since >= unit, "lapsed for {since:?} only");
        assert!(since + unit <= snapshot.age, "lapsed for {since:?}, but only {:?} old", snapshot.age);
    }
}

/// The spans that are left, of the lease and of the retention, are shown.
pub async fn the_spans_that_are_left_are_shown(harness: &dyn Harness) {
    let case = Case::new(harness);
    let attempt = case.run().await;
    let running = case.snapshot().await;
    let State::Running { lease_left } = running.state else { panic!("not running: {running:?}") };
    assert!(lease_left <= LONG && lease_left > LONG / 2, "{lease_left:?} of {LONG:?}");
    assert!(running.expires_in <= KEPT && running.expires_in > KEPT / 2, "{:?}", running.expires_in);
    assert_eq!(case.settle_for(&attempt.id(), completed("a"), KEPT * 4).await, Settled::Applied);
    let kept = case.snapshot().await.expires_in;
    assert!(kept <= KEPT * 4 && kept > KEPT * 3, "{kept:?} of {:?}", KEPT * 4);
}

/// Records whose ids differ in one byte, wherever it is, have nothing to do with each other.
pub async fn records_do_not_touch_each_other(harness: &dyn Harness) {
    let bytes: [u8; 32] = rand::random();
    let mut cases = vec![Case::with_id(harness, RecordId::from_bytes(bytes))];
    for place in [0, 15, 16, 31] {
        let mut other = bytes;
        other[place] ^= 0x20;
        cases.push(Case::with_id(harness, RecordId::from_bytes(other)));
    }
    for (n, case) in cases.iter().enumerate() {
        case.settled(completed(&n.to_string())).await;
    }
    for (n, case) in cases.iter().enumerate() {
        assert_eq!(case.state().await, State::Completed(answer(&n.to_string())));
    }
    let fence = cases[0].snapshot().await.fence;
    assert_eq!(cases[0].forget(fence).await, Settled::Applied);
    for case in &cases[1..] {
        assert_eq!(case.kind().await, StateKind::Completed);
    }
}
