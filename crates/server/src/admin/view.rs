//! Records as they are shown: to the API and on the terminal alike.

use std::collections::BTreeMap;

use clap::ValueEnum;
use http::{HeaderName, HeaderValue, StatusCode};
use onlyonce::http::StoredAnswer;
use onlyonce::{Answer, Listed, Resolution, State, StateKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::repair::Deed;
use crate::config::OF_ONE_CONNECTION;
use crate::gateway::folded;

/// For an outcome that is unknown because of a 500.
const HINT_500: &str =
    "if a 500 of this route means that everything was rolled back, on_500 = \"release\" says so";

/// How much of a body is shown.
const MOST_SHOWN: usize = 64 << 10;

/// The state of a record, in the words of the outcome query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum StateName {
    /// An attempt runs.
    InProgress,
    /// Done; retries get the answer.
    Completed,
    /// The last attempt had no effect; a retry runs.
    Failed,
    /// Nobody knows whether it had its effect.
    Unknown,
}

impl StateName {
    pub(crate) const fn kind(self) -> StateKind {
        match self {
            Self::InProgress => StateKind::Running,
            Self::Completed => StateKind::Completed,
            Self::Failed => StateKind::Released,
            Self::Unknown => StateKind::Lapsed,
        }
    }

    pub(crate) const fn of(kind: StateKind) -> Self {
        match kind {
            StateKind::Running => Self::InProgress,
            StateKind::Completed => Self::Completed,
            StateKind::Released => Self::Failed,
            StateKind::Lapsed => Self::Unknown,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// A record in a listing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct RecordView {
    /// 64 hexadecimal digits.
    pub(crate) id: String,
    pub(crate) state: StateName,
    pub(crate) route: String,
    /// A digest by which the key can be searched.
    pub(crate) key_hash: String,
    /// A digest by which the scope can be searched.
    pub(crate) scope_hash: String,
    /// The number of the last attempt's turn; name it when you change the record, so that a stale decision loses.
    pub(crate) fence: u64,
    pub(crate) attempts: u32,
    /// Seconds since the first attempt began.
    pub(crate) age: f64,
    /// Seconds until the record is forgotten.
    pub(crate) expires_in: f64,
    /// The status of the answer, or the first one that was seen of an unknown outcome.
    pub(crate) status: Option<u16>,
}

/// A page of records.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Listing {
    pub(crate) records: Vec<RecordView>,
    /// Where to go on, if there may be more.
    pub(crate) next: Option<String>,
}

/// A record with what is stored of its answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(crate) record: RecordView,
    /// Seconds that are left of the lease of an attempt that runs.
    pub(crate) lease_left: Option<f64>,
    /// Seconds since when nobody knows.
    pub(crate) unknown_for: Option<f64>,
    /// A digest of the payload.
    pub(crate) fingerprint: String,
    pub(crate) answer: Option<AnswerView>,
    /// What the operator could do, so that such calls are not in doubt again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

/// A stored answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct AnswerView {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// The body as text, at most 64 KiB of it.
    pub(crate) body: Option<String>,
    pub(crate) body_bytes: usize,
    /// Whether the body was kept at all.
    pub(crate) retained: bool,
}

impl RecordView {
    pub(crate) fn of(listed: &Listed) -> Self {
        let snapshot = &listed.snapshot;
        let status = match &snapshot.state {
            State::Completed(answer) | State::Lapsed { evidence: answer, .. } => {
                StoredAnswer::status_of(answer).map(|status| status.as_u16())
            }
            State::Running { .. } | State::Released => None,
        };
        Self {
            id: listed.id.to_string(),
            state: StateName::of(snapshot.state.kind()),
            route: snapshot.label.route.to_string(),
            key_hash: snapshot.label.key.to_string(),
            scope_hash: snapshot.label.scope.to_string(),
            fence: snapshot.fence.0,
            attempts: snapshot.attempts,
            age: snapshot.age.as_secs_f64(),
            expires_in: snapshot.expires_in.as_secs_f64(),
            status,
        }
    }
}

impl Detail {
    pub(crate) fn of(listed: &Listed) -> Self {
        let (mut lease_left, mut unknown_for, mut answer) = (None, None, None);
        match &listed.snapshot.state {
            State::Running { lease_left: left } => lease_left = Some(left.as_secs_f64()),
            State::Lapsed { since, evidence } => {
                unknown_for = Some(since.as_secs_f64());
                answer = AnswerView::of(evidence);
            }
            State::Released => {}
            State::Completed(stored) => answer = AnswerView::of(stored),
        }
        let fingerprint = listed.snapshot.fingerprint.to_string();
        let is_500 = answer.as_ref().is_some_and(|answer| answer.status == 500);
        let hint = (unknown_for.is_some() && is_500).then(|| HINT_500.to_owned());
        Self { record: RecordView::of(listed), lease_left, unknown_for, fingerprint, answer, hint }
    }
}

