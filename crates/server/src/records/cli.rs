//! What can be typed after `onlyonce records`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::actor;
use crate::admin::{IdWord, StateName, Words};
use crate::config::units;
use crate::failure::Failure;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onlyonce records list --state unknown                                  what needs a person
  onlyonce records show 3f9c20ab                                         everything about one record
  onlyonce records resolve 3f9c20ab --not-done --reason \"not in the ledger\"  a retry will run
  onlyonce records resolve 3f9c20ab --completed --answer-status 201 --body '{\"receipt\":7}' --reason \"found it\"
  onlyonce records release --route \"POST /payments\" --since 2h --reason \"outage\" --yes
  onlyonce records purge --state completed --route \"POST /quotes\" --reason \"new prices\"
  onlyonce records --store redis://127.0.0.1 list                        straight on a store, without a gateway")]
pub(crate) struct RecordsArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    #[command(subcommand)]
    pub(crate) action: Action,
}

/// Where the records are.
#[derive(Debug, Args)]
pub(crate) struct PlaceArguments {
    /// The admin API of a gateway [default: http://127.0.0.1:8081] [env: ONLYONCE_ADMIN_URL].
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) admin: Option<String>,

    /// The file with its token [default: onlyonce-data/admin.token or onlyonce-admin.token; or ONLYONCE_ADMIN_TOKEN] [env:
    /// ONLYONCE_ADMIN_TOKEN_FILE].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// A store, instead of a gateway: the same URLs as for `onlyonce gateway --store`.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// Where changes straight on a store are written down [default: onlyonce-audit.log].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,

    /// Who changes records, for the audit log [default: the name of the user].
    #[arg(long = "as", global = true, value_name = "NAME", value_parser = actor::parse)]
    pub(crate) who: Option<String>,
}

impl PlaceArguments {
    /// Whether what was typed is about one place. Words before and behind the action count alike, which clap compares apart.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let on_store = self.store.is_some();
        let beside = [
            (
                on_store && self.admin.is_some(),
                "--admin is a gateway and --store is a store: name one of them",
            ),
            (
                on_store && self.token_file.is_some(),
                "--token-file is for a gateway, and --store needs none: leave it out",
            ),
            (
                !on_store && self.audit_log.is_some(),
                "--audit-log is for changes straight on a store, with --store: a gateway has its own, leave it out",
            ),
        ];
        beside.into_iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, why)| Err(Failure::usage(why)))
    }
}

fn span(text: &str) -> Result<String, String> {
    units::duration(text).map(|_| text.to_owned())
}

/// A variable that was not set must not mean everything.
fn filled(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("it is empty; leave it out to search for all".into())
    } else {
        Ok(text.to_owned())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Lists records.
    List {
        #[command(flatten)]
        search: Search,
        /// How many at most.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Shows one record with its answer.
    Show {
        /// 64 hexadecimal digits, as `list` prints them; the first ones do where no other id begins so.
        #[arg(value_parser = IdWord::parse)]
        id: IdWord,
        /// JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Ends the doubt about unknown outcomes.
    Resolve {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        decision: Decision,
        #[command(flatten)]
        answer: AnswerArguments,
    },
    /// Says that unknown outcomes did not happen: retries run. The same as `resolve --not-done`.
    Release {
        #[command(flatten)]
        which: Which,
    },
    /// Forgets records: the next request with the same key runs.
    Forget {
        #[command(flatten)]
        which: Which,
    },
    /// Forgets many records at once. The same as `forget` with a search.
    Purge {
        #[command(flatten)]
        which: Which,
    },
}

/// Which records are meant.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Search {
    /// Only those in this state.
    #[arg(long, visible_alias = "status", value_enum)]
    pub(crate) state: Option<StateName>,
    /// Only those of this route, for instance "POST /payments".
    #[arg(long, value_parser = filled)]
    pub(crate) route: Option<String>,
    /// Only those of this scope: its digest, or what the caller is called; several parts with commas between them.
    #[arg(long, value_parser = filled)]
    pub(crate) scope: Option<String>,
    /// Only those of this key, of its digest, or with this id.
    #[arg(long, value_parser = filled)]
    pub(crate) key: Option<String>,
    /// Only those that began within this span, for instance 2h.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub(crate) since: Option<String>,
}

impl Search {
    pub(crate) fn is_everything(&self) -> bool {
        let Self { state, route, scope, key, since } = self;
        state.is_none() && route.is_none() && scope.is_none() && key.is_none() && since.is_none()
    }

    pub(crate) fn words(&self) -> Words<'_> {
        let Self { state, route, scope, key, since } = self;
        let (route, scope) = (route.as_deref(), scope.as_deref());
        Words { state: *state, route, scope, key: key.as_deref(), since: since.as_deref() }
    }
}

/// The records to change: by id, or all that a search finds.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Their ids, or the beginnings of them; without any, all that the search finds.
    #[arg(value_parser = IdWord::parse)]
    pub(crate) ids: Vec<IdWord>,
    #[command(flatten)]
    pub(crate) search: Search,
    /// All records there are, instead of ids or a search.
    #[arg(long)]
    pub(crate) all: bool,
    /// Why; written to the audit log.
    #[arg(long)]
    pub(crate) reason: String,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// JSON instead of sentences.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is known.
#[derive(Debug, Clone, Copy, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Decision {
    /// It happened: retries get the answer that you give.
    #[arg(long)]
    pub(crate) completed: bool,
    /// It did not happen and can no longer happen: a retry runs.
    #[arg(long)]
    pub(crate) not_done: bool,
}

/// The answer that retries get.
#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    /// Its status; needed with --completed.
    #[arg(long = "answer-status", alias = "http-status", value_name = "STATUS")]
    pub(crate) status: Option<u16>,
    /// Its headers, each as "name: value".
    #[arg(long = "header", value_name = "HEADER")]
    header: Vec<String>,
    /// Its body.
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// The file with its body.
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
}

impl AnswerArguments {
    pub(crate) fn headers(&self) -> Result<BTreeMap<String, String>, Failure> {
        let pair = |text: &String| {
            let (name, value) = text.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        let mut headers = BTreeMap::new();
        for text in &self.header {
            let (name, value) = pair(text).ok_or_else(|| {
                Failure::usage(format!("--header {text:?} is not of the form \"name: value\""))
            })?;
            if headers.insert(name.to_ascii_lowercase(), value).is_some() {
                return Err(Failure::usage(format!(
                    "--header {name} is there twice; an answer keeps one of a name"
                )));
            }
        }
        Ok(headers)
    }

    pub(crate) fn body(&self) -> Result<String, Failure> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Ok(text.clone()),
            (None, None) => Ok(String::new()),
            (None, Some(file)) => std::fs::read_to_string(file).map_err(|error| {
                Failure::because(&format!("{} can't be read", file.display()), &error).into_usage()
            }),
        }
    }
}
