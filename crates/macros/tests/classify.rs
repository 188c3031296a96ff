//! What `#[derive(Classify)]` makes of an error type.

use std::fmt::Debug;

use onlyonce::codec::CodecError;
use onlyonce::{Bytes, Class, Classify};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Limit {
    most: u128,
}

/// Neither `Serialize` nor anything else.
#[derive(Debug, PartialEq)]
struct Opaque;

#[derive(Debug, PartialEq, Classify)]
enum PayError {
    #[keep]
    Closed,
    #[keep]
    Empty {},
    #[keep]
    Over(Limit, String),
    #[keep]
    Declined { r#type: String, saved: Option<u8> },
    #[release]
    Down(Opaque),
    #[unknown]
    TimedOut { after: Opaque },
}

fn revived<E: Classify + Debug + PartialEq>(error: E) {
    let saved = error.save().expect("what is kept can be saved");
    assert_eq!(E::revive(saved).expect("what was saved can be revived"), error);
}

#[test]
fn every_kept_shape_comes_back_equal() {
    revived(PayError::Closed);
    revived(PayError::Empty {});
    revived(PayError::Over(Limit { most: u128::MAX }, "ünï\"code".into()));
    revived(PayError::Declined { r#type: "card".into(), saved: None });
    revived(PayError::Declined { r#type: "card".into(), saved: Some(7) });
}

#[test]
fn each_case_is_of_its_class() {
    assert_eq!(PayError::Closed.classify(), Class::Keep);
    assert_eq!(PayError::Over(Limit { most: 1 }, String::new()).classify(), Class::Keep);
    assert_eq!(PayError::Down(Opaque).classify(), Class::Release);
    assert_eq!(PayError::TimedOut { after: Opaque }.classify(), Class::Unknown);
}

#[test]
fn only_kept_cases_are_saved_and_revived() {
    assert!(PayError::Down(Opaque).save().is_err());
    for stored in [&br#"{"Down":{}}"#[..], br#"{"Gone":{}}"#, br#"{"Over":{"0":{"most":1}}}"#, b"", b"{}"] {
        let revived = PayError::revive(Bytes::from_static(stored));
        assert!(matches!(revived, Err(CodecError::Invalid(_))), "{revived:?}");
    }
}

/// Stored answers outlive a deployment.
#[test]
fn the_stored_form_stays_as_it_is() {
    let saved = PayError::Declined { r#type: "card".into(), saved: None }.save().unwrap();
    assert_eq!(saved, r#"{"Declined":{"saved":null,"type":"card"}}"#);
    let saved = PayError::Over(Limit { most: 1 }, "x".into()).save().unwrap();
    assert_eq!(saved, r#"{"Over":{"0":{"most":1},"1":"x"}}"#);
    let older = PayError::revive(Bytes::from_static(br#"{"Declined":{"type":"card","removed":1}}"#));
    assert_eq!(older.unwrap(), PayError::Declined { r#type: "card".into(), saved: None });
}

#[derive(Debug, PartialEq, Classify)]
enum Generic<'a, K, F: Debug, const N: usize>
where
    F: PartialEq,
{
    #[keep]
    Kept { value: Vec<Option<K>> },
    #[release]
    Failed(&'a F, [u8; N]),
}

#[test]
fn only_what_is_kept_needs_serde_in_a_generic_error() {
    let kept: Generic<'_, u8, Opaque, 2> = Generic::Kept { value: vec![Some(1), None] };
    revived(kept);
    let failed: Generic<'_, u8, Opaque, 1> = Generic::Failed(&Opaque, [0]);
    assert_eq!(failed.classify(), Class::Release);
}

#[derive(Debug, PartialEq, Classify)]
#[keep]
struct Named {
    reason: String,
}

#[derive(Debug, PartialEq, Classify)]
#[keep]
struct Tuple(u8, String);

#[derive(Debug, PartialEq, Classify)]
#[keep]
struct Unit;

#[derive(Debug, PartialEq, Classify)]
#[unknown]
struct Doubt(Opaque);

#[derive(Debug, PartialEq, Classify)]
enum Never {}

#[test]
fn structs_and_empty_enums_are_errors_too() {
    revived(Named { reason: "closed".into() });
    revived(Tuple(1, "closed".into()));
    revived(Unit);
    assert_eq!(Doubt(Opaque).classify(), Class::Unknown);
    assert!(Doubt(Opaque).save().is_err());
    assert!(Never::revive(Bytes::from_static(br#"{"Never":{}}"#)).is_err());
}

mod shadows {
    #![allow(dead_code, reason = "the names are the point")]

    pub(crate) use onlyonce as elsewhere;

    struct Bytes;
    struct Class;
    struct Kept;
    enum Result {}

    #[derive(elsewhere::Classify)]
    #[classify(crate = self::elsewhere)]
    pub(crate) enum Error {
        #[keep]
        Err { kept: u8, stranger: u8, field_0: u8 },
        #[release]
        Ok,
    }
}

#[test]
fn nothing_of_ours_meets_the_names_of_the_type() {
    let saved = shadows::Error::Err { kept: 1, stranger: 2, field_0: 3 }.save().unwrap();
    assert!(matches!(
        shadows::Error::revive(saved).unwrap(),
        shadows::Error::Err { kept: 1, stranger: 2, field_0: 3 }
    ));
}
