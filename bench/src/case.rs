//! What is counted, and what one call of it costs.

use std::collections::BTreeMap;

/// Few calls and more of them. What both do alike (start, first memory, end) is not counted.
const CALLS: [u64; 2] = [300, 900];

/// Counts of a whole run, by what is counted.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// Something that can be called so many times.
#[derive(Debug)]
pub(crate) struct Case {
    name: &'static str,
    count: fn(&'static str, u64) -> Counts,
}

/// The least of each count in all runs so far, with few calls and with more: what happens beside a call by the clock, such as a
/// look for expired records, only ever adds to it.
#[derive(Debug, Default)]
pub(crate) struct Least([Counts; 2]);

impl Case {
    pub(crate) fn new(name: &'static str, count: fn(&'static str, u64) -> Counts) -> Self {
        Self { name, count }
    }

    /// Runs once more.
    pub(crate) fn run(&self, least: &mut Least) {
        for (calls, least) in CALLS.into_iter().zip(&mut least.0) {
            for (what, count) in (self.count)(self.name, calls) {
                least.entry(what).and_modify(|least| *least = count.min(*least)).or_insert(count);
            }
        }
    }

    /// What one call costs: each count with its full name.
    pub(crate) fn of_a_call(&self, Least([few, more]): &Least) -> BTreeMap<String, f64> {
        let each = |(what, more): (&&'static str, &u64)| {
            let few = few.get(what).copied().unwrap_or_default();
            let of_a_call = more.saturating_sub(few) as f64 / (CALLS[1] - CALLS[0]) as f64;
            (format!("{}: {what}", self.name), (of_a_call * 10.0).round() / 10.0)
        };
        more.iter().map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_by_the_clock_is_not_counted_for_a_call() {
        static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let case = Case::new("case", |_, calls| {
            // In turn, a run is disturbed.
            let disturbed = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(3);
            Counts::from([("instructions", 10_000 + 7 * calls + u64::from(disturbed) * 5_000)])
        });
        let mut least = Least::default();
        for _ in 0..3 {
            case.run(&mut least);
        }
        assert_eq!(case.of_a_call(&least), BTreeMap::from([("case: instructions".to_owned(), 7.0)]));
    }
}
