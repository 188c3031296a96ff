//! What differs between the three databases: how statements are written and run, and what their errors mean.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::{Connection, Pool, SqlStr};

use crate::statements::Statements;
use crate::table::Table;
use crate::value::Value;

/// A database that records can live in: [`MySql`](sqlx::MySql), [`Postgres`](sqlx::Postgres) or
/// [`Sqlite`](sqlx::Sqlite). Nobody else can implement it.
pub trait Database: Dialect {}

/// What a failed statement means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// There is such a row.
    Duplicate,
    /// Others hold the row for longer than we wait.
    Locked,
    /// The transaction was chosen to give way, or could not be put in order: nothing of it is left.
    GaveWay,
    /// The table is not there.
    NoTable,
    /// This user may not write.
    ReadOnly,
    /// A rule of the user's own tables, checked at commit.
    Constraint,
    /// What is sent is too large for the server.
    TooLarge,
    /// The server stopped the statement, by a KILL QUERY or a cancel; the connection lives.
    Stopped,
    /// The connection ended, or the server ends.
    Gone,
    /// The server can't or may not do what it was asked, and did nothing.
    Refused,
    /// Anything else. It may be the word of a proxy, of which nobody knows what its server did.
    Other,
}

/// The times that a transaction is begun with.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// How long to wait for a row that others hold.
    pub lock: Duration,
    /// How long the server lets the transaction be idle.
    pub idle: Duration,
}

/// What happened to some rows.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub(crate) rows: u64,
    pub(crate) last_id: u64,
}

/// What differs between the databases. Not for use outside of this crate.
#[doc(hidden)]
pub trait Dialect: sqlx::Database + Sized {
    /// How it is called in errors.
    const WORD: &'static str;
    /// What a URL begins with.
    const PREFIXES: &'static [&'static str];
    /// The parameters of a URL that the driver knows. Others it passes over in silence, or writes to the log with their values.
    const PARAMETERS: &'static [&'static str];
    /// The shipped migrations, in their order: name and SQL.
    const MIGRATIONS: &'static [(&'static str, &'static str)];
    /// How many tables and indexes of these names (`{names}`) there are, where unqualified ones would be created.
    const CATALOGUE: &'static str;
    /// How bytes are written.
    const HEX: (&'static str, &'static str);
    /// Microseconds since 1970 by the server's clock; `None` where they are bound as the last argument.
    const NOW: Option<&'static str>;

    /// What makes a narrow number a wide one, where the driver wants that.
    const WIDE: &'static str = "";
    /// What begins a transaction in which only we write.
    const BEGIN: &'static str;
    /// What ends the transaction of a claim without a commit and puts its connection right, where that is more than a ROLLBACK.
    const AFTERWARDS: Option<&'static str> = None;
    /// What lets the handler's own statements wait as they always do, after a claim that may wait for a moment only.
    const UNHURRIED: Option<&'static str> = None;
    /// What commits the transaction of a claim and puts its connection right, where that is more than a COMMIT.
    const COMMIT: Option<&'static str> = None;
    /// What opens a transaction where a handler ended its own by SQL, and else fails without harm: for a driver that could not end
    /// its transaction any more, and would count it for ever.
    const REOPEN: Option<&'static str> = None;
    /// Whether it runs in this process: nothing is between us and it that could lose a question or an answer.
    const IS_LOCAL: bool = false;
    /// How many transactions may be open at a time, if that does not depend on the pool.
    const WRITERS: Option<usize> = None;

    fn statements(table: &Table) -> Statements;
    /// Writes the place of an argument (from 1).
    fn place(sql: &mut String, number: usize);
    /// Whether this URL names a database that ends with the process.
    fn is_in_memory(_: &str) -> bool {
        false
    }
    /// A pool of our own for this URL.
    fn options(url: &str) -> Result<<Self::Connection as Connection>::Options, sqlx::Error>;
    fn pool_options() -> PoolOptions<Self>;

    fn rows(
        connection: &mut Self::Connection,
        sql: SqlStr,
        arguments: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, sqlx::Error>> + Send;
    fn run(
        connection: &mut Self::Connection,
        sql: SqlStr,
        arguments: Vec<Value>,
    ) -> impl Future<Output = Result<Done, sqlx::Error>> + Send;
    /// Statements without arguments, sent as one; what they return is left out.
    fn raw(
        connection: &mut Self::Connection,
        sql: SqlStr,
    ) -> impl Future<Output = Result<Done, sqlx::Error>> + Send;
    fn int(row: &Self::Row, column: usize) -> Result<i64, sqlx::Error>;
    fn bytes(row: &Self::Row, column: usize) -> Result<Option<Vec<u8>>, sqlx::Error>;

    fn meaning(error: &sqlx::Error) -> Meaning;

    /// Inserts a record that is not there: its fence, or `None` if there is one. In a transaction the caller decides on
    /// what follows; nothing else was done.
    fn insert(
        connection: &mut Self::Connection,
        statements: &Statements,
        arguments: Vec<Value>,
        inside: Inside,
    ) -> impl Future<Output = Result<Option<i64>, sqlx::Error>> + Send;

    /// What begins a transaction for a claim.
    fn begin(opening: Opening) -> String;

    /// The same before an [`insert`](Self::insert), which may see to the times by itself.
    fn begin_to_insert(opening: Opening) -> String {
        Self::begin(opening)
    }

    /// What might break the promise, and which product this is.
    fn look(connection: &mut Self::Connection) -> impl Future<Output = Result<Look, sqlx::Error>> + Send;

    /// Applies the missing migrations; instances that start together do so one after the other.
    fn migrate(
        connection: &mut Self::Connection,
        table: &Table,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Whether a migration failed because it was applied before.
    fn was_there(_: &sqlx::Error) -> bool {
        false
    }

    /// Listens for changes, where the database can tell.
    fn listen(_: &Pool<Self>, _: &Table) -> Option<crate::wakes::Wakes> {
        None
    }
}

/// How the transaction of a claim begins.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    pub flavour: Flavour,
    pub times: Times,
}

