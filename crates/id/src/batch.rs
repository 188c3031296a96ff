//! Ids that were reserved together.

use crate::layout::Layout;
use crate::snowflake_id::SnowflakeId;
use crate::ticks::Run;

/// Reserved ids, in rising order. What is not taken is not given to anybody else.
#[derive(Debug, Clone)]
pub struct Batch<const TIME: u32, const WORKER: u32, const SEQUENCE: u32, const BUSINESS: u32> {
    runs: std::vec::IntoIter<Run>,
    run: Run,
    business: u64,
}

impl<const T: u32, const W: u32, const S: u32, const B: u32> Batch<T, W, S, B> {
    pub(crate) fn new(runs: Vec<Run>, business: u64) -> Self {
        Self { runs: runs.into_iter(), run: Run { start: 0, end: 0, worker: 0 }, business }
    }
}

impl<const T: u32, const W: u32, const S: u32, const B: u32> Iterator for Batch<T, W, S, B> {
    type Item = SnowflakeId;

    fn next(&mut self) -> Option<SnowflakeId> {
        if self.run.start == self.run.end {
            self.run = self.runs.next()?;
        }
        let tick = self.run.start;
        self.run.start += 1;
        Some(Layout::<T, W, S, B>::assemble(tick, self.run.worker, self.business))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let ahead: u64 = self.runs.as_slice().iter().map(|run| run.end - run.start).sum();
        let left = usize::try_from(ahead + self.run.end - self.run.start).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl<const T: u32, const W: u32, const S: u32, const B: u32> ExactSizeIterator for Batch<T, W, S, B> {}
