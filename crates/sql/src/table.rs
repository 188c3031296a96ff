//! Where the records are: a table, perhaps in a schema, by names that need no quoting anywhere.

use std::fmt;

use onlyonce_core::InputError;

/// The name that the shipped SQL files use.
pub(crate) const DEFAULT: &str = "onlyonce_records";
/// Short enough that the names of its indexes fit everywhere.
const LONGEST: usize = 48;

/// The table of the records. Names are lower-case letters, digits and `_`, so that no database reads them differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    schema: Option<String>,
    name: String,
}

impl Default for Table {
    fn default() -> Self {
        Self { schema: None, name: DEFAULT.to_owned() }
    }
}

impl Table {
    pub(crate) fn new(schema: Option<&str>, name: &str) -> Result<Self, InputError> {
        if let Some(schema) = schema {
            check("schema", schema)?;
        }
        check("table", name)?;
        Ok(Self { schema: schema.map(str::to_owned), name: name.to_owned() })
    }

    /// The table of the outbox, unless it is told otherwise.
    pub(crate) fn outbox() -> Self {
        Self { schema: None, name: "onlyonce_outbox".to_owned() }
    }

    /// The table of the worker numbers, unless it is told otherwise.
    #[cfg(feature = "id")]
    pub(crate) fn workers() -> Self {
        Self { schema: None, name: "onlyonce_workers".to_owned() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The table that says which migrations there were.
    pub(crate) fn migrations(&self) -> String {
        self.qualified("_migrations")
    }

    /// The table with the time of the records, where the database has no clock that would do.
    pub(crate) fn clock(&self) -> String {
        self.qualified("_clock")
    }

    fn qualified(&self, suffix: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}{suffix}", self.name),
            None => format!("{}{suffix}", self.name),
        }
    }

    /// One of the shipped SQL files, for this table instead of the default one.
    pub(crate) fn rename(&self, sql: &str) -> String {
        let mut renamed = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some(at) = rest.find(DEFAULT) {
            renamed.push_str(&rest[..at]);
            rest = &rest[at + DEFAULT.len()..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let suffix = &rest[..end];
            match suffix {
                "" | "_migrations" | "_clock" => renamed.push_str(&self.qualified(suffix)),
                // An index lives in the schema of its table, and may not be told so.
                _ => renamed.push_str(&format!("{}{suffix}", self.name)),
            }
            rest = &rest[end..];
        }
        renamed.push_str(rest);
        renamed
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.qualified(""))
    }
}

fn check(what: &str, name: &str) -> Result<(), InputError> {
    let good = name.len() <= LONGEST
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if good {
        return Ok(());
    }
    // Not what was given: a password may have got into it.
    Err(InputError::new(format!(
        "the {what} can't be used: write 1 to {LONGEST} lower-case letters, digits and underscores, \
         not beginning with a digit"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_sql_are_refused() {
        for bad in ["", "1st", "Records", "a b", "a;drop table b", "a\"b", "a`b", "a.b", "ä", &"a".repeat(49)]
        {
            let error = Table::new(None, bad).expect_err(bad).to_string();
            assert!(error.starts_with("the table"), "{error}");
            assert!(Table::new(Some(bad), "records").is_err(), "{bad}");
        }
        Table::new(Some("app"), "_once_1").unwrap();
    }

    #[test]
    fn a_shipped_file_is_renamed_with_its_indexes() {
        let table = Table::new(Some("app"), "once").unwrap();
        assert_eq!(
            table.rename("CREATE INDEX onlyonce_records_key ON onlyonce_records (a); SELECT onlyonce_records_migrations"),
            "CREATE INDEX once_key ON app.once (a); SELECT app.once_migrations"
        );
    }
}
