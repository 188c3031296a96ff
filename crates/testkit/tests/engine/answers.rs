//! What is stored of a result, and what a duplicate makes of it.

use std::collections::HashMap;

use onlyonce_core::codec::{CodecError, Writer};
use onlyonce_core::{
    Answer, Bytes, Class, Classify, Fingerprint, Intent, Refusal, Settings, Started, StateKind,
};

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

/// Calls twice; what the first heard, and what the retry did.
async fn twice<T>(world: &World, key: &str, value: impl Fn() -> T) -> (Result<T, Failed>, Result<T, Failed>)
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    let call = async || {
        let body = async {
            world.effect(key).await?;
            Ok(value())
        };
        world.call(key).run(body).await
    };
    (call().await, call().await)
}

#[tokio::test]
async fn floats_come_back_bit_by_bit() {
    let world = World::new();
    let prices: Vec<f64> = (1..3000).map(|n| f64::from(n) * 0.1 * 1.19).collect();
    let (first, again) = twice(&world, "prices", || prices.clone()).await;
    let bits =
        |heard: Result<Vec<f64>, Failed>| heard.unwrap().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(first), bits(again));
    let odd = [0.0, -0.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::MIN, f64::EPSILON, 0.1 + 0.2];
    let (first, again) = twice(&world, "odd", || odd).await;
    assert_eq!(first.unwrap().map(f64::to_bits), again.unwrap().map(f64::to_bits));
    let (first, again) = twice(&world, "small", || [0.1_f32, 16_777_217.0, f32::MIN_POSITIVE]).await;
    assert_eq!(first.unwrap().map(f32::to_bits), again.unwrap().map(f32::to_bits));
    assert_eq!(world.effects(), 3);
}

#[tokio::test]
async fn what_can_not_be_kept_exactly_is_given_once_and_never_replayed_as_something_else() {
    async fn is_kept_without<T>(world: &World, key: &str, value: impl Fn() -> T)
    where
        T: serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let (first, again) = twice(world, key, value).await;
        assert!(first.is_ok(), "{key}");
        assert!(matches!(again, Err(Failed::Refused(Refusal::Duplicate))), "{key}: {again:?}");
        assert_eq!(world.stored(key).await, Some(Answer::none()), "{key}");
    }
    let world = World::new();
    is_kept_without(&world, "some unit", || Some(())).await;
    is_kept_without(&world, "some none", || Some(None::<u8>)).await;
    is_kept_without(&world, "within", || vec![(1, Some(Some(()))), (2, None)]).await;
    is_kept_without(&world, "NaN", || f64::NAN).await;
    is_kept_without(&world, "infinity", || f64::INFINITY).await;
    is_kept_without(&world, "an optional infinity", || Some(f32::NEG_INFINITY)).await;
    is_kept_without(&world, "in a map", || HashMap::from([("a".to_owned(), Some(f64::NAN))])).await;
    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    struct Deep(Option<Box<Deep>>, u8);
    is_kept_without(&world, "too deep", || {
        (0..200).fold(Deep(None, 0), |deep, n| Deep(Some(Box::new(deep)), n))
    })
    .await;
    assert_eq!(world.effects(), 8);
}

#[tokio::test]
async fn values_whose_order_is_chance_come_back() {
    let world = World::new();
    let set = || (0..500).collect::<std::collections::HashSet<u32>>();
    let map = || (0..500).map(|n| (n, Some(u128::MAX - u128::from(n)))).collect::<HashMap<u32, _>>();
    let (first, again) = twice(&world, KEY, || (set(), map(), Some("x".to_owned()), (), None::<()>)).await;
    assert_eq!(first.unwrap(), again.unwrap());
}

#[tokio::test]
async fn a_kept_error_whose_members_have_no_order_comes_back() {
    #[derive(Debug)]
    struct Declined(HashMap<String, u32>);
    impl From<Refusal> for Declined {
        fn from(refusal: Refusal) -> Self {
            Self(HashMap::from([(format!("{refusal:?}"), 0)]))
        }
    }
    impl Classify for Declined {
        fn classify(&self) -> Class {
            Class::Keep
        }
        fn save(&self) -> Result<Bytes, CodecError> {
            let saved = serde_json::to_vec(&self.0).map_err(|error| CodecError::Invalid(error.to_string()));
            saved.map(Bytes::from)
        }
        fn revive(saved: Bytes) -> Result<Self, CodecError> {
            let saved = serde_json::from_slice(&saved);
            saved.map(Self).map_err(|error| CodecError::Invalid(error.to_string()))
        }
    }
    let world = World::new();
    let why = || (0..50).map(|n| (format!("reason {n}"), n)).collect::<HashMap<_, _>>();
    for _ in 0..2 {
        let heard = world.call(KEY).run(async { Err::<u8, _>(Declined(why())) }).await;
        assert_eq!(heard.unwrap_err().0, why());
    }
}

#[tokio::test]
async fn a_kept_error_that_does_not_come_back_as_the_same_is_not_replayed() {
    #[derive(Debug)]
    struct Lossy(String);
    impl From<Refusal> for Lossy {
        fn from(refusal: Refusal) -> Self {
            Self(format!("{refusal:?}"))
        }
    }
    impl Classify for Lossy {
        fn classify(&self) -> Class {
            Class::Keep
        }
        fn save(&self) -> Result<Bytes, CodecError> {
            Ok(self.0.clone().into())
        }
        fn revive(saved: Bytes) -> Result<Self, CodecError> {
            Ok(Self(String::from_utf8_lossy(&saved).to_lowercase()))
        }
    }
    let world = World::new();
    let call = async || world.call(KEY).run(async { Err::<u8, _>(Lossy("Card EXPIRED".into())) }).await;
    assert_eq!(call().await.unwrap_err().0, "Card EXPIRED");
    assert_eq!(call().await.unwrap_err().0, "Duplicate");
}
