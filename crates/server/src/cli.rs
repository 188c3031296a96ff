//! What can be typed. Exit codes: 0, 1 failed, 2 usage.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::config::{SETTINGS, Typed};
use crate::records::RecordsArguments;

use crate::id::IdCommand;

/// State-changing calls happen at most once, and every retry gets the same answer.
#[derive(Debug, Parser)]
#[command(
    name = "onlyonce",
    version,
    after_help = "\
Examples:
  onlyonce demo                            a payments page to play with, on http://127.0.0.1:8080
  onlyonce gateway --upstream http://127.0.0.1:9000 --scope header:x-tenant
                                           makes the writes of a service in any language idempotent
  onlyonce records list --state unknown    what needs a person
  onlyonce gateway --help                  all options of the gateway"
)]
pub(crate) struct Cli {
    /// How log lines are written, on standard error; RUST_LOG=debug shows more of them.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human)]
    pub(crate) log: LogFormat,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// For machines: one JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A reverse proxy that makes the writes of a service in any language idempotent.
    Gateway(GatewayArguments),
    /// Inspects and repairs records, through the admin API or straight on a store.
    Records(Box<RecordsArguments>),
    /// A payments service behind the layer, on the embedded store, with a page to play with.
    Demo(DemoArguments),
    /// Makes and explains ids.
    #[command(subcommand)]
    Id(IdCommand),
    /// Prints completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  onlyonce demo\n  onlyonce demo --listen 127.0.0.1:0       any free port; the address is printed\n  onlyonce demo --data /tmp/play           another place for the records\n\nThe records survive a restart, also a kill -9: retry an old key and see its answer again."
)]
pub(crate) struct DemoArguments {
    /// Where to listen.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Where records and charges are kept; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "onlyonce-data")]
    pub(crate) data: PathBuf,
}

const GATEWAY_EXAMPLES: &str = "\
Examples:
  onlyonce gateway --upstream http://127.0.0.1:9000 --scope header:x-tenant
  onlyonce gateway --upstream http://127.0.0.1:9000 --scope jwt:sub --jwt-jwks keys.json --jwt-algorithms RS256
  onlyonce gateway --upstream http://127.0.0.1:9000 --scope header:x-tenant --store redis://127.0.0.1
  onlyonce gateway --config gateway.toml           routes, several upstreams, TLS: see docs/guide/gateway.md
  onlyonce gateway --config gateway.toml --check   prints the effective configuration, or all that is wrong

Each option is also a variable (ONLYONCE_LISTEN) and a key of the file; options win over variables, variables over the file.
SIGHUP reads the file again; SIGTERM finishes what is under way.";

/// The options of the gateway: those of the table of settings, and two more.
#[derive(Debug)]
pub(crate) struct GatewayArguments {
    pub(crate) typed: Typed,
    pub(crate) check: bool,
}

impl Args for GatewayArguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        let config =
            Arg::new("config").long("config").value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        let config = config.help("The configuration file, in TOML [env: ONLYONCE_CONFIG]");
        let check = Arg::new("check").long("check").action(ArgAction::SetTrue);
        let check =
            check.help("Prints the effective configuration, or everything that is wrong with it, and ends");
        let settings = SETTINGS.iter().map(|setting| {
            let default = match setting.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            Arg::new(setting.name)
                .long(setting.flag())
                .value_name(setting.value)
                .help(format!("{}{default}", setting.help))
        });
        command.arg(config).arg(check).args(settings).after_help(GATEWAY_EXAMPLES)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GatewayArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |name: &'static str| matches.get_one::<String>(name).map(|value| (name, value.clone()));
        let flags = SETTINGS.iter().filter_map(|setting| given(setting.name)).collect();
        let config = matches.get_one::<PathBuf>("config").cloned();
        Ok(Self { typed: Typed { config, flags }, check: matches.get_flag("check") })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
