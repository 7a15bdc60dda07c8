//! The configuration: defaults for options, and databases by name.
//!
//!   [backup]                      # any option of `windlass backup`, without its dashes
//!   compress = "lz4"
//!
//!   [database.shop]               # windlass backup shop
//!   source = "/srv/shop/shop.db"
//!   to = ["/disk1/shop", "/disk2/shop"]
//!
//! Read from /etc/windlass/windlass.toml and /etc/windlass/conf.d/*.toml in the order of their
//! names, or from `--config` alone. A value given here is a default: the environment and the
//! command line win. A key that is no option is an error, not a surprise next month.

pub mod edit;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use toml::{Table, Value};

use crate::cli::Cli;
use crate::exit::Failure;

const PATH: &str = "/etc/windlass/windlass.toml";
const DIRECTORY: &str = "/etc/windlass/conf.d";
/// Commands that take defaults from a table of their name.
const COMMANDS: [&str; 4] = ["backup", "restore", "verify", "open"];

/// Parses the command line over the environment over the configuration.
pub fn parse(arguments: &[OsString]) -> Result<Cli, Failed> {
    let table = load(arguments)?;
    let command = apply(Cli::command(), &table, arguments)?;
    let matches: ArgMatches = command.try_get_matches_from(arguments)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let crate::cli::Command::Tune(tune) = &mut cli.command {
        configured(&table, tune);
    }
    for database in databases(&mut cli.command) {
        if let Some(source) = source(&table, database) {
            *database = source;
        }
    }
    Ok(cli)
}

/// The words that may be configured databases' names.
fn databases(command: &mut crate::cli::Command) -> &mut [String] {
    use crate::cli::{Command, Lab};
    match command {
        Command::Backup(backup) => std::slice::from_mut(&mut backup.database),
        Command::Plan(plan) => plan.database.as_mut_slice(),
        Command::Lab(Lab::Sweep(sweep)) => &mut sweep.databases,
        _ => &mut [],
    }
}

/// Why there is no command line: clap's reason, or ours.
pub enum Failed {
    /// Clap's, which may be `--help`.
    Clap(clap::Error),
    /// Ours.
    Config(Failure),
}

impl From<clap::Error> for Failed {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self::Config(failure)
    }
}

fn load(arguments: &[OsString]) -> Result<Table, Failure> {
    let mut table = Table::new();
    if let Some(path) = named(arguments) {
        merge(&mut table, read(&path)?);
        return Ok(table);
    }
    let mut paths = vec![PathBuf::from(PATH)];
    if let Ok(entries) = std::fs::read_dir(DIRECTORY) {
        let mut parts: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        parts.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        });
        parts.sort();
        paths.extend(parts);
    }
    for path in paths.iter().filter(|path| path.exists()) {
        merge(&mut table, read(path)?);
    }
    Ok(table)
}

/// The configuration named on the command line or in the environment.
fn named(arguments: &[OsString]) -> Option<PathBuf> {
    // What follows is another program's.
    let mut words = arguments.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().map(PathBuf::from);
        }
        if let Some(path) = word
            .to_str()
            .and_then(|word| word.strip_prefix("--config="))
        {
            return Some(path.into());
        }
    }
    std::env::var_os("WINDLASS_CONFIG").map(PathBuf::from)
}

