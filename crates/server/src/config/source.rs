//! What was given, by whom, and what is wrong with it.

use std::fmt;

/// Where a value comes from. Later ones win: default, file, variable, flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File {
        name: String,
        line: usize,
    },
    Variable(String),
    Flag(String),
    /// It was not given anywhere.
    Nowhere,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Nowhere => f.write_str("configuration"),
        }
    }
}

/// A value as text; a list has any number of parts.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) parts: Vec<String>,
    pub(crate) source: Source,
}

impl Given {
    /// Whether it is a list without anything in it, or with a name that is none.
    pub(crate) fn names_nothing(&self) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| part.trim().is_empty())
    }

    pub(crate) fn text(&self) -> String {
        self.parts.join(",")
    }
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone)]
pub(crate) struct Wrong {
    pub(crate) source: Source,
    pub(crate) why: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.why)
    }
}

/// Everything that is wrong: all of it is told at once.
#[derive(Debug, Default)]
pub(crate) struct Problems(pub(crate) Vec<Wrong>);

impl Problems {
    pub(crate) fn add(&mut self, source: &Source, why: impl Into<String>) {
        self.0.push(Wrong { source: source.clone(), why: why.into() });
    }

    /// The value, or the note of what is wrong with it.
    pub(crate) fn take<T>(&mut self, source: &Source, value: Result<T, impl fmt::Display>) -> Option<T> {
        value.map_err(|why| self.add(source, why.to_string())).ok()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}
