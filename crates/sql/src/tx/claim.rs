//! The claim: the first statement of the transaction, which every other call of the same key meets.

use std::convert::identity;
use std::time::Duration;

use onlyonce_core::machine::{self, Step};
use onlyonce_core::{Begin, Claim, ErrorKind, Fence, Intent, Over, RecordId, Snapshot, State, StoreError};
use sqlx::SqlSafeStr as _;

use super::transaction::Transaction;
use crate::clock;
use crate::crash::CrashPoint;
use crate::dialect::{Database, Inside, Meaning, Opening, Times};
use crate::fault::{self, When};
use crate::late::{in_time, is_late};
use crate::link::Link;
use crate::row;
use crate::statements::safe;
use crate::waiting::jittered;

/// How often a claim is repeated that had to give way. Nothing was done yet, so that is safe.
const REPEATS: u32 = 5;
/// How often a record may move under a claim before it gives up.
const ROUNDS: u32 = 8;
/// The shortest wait for a row that others hold: they may be about to commit.
const SHORTEST_LOCK: Duration = Duration::from_millis(50);
/// By how much more a server may wait that counts in whole seconds, upwards.
const ROUNDED: Duration = Duration::from_secs(1);

/// How a claim ended.
pub(super) enum Claimed<DB: Database> {
    /// The record is ours, in this transaction.
    Acquired { transaction: Transaction<DB>, fence: Fence, attempt: u32, over: Over },
    /// Somebody was there before.
    Taken(Snapshot),
    /// Somebody who has not committed yet holds the record.
    Held,
}

/// What a claim asks for.
pub(super) struct Ask<'a> {
    pub(super) id: &'a RecordId,
    pub(super) claim: &'a Claim,
    /// How long to wait for others.
    pub(super) wait: Duration,
    /// How long the server lets the transaction be idle.
    pub(super) idle: Duration,
}

impl Ask<'_> {
    fn opening<DB: Database>(&self, link: &Link<DB>) -> Opening {
        let times = Times { lock: self.wait.max(SHORTEST_LOCK), idle: self.idle };
        Opening { flavour: link.flavour, times }
    }

    /// How long a statement may take that waits for others.
    fn patience<DB: Database>(&self, link: &Link<DB>) -> Duration {
        self.wait.saturating_add(ROUNDED).saturating_add(link.patience)
    }
}

enum Tried<DB: Database> {
    Done(Claimed<DB>),
    /// The record moved.
    Again,
    /// The transaction had to give way.
    GaveWay(sqlx::Error),
}

/// Claims the record. Never dropped half-way: the callers see to that.
pub(super) async fn claim<DB: Database>(link: &Link<DB>, ask: &Ask<'_>) -> Result<Claimed<DB>, StoreError> {
    let mut repeats = 0;
    for _ in 0..ROUNDS + REPEATS {
        match round(link, ask).await? {
            Tried::Done(claimed) => return Ok(claimed),
            Tried::Again => {}
            Tried::GaveWay(error) if repeats == REPEATS => {
                return Err(fault::during::<DB>("claim", When::Before, error));
            }
            Tried::GaveWay(_) => {
                repeats += 1;
                tokio::time::sleep(jittered(Duration::from_millis(2 << repeats))).await;
            }
        }
    }
    Err(StoreError::new(ErrorKind::Busy, DB::WORD, "claim", "the record kept changing; retry"))
}

/// Notes the time, if a note is due, before anything rests on it. In a transaction of its own: that of the claim is the handler's, and may
/// be rolled back.
async fn note_time<DB: Database>(link: &Link<DB>, ask: &Ask<'_>) -> Result<(), StoreError> {
    if clock::due::<DB>(&link.time).is_none() {
        return Ok(());
    }
    let mut transaction = begin(link, DB::begin(ask.opening(link))).await?;
    let note = async {
        let note = clock::write::<DB>(&mut transaction, &link.table, &link.time).await?;
        transaction.commit().await?;
        Ok(note)
    };
    match in_time::<DB, _, _>(ask.patience(link), identity, note).await {
        Ok(note) => note.iter().for_each(|note| link.time.noted(note)),
        Err(error) => {
            if !is_late(&error) {
                transaction.leave().await;
            }
            return Err(fault::during::<DB>("claim", When::Before, error));
        }
    }
    Ok(())
}

