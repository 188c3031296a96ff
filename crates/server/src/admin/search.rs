//! Which records are meant: the same words for the API and for the terminal.

use std::time::Duration;

use http::HeaderValue;
use onlyonce::http::key_of_header;
use onlyonce::{
    Clock, Cursor, ErrorKind, Filter, Hash16, Inspect, Key, Listed, Page, RecordId, Scope, StoreError,
    SystemClock,
};

use super::view::StateName;
use crate::config::units;

/// How long is looked for records to fill a page; then a short page goes out, with a cursor.
const PATIENCE: Duration = Duration::from_secs(5);
/// The fewest digits that stand for an id.
const FEWEST: usize = 4;
/// How many ids are named where the beginning of one is not enough.
const CANDIDATES: usize = 10;

/// A search as a person types it. What is absent does not matter. Nothing may be empty: a variable that was not set would
/// otherwise mean everything.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Words<'a> {
    pub(crate) state: Option<StateName>,
    pub(crate) route: Option<&'a str>,
    pub(crate) scope: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) since: Option<&'a str>,
}

/// What is searched for.
#[derive(Debug)]
pub(crate) struct Search {
    /// One for each meaning of the words: 32 hexadecimal digits may be a digest, and a key as well.
    filters: Vec<Filter>,
    since: Option<Duration>,
}

/// Why there is no page.
#[derive(Debug)]
pub(crate) enum Unlisted {
    Cursor,
    Store(StoreError),
}

impl Words<'_> {
    /// What these words mean, where `scopes` are the scopes that a text may stand for.
    pub(crate) fn meaning(&self, scopes: impl FnOnce(&str) -> Vec<Scope>) -> Result<Search, String> {
        let words = [("route", self.route), ("scope", self.scope), ("key", self.key), ("since", self.since)];
        if let Some((name, _)) = words.iter().find(|(_, word)| *word == Some("")) {
            return Err(format!("the {name} is empty; leave it out to search for every {name}"));
        }
        let since = self.since.map(units::duration).transpose()?;
        let route = self.route.map(Into::into);
        let narrow = Filter { state: self.state.map(StateName::kind), route, ..Filter::default() };
        let mut filters = vec![narrow];
        if let Some(text) = self.scope {
            let named = scopes(text).iter().map(Hash16::of_scope).chain(digest(text)).collect();
            filters = each(&filters, named, |filter, scope| Filter { scope: Some(scope), ..filter });
            if filters.is_empty() {
                return Err("there can be no such scope".into());
            }
        }
        if let Some(text) = self.key {
            let key = Key::new(text).map_err(|error| error.to_string())?;
            let keys = [Some(key), as_sent(text)].into_iter().flatten();
            let digests = digest(text).into_iter().chain(keys.map(|key| Hash16::of_key(&key))).collect();
            let by_key = each(&filters, digests, |filter, key| Filter { key: Some(key), ..filter });
            let ids = text.parse::<RecordId>().into_iter().collect();
            let by_id = each(&filters, ids, |filter, id| Filter { ids: Some(id..=id), ..filter });
            filters = [by_id, by_key].concat();
        }
        Ok(Search { filters, since })
    }
}

/// The key within the quotes, as it was pasted from a header.
fn as_sent(text: &str) -> Option<Key> {
    let value =
        HeaderValue::from_str(text.trim()).ok().filter(|value| value.as_bytes().starts_with(b"\""))?;
    key_of_header(&value).ok()
}

/// Every filter with every value.
fn each<T: Copy>(filters: &[Filter], values: Vec<T>, with: impl Fn(Filter, T) -> Filter) -> Vec<Filter> {
    filters.iter().flat_map(|filter| values.iter().map(|value| with(filter.clone(), *value))).collect()
}

