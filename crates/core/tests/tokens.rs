//! A token runs at most once for as long as anybody may take it for good.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;

use onlyonce_core::codec::CodecError;
use onlyonce_core::token::{Checked, TokenKeys, Tokens};
use onlyonce_core::{
    Bytes, Class, Classify, Idempotency, ManualClock, MemoryStore, Operation, Refusal, Scope, Settings,
};

#[derive(Debug)]
enum Failed {
    TimedOut,
    Refused(Refusal),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Classify for Failed {
    fn classify(&self) -> Class {
        match self {
            Self::TimedOut => Class::Unknown,
            Self::Refused(_) => Class::Release,
        }
    }

    fn save(&self) -> Result<Bytes, CodecError> {
        Err(CodecError::Invalid("none is kept".into()))
    }

    fn revive(_: Bytes) -> Result<Self, CodecError> {
        Err(CodecError::Invalid("none is kept".into()))
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn engine(clock: &ManualClock) -> Idempotency {
    let store = MemoryStore::new().with_clock(clock.clone());
    Idempotency::builder(store).clock(clock.clone()).build().unwrap()
}

fn every_kind(clock: &ManualClock) -> [Tokens; 2] {
    [Tokens::signed(engine(clock), TokenKeys::random()), Tokens::stored(engine(clock))]
}

#[tokio::test]
async fn a_doubt_about_a_token_is_remembered_while_the_token_is_good() {
    let clock = ManualClock::new();
    for tokens in every_kind(&clock) {
        let tokens = tokens.ttl(90 * DAY);
        let token = tokens.issue_for("ann", "order").await.unwrap();
        let call = tokens.redeem(&token, "ann", "order").await.unwrap();
        let heard: Result<u8, Failed> = call.run(async { Err(Failed::TimedOut) }).await;
        assert!(matches!(heard, Err(Failed::TimedOut)), "{heard:?}");
        clock.advance(89 * DAY);
        let call = tokens.redeem(&token, "ann", "order").await.unwrap();
        let heard: Result<u8, Failed> = call.run(async { Ok(2) }).await;
        assert!(matches!(heard, Err(Failed::Refused(Refusal::Unknown { .. }))), "{heard:?}");
    }
}

#[tokio::test]
async fn a_record_outlives_its_token_by_what_clocks_may_differ() {
    let clock = ManualClock::new();
    for tokens in every_kind(&clock) {
        let tokens = tokens.ttl(90 * DAY);
        let (ann, order) = (Scope::new("ann").unwrap(), Operation::new("order").unwrap());
        let token = tokens.issue(&ann, &order).await.unwrap();
        let Checked::Valid(ticket) = tokens.check(&token, &ann, &order).await.unwrap() else { panic!() };
        let settings = ticket.settings(&Settings::default());
        assert!(settings.retain > ticket.expires_in && settings.retain_unsettled > ticket.expires_in);
        settings.validate().unwrap();
    }
}

#[tokio::test]
async fn a_token_for_ever_is_good_for_as_long_as_a_record_can_be_kept() {
    let clock = ManualClock::new();
    for tokens in every_kind(&clock) {
        let tokens = tokens.ttl(Duration::MAX);
        let token = tokens.issue_for("ann", "order").await.unwrap();
        let redeem = async || {
            let call = tokens.redeem(&token, "ann", "order").await.unwrap();
            call.run(async { Ok::<u8, Failed>(1) }).await
        };
        assert_eq!(redeem().await.unwrap(), 1);
        clock.advance(5 * 365 * DAY);
        assert_eq!(redeem().await.unwrap(), 1);
    }
}
