//! The configuration: defaults for options, and databases by name.
//!
//!   quiet = true                  # an option of every command, before the first table
//!
//!   [backup]                      # any option of `windlass backup`, without its dashes
//!   compress = "lz4"
//!
//!   [database.shop]               # windlass backup shop
//!   source = "/srv/shop/shop.db"
//!   to = ["/disk1/shop", "/disk2/shop"]
//!
//!   [repository.main]             # windlass backup shop --repo main
//!   to = ["/disk1/backup", "/disk2/backup"]
//!
//!   [object]                      # how to reach buckets
//!   endpoint = "https://s3.example.com"
//!
//!   [schedule]                    # windlass schedule install
//!   full = "Sun 02:00"
//!
//! Windlass reads /etc/windlass/windlass.toml and /etc/windlass/conf.d/*.toml in the order of their
//! names, or the file of `--config` alone. A value in a file is a default: the environment and the
//! command line win. A mistake in a file is an error that names the file and the line, whatever
//! command runs. So nobody finds it only in the night when that command is needed.

mod brief;
mod buckets;
mod defaults;
pub mod edit;
mod environment;
mod file;
mod mistyped;
pub mod named;
mod notify;
mod repositories;
mod schedule;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgAction, CommandFactory, FromArgMatches};
use windlass_operations::snapshots::with_name;

use crate::cli::{self, Cli};
use crate::database::DatabaseName;
use crate::exit::Failure;
use crate::nearest;
use crate::places::Configured;
use file::Config;
pub use notify::Notify;

/// Parses the command line. It wins over the environment, which wins over the configuration.
pub fn parse(arguments: &[OsString]) -> Result<Cli, Failed> {
    if let Some(brief) = brief::of(arguments) {
        match parse_as(flags(brief), arguments) {
            Err(Failed::Clap(_)) => {}
            parsed => return parsed,
        }
    }
    parse_as(cli(), arguments)
}

fn parse_as(command: clap::Command, arguments: &[OsString]) -> Result<Cli, Failed> {
    let said = databases_said(&command, arguments);
    let config = Config::load(arguments, said.writes)?;
    if !config.is_empty() {
        // Of a brief command line, too: whatever command runs, a mistake is found.
        defaults::check(&cli(), &config)?;
    }
    // This comes first: if a database's name is unknown, its options are unknown too.
    check_names(&config, &said.databases)?;
    let mut with_defaults = defaults::apply(command, &config, &said)?;
    let matches = with_defaults.try_get_matches_from_mut(arguments);
    let matches = matches.map_err(|error| mistyped::plain(error, with_defaults, &said.command))?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let name = matches.subcommand_name().unwrap_or_default();
    name.clone_into(&mut cli.global.command);
    cli.global.log_from = match matches.value_source("log") {
        Some(ValueSource::CommandLine) => "--log",
        Some(ValueSource::EnvVariable) => "WINDLASS_LOG in the environment",
        _ => "the key log of the configuration",
    };
    environment::check()?;
    let repository = repositories::named(&matches)?;
    if let Some(named) = &repository {
        repositories::resolve(&config, named, &mut cli.command)?;
    }
    resolve(&config, &mut cli.command)?;
    if let cli::Command::Backup(backup) | cli::Command::Check(backup) = &mut cli.command {
        let inner = matches.subcommand().map(|(_, inner)| inner);
        let from = |id: &str| inner.and_then(|inner| inner.value_source(id));
        backup.to_is_configured = from("to") == Some(ValueSource::DefaultValue);
        let is_typed = |(id, _): &&(&str, _)| from(id) == Some(ValueSource::CommandLine);
        backup.not_of_log = cli::NOT_OF_LOG.iter().find(is_typed).map(|(_, name)| *name);
    }
    if let cli::Command::Schedule(command) = &mut cli.command {
        command.units_mut().jobs = schedule::jobs(&config)?;
    }
    let repository = repository.as_ref().map(|one| &*one.name);
    cli.global.configured = configured(&config, repository, &cli.global.host())?;
    cli.global.encrypted_places = encrypted_places(&config)?;
    cli.global.notify = notify::settings(&config)?;
    windlass_operations::configure_buckets(buckets::settings(&config, &cli.command)?);
    Ok(cli)
}

