//! P4: a call in the transaction of its record, against the bare transaction and against the way of article 004, on each
//! database. P5: begin, settle and sweep among many records, against the same among few.
//!
//! `cargo xtask soak sql-grown` does P5 with ten times as many. `cargo xtask bench` starts the databases; by hand, set what `cargo xtask services` prints. `--quick` takes fewer and
//! shorter rounds and fewer records.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program that measures real time"
)]

mod databases;
mod grown;
mod ways;

use std::time::Duration;

use databases::Measured;
use onlyonce_bench_report::{Goal, Length, Report};
use onlyonce_sql::{MySql, Postgres, Sqlite};

use grown::Rounds;
use ways::{Way, World};

/// How long and how often to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    rounds: usize,
    round: Duration,
    /// The large number of records of P5.
    records: u64,
}

#[tokio::main]
async fn main() {
    let effort = Length::from_args().pick(
        Effort { rounds: 1, round: Duration::from_millis(50), records: 10_000 },
        Effort { rounds: 5, round: Duration::from_millis(400), records: 100_000 },
        Effort { rounds: 9, round: Duration::from_secs(2), records: 1_000_000 },
    );
    let mut report = Report::default();
    in_transaction::<Postgres>(effort, 0.85, &mut report).await;
    in_transaction::<MySql>(effort, 0.75, &mut report).await;
    in_transaction::<Sqlite>(effort, 0.5, &mut report).await;
    among_many::<Postgres>(effort, &mut report).await;
    among_many::<MySql>(effort, &mut report).await;
    among_many::<Sqlite>(effort, &mut report).await;
    report.finish().unwrap();
}

async fn in_transaction<DB: Measured>(effort: Effort, goal: f64, report: &mut Report) {
    let world = World::<DB>::new().await;
    for way in Way::ALL {
        world.rate(way, effort.round / 2).await;
    }
    let (mut bare, mut article, mut at_commit) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let mut rates = [0.0; 4];
        for (way, rate) in Way::ALL.into_iter().zip(&mut rates) {
            *rate = world.rate(way, effort.round).await;
        }
        eprintln!(
            "{:<8} bare {:>7.0}/s  ours {:>7.0}/s  article 004 {:>7.0}/s  at commit {:>7.0}/s",
            DB::LABEL,
            rates[0],
            rates[1],
            rates[2],
            rates[3]
        );
        bare.push(rates[1] / rates[0]);
        article.push(rates[1] / rates[2]);
        at_commit.push(rates[3] / rates[0]);
    }
    world.remove().await;
    let case = |against: &str| format!("{}: same transaction / {against}", DB::LABEL);
    report.add("P4", &case("bare transaction"), &bare, Goal::AtLeast(goal));
    report.add("P4", &case("article 004's way"), &article, Goal::AtLeast(2.5));
    let alone = format!("{}: one INSERT at commit, alone / bare transaction", DB::LABEL);
    report.add("P4", &alone, &at_commit, Goal::AtLeast(0.9));
}

async fn among_many<DB: Measured>(effort: Effort, report: &mut Report) {
    let rounds = Rounds { count: effort.rounds, span: effort.round / 2 };
    let ratios = grown::measure::<DB>(effort.records, rounds).await;
    for (case, figures) in ratios.named() {
        report.add("P5", &format!("{}: {case}", DB::LABEL), figures, Goal::AtMost(1.3));
    }
}
