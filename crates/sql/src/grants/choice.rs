//! Which number is granted. Pure: time, rows and chance are arguments.

use std::collections::BTreeSet;

use onlyonce_id::{Grant, Request};

/// A worker number with its last window, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) worker: i64,
    pub(super) holder: [u8; 16],
    pub(super) from: i64,
    pub(super) until: i64,
}

impl Row {
    pub(super) fn grant(&self) -> Grant {
        let unsigned = |number| u64::try_from(number).unwrap_or(0);
        Grant { worker: unsigned(self.worker), from: unsigned(self.from), until: unsigned(self.until) }
    }
}

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// A number that was never granted.
    New(Row),
    /// A number that the holder has, or that nobody has any more, if its row is still as it was seen.
    Change { seen: Row, to: Row },
}

impl Choice {
    pub(super) fn to(&self) -> &Row {
        match self {
            Self::New(to) | Self::Change { to, .. } => to,
        }
    }
}

/// What to write for a request; `None` if every number is taken. With every try that somebody else won, the choice is left
/// more to chance, so that many who start together do not all want the same number again.
pub(super) fn choose(rows: Vec<Row>, now: i64, request: &Request, tries: u32, chance: u64) -> Option<Choice> {
    let holder = request.holder.to_bytes();
    let until = now.saturating_add(i64::try_from(request.span.as_millis()).unwrap_or(i64::MAX));
    let fits = |row: &Row| u64::try_from(row.worker).is_ok_and(|worker| worker < request.workers);
    let rows: Vec<Row> = rows.into_iter().filter(fits).collect();
    // Its own, also one whose grant it never heard of.
    if let Some(seen) = rows.iter().copied().find(|row| row.holder == holder) {
        return Some(Choice::Change { seen, to: Row { until: seen.until.max(until), ..seen } });
    }
    let mut idle: Vec<Row> = rows.iter().copied().filter(|row| row.until <= now).collect();
    if !idle.is_empty() {
        // The number that has been free for longest, so that a number rests before it is used again.
        idle.sort_unstable_by_key(|row| row.until);
        let seen = idle[at(idle.len(), tries, chance)];
        return Some(Choice::Change { seen, to: Row { holder, from: now, until, ..seen } });
    }
    let known: BTreeSet<i64> = rows.iter().map(|row| row.worker).collect();
    let unknown = (0..signed(request.workers)).filter(|worker| !known.contains(worker));
    let unknown: Vec<i64> = unknown.take(1 << tries.min(10)).collect();
    let worker = *unknown.get(at(unknown.len().max(1), tries, chance))?;
    Some(Choice::New(Row { worker, holder, from: now, until }))
}

/// The first at first, then any.
fn at(count: usize, tries: u32, chance: u64) -> usize {
    if tries == 0 { 0 } else { usize::try_from(chance % count as u64).unwrap_or(0) }
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onlyonce_id::Holder;

    use super::*;

    fn row(worker: i64, holder: u8, from: i64, until: i64) -> Row {
        Row { worker, holder: [holder; 16], from, until }
    }

    fn request(holder: Holder, workers: u64) -> Request {
        Request { holder, worker: None, workers, span: Duration::from_millis(100) }
    }

    #[test]
    fn what_rested_longest_comes_first_then_new_numbers_then_nothing() {
        let asks = request(Holder::random(), 3);
        let (early, late, live) = (row(0, 1, 0, 900), row(2, 2, 0, 800), row(1, 3, 0, 5_000));
        let chosen = choose(vec![early, late, live], 1_000, &asks, 0, 7).unwrap();
        let Choice::Change { seen, to } = chosen else { panic!("{chosen:?}") };
        assert_eq!((seen, to.worker, to.from, to.until), (late, 2, 1_000, 1_100));
        let chosen = choose(vec![live], 1_000, &asks, 0, 7).unwrap();
        assert!(
            matches!(chosen, Choice::New(Row { worker: 0, from: 1_000, until: 1_100, .. })),
            "{chosen:?}"
        );
        let all = (0..3).map(|worker| row(worker, 1, 0, 5_000)).collect();
        assert_eq!(choose(all, 1_000, &asks, 0, 7), None);
        let all = (0..3).map(|worker| row(worker, 1, 0, 5_000)).collect();
        assert_eq!(choose(all, 1_000, &asks, 3, 7), None);
    }

    #[test]
    fn a_holder_finds_its_own_window_and_no_clock_shortens_it() {
        let asks = request(Holder::random(), 8);
        let own = Row { worker: 5, holder: asks.holder.to_bytes(), from: 10, until: 9_000 };
        for now in [1_000, 20_000] {
            let chosen = choose(vec![row(0, 1, 0, 1), own], now, &asks, 0, 7).unwrap();
            let expected = Row { until: own.until.max(now + 100), ..own };
            assert_eq!(chosen, Choice::Change { seen: own, to: expected });
        }
    }

    #[test]
    fn numbers_that_the_layout_does_not_have_are_left_alone() {
        let asks = request(Holder::random(), 2);
        let chosen = choose(vec![row(7, 1, 0, 1), row(0, 1, 0, 9_000)], 1_000, &asks, 0, 7).unwrap();
        assert!(matches!(chosen, Choice::New(Row { worker: 1, .. })), "{chosen:?}");
    }

    #[test]
    fn those_who_lost_a_race_spread() {
        let asks = request(Holder::random(), 1024);
        let choices: BTreeSet<i64> =
            (0..50).filter_map(|chance| Some(choose(vec![], 1, &asks, 6, chance)?.to().worker)).collect();
        assert!(choices.len() > 20, "{choices:?}");
    }
}
