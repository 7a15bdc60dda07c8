//! The configuration's values as the defaults of options.
//!
//! Every value is checked before, even if another command runs: by the parser of its option, and as
//! its command would check it.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};

use super::file::{Config, Entry, Section, mistake};
use super::{Said, notify, repositories, schedule, values};
use crate::exit::Failure;
use crate::nearest;

/// Commands that take a configured database's name, by their words.
const OF_DATABASES: [&str; 7] = [
    "backup",
    "check",
    "plan",
    "tune",
    "lab probe",
    "lab sweep",
    "lab pages",
];
/// The options that `tune` chooses itself. They are the setting that it starts from, not its
/// options.
const TUNED: [&str; 5] = ["compress", "buffers", "transfer-size", "readers", "threads"];
/// The options of a backup that `plan` has for itself.
const PLANNED: [&str; 2] = ["type", "base"];
/// The key of a database that is not an option.
const SOURCE: &str = "source";
/// The key of a database that says where its backups go.
const TO: &str = "to";

/// Refuses tables, keys and values that no option takes.
pub fn check(command: &Command, config: &Config) -> Result<(), Failure> {
    for (name, entry) in &config.every {
        let Some(argument) = option(command, name) else {
            let what = format!("no option of every command is called {name}");
            let rest = "Other options stand below a table like [backup]; databases, below \
                        [database.NAME].";
            let hint = nearest::hint(name, options(command), rest);
            return Err(mistake(&entry.place, &what, &hint));
        };
        check_value(argument, ("", name), entry)?;
    }
    for (name, section) in &config.commands {
        let Some(sub) = find(command, name) else {
            let what = format!("no command is called {name}");
            let known = words(command);
            let rest = "Options stand in the table of their command; databases, in \
                        [database.NAME].";
            let hint = nearest::hint(name, known.iter().map(String::as_str), rest);
            return Err(mistake(&section.place, &what, &hint));
        };
        check_section(section, (command, &[sub]), name)?;
    }
    repositories::check(config)?;
    schedule::check(config)?;
    notify::check(config)?;
    let subs = OF_DATABASES.map(|name| find(command, name));
    let subs: Vec<_> = subs.into_iter().flatten().collect();
    for (name, section) in &config.databases {
        check_section(section, (command, &subs), "")?;
        section.source(name)?;
    }
    Ok(())
}

/// Refuses a key that is not an option of any of the commands. `words` is the name of the table, or
/// nothing for the table of a database.
fn check_section(
    section: &Section,
    (all, subs): (&Command, &[&Command]),
    words: &str,
) -> Result<(), Failure> {
    let keys = section
        .entries
        .iter()
        .filter(|(name, _)| *name != SOURCE || subs.len() == 1);
    for (name, entry) in keys {
        let mut arguments = subs.iter().filter_map(|sub| option(sub, name));
        let Some(argument) = arguments.next() else {
            let of = match words {
                "" => "a database".to_owned(),
                words => format!("windlass {words}"),
            };
            let what = format!("no option of {of} is called {name}");
            if option(all, name).is_some() {
                let hint = format!(
                    "{name} is an option of every command: write it above the first table."
                );
                return Err(mistake(&entry.place, &what, &hint));
            }
            let known = subs.iter().flat_map(|sub| options(sub));
            let known = known.chain((words.is_empty()).then_some(SOURCE));
            let rest = match subs {
                [_] => format!("`windlass {words} --help` lists all."),
                _ => "`windlass backup --help` lists those of backups.".to_owned(),
            };
            let hint = nearest::hint(name, known, &rest);
            return Err(mistake(&entry.place, &what, &hint));
        };
        check_value(argument, (words, name), entry)?;
    }
    Ok(())
}

/// Asks the option's own parser, then what the command itself will ask.
fn check_value(argument: &Arg, (table, name): (&str, &str), entry: &Entry) -> Result<(), Failure> {
    let takes_several = matches!(argument.get_action(), ArgAction::Append)
        || argument.get_value_delimiter().is_some();
    if entry.is_list && !takes_several {
        let what = format!("{name} takes one value, not a list");
        return Err(mistake(&entry.place, &what, "Write it without brackets."));
    }
    let parser = argument.get_value_parser().type_id();
    let is_of_text = parser == TypeId::of::<String>() || parser == TypeId::of::<PathBuf>();
    if is_of_text && !entry.is_text {
        let what = format!("{name} must be a text");
        let hint = format!("Write it in quotes: {name} = \"...\"");
        return Err(mistake(&entry.place, &what, &hint));
    }
    for value in &entry.values {
        values::parse(argument, (table, name), value).map_err(|failure| {
            let hint = failure.hint().unwrap_or(values::CORRECT);
            mistake(&entry.place, failure.message(), hint)
        })?;
    }
    Ok(())
}

