//! `onlyonce id`: ids for scripts and people, from the same library.

use std::io::{self, BufWriter, Write};

use clap::{Args, Subcommand, ValueEnum};
use onlyonce::id::{FixedWorker, Layout, Prefix, PrefixedId, Snowflake, SnowflakeId, Uuid, uuid_v4, uuid_v7};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::say;

/// How many ids are asked for at a time.
const BATCH: u32 = 10_000;

#[derive(Debug, Subcommand)]
pub(crate) enum IdCommand {
    /// Makes ids, one a line.
    Generate(Generate),
    /// Says what an id tells: when it was made, by which worker.
    Decode(Decode),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  onlyonce id generate                                 a UUID v7: a key for one logical call\n  onlyonce id generate --count 1000 --prefix order     order_01h4…, a thousand of them\n  onlyonce id generate --kind snowflake --worker 7     63-bit numbers; your word that nobody else is worker 7"
)]
pub(crate) struct Generate {
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,

    /// What kind of id.
    #[arg(long, value_enum, default_value_t = Kind::Uuid)]
    kind: Kind,

    /// Puts this and an underscore before a UUID v7, written in 26 digits.
    #[arg(long, value_name = "NAME", conflicts_with = "kind")]
    prefix: Option<String>,

    /// For Snowflake ids: the worker number, which nobody else may have at the same time.
    #[arg(long, value_name = "N", required_if_eq("kind", "snowflake"))]
    worker: Option<u64>,

    /// For Snowflake ids: how their bits are divided [default: standard].
    #[arg(long, value_enum)]
    layout: Option<Bits>,

    /// For Snowflake ids: 13 letters and digits that sort as the numbers do, instead of a decimal number.
    #[arg(long)]
    sortable: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  onlyonce id decode 0197a6f0-7c3e-7bb1-a3cd-2f0d6c7f4b11\n  onlyonce id decode order_01h455vb4pex5vsknk084sn02q\n  onlyonce id decode 1541815603606036480 --layout twitter\n\n13 characters are taken for the sortable form of a Snowflake id, other numbers for its decimal form."
)]
pub(crate) struct Decode {
    /// A UUID, a prefixed id, or a Snowflake id in decimal or sortable form.
    id: String,

    /// For Snowflake ids: how their bits are divided [default: standard].
    #[arg(long, value_enum)]
    layout: Option<Bits>,

    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// UUID v7: sorts by time, needs nothing.
    Uuid,
    /// UUID v4: random, does not tell when it was made.
    UuidV4,
    /// A 63-bit number; needs --worker.
    Snowflake,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bits {
    /// 41 bits of time since 2024, 10 of worker, 12 of sequence.
    Standard,
    /// The same since 2010, as Twitter's.
    Twitter,
    /// 53 bits, exact in JavaScript: 41, 5 and 7.
    Javascript,
}

pub(crate) async fn run(command: IdCommand) -> Result<(), Failure> {
    match command {
        IdCommand::Generate(arguments) => generate(&arguments).await,
        IdCommand::Decode(arguments) => decode(&arguments),
    }
}

/// What is only for Snowflake ids, and was given for others.
fn check(arguments: &Generate) -> Result<(), Failure> {
    let given = [
        (arguments.worker.is_some(), "--worker"),
        (arguments.layout.is_some(), "--layout"),
        (arguments.sortable, "--sortable"),
    ];
    let is_snowflake = arguments.kind == Kind::Snowflake && arguments.prefix.is_none();
    match given.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, flag)) if !is_snowflake => Err(Failure::usage(format!(
            "{flag} is for Snowflake ids: write --kind snowflake --worker N beside it, or leave it out"
        ))),
        _ => Ok(()),
    }
}

async fn generate(arguments: &Generate) -> Result<(), Failure> {
    check(arguments)?;
    if let Some(prefix) = &arguments.prefix {
        let prefix =
            Prefix::new(prefix.as_str()).map_err(|error| Failure::usage(format!("--prefix: {error}")))?;
        return print((0..arguments.count).map(|_| prefix.generate().to_string()));
    }
    match (arguments.kind, arguments.layout.unwrap_or(Bits::Standard)) {
        (Kind::Uuid, _) => print((0..arguments.count).map(|_| uuid_v7().to_string())),
        (Kind::UuidV4, _) => print((0..arguments.count).map(|_| uuid_v4().to_string())),
        (Kind::Snowflake, Bits::Standard) => snowflakes(arguments, Layout::STANDARD).await,
        (Kind::Snowflake, Bits::Twitter) => snowflakes(arguments, Layout::TWITTER).await,
        (Kind::Snowflake, Bits::Javascript) => snowflakes(arguments, Layout::JAVASCRIPT).await,
    }
}

