//! A statement while it is put together: text, and the values that are bound to it.

use std::sync::Arc;

use onlyonce_core::InputError;
use sqlx::error::BoxDynError;
use sqlx::{Arguments, Database, Encode, Error, Type};

use super::dialect::Speak;
use super::error::GuardError;
use super::ident;

/// A value that can be bound to a statement of this database; every type that sqlx can encode for it.
pub trait Bindable<'a, DB: Database>: Encode<'a, DB> + Type<DB> + Send + Sync + 'a {}

impl<'a, DB: Database, V: Encode<'a, DB> + Type<DB> + Send + Sync + 'a> Bindable<'a, DB> for V {}

/// Binds itself, as often as it is asked to.
pub trait Bind<DB: Database>: Send + Sync {
    fn bind(&self, arguments: &mut DB::Arguments) -> Result<(), BoxDynError>;
}

struct Bound<V>(V);

impl<'a, DB: Database, V: Bindable<'a, DB>> Bind<DB> for Bound<V> {
    fn bind(&self, arguments: &mut DB::Arguments) -> Result<(), BoxDynError> {
        arguments.add(&self.0)
    }
}

pub(super) type Value<'a, DB> = Arc<dyn Bind<DB> + 'a>;

pub(super) fn value<'a, DB: Database, V: Bindable<'a, DB>>(value: V) -> Value<'a, DB> {
    Arc::new(Bound(value))
}

/// A column and its value.
pub(super) struct Pair<'a, DB: Database> {
    pub(super) column: String,
    pub(super) value: Value<'a, DB>,
}

impl<'a, DB: Database> Pair<'a, DB> {
    pub(super) fn new(column: impl Into<String>, of: impl Bindable<'a, DB>) -> Self {
        Self { column: column.into(), value: value(of) }
    }
}

impl<DB: Database> Clone for Pair<'_, DB> {
    fn clone(&self) -> Self {
        Self { column: self.column.clone(), value: Arc::clone(&self.value) }
    }
}

/// Each column once. Two that differ only in their case are one to most databases.
pub(super) fn distinct<'c>(
    guard: &'static str,
    columns: impl IntoIterator<Item = &'c str>,
) -> Result<(), GuardError> {
    let mut seen: Vec<&str> = Vec::new();
    for column in columns {
        if seen.iter().any(|other| other.eq_ignore_ascii_case(column)) {
            return Err(GuardError::input(
                guard,
                format!("the column `{column}` is given more than one value"),
            ));
        }
        seen.push(column);
    }
    Ok(())
}

pub(super) struct Statement<'a, DB: Database> {
    guard: &'static str,
    text: String,
    values: Vec<Value<'a, DB>>,
}

impl<'a, DB: Speak> Statement<'a, DB> {
    pub(super) fn new(guard: &'static str, text: &str) -> Self {
        Self { guard, text: text.to_owned(), values: Vec::new() }
    }

    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(super) fn table(&mut self, name: &str) -> Result<&mut Self, GuardError> {
        self.name(ident::quoted_table(name, DB::QUOTE))
    }

    pub(super) fn column(&mut self, name: &str) -> Result<&mut Self, GuardError> {
        self.name(ident::quoted(name, DB::QUOTE))
    }

    fn name(&mut self, quoted: Result<String, InputError>) -> Result<&mut Self, GuardError> {
        self.text.push_str(&quoted.map_err(|error| GuardError::input(self.guard, error.to_string()))?);
        Ok(self)
    }

    pub(super) fn bind(&mut self, value: &Value<'a, DB>) -> &mut Self {
        self.values.push(Arc::clone(value));
        self.text.push_str(&DB::placeholder(self.values.len()));
        self
    }

    /// `column = value AND …`.
    pub(super) fn all_equal(&mut self, pairs: &[Pair<'a, DB>]) -> Result<&mut Self, GuardError> {
        for (place, pair) in pairs.iter().enumerate() {
            self.push(if place == 0 { "" } else { " AND " })
                .column(&pair.column)?
                .push(" = ")
                .bind(&pair.value);
        }
        Ok(self)
    }

    /// Runs it and says how many rows it touched.
    pub(super) async fn execute(self, connection: &mut DB::Connection) -> Result<u64, GuardError> {
        let guard = self.guard;
        self.try_execute(connection).await.map_err(failed::<DB>(guard))
    }

    /// The same for those who want to see what failed.
    pub(super) async fn try_execute(self, connection: &mut DB::Connection) -> Result<u64, Error> {
        let (text, arguments) = self.finish()?;
        DB::execute(connection, text, arguments).await
    }

    pub(super) async fn fetch(self, connection: &mut DB::Connection) -> Result<Vec<DB::Row>, GuardError> {
        let guard = self.guard;
        let (text, arguments) = self.finish().map_err(failed::<DB>(guard))?;
        DB::fetch(connection, text, arguments).await.map_err(failed::<DB>(guard))
    }

    pub(super) fn finish(self) -> Result<(String, DB::Arguments), Error> {
        let mut arguments = DB::Arguments::default();
        for value in &self.values {
            value.bind(&mut arguments).map_err(Error::Encode)?;
        }
        Ok((self.text, arguments))
    }
}

pub(super) fn failed<DB: Speak>(guard: &'static str) -> impl Fn(Error) -> GuardError {
    move |error| GuardError::database(guard, DB::fault(&error), error)
}

/// A column that holds a whole number, by what it means.
pub(super) fn integer<DB: Speak>(
    guard: &'static str,
    row: &DB::Row,
    column: usize,
    what: &str,
) -> Result<i64, GuardError> {
    DB::integer(row, column).map_err(failed::<DB>(guard))?.ok_or_else(|| is_null(guard, what))
}

pub(super) fn is_null(guard: &'static str, what: &str) -> GuardError {
    GuardError::data(guard, format!("{what} is NULL, and can be compared with nothing; give it a value"))
}