/// Makes the configuration's values the defaults of the options of the command that runs.
pub fn apply(mut command: Command, config: &Config, said: &Said) -> Result<Command, Failure> {
    for (name, entry) in &config.every {
        command = with_default(command, name, entry);
    }
    let words = said.command.join(" ");
    let mut entries: Vec<(&String, &Entry)> = Vec::new();
    // `check` checks the backup that the configuration would give.
    let backup = (words == "check").then_some("backup");
    for command in backup.into_iter().chain([words.as_str()]) {
        if let Some(section) = config.commands.get(command) {
            entries.extend(&section.entries);
        }
    }
    // With several databases, the options could conflict: then only their sources are used.
    if let [one] = said.databases.as_slice()
        && let Some(section) = config.database(one)
    {
        let own = section.entries.iter();
        entries.extend(own.filter(|(name, entry)| is_for(&words, name, entry)));
    }
    if let Some(name) = repositories::chosen(said.repo.as_ref(), &entries) {
        let devices = repositories::devices(config, &name)?;
        entries.retain(|(key, _)| *key != "to");
        command = below(command, &said.command, |sub| {
            repositories::with_repository(sub, &name, devices)
        });
    } else {
        entries.retain(|(key, _)| *key != repositories::REPO);
    }
    for (name, entry) in entries {
        command = below(command, &said.command, |sub| with_default(sub, name, entry));
    }
    Ok(command)
}

/// What the configuration says about the options that `tune` chooses, for this database's backups.
pub fn tuned(config: &Config, database: &str) -> BTreeMap<String, String> {
    let sections = [
        config.commands.get("backup"),
        config.databases.get(database),
    ];
    let entries = sections.into_iter().flatten().flat_map(|one| &one.entries);
    let tuned = entries.filter(|(name, _)| TUNED.contains(&name.as_str()));
    tuned
        .filter_map(|(name, entry)| Some((name.clone(), entry.values.first()?.clone())))
        .collect()
}

/// Whether a command uses this key of a database.
fn is_for(words: &str, name: &str, entry: &Entry) -> bool {
    let adapts = entry.values.iter().any(|value| value.starts_with("auto"));
    match words {
        // For `plan`, the option with that name is a model.
        _ if name == SOURCE => false,
        // Snapshots lie beside the database. Where backups go there may be no room for them, and
        // no owner of the database.
        _ if name == TO && words.split(' ').any(is_of_snapshots) => false,
        "tune" => !TUNED.contains(&name),
        // `plan` compares codecs, and `auto` is not a codec. It is told what kind of backup it
        // plans.
        "plan" => !PLANNED.contains(&name) && (name != "compress" || !adapts),
        _ => true,
    }
}

/// Whether a word of a command is about snapshots.
fn is_of_snapshots(word: &str) -> bool {
    word == "snapshot" || word == "snapshots"
}

/// Changes the subcommand of these words.
fn below(command: Command, words: &[String], change: impl FnOnce(Command) -> Command) -> Command {
    match words {
        [] => change(command),
        [first, rest @ ..] => command.mut_subcommand(first, |sub| below(sub, rest, change)),
    }
}

fn with_default(command: Command, name: &str, entry: &Entry) -> Command {
    let Some(id) = option(&command, name).map(|argument| argument.get_id().clone()) else {
        return command;
    };
    let values: Vec<_> = entry
        .values
        .iter()
        .map(|value| values::leak(value))
        .collect();
    command.mut_arg(id, |argument| {
        argument.required(false).default_values(values)
    })
}

/// The option of a command with this name. Options that select the configuration do not count.
fn option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut all = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set());
    all.find(|argument| argument.get_long() == Some(name) && name != "config")
}

fn options(command: &Command) -> impl Iterator<Item = &str> {
    let all = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set());
    all.filter_map(Arg::get_long)
        .filter(|name| *name != "config")
}

fn find<'a>(command: &'a Command, words: &str) -> Option<&'a Command> {
    let mut words = words.split(' ');
    words
        .try_fold(command, |level, word| level.find_subcommand(word))
        .filter(|sub| sub.get_subcommands().next().is_none())
}

fn words(command: &Command) -> Vec<String> {
    let names = |sub: &Command| match sub.has_subcommands() {
        true => {
            let inner = sub.get_subcommands();
            inner
                .map(|inner| format!("{} {}", sub.get_name(), inner.get_name()))
                .collect()
        }
        false => vec![sub.get_name().to_owned()],
    };
    let all = command.get_subcommands().flat_map(names);
    all.chain(["database".to_owned()]).collect()
}
