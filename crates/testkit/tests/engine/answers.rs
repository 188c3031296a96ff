//! What is stored of a result, and what a duplicate makes of it.

use std::collections::HashMap;

use onlyonce_core::codec::Writer;
use onlyonce_core::{Answer, Fingerprint, Intent, Refusal, Settings, Started, StateKind};

use crate::world::{Failed, KEY, Paid, World};

#[tokio::test]
async fn a_business_refusal_is_an_answer_and_is_replayed_as_the_same_error() {
    let world = World::new();
    for _ in 0..3 {
        let body = async {
            world.effect(KEY).await?;
            Err(Failed::Declined("card expired".into()))
        };
        let heard: Paid = world.call(KEY).run(body).await;
        assert!(matches!(heard, Err(Failed::Declined(why)) if why == "card expired"));
    }
    assert_eq!((world.effects(), world.kind(KEY).await), (1, Some(StateKind::Completed)));
}

#[tokio::test]
async fn an_accident_is_released_and_the_next_call_runs() {
    let world = World::new();
    for _ in 0..2 {
        let heard: Paid = world.call(KEY).run(async { Err(Failed::Down) }).await;
        assert!(matches!(heard, Err(Failed::Down)));
        assert_eq!(world.kind(KEY).await, Some(StateKind::Released));
    }
    world.paid(KEY).await;
    assert_eq!(world.snapshot(KEY).await.unwrap().attempts, 3);
}

#[tokio::test]
async fn an_answer_that_can_not_be_serialised_is_given_once_and_duplicates_are_refused() {
    let world = World::new();
    let odd = || HashMap::from([((1, 2), "JSON has no such keys")]);
    type Odd = HashMap<(u8, u8), String>;
    let call = async || -> Result<Odd, Failed> {
        let body = async {
            world.effect(KEY).await?;
            Ok(odd().into_iter().map(|(key, value)| (key, value.to_owned())).collect())
        };
        world.call(KEY).run(body).await
    };
    assert_eq!(call().await.unwrap().len(), 1);
    assert!(matches!(call().await, Err(Failed::Refused(Refusal::Duplicate))));
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_given_once_and_duplicates_are_refused() {
    let world = World::with(Settings { max_answer: 100, ..Settings::default() });
    let call = async |length: usize, key: &str| -> Paid {
        let body = async {
            world.effect(key).await?;
            Ok("x".repeat(length))
        };
        world.call(key).run(body).await
    };
    assert_eq!(call(101, KEY).await.unwrap().len(), 101);
    assert!(matches!(call(101, KEY).await, Err(Failed::Refused(Refusal::Duplicate))));
    assert_eq!(world.stored(KEY).await, Some(Answer::none()));
    assert_eq!(call(50, "small").await.unwrap(), call(50, "small").await.unwrap());
    assert_eq!(world.effects(), 2);
}

#[tokio::test]
async fn an_answer_in_a_form_of_another_release_is_unreadable_and_nothing_runs() {
    let newer = Writer::new(b'V', 3).number(0).bytes(b"\"receipt\"").seal();
    let older = Writer::new(b'V', 1).number(0).bytes(b"\"receipt\"").finish();
    let foreign = Writer::new(b'H', 2).number(200).seal();
    let unknown_flag = Writer::new(b'V', 2).number(9).bytes(b"\"receipt\"").seal();
    let other_type = Writer::new(b'V', 2).number(0).bytes(b"{\"not\":\"a string\"}").seal();
    let damaged = Writer::new(b'V', 2).number(0).bytes(b"\"receipt\"").finish();
    for stored in [newer, older, foreign, unknown_flag, other_type, damaged, "V".into()] {
        let world = World::new();
        world.run_by_hand(KEY).await.complete(Answer(stored.clone())).await.unwrap();
        assert!(matches!(world.refused(KEY).await, Refusal::Unreadable), "{stored:?}");
    }
}

#[tokio::test]
async fn a_payload_digest_of_another_release_is_unreadable_even_after_a_release() {
    let world = World::new();
    let newer = Fingerprint::from_parts(Fingerprint::VERSION + 1, [7; 32]);
    let intent = Intent { fingerprint: newer, ..world.intent(KEY) };
    let Started::Run(running) = world.once.start(&world.id(KEY), &intent.into()).await.unwrap() else {
        panic!()
    };
    running.release().await.unwrap();
    assert!(matches!(world.refused(KEY).await, Refusal::Unreadable));
}

#[tokio::test]
async fn results_of_any_serde_type_come_back() {
    let world = World::new();
    let call = async || -> Result<(u64, Option<String>, Vec<f64>), Failed> {
        let body = async {
            world.effect(KEY).await?;
            Ok((u64::MAX, Some("größe".into()), vec![0.1, -2.5e300]))
        };
        world.call(KEY).run(body).await
    };
    assert_eq!(call().await.unwrap(), call().await.unwrap());
    assert_eq!(world.effects(), 1);
}