/// The databases and repositories of the configuration, as the commands that read sets know them.
fn configured(
    config: &Config,
    repository: Option<&str>,
    host: &str,
) -> Result<Vec<Configured>, Failure> {
    let backup = config.commands.get("backup");
    // As for a backup, the environment wins over the configuration.
    let environment = std::env::var("WINDLASS_TO").ok();
    let environment: Option<Vec<_>> =
        environment.map(|text| text.split(',').map(str::to_owned).collect());
    let one = |(name, section): (&String, &file::Section)| {
        let configured = match repository {
            Some(name) => repositories::devices(config, name)?,
            None => repositories::of_section(config, &[Some(section), backup])?,
        };
        let environment = environment.as_deref().filter(|_| repository.is_none());
        let devices = environment.unwrap_or(configured).iter();
        let places = devices.filter(|device| *device != "nul");
        Ok(Configured {
            name: name.clone(),
            source: section.source(name)?,
            host: host.to_owned(),
            places: places.map(PathBuf::from).collect(),
            is_repository: false,
        })
    };
    let databases: Result<Vec<_>, Failure> = config.databases.iter().map(one).collect();
    let mut all = databases?;
    all.extend(repositories::configured(config)?);
    Ok(all)
}

/// The places of databases whose sets are to be encrypted, wherever this command writes, and who
/// can read them. Those of a database without a place of its own are in any repository.
fn encrypted_places(config: &Config) -> Result<Vec<(PathBuf, Vec<String>)>, Failure> {
    let readers = |section: Option<&file::Section>| {
        let entry = section.and_then(|section| section.entries.get("encrypt"));
        entry.map_or_else(Vec::new, |entry| entry.values.clone())
    };
    let of_all = config.commands.get("backup");
    let all = match std::env::var("WINDLASS_ENCRYPT") {
        Ok(word) => vec![word],
        Err(_) => readers(of_all),
    };
    let of_one = |one: &Configured| match readers(config.databases.get(&one.name)) {
        own if own.is_empty() => all.clone(),
        own => own,
    };
    let configured = configured(config, None, "")?;
    let repositories = configured.iter().filter(|one| one.is_repository);
    let mut found = Vec::new();
    for one in &configured {
        let words = of_one(one);
        let anywhere = repositories.clone().flat_map(|one| &one.places);
        let places: Vec<_> = match one.places.is_empty() {
            true => anywhere.collect(),
            false => one.places.iter().collect(),
        };
        found.extend(
            places
                .into_iter()
                .map(|place| (place.clone(), words.clone())),
        );
    }
    let common = of_all.and_then(|section| section.entries.get("to"));
    let common = common.iter().flat_map(|entry| &entry.values);
    found.extend(common.map(|place| (PathBuf::from(place), all.clone())));
    found.retain(|(_, words)| !words.is_empty());
    Ok(found)
}

/// Whether the user wants JSON, although the command line cannot be understood.
pub fn wants_json(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    let from_environment = std::env::var("WINDLASS_JSON").ok();
    let from_environment = from_environment.is_some_and(|text| parse_flag(&text) == Ok(true));
    words.any(|word| word == "--json") || from_environment
}

/// The names of the configured databases; none if the configuration cannot be read.
pub fn database_names() -> Vec<String> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let config = Config::load(&arguments, false);
    config.map_or_else(
        |_| Vec::new(),
        |config| config.databases.into_keys().collect(),
    )
}

/// The configured databases with the places of their sets; none if the configuration cannot be
/// read.
pub fn configured_databases() -> Vec<Configured> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let config = Config::load(&arguments, false);
    let found = config.and_then(|config| configured(&config, None, &windlass_engine::hostname()));
    found.unwrap_or_default()
}

/// The command line as clap knows it, but every flag takes the same words for yes and no. Any other
/// word from the environment or the configuration is an error, and never silently means yes.
pub fn cli() -> clap::Command {
    // `check` takes all options of `backup`, and does not check what is not named.
    let check = |command: clap::Command| {
        let command = command.mut_arg("to", |argument| argument.required(false));
        command.mut_arg("dry_run", |argument| argument.hide(true))
    };
    // These two take all sets of a directory, where other commands take the latest.
    let all = |command: clap::Command| {
        command.mut_arg("which", |argument| argument.help(cli::WHICH_OF_ALL))
    };
    flags(Cli::command())
        .mut_subcommand("check", check)
        .mut_subcommand("info", all)
        .mut_subcommand("verify", all)
        .mut_subcommand("key", |key| key.mut_subcommands(all))
}

fn flags(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| match argument.get_action() {
        ArgAction::SetTrue => argument.value_parser(parse_flag),
        _ => argument,
    });
    command.mut_subcommands(flags)
}

fn parse_flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("write true, yes, on or 1, or false, no, off or 0".to_owned()),
    }
}

/// The words that name databases, and the words of the command. They are found as far as the
/// command line can be understood without the configuration.
struct Said {
    command: Vec<String>,
    databases: Vec<String>,
    /// The repository.
    repo: Option<String>,
    /// Whether the command writes into the configuration (`tune --write`).
    writes: bool,
}