async fn round<DB: Database>(link: &Link<DB>, ask: &Ask<'_>) -> Result<Tried<DB>, StoreError> {
    note_time(link, ask).await?;
    let mut transaction = begin(link, DB::begin_to_insert(ask.opening(link))).await?;
    CrashPoint::Begun.pass();
    let arguments = link.timed(&link.statements.insert, row::insert(ask.id, ask.claim));
    let inside = Inside::Transaction(ask.opening(link));
    let insert = DB::insert(&mut transaction, &link.statements, arguments, inside);
    match in_time::<DB, _, _>(ask.patience(link), identity, insert).await {
        Ok(Some(fence)) => {
            CrashPoint::Claimed.pass();
            let fence = Fence(fence.unsigned_abs());
            return Ok(Tried::Done(Claimed::Acquired {
                transaction,
                fence,
                attempt: 1,
                over: Over::Nothing,
            }));
        }
        Ok(None) => transaction.leave().await,
        Err(error) => return failed(transaction, error).await,
    }
    // There is a record. It is judged without a lock: the failed insert may share one with others who would upgrade it too.
    let Some(found) = link.find("claim", ask.id).await? else { return Ok(Tried::Again) };
    let (next, begun) = match machine::begin(Some(&found.record), ask.claim, found.now) {
        Step::Keep(Begin::Taken(snapshot)) => return Ok(Tried::Done(Claimed::Taken(snapshot))),
        Step::Keep(Begin::Acquired { .. }) => return Ok(Tried::Again),
        Step::Write(next, begun) => (next, begun),
    };
    let Begin::Acquired { fence, attempt, over } = begun else { return Ok(Tried::Again) };
    let mut transaction = begin(link, DB::begin(ask.opening(link))).await?;
    let arguments = row::take(&found, &next);
    let take = async {
        let done = DB::run(&mut transaction, link.statements.take.sql.clone(), arguments).await?;
        if let (1, Some(unhurried)) = (done.rows, DB::UNHURRIED) {
            DB::raw(&mut transaction, unhurried.into_sql_str()).await?;
        }
        Ok(done)
    };
    match in_time::<DB, _, _>(ask.patience(link), identity, take).await {
        Ok(done) if done.rows == 1 => {
            CrashPoint::Claimed.pass();
            Ok(Tried::Done(Claimed::Acquired { transaction, fence, attempt, over }))
        }
        Ok(_) => {
            transaction.leave().await;
            Ok(Tried::Again)
        }
        Err(error) => failed(transaction, error).await,
    }
}

/// Begins a transaction. A connection from the pool may have died there: nothing was done yet, so another one is tried.
async fn begin<DB: Database>(link: &Link<DB>, sql: String) -> Result<Transaction<DB>, StoreError> {
    let (sql, failed) = (safe(sql), |error| fault::during::<DB>("claim", When::Before, error));
    // Without the pool's own look at the connection: what follows is a better one.
    if let Some(idle) = link.pool.try_acquire() {
        match Transaction::begin(idle, sql.clone(), link.patience).await {
            Err(error) if is_late(&error) => return Err(failed(error)),
            Err(error) if matches!(DB::meaning(&error), Meaning::Gone | Meaning::Stopped) => {}
            begun => return begun.map_err(failed),
        }
    }
    let connection = link.pool.acquire().await.map_err(failed)?;
    Transaction::begin(connection, sql, link.patience).await.map_err(failed)
}

async fn failed<DB: Database>(
    transaction: Transaction<DB>,
    error: sqlx::Error,
) -> Result<Tried<DB>, StoreError> {
    if is_late(&error) {
        // Nobody would answer a ROLLBACK either: it ends with its connection.
        return Err(fault::during::<DB>("claim", When::Before, error));
    }
    // Whatever the error says of the connection.
    transaction.leave().await;
    match DB::meaning(&error) {
        Meaning::Locked => Ok(Tried::Done(Claimed::Held)),
        // Dead before it could be used, or stopped: nothing was done.
        Meaning::GaveWay | Meaning::Gone | Meaning::Stopped => Ok(Tried::GaveWay(error)),
        _ => Err(fault::during::<DB>("claim", When::Before, error)),
    }
}

/// What may be said to a call whose record somebody holds who has not committed: that it runs, and nothing else. Of which payload that
/// one is, nobody can know, so that it is none to be judged by.
pub(super) fn held(intent: &Intent) -> Snapshot {
    let settings = &intent.settings;
    Snapshot {
        state: State::Running { lease_left: settings.max_run },
        fence: Fence(0),
        fingerprint: intent.fingerprint,
        attempts: 1,
        age: Duration::ZERO,
        expires_in: settings.retain_unsettled,
        label: intent.label.clone(),
    }
}