async fn snowflakes<const T: u32, const W: u32, const S: u32, const B: u32>(
    arguments: &Generate,
    layout: Layout<T, W, S, B>,
) -> Result<(), Failure> {
    let failed = |error| Failure::because("no ids", &error);
    let worker = arguments.worker.unwrap_or_default();
    if worker >= layout.workers() {
        let last = layout.workers() - 1;
        return Err(Failure::usage(format!("--worker {worker}: the workers of this layout are 0 to {last}")));
    }
    let worker = FixedWorker::new(worker);
    let ids = Snowflake::open(layout, worker).await.map_err(failed)?;
    let mut left = arguments.count;
    while left > 0 {
        let count = left.min(BATCH);
        let batch = ids.reserve(count).await.map_err(failed)?;
        print(batch.map(|id| if arguments.sortable { id.sortable() } else { id.to_string() }))?;
        left -= count;
    }
    Ok(())
}

fn print(lines: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = lines.into_iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    match written {
        // Whoever reads has read enough, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|error| Failure::new(say::unwritten(&error))),
    }
}

fn decode(arguments: &Decode) -> Result<(), Failure> {
    let parts = read(arguments)?;
    if arguments.json {
        return print(std::iter::once(parts.to_string()));
    }
    let members = parts.as_object().into_iter().flatten();
    print(members.map(|(name, value)| match value {
        Value::String(text) => format!("{name:<10} {text}"),
        other => format!("{name:<10} {other}"),
    }))
}

fn read(arguments: &Decode) -> Result<Value, Failure> {
    let text = arguments.id.trim();
    let id = Uuid::try_parse(text);
    if arguments.layout.is_some() && (id.is_ok() || text.contains('_')) {
        return Err(Failure::usage("--layout is for Snowflake ids, which this is not: leave it out"));
    }
    if let Ok(id) = id {
        return Ok(uuid("uuid", id));
    }
    if text.contains('_') {
        let id: PrefixedId = text.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        let mut parts = uuid("prefixed", id.uuid());
        parts["prefix"] = id.prefix().as_str().into();
        parts["uuid"] = id.uuid().to_string().into();
        return Ok(parts);
    }
    let id = if text.len() == 13 { SnowflakeId::from_sortable(text) } else { text.parse() };
    let id = id.map_err(|_| {
        Failure::usage(format!(
            "{text:?} is not a UUID, not a prefixed id such as order_01h4…, and not a Snowflake id"
        ))
    })?;
    if u64::from(id) > i64::MAX as u64 {
        return Err(Failure::usage(format!("{text} has more than 63 bits, and no Snowflake id has")));
    }
    let parts = match arguments.layout.unwrap_or(Bits::Standard) {
        Bits::Standard => Layout::STANDARD.decode(id),
        Bits::Twitter => Layout::TWITTER.decode(id),
        Bits::Javascript => Layout::JAVASCRIPT.decode(id),
    };
    Ok(json!({
        "kind": "snowflake",
        "id": id,
        "sortable": id.sortable(),
        "time": rfc3339(parts.unix_millis),
        "worker": parts.worker,
        "sequence": parts.sequence,
    }))
}

fn uuid(kind: &str, id: Uuid) -> Value {
    let mut parts = json!({ "kind": kind, "version": id.get_version_num() });
    if let Some(time) = id.get_timestamp() {
        let (seconds, nanos) = time.to_unix();
        parts["time"] = rfc3339(seconds * 1000 + u64::from(nanos / 1_000_000)).into();
    }
    parts
}

/// `2026-11-15T22:50:56.123Z`
fn rfc3339(unix_millis: u64) -> String {
    let (days, rest) = (unix_millis / 86_400_000, unix_millis % 86_400_000);
    // Years from March on, in cycles of 400, so that a leap day is the last day of its year.
    let shifted = days + 719_468;
    let (cycle, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (cycle * 400 + year + u64::from(month >= 10), (month + 2) % 12 + 1);
    let (hours, minutes, seconds, millis) =
        (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_and_programs_read_them() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_704_067_199_999, "2023-12-31T23:59:59.999Z"),
            (1_704_067_200_000, "2024-01-01T00:00:00.000Z"),
            (1_709_208_000_123, "2024-02-29T12:00:00.123Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(millis), text);
        }
    }
}