fn databases_said(command: &clap::Command, arguments: &[OsString]) -> Said {
    let lenient = optional(command.clone()).ignore_errors(true);
    let mut said = Said {
        command: Vec::new(),
        databases: Vec::new(),
        repo: None,
        writes: false,
    };
    // `--help` counts as an error here; the second parse shows it.
    let Ok(matches) = lenient.try_get_matches_from(arguments) else {
        return said;
    };
    let mut level = &matches;
    while let Some((name, inner)) = level.subcommand() {
        said.command.push(name.to_owned());
        level = inner;
    }
    let writes = level.try_get_one::<bool>("write").ok().flatten();
    let repo = level.try_get_one::<String>(repositories::REPO);
    said.repo = repo.ok().flatten().cloned();
    said.writes = writes.copied().unwrap_or(false);
    for id in ["database", "databases"] {
        let words = level.try_get_raw(id).ok().flatten();
        let words = words.into_iter().flatten();
        said.databases
            .extend(words.map(|word| word.to_string_lossy().into_owned()));
    }
    said
}

fn optional(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| argument.required(false));
    command.mut_subcommands(optional)
}

/// Replaces a configured database's name by its source.
fn resolve(config: &Config, command: &mut cli::Command) -> Result<(), Failure> {
    let configured = |word: &String| config.databases.contains_key(word).then(|| word.clone());
    match command {
        cli::Command::Tune(tune) => {
            tune.present = defaults::tuned(config, &tune.database);
            tune.name = tune.name.take().or(configured(&tune.database));
        }
        cli::Command::Backup(backup) | cli::Command::Check(backup) => {
            backup.name = configured(&backup.database);
            backup.mirrors = repositories::mirrors(config, &backup.mirror)?;
        }
        cli::Command::Snapshot(snapshot) => {
            let name = configured(snapshot.database());
            snapshot.set_name(name);
        }
        _ => {}
    }
    for word in databases(command) {
        if let Some(database) = config.databases.get(word.as_str()) {
            *word = database.source(word)?;
        } else if let Some((name, snapshot)) = word.rsplit_once('@')
            && let Some(database) = config.databases.get(name)
        {
            *word = with_name(&database.source(name)?, snapshot);
        }
    }
    Ok(())
}

fn check_names(config: &Config, words: &[String]) -> Result<(), Failure> {
    let configured = |word: &str| config.database(word).is_some();
    let known = || config.databases.keys().map(String::as_str);
    // The command looks for words that are clearly paths, as the database's owner. Its hooks, its
    // metrics and its log then hear of a file that vanished.
    let is_path = |word: &str| {
        let is_file_name = word.contains('.') && nearest::nearest(word, known()).is_none();
        word.contains('/') || is_file_name
    };
    // A snapshot of a data directory in the working directory.
    let is_of_one = |word: &str| {
        let database = word.rsplit_once('@').map(|(database, _)| database);
        database.is_some_and(DatabaseName::is_one)
    };
    let mut others = words
        .iter()
        .filter(|word| !configured(word) && !is_path(word) && !is_of_one(word))
        .filter(|word| !DatabaseName::is_one(word));
    match others.next() {
        None => Ok(()),
        Some(word) => Err(unknown_database(word, known().collect())),
    }
}

fn unknown_database(word: &str, known: Vec<&str>) -> Failure {
    let failure = Failure::from(DatabaseName::unknown(word));
    let hint = match nearest::nearest(word, known.iter().copied()) {
        Some(near) => format!("Did you mean {near}, which the configuration names?"),
        None if known.is_empty() => return failure,
        None => format!(
            "The configuration names {}. Or name a SQLite file, or a connection string like \
             'host=/var/run/postgresql'.",
            known.join(", ")
        ),
    };
    failure.hinting(&hint)
}

/// The words that may be names of configured databases.
fn databases(command: &mut cli::Command) -> &mut [String] {
    use cli::{Command, Lab};
    match command {
        Command::Backup(backup) | Command::Check(backup) => {
            std::slice::from_mut(&mut backup.database)
        }
        Command::Tune(tune) => std::slice::from_mut(&mut tune.database),
        Command::Plan(plan) => plan.database.as_mut_slice(),
        Command::Lab(Lab::Probe(probe)) => probe.database.as_mut_slice(),
        Command::Lab(Lab::Sweep(sweep)) => &mut sweep.databases,
        Command::Lab(Lab::Snapshots(snapshots)) => snapshots.database.as_mut_slice(),
        Command::Snapshot(snapshot) => std::slice::from_mut(snapshot.database()),
        Command::Lab(Lab::Pages(pages)) => std::slice::from_mut(&mut pages.database),
        _ => &mut [],
    }
}

/// Why there is no command line: clap's reason, or Windlass's own.
#[derive(Debug)]
pub enum Failed {
    /// The reason comes from clap; it may be `--help`.
    Clap(clap::Error),
    /// The reason comes from Windlass.
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

#[cfg(test)]
mod tests;
