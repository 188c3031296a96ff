//! P5: what a call and a sweep take among many records, against the same among few.

use std::time::Duration;

use crate::databases::Measured;
use crate::ways::World;

/// The small number of records.
pub(crate) const FEW: u64 = 10_000;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    pub(crate) count: usize,
    pub(crate) span: Duration,
}

/// The time among many to the time among few, one a round.
#[derive(Debug, Default)]
pub(crate) struct Ratios {
    records: u64,
    /// Begin and settle in lease mode.
    pub(crate) leased: Vec<f64>,
    /// A call in the transaction of its record.
    pub(crate) in_transaction: Vec<f64>,
    /// A sweep of a thousand expired records.
    pub(crate) swept: Vec<f64>,
    /// The same, to the time among a tenth as many: does it grow with what is kept? (Among few records, several of the thousand
    /// share each page that the sweep changes; among many, each has pages of its own.)
    pub(crate) swept_of_tenth: Vec<f64>,
}

impl Ratios {
    fn case(&self, what: &str, few: u64) -> String {
        format!("{what} among {} / among {few}", self.records)
    }

    pub(crate) fn named(&self) -> [(String, &[f64]); 4] {
        [
            (self.case("begin + settle", FEW), &self.leased),
            (self.case("a call in its transaction", FEW), &self.in_transaction),
            (self.case("sweep of 1000 expired", FEW), &self.swept),
            (self.case("sweep of 1000 expired", self.records / 10), &self.swept_of_tenth),
        ]
    }
}

pub(crate) async fn measure<DB: Measured>(records: u64, rounds: Rounds) -> Ratios {
    let (few, many) = (World::<DB>::filled(FEW).await, World::<DB>::filled(records).await);
    let tenth = World::<DB>::filled(records / 10).await;
    let mut ratios = Ratios { records, ..Ratios::default() };
    // The first round warms up: pages, plans and statements.
    for round in 0..=rounds.count {
        let leased = [few.leased(rounds.span).await, many.leased(rounds.span).await];
        let in_transaction = [few.in_transaction(rounds.span).await, many.in_transaction(rounds.span).await];
        let swept = [few.swept().await, many.swept().await];
        let of_tenth = tenth.swept().await;
        eprintln!(
            "{:<10} among {FEW} / {records}: begin + settle {}, transaction {}, sweep {} (among a tenth {:.0} µs)",
            DB::LABEL,
            micros(leased),
            micros(in_transaction),
            micros(swept),
            of_tenth * 1e6
        );
        if round > 0 {
            ratios.leased.push(leased[1] / leased[0]);
            ratios.in_transaction.push(in_transaction[1] / in_transaction[0]);
            ratios.swept.push(swept[1] / swept[0]);
            ratios.swept_of_tenth.push(swept[1] / of_tenth);
        }
    }
    // What expired is gone, and nothing else.
    assert!(few.count().await > FEW && many.count().await > records, "a sweep took what is kept");
    for world in [few, tenth, many] {
        world.remove().await;
    }
    ratios
}

fn micros([few, many]: [f64; 2]) -> String {
    format!("{:.0} / {:.0} µs", few * 1e6, many * 1e6)
}
