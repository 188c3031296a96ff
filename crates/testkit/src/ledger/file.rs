//! Effects as lines of a file: `key TAB by`, with tabs, line ends and backslashes escaped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Effect;

#[derive(Debug)]
pub(super) struct FileLedger {
    path: PathBuf,
    file: File,
}

impl FileLedger {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// One write in append mode: lines of several processes do not mix, and once it returns the line is the kernel's, so
    /// that killing this process does not lose it.
    pub(super) fn append(&self, key: &str, by: &str) -> io::Result<()> {
        let line = format!("{}\t{}\n", escape(key), escape(by));
        (&self.file).write_all(line.as_bytes())
    }

    pub(super) fn read(&self) -> io::Result<Vec<Effect>> {
        let text = std::fs::read_to_string(&self.path)?;
        // A line that was cut short is an effect all the same.
        Ok(text
            .lines()
            .map(|line| {
                let (key, by) = line.split_once('\t').unwrap_or((line, ""));
                Effect { key: unescape(key), by: unescape(by) }
            })
            .collect())
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        plain.push(match next {
            '\\' => match rest.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_comes_back_on_one_line() {
        for text in ["", "plain", "a\tb\nc\rd", "\\", "\\t", "ends with \\", "größe"] {
            let escaped = escape(text);
            assert!(!escaped.contains(['\t', '\n', '\r']), "{escaped:?}");
            assert_eq!(unescape(&escaped), text);
        }
    }
}
