//! Names of tables and columns, checked and quoted.

use onlyonce_core::InputError;

/// The shortest limit of the three databases: PostgreSQL would cut a longer name silently.
const LONGEST: usize = 63;

/// A quoted name.
pub(super) fn quoted(name: &str, quote: char) -> Result<String, InputError> {
    if name.is_empty() {
        return Err(InputError::new("the name of a table or column is empty"));
    }
    if name.len() > LONGEST {
        return Err(InputError::new(format!(
            "the name `{name}` has {} bytes; the limit is {LONGEST}",
            name.len()
        )));
    }
    if name.chars().any(char::is_control) {
        return Err(InputError::new(format!("the name {name:?} has control characters")));
    }
    let mut text = String::with_capacity(name.len() + 2);
    text.push(quote);
    for letter in name.chars() {
        if letter == quote {
            text.push(quote);
        }
        text.push(letter);
    }
    text.push(quote);
    Ok(text)
}

/// A quoted name that may have its schema before it.
pub(super) fn quoted_table(name: &str, quote: char) -> Result<String, InputError> {
    match name.split_once('.') {
        Some((schema, table)) => Ok(format!("{}.{}", quoted(schema, quote)?, quoted(table, quote)?)),
        None => quoted(name, quote),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_leave_its_quotes() {
        assert_eq!(quoted("or`ders", '`').unwrap(), "`or``ders`");
        assert_eq!(quoted(r#"x"; DROP TABLE y; --"#, '"').unwrap(), r#""x""; DROP TABLE y; --""#);
        assert_eq!(quoted_table("shop.orders", '"').unwrap(), r#""shop"."orders""#);
    }

    #[test]
    fn a_name_that_can_not_be_one_is_refused() {
        for name in ["", "a\0b", "a\nb", &"x".repeat(64)] {
            assert!(quoted(name, '"').is_err(), "{name:?}");
        }
        assert!(quoted_table("shop.", '"').is_err());
        assert!(quoted_table(".orders", '"').is_err());
    }
}
