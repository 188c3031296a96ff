//! Settings of a store, and its opening.

use std::convert::identity;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, SystemClock};
use sqlx::{Connection, Pool};

use crate::clock;
use crate::dialect::{Database, Dialect, Meaning};
use crate::late::{self, PATIENCE, in_time};
use crate::link::Link;
use crate::migrate::{self, Schema, is_done};
use crate::open_error::OpenError;
use crate::place::{self, Place};
use crate::pooled::Pooled;
use crate::store::{Inner, SqlStore};
use crate::table::{DEFAULT, Table};

/// How long a pool of our own tries to give a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one try to connect may take, when the others failed.
const ONE_TRY: Duration = Duration::from_secs(2);

/// Of several that open a new SQLite file at the same moment some are refused at once, however long they would wait: the switch to its
/// write-ahead log knows no patience. So they are tried again, for five seconds in all.
const LOCKED_TRIES: u32 = 100;
const LOCKED_PAUSE: Duration = Duration::from_millis(50);

/// How to open a [`SqlStore`]; made by [`SqlStore::builder`] and [`SqlStore::from_pool`].
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn open(pool: sqlx::PgPool) -> Result<(), onlyonce_sql::OpenError> {
/// use onlyonce_sql::PostgresStore;
/// let store = PostgresStore::from_pool(pool).schema("shop").table("calls").migrate().strict().open().await?;
/// # Ok(()) }
/// ```
#[must_use]
pub struct Builder<DB: Database> {
    source: Source<DB>,
    schema: Option<String>,
    table: String,
    max_connections: u32,
    patience: Duration,
    clock: Arc<dyn Clock>,
    migrate: bool,
    strict: bool,
}

enum Source<DB: Database> {
    Url(String),
    Pool(Pool<DB>),
}

impl<DB: Database> Builder<DB> {
    pub(crate) fn url(url: String) -> Self {
        let Place { url, table, schema } = Place::of(url);
        let builder = Self::new(Source::Url(url));
        Self { table: table.unwrap_or(builder.table), schema, ..builder }
    }

    pub(crate) fn pool(pool: Pool<DB>) -> Self {
        Self::new(Source::Pool(pool))
    }

    fn new(source: Source<DB>) -> Self {
        Self {
            source,
            schema: None,
            table: DEFAULT.to_owned(),
            max_connections: 10,
            patience: PATIENCE,
            clock: Arc::new(SystemClock),
            migrate: false,
            strict: false,
        }
    }

    /// The table of the records; `onlyonce_records` by default. Lower-case letters, digits and underscores.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// The schema of the table (on MySQL: the database); that of the connection by default.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = Some(name.into());
        self
    }

    /// How many connections a pool of its own may have; 10 by default. A pool of yours keeps its own.
    pub fn max_connections(mut self, max: u32) -> Self {
        self.max_connections = max;
        self
    }

    /// How long to wait for the answer to a statement; 10 s by default. In lease mode a call may or may not have happened after it,
    /// and the engine repeats it. In a transaction a claim that is not answered has not happened; what others make it wait is not
    /// counted, and neither are the handler's own statements. The opening waits for as long at every step, and for a migration thirty
    /// times as long. SQLite, which is not asked over a network, has its `busy_timeout` there.
    pub fn response_timeout(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The clock of SQLite, which has none that would do; the machine's own by default. Its records go by the time that really passes
    /// ([`Timeline`](onlyonce_core::Timeline)), so that nobody who sets the clock makes them expire. MySQL and PostgreSQL use theirs.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Applies the migrations that are missing. Safe with many instances at once.
    pub fn migrate(mut self) -> Self {
        self.migrate = true;
        self
    }

    /// Refuses a server that may lose what was committed (see [`Concern`](crate::Concern)), instead of a warning in the log.
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Whether the URL could be read, and the table be called so; nothing is connected to.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_url(&self) -> Result<(), OpenError> {
        Table::new(self.schema.as_deref(), &self.table).map_err(OpenError::Name)?;
        match &self.source {
            Source::Url(url) => options::<DB>(url).map(drop),
            Source::Pool(_) => Ok(()),
        }
    }

    /// Whether the URL names a database of SQLite that ends with the process, and every record with it: for tests.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        match &self.source {
            Source::Url(url) => DB::is_in_memory(url),
            Source::Pool(_) => false,
        }
    }

    /// Connects, looks at the server and at the table.
    ///
    /// # Errors
    /// See [`OpenError`], whose text says what to do.
    pub async fn open(self) -> Result<SqlStore<DB>, OpenError> {
        let table = Table::new(self.schema.as_deref(), &self.table).map_err(OpenError::Name)?;
        let pool = match self.source {
            Source::Pool(pool) => pool,
            Source::Url(url) => connect::<DB>(&url, self.max_connections).await?,
        };
        let mut connection = Pooled::new(pool.acquire().await.map_err(OpenError::Connect)?);
        // A connection that owes an answer is not used again. Nor is one that was stopped half-way through a migration: it may hold the
        // lock for which all others would wait.
        connection.begin_change();
        let look = in_time::<DB, _, _>(self.patience, identity, DB::look(&mut connection)).await;
        let look = look.map_err(OpenError::Connect)?;
        if let Some(why) = look.unusable {
            return Err(OpenError::Unusable(why));
        }
        for concern in look.concerns {
            if self.strict {
                return Err(OpenError::Strict(concern));
            }
            tracing::warn!(database = DB::WORD, %concern, "records may be lost");
        }
        if self.migrate {
            let migrated = migrate::<DB>(&mut connection, &table, self.patience);
            migrated.await.map_err(OpenError::Migrate)?;
        }
        in_time::<DB, _, _>(self.patience, OpenError::Connect, check::<DB>(&mut connection, &table)).await?;
        let time = clock::resume::<DB>(&mut connection, &table, self.clock);
        let time = in_time::<DB, _, _>(self.patience, identity, time).await.map_err(OpenError::Connect)?;
        connection.end_change();
        drop(connection);
        let link = Link {
            statements: DB::statements(&table),
            time,
            table: table.clone(),
            flavour: look.flavour,
            largest: look.largest,
            patience: self.patience,
            pool: pool.clone(),
        };
        Ok(SqlStore { inner: Arc::new(Inner { link, wakes: DB::listen(&pool, &table) }) })
    }
}

