//! What was stored comes back as it was.

use onlyonce_core::{Answer, Settled, State, Verdict};

use super::case::Case;
use crate::harness::Harness;

/// Nothing, a zero byte, all bytes there are, what is not UTF-8, what looks like a query, and a mebibyte.
fn samples() -> Vec<Answer> {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let small: [&[u8]; 5] = [b"", b"\0", b" ", b"\xff\xfe\xc3\x28", b"'; -- \r\n$1 %s \\x00 {}"];
    small
        .into_iter()
        .map(<[u8]>::to_vec)
        .chain([all_bytes, large])
        .map(|bytes| Answer(bytes.into()))
        .collect()
}

/// The answer of a completed record is the same bytes, for who reads and for who begins.
pub async fn completed_answers_come_back_byte_for_byte(harness: &dyn Harness) {
    for answer in samples() {
        let case = Case::new(harness);
        case.settled(Verdict::Completed(answer.clone())).await;
        let bytes = answer.0.len();
        for state in [case.state().await, case.taken(&case.claim()).await.state] {
            assert!(state == State::Completed(answer.clone()), "{bytes} bytes came back as {state:?}");
        }
    }
}

/// What was seen of an attempt whose outcome is unknown is the same bytes, for the person who decides.
pub async fn evidence_of_an_unknown_outcome_is_kept(harness: &dyn Harness) {
    for answer in samples() {
        let case = Case::new(harness);
        let attempt = case.run().await;
        assert_eq!(case.settle(&attempt.id(), Verdict::Unknown(answer.clone())).await, Settled::Applied);
        for state in [case.state().await, case.taken(&case.claim()).await.state] {
            let State::Lapsed { evidence, .. } = &state else { panic!("unknown is shown as {state:?}") };
            assert!(*evidence == answer, "{} bytes came back as {state:?}", answer.0.len());
        }
    }
}
