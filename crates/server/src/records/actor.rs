//! Who acts, for the audit log.

use std::os::unix::fs::MetadataExt;

/// The longest name.
const LONGEST: usize = 100;

/// The name that was given, or that of the user of the system: who became another by sudo first.
pub(super) fn name(given: Option<&str>) -> String {
    let variable = |name: &str| std::env::var(name).ok();
    let found = given.map(str::to_owned).or_else(|| variable("SUDO_USER"));
    let found = found.or_else(user).or_else(|| variable("USER")).or_else(|| variable("LOGNAME"));
    let name: String =
        found.unwrap_or_default().chars().filter(|letter| !letter.is_control()).take(LONGEST).collect();
    if name.trim().is_empty() { "terminal".into() } else { name }
}

/// What `--as` takes.
pub(super) fn parse(text: &str) -> Result<String, String> {
    let wrong = text.trim().is_empty() || text.chars().count() > LONGEST || text.contains(char::is_control);
    if wrong { Err(format!("a name has 1 to {LONGEST} printable characters")) } else { Ok(text.to_owned()) }
}

/// The user that this process runs as, by the list of users.
fn user() -> Option<String> {
    let id = std::fs::metadata("/proc/self").ok()?.uid();
    named(&std::fs::read_to_string("/etc/passwd").ok()?, id)
}

fn named(users: &str, id: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number_and_a_given_name_wins() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(named(users, 1000).as_deref(), Some("ann"));
        assert_eq!((named(users, 7), named("", 0)), (None, None));
        assert_eq!(name(Some("J\u{fc}rgen")), "J\u{fc}rgen");
        assert!(parse("").is_err() && parse("a\nb").is_err() && parse("ann").is_ok());
    }
}