pub(crate) async fn connect<DB: Dialect>(url: &str, max_connections: u32) -> Result<Pool<DB>, OpenError> {
    let options = options::<DB>(url)?;
    // The driver would try for half a minute to reach a database that is down.
    let pool = DB::pool_options().max_connections(max_connections.max(1)).acquire_timeout(CONNECT);
    let mut connected = pool.clone().connect_with(options.clone()).await;
    for _ in 0..LOCKED_TRIES {
        match &connected {
            Err(error) if matches!(DB::meaning(error), Meaning::Locked) => {
                tokio::time::sleep(LOCKED_PAUSE).await;
                connected = pool.clone().connect_with(options.clone()).await;
            }
            _ => break,
        }
    }
    match connected {
        // It tried again and again: what for is said by one more try.
        Err(sqlx::Error::PoolTimedOut) => Err(OpenError::Connect(why::<DB>(&options).await)),
        connected => connected.map_err(OpenError::Connect),
    }
}

fn options<DB: Dialect>(url: &str) -> Result<<DB::Connection as Connection>::Options, OpenError> {
    if !DB::PREFIXES.iter().any(|scheme| url.starts_with(scheme)) {
        let schemes = DB::PREFIXES.join(" or ");
        return Err(OpenError::Url(format!("a URL of {} begins with {schemes}", DB::WORD)));
    }
    place::unknown::<DB>(url).map_err(OpenError::Url)?;
    DB::options(url).map_err(|cause| match cause {
        sqlx::Error::Configuration(why) => {
            OpenError::Url(format!("the URL of {} can't be read: {why}", DB::WORD))
        }
        other => OpenError::Connect(other),
    })
}

/// Without any lock where nothing is missing.
async fn migrate<DB: Dialect>(
    connection: &mut DB::Connection,
    table: &Table,
    patience: Duration,
) -> Result<(), sqlx::Error> {
    if in_time::<DB, _, _>(patience, identity, is_done::<DB>(connection, table)).await? {
        return Ok(());
    }
    in_time::<DB, _, _>(late::migration(patience), identity, DB::migrate(connection, table)).await
}

/// What happens to who connects.
async fn why<DB: Dialect>(options: &<DB::Connection as Connection>::Options) -> sqlx::Error {
    match tokio::time::timeout(ONE_TRY, DB::Connection::connect_with(options)).await {
        Ok(Err(error)) => error,
        // Nobody says no, but it takes too long.
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut,
    }
}

async fn check<DB: Dialect>(connection: &mut DB::Connection, table: &Table) -> Result<(), OpenError> {
    let needed = DB::MIGRATIONS.len();
    let schema =
        migrate::schema::<DB>(connection, table).await.map_err(|cause| match DB::meaning(&cause) {
            Meaning::ReadOnly => OpenError::Forbidden { table: table.to_string(), cause },
            _ => OpenError::Connect(cause),
        })?;
    match schema {
        Schema::Missing => Err(OpenError::NotMigrated {
            table: table.to_string(),
            files: format!("crates/sql/migrations/{}", DB::WORD),
        }),
        Schema::At(version) if version < needed => Err(OpenError::OlderSchema {
            table: table.to_string(),
            missing: DB::MIGRATIONS.iter().skip(version).map(|(name, _)| *name).collect(),
        }),
        Schema::At(version) if version > needed => Err(OpenError::NewerSchema { table: table.to_string() }),
        Schema::At(_) => Ok(()),
    }
}

impl<DB: Database> fmt::Debug for Builder<DB> {
    // Without URL and pool: they hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Builder");
        shown.field("table", &self.table).field("strict", &self.strict).finish_non_exhaustive()
    }
}
