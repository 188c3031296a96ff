//! What a URL says of the table, beside where the database is.

use crate::dialect::Dialect;

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

/// The parameters of a URL: names and values, as they stand there.
pub(crate) fn parameters(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    query.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// Says which parameter the driver does not know, by its name alone: its value may be a secret.
pub(crate) fn unknown<DB: Dialect>(url: &str) -> Result<(), String> {
    let is_known = |name: &str| {
        DB::PARAMETERS.contains(&name) || (DB::WORD == "postgres" && name.starts_with("options["))
    };
    let Some((name, _)) = parameters(url).find(|(name, _)| !is_known(name)) else { return Ok(()) };
    // With an @ behind it, the question mark may be one of a password; and what has no value may be one itself.
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.[]".contains(c));
    let is_after_login = url.split_once('?').is_some_and(|(_, query)| !query.contains('@'));
    let name =
        if is_name(name) && is_after_login && url.contains(&format!("{name}=")) { name } else { "…" };
    let login = if ["user", "username", "pass", "passwd", "password"].contains(&name) {
        format!("; user and password stand before the host: {}//USER:PASSWORD@HOST", DB::PREFIXES[0])
    } else {
        String::new()
    };
    let known = DB::PARAMETERS.join(", ");
    let word = DB::WORD;
    Err(format!(
        "a URL of {word} has no parameter {name:?} (a ? within a password is written %3F); there are table, schema, {known}{login}"
    ))
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