impl AnswerView {
    fn of(stored: &Answer) -> Option<Self> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Some(match StoredAnswer::decode(stored.clone()).ok()? {
            StoredAnswer::Whole { response, .. } => {
                let body = response.body();
                let shown = &body[..body.len().min(MOST_SHOWN)];
                Self {
                    status: response.status().as_u16(),
                    headers: response
                        .headers()
                        .iter()
                        .map(|(name, value)| (name.to_string(), text(value)))
                        .collect(),
                    body: Some(String::from_utf8_lossy(shown).into_owned()),
                    body_bytes: body.len(),
                    retained: true,
                }
            }
            StoredAnswer::Tombstone { status, location } => Self {
                status: status.as_u16(),
                headers: location.iter().map(|value| ("location".to_owned(), text(value))).collect(),
                body: None,
                body_bytes: 0,
                retained: false,
            },
        })
    }
}

/// What a person says about a call whose outcome nobody knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It happened: retries get the given answer.
    Completed,
    /// It did not happen and can no longer happen: a retry runs.
    NotDone,
}

impl Outcome {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::NotDone => "not_done",
        }
    }
}

/// A decision about a record.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resolve {
    pub(crate) outcome: Outcome,
    /// Why; written to the audit log.
    #[schema(min_length = 1, max_length = 2000, pattern = r"\S")]
    pub(crate) reason: String,
    /// The fence that was seen; without it the record's present one is taken.
    #[serde(default, deserialize_with = "whole")]
    pub(crate) fence: Option<u64>,
    /// The status that retries get; needed with `completed`.
    #[serde(default)]
    #[schema(minimum = 200, maximum = 599)]
    pub(crate) status: Option<u16>,
    /// The headers that retries get, with `completed`.
    #[serde(default, deserialize_with = "distinct")]
    pub(crate) headers: BTreeMap<String, String>,
    /// The body that retries get, with `completed`.
    #[serde(default)]
    pub(crate) body: String,
}

/// What belongs to one user, or is made anew for every replay, beside what is of one connection.
const NOT_STORED: [&str; 6] = [
    "idempotency-expires",
    "idempotency-key",
    "idempotency-stored",
    "idempotent-replayed",
    "proxy-authenticate",
    "set-cookie",
];

/// What the gateway's own words begin with.
const OWN: &str = "onlyonce-";

/// Names and values, each name once: of two, one would get lost without a word.
fn distinct<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Pairs;
    impl<'de> serde::de::Visitor<'de> for Pairs {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("names and values of headers")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut pairs = BTreeMap::new();
            while let Some((name, value)) = from.next_entry::<String, String>()? {
                if pairs.insert(name.to_ascii_lowercase(), value).is_some() {
                    return Err(serde::de::Error::custom(format!("the header {name} is there twice")));
                }
            }
            Ok(pairs)
        }
    }
    from.deserialize_map(Pairs)
}

/// A whole number; `7.0` is one too, as JSON sees it, and so is the text of one in a query.
pub(crate) fn whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Whole(u64),
        Point(f64),
        Text(String),
    }
    let wrong = || serde::de::Error::custom("it must be a whole number from 0");
    match Option::deserialize(from)? {
        None => Ok(None),
        Some(Written::Whole(number)) => Ok(Some(number)),
        // Above 2^53 a number with a point is not exact any more.
        Some(Written::Point(number))
            if number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number) =>
        {
            Ok(Some(number as u64))
        }
        Some(Written::Point(_)) => Err(wrong()),
        Some(Written::Text(text)) => text.parse().map(Some).map_err(|_| wrong()),
    }
}

impl Resolve {
    /// What is to be done.
    pub(crate) fn deed(&self) -> Result<Deed, String> {
        Ok(Deed::Decide(self.resolution()?, self.status))
    }

    /// The decision in the words of the engine.
    fn resolution(&self) -> Result<Resolution, String> {
        if self.outcome == Outcome::NotDone {
            if self.status.is_some() || !self.headers.is_empty() || !self.body.is_empty() {
                return Err("what did not happen has no answer: leave out status, headers and body".into());
            }
            return Ok(Resolution::DidNotHappen);
        }
        let status = self.status.ok_or("say in `status` which status retries get, for instance 201")?;
        let status = StatusCode::from_u16(status).ok().filter(|status| (200..600).contains(&status.as_u16()));
        let status = status.ok_or("status must be between 200 and 599")?;
        if matches!(status.as_u16(), 204 | 205 | 304) && !self.body.is_empty() {
            return Err(format!("an answer with {} has no body", status.as_u16()));
        }
        let mut response = http::Response::new(bytes::Bytes::from(self.body.clone()));
        *response.status_mut() = status;
        for (name, value) in &self.headers {
            let name: HeaderName =
                name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
            // In whatever spelling: the gateway's own words would be taken for its own by the one in front, or by the caller.
            let folded = folded(name.as_str());
            let mut never = NOT_STORED.iter().chain(&OF_ONE_CONNECTION);
            if never.any(|never| *never == folded) || folded.starts_with(OWN) {
                return Err(format!("{name} can't be part of a stored answer"));
            }
            let value =
                HeaderValue::from_str(value).map_err(|_| format!("the value of {name} can't be a header"))?;
            response.headers_mut().append(name, value);
        }
        Ok(Resolution::Happened(StoredAnswer::whole(response).encode()))
    }
}