fn read(path: &Path) -> Result<Table, Failure> {
    let fault = |what: String| {
        let message = format!("configuration {}: {what}", path.display());
        Failure::usage(
            message,
            "Options stand under [backup], databases under [database.NAME].",
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    text.parse()
        .map_err(|error: toml::de::Error| fault(error.to_string()))
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// Makes the configuration's values the defaults of the options.
fn apply(mut command: Command, table: &Table, arguments: &[OsString]) -> Result<Command, Failure> {
    for (name, value) in table {
        let Value::Table(options) = value else {
            return Err(unknown(name, "a key outside of any table"));
        };
        if name == "database" {
            continue;
        }
        if !COMMANDS.contains(&name.as_str()) {
            return Err(unknown(name, "no command that takes options from here"));
        }
        command = defaults(command, name, options)?;
    }
    let databases = table.get("database").and_then(Value::as_table);
    for (name, value) in databases.into_iter().flatten() {
        let named = arguments
            .iter()
            .skip_while(|word| *word != "backup")
            .skip(1)
            .any(|word| word == name.as_str());
        if let (true, Value::Table(options)) = (named, value) {
            command = defaults(command, "backup", options)?;
        }
    }
    Ok(command)
}

fn defaults(mut command: Command, name: &str, options: &Table) -> Result<Command, Failure> {
    for (option, value) in options.iter().filter(|(option, _)| *option != "source") {
        let id = option.replace('-', "_");
        let id = if id == "type" { "kind".to_owned() } else { id };
        let known = command.find_subcommand(name).is_some_and(|sub| {
            sub.get_arguments()
                .any(|argument| argument.get_id() == id.as_str())
        });
        if !known {
            return Err(unknown(option, "no option of this command"));
        }
        let values = texts(value).ok_or_else(|| unknown(option, "a table, not a value"))?;
        command = command.mut_subcommand(name, |sub| {
            sub.mut_arg(&id, |argument| {
                argument.required(false).default_values(values)
            })
        });
    }
    Ok(command)
}

/// A value as the words of an option. They live as long as the process, as clap wants them.
fn texts(value: &Value) -> Option<Vec<&'static str>> {
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    match value {
        Value::String(text) => Some(vec![leak(text.clone())]),
        Value::Integer(number) => Some(vec![leak(number.to_string())]),
        Value::Boolean(yes) => Some(vec![leak(yes.to_string())]),
        Value::Array(values) => {
            let words: Option<Vec<Vec<_>>> = values.iter().map(texts).collect();
            words.map(|words| words.concat())
        }
        _ => None,
    }
}

/// The source of a configured database.
fn source(table: &Table, name: &str) -> Option<String> {
    let database = table.get("database")?.get(name)?;
    database.get("source")?.as_str().map(str::to_owned)
}

/// Fills in what a configured database says of itself. Its other options are what is looked for.
fn configured(table: &Table, tune: &mut crate::cli::Tune) {
    let Some(source) = source(table, &tune.database) else {
        return;
    };
    let to = &table["database"][&tune.database];
    let to = to.get("to").and_then(texts).unwrap_or_default();
    if tune.to.is_empty() {
        tune.to = to.into_iter().map(str::to_owned).collect();
    }
    let name = std::mem::replace(&mut tune.database, source);
    tune.name.get_or_insert(name);
}

fn unknown(key: &str, what: &str) -> Failure {
    Failure::usage(
        format!("configuration: {key} is {what}"),
        "Options stand under [backup], [restore] or [verify], databases under [database.NAME].",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn parsed(config: &str, words: &[&str]) -> Result<Cli, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        #[allow(clippy::disallowed_methods)]
        std::fs::write(&path, config).unwrap();
        let path = path.to_str().unwrap();
        let words = ["windlass", "--config", path]
            .into_iter()
            .chain(words.iter().copied());
        let words: Vec<OsString> = words.map(OsString::from).collect();
        parse(&words).map_err(|failed| match failed {
            Failed::Clap(error) => error.to_string(),
            Failed::Config(failure) => format!("{failure:?}"),
        })
    }

    fn backup(cli: Cli) -> cli::Backup {
        match cli.command {
            cli::Command::Backup(backup) => *backup,
            _ => panic!("not a backup"),
        }
    }

    const SHOP: &str = "[backup]\ncompress = \"lz4\"\nbuffers = 9\n\
        [database.shop]\nsource = \"/srv/shop.db\"\nto = [\"/a\", \"/b\"]\ncompress = \"none\"\n";

    #[test]
    fn a_configured_database_brings_its_devices_and_options() {
        let backup = backup(parsed(SHOP, &["backup", "shop"]).unwrap());
        assert_eq!(backup.database, "/srv/shop.db");
        assert_eq!(backup.to, ["/a", "/b"]);
        assert_eq!(backup.compress, "none");
        assert_eq!(backup.buffers.buffers, Some(9));
    }

    #[test]
    fn a_configured_database_is_tuned_by_its_name() {
        let cli = parsed(SHOP, &["tune", "shop"]).unwrap();
        let cli::Command::Tune(tune) = cli.command else {
            panic!("not a tune")
        };
        assert_eq!(tune.database, "/srv/shop.db");
        assert_eq!(tune.to, ["/a", "/b"]);
        assert_eq!(tune.name.as_deref(), Some("shop"));
        assert_eq!(tune.compress.len(), 4, "the codec is looked for");
    }

    #[test]
    fn the_command_line_wins() {
        let words = ["backup", "shop", "--to", "/c", "--compress", "zstd:3"];
        let backup = backup(parsed(SHOP, &words).unwrap());
        assert_eq!(backup.to, ["/c"]);
        assert_eq!(backup.compress, "zstd:3");
    }

    #[test]
    fn a_misspelt_option_is_named() {
        let error = parsed(
            "[backup]\ncompres = \"lz4\"\n",
            &["backup", "x", "--to", "y"],
        );
        assert!(error.unwrap_err().contains("compres "));
    }
}
