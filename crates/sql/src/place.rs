//! What a URL says of the table, beside where the database is.

/// A URL for the driver, and what it said that is ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) table: Option<String>,
    pub(crate) schema: Option<String>,
}

impl Place {
    /// Takes `table=` and `schema=` out of the query, which drivers pass over in silence or warn about.
    pub(crate) fn of(url: String) -> Self {
        let Some((before, query)) = url.split_once('?') else {
            return Self { url, table: None, schema: None };
        };
        let (mut table, mut schema, mut rest) = (None, None, Vec::new());
        for part in query.split('&') {
            match part.split_once('=') {
                Some(("table", name)) => table = Some(name.to_owned()),
                Some(("schema", name)) => schema = Some(name.to_owned()),
                _ => rest.push(part),
            }
        }
        let more = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        Self { url: format!("{before}{more}"), table, schema }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_taken_out_and_the_rest_is_left() {
        let given = |text: &str| Some(text.to_owned());
        for (url, rest, table, schema) in [
            ("mysql://h/db", "mysql://h/db", None, None),
            ("mysql://h/db?table=calls", "mysql://h/db", given("calls"), None),
            (
                "postgres://h/db?sslmode=require&table=calls&schema=shop",
                "postgres://h/db?sslmode=require",
                given("calls"),
                given("shop"),
            ),
            ("sqlite:a.db?mode=rwc", "sqlite:a.db?mode=rwc", None, None),
        ] {
            assert_eq!(Place::of(url.to_owned()), Place { url: rest.to_owned(), table, schema }, "{url}");
        }
    }
}