/// Whether an insert stands alone.
#[derive(Debug, Clone, Copy)]
pub enum Inside {
    /// It commits by itself.
    Alone,
    /// It is the first statement of a transaction.
    Transaction(Opening),
}

/// Which product a server is, where that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    Usual,
    MariaDb,
}

/// What a look at the server found.
#[derive(Debug)]
pub struct Look {
    pub(crate) flavour: Flavour,
    pub(crate) concerns: Vec<crate::Concern>,
    /// Why it can't be used at all.
    pub(crate) unusable: Option<String>,
    /// The largest message that the server takes, in bytes, where it has a limit of its own.
    pub(crate) largest: Option<usize>,
}

/// The functions that are written alike but compile only for a database by name.
macro_rules! by_name {
    ($connection:ty, $row:ty) => {
        async fn rows(
            connection: &mut $connection,
            sql: sqlx::SqlStr,
            arguments: Vec<crate::value::Value>,
        ) -> Result<Vec<$row>, sqlx::Error> {
            bind(sqlx::query(sql), arguments).fetch_all(connection).await
        }

        async fn run(
            connection: &mut $connection,
            sql: sqlx::SqlStr,
            arguments: Vec<crate::value::Value>,
        ) -> Result<crate::dialect::Done, sqlx::Error> {
            bind(sqlx::query(sql), arguments).execute(connection).await.map(done)
        }

        async fn raw(
            connection: &mut $connection,
            sql: sqlx::SqlStr,
        ) -> Result<crate::dialect::Done, sqlx::Error> {
            sqlx::raw_sql(sql).execute(connection).await.map(done)
        }

        fn int(row: &$row, column: usize) -> Result<i64, sqlx::Error> {
            sqlx::Row::try_get(row, column)
        }

        fn bytes(row: &$row, column: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
            sqlx::Row::try_get(row, column)
        }
    };
}

macro_rules! bind_by_name {
    ($database:ty) => {
        type Query = sqlx::query::Query<'static, $database, <$database as sqlx::Database>::Arguments>;

        fn bind(query: Query, arguments: Vec<crate::value::Value>) -> Query {
            use crate::value::Value;
            arguments.into_iter().fold(query, |query, value| match value {
                Value::Int(number) => query.bind(number),
                Value::MaybeInt(number) => query.bind(number),
                Value::Bytes(bytes) => query.bind(bytes.to_vec()),
                Value::MaybeBytes(bytes) => query.bind(bytes.map(|bytes| bytes.to_vec())),
            })
        }
    };
}

pub(crate) use {bind_by_name, by_name};

/// Whether this SQLSTATE is of a class with which a server says no to what it was asked: syntax, names, rights, types, values, limits. None
/// of them is said of a connection that broke under a statement, by a server or by a proxy before it.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn is_refusal(state: &str) -> bool {
    const CLASSES: [&str; 13] =
        ["0A", "21", "22", "23", "25", "26", "28", "3D", "3F", "42", "44", "53", "54"];
    CLASSES.iter().any(|class| state.starts_with(class))
}

/// What a failure without a word from the database means.
pub(crate) fn gone(error: &sqlx::Error) -> Meaning {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => Meaning::Gone,
        _ => Meaning::Other,
    }
}