/// A digest as listings show it.
fn digest(text: &str) -> Option<Hash16> {
    Some(Hash16::from_bytes(bytes(text)?))
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = [0; N];
    if text.len() != N * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

impl Search {
    /// The records from `after` on. Ordered by meaning, then as the store orders them, so that pages stay the same while records
    /// come and go. A short page has a cursor if there may be more.
    pub(crate) async fn page(
        &self,
        store: &dyn Inspect,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page, Unlisted> {
        let (mut place, mut after) = match after {
            None => (0, None),
            Some(text) => self.place(text).ok_or(Unlisted::Cursor)?,
        };
        let recent = |listed: &Listed| self.since.is_none_or(|since| listed.snapshot.age <= since);
        let begun = SystemClock.now();
        let mut records: Vec<Listed> = Vec::new();
        while let Some(filter) = self.filters.get(place) {
            let left = limit.saturating_sub(records.len() as u32);
            if left == 0 || SystemClock.now().since(begun) > PATIENCE {
                let rest = after.map_or_else(String::new, |Cursor(text)| text);
                return Ok(Page { records, next: Some(Cursor(format!("{place}.{rest}"))) });
            }
            let page = list(store, filter, after.as_ref(), left).await?;
            records.extend(page.records.into_iter().filter(recent));
            after = page.next;
            place += usize::from(after.is_none());
        }
        Ok(Page { records, next: None })
    }

    /// Which filter a page goes on with, and where.
    fn place(&self, cursor: &str) -> Option<(usize, Option<Cursor>)> {
        let (place, rest) = cursor.split_once('.')?;
        let place = place.parse().ok().filter(|place| *place < self.filters.len())?;
        Some((place, Some(rest).filter(|rest| !rest.is_empty()).map(|rest| Cursor(rest.to_owned()))))
    }
}

async fn list(
    store: &dyn Inspect,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Page, Unlisted> {
    if let Some(id) = filter.ids.as_ref().filter(|ids| ids.start() == ids.end()).map(|ids| *ids.start()) {
        let found = store.get(&id).await.map_err(Unlisted::Store)?;
        let found = found.filter(|snapshot| filter.matches(&id, snapshot));
        let records = found.map(|snapshot| Listed::new(id, snapshot)).into_iter().collect();
        return Ok(Page { records, next: None });
    }
    store.list(filter, after, limit).await.map_err(|error| match error.kind() {
        ErrorKind::Rejected if after.is_some() => Unlisted::Cursor,
        _ => Unlisted::Store(error),
    })
}

/// An id, or the beginning of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdWord(String);

/// Why a word stands for no record.
#[derive(Debug)]
pub(crate) enum NotOne {
    None,
    /// It begins several ids; these are some of them.
    Several(Vec<RecordId>),
    Store(StoreError),
}

impl IdWord {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_one = (FEWEST..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let wrong = || {
            format!(
                "a record id is 64 hexadecimal digits, as `records list` prints it; its first {FEWEST} or more do where no other begins so"
            )
        };
        if is_one { Ok(Self(text.to_ascii_lowercase())) } else { Err(wrong()) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The one record that is meant, with all of its answer.
    pub(crate) async fn find(&self, store: &dyn Inspect) -> Result<Listed, NotOne> {
        let id = match self.0.parse::<RecordId>() {
            Ok(id) => id,
            Err(_) => self.search(store).await?,
        };
        let found = store.get(&id).await.map_err(NotOne::Store)?;
        found.map(|snapshot| Listed { id, snapshot }).ok_or(NotOne::None)
    }

    /// The one id that begins so.
    async fn search(&self, store: &dyn Inspect) -> Result<RecordId, NotOne> {
        let end = |digit: &str| bytes(&format!("{}{}", self.0, digit.repeat(64 - self.0.len())));
        let (Some(first), Some(last)) = (end("0"), end("f")) else { return Err(NotOne::None) };
        let ids = Some(RecordId::from_bytes(first)..=RecordId::from_bytes(last));
        let (filter, mut after) = (Filter { ids, ..Filter::default() }, None);
        let mut found = Vec::new();
        loop {
            let page = store.list(&filter, after.as_ref(), CANDIDATES as u32).await;
            let page = page.map_err(NotOne::Store)?;
            found.extend(page.records);
            after = page.next;
            if after.is_none() || found.len() >= CANDIDATES {
                break;
            }
        }
        match (found.len(), found.pop()) {
            (1, Some(listed)) => Ok(listed.id),
            (_, None) => Err(NotOne::None),
            (_, Some(last)) => Err(NotOne::Several(
                found.iter().map(|listed| listed.id).chain([last.id]).take(CANDIDATES).collect(),
            )),
        }
    }
}

/// What to say where the beginning of an id is not enough.
pub(crate) fn several(candidates: &[RecordId]) -> String {
    let ids: Vec<String> = candidates.iter().map(ToString::to_string).collect();
    let more = if ids.len() < CANDIDATES { "" } else { " and perhaps more" };
    format!("several ids begin so, type more of one of them: {}{more}", ids.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(words: Words<'_>) -> Vec<Filter> {
        words.meaning(|text| Scope::new(text).into_iter().collect()).unwrap().filters
    }

    #[test]
    fn a_word_that_could_be_read_in_two_ways_is_read_in_both() {
        let key = |text: &str| filters(Words { key: Some(text), ..Words::default() });
        assert_eq!(key("order-42").len(), 1);
        assert_eq!(key("\"order-42\"").len(), 2, "quotes of a header, and of a key from a body");
        assert_eq!(key(&"0af1".repeat(8)).len(), 2, "a digest, and a UUID without dashes");
        assert_eq!(key(&"0af1".repeat(16)).len(), 2, "a record id, and a key");
        let digits = "0af1".repeat(8);
        let both = Words { key: Some(&digits), scope: Some(&digits), ..Words::default() };
        assert_eq!(filters(both).len(), 4);
    }

    #[test]
    fn nothing_may_be_empty_and_every_word_narrows() {
        let some = Words { state: Some(StateName::Unknown), route: Some("POST /pay"), ..Words::default() };
        let wrong = [
            Words { route: Some(""), ..some },
            Words { scope: Some(""), ..some },
            Words { key: Some(""), ..some },
            Words { since: Some(""), ..some },
        ];
        for words in wrong {
            assert!(words.meaning(|_| Vec::new()).unwrap_err().contains("is empty"), "{words:?}");
        }
        let id = "0af1".repeat(16);
        for filter in filters(Words { key: Some(&id), scope: Some("a"), ..some }) {
            assert!(filter.state.is_some() && filter.route.is_some() && filter.scope.is_some(), "{filter:?}");
        }
    }

    #[test]
    fn an_id_may_be_typed_by_its_beginning() {
        for good in ["3f9c", "3F9C", &"a".repeat(64)] {
            assert!(IdWord::parse(good).is_ok(), "{good}");
        }
        for wrong in ["", "3f9", "3f9x", "nonsense", &"a".repeat(65), "3f9c…"] {
            assert!(IdWord::parse(wrong).is_err(), "{wrong}");
        }
    }
}
