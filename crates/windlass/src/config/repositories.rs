//! Repositories: a name for the places where sets and logs of many databases lie.
//!
//!   [repository.main]
//!   to = ["/disk1/backup", "/disk2/backup"]
//!
//! `--repo main` stands for these devices wherever a command writes, and for their sets wherever
//! one reads. A word for a set is the name of a database then. The repository's name is a word for
//! all of its sets.

use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use windlass_object::is_in_bucket;
use windlass_operations::MirrorRequest;

use super::file::{Config, Entry, Section, mistake};
use super::values::leak;
use crate::cli;
use crate::exit::Failure;
use crate::nearest;
use crate::places::Configured;

/// The key that says where a repository is.
const TO: &str = "to";
/// The option and the key that name a repository.
pub const REPO: &str = "repo";

/// Refuses repositories that no command could use.
pub fn check(config: &Config) -> Result<(), Failure> {
    for (name, section) in &config.repositories {
        if config.databases.contains_key(name) {
            let what = format!("{name} is a database and a repository");
            return Err(mistake(
                &section.place,
                &what,
                "Give one of them another name.",
            ));
        }
        if name.contains(['/', '@', ',']) {
            let what = format!("a repository is called {name:?}");
            let hint = "Its name has no slash, no @ and no comma.";
            return Err(mistake(&section.place, &what, hint));
        }
        if let Some((key, entry)) = section.entries.iter().find(|(key, _)| *key != TO) {
            let what = format!("a repository has no key {key}");
            let hint = "It has one: to = [\"/path/of/a/directory\"], or [\"s3://BUCKET/PREFIX\"]";
            return Err(mistake(&entry.place, &what, hint));
        }
        places(name, section)?;
    }
    for (name, section) in &config.databases {
        if let (Some(_), Some(entry)) = (section.entries.get(TO), section.entries.get(REPO)) {
            let what = format!("database {name} has to and repo: both say where its sets go");
            return Err(mistake(&entry.place, &what, "Leave one of them out."));
        }
    }
    Ok(())
}

fn places<'a>(name: &str, section: &'a Section) -> Result<&'a [String], Failure> {
    let hint = "Write: to = [\"/path/of/a/directory\"], or [\"s3://BUCKET/PREFIX\"]";
    let Some(entry) = section.entries.get(TO) else {
        let what = format!("repository {name} does not say where it is");
        return Err(mistake(&section.place, &what, hint));
    };
    let is_place = |word: &String| !word.trim().is_empty() && word != "nul";
    match entry.is_text && entry.values.iter().all(is_place) {
        true => Ok(&entry.values),
        false => {
            let what = format!("the places of repository {name} must be texts, and not nul");
            Err(mistake(&entry.place, &what, hint))
        }
    }
}

/// What each word for a mirror means: a repository, or a place.
pub fn mirrors(config: &Config, words: &[String]) -> Result<Vec<MirrorRequest>, Failure> {
    let mirror = |word: &String| {
        let places = match config.repositories.contains_key(word) {
            true => devices(config, word)?.to_vec(),
            false => vec![word.clone()],
        };
        let name = word.clone();
        Ok(MirrorRequest { name, places })
    };
    words.iter().map(mirror).collect()
}

/// The devices of a repository.
pub fn devices<'a>(config: &'a Config, name: &str) -> Result<&'a [String], Failure> {
    if let Some(section) = config.repositories.get(name) {
        return places(name, section);
    }
    let known = || config.repositories.keys().map(String::as_str);
    let rest = match known().next() {
        None => "The configuration names none: write [repository.NAME] with to = [\"/path\"]."
            .to_owned(),
        Some(_) => format!(
            "The configuration names {}.",
            known().collect::<Vec<_>>().join(", ")
        ),
    };
    let hint = nearest::hint(name, known(), &rest);
    Err(Failure::usage(
        format!("--repo: there is no repository {name}"),
        hint,
    ))
}

/// The repository that a command uses: the one that was said, or the last one that the
/// configuration names for it behind all `to`.
pub fn chosen(said: Option<&String>, entries: &[(&String, &Entry)]) -> Option<String> {
    if said.is_some() {
        return said.cloned();
    }
    let is_place = |(name, _): &&(&String, &Entry)| *name == TO || *name == REPO;
    let (name, entry) = entries.iter().rev().find(is_place)?;
    entry.values.first().filter(|_| *name == REPO).cloned()
}

/// Lets the places of a repository stand for what a command would ask for.
pub fn with_repository(command: Command, name: &str, devices: &[String]) -> Command {
    let has_repo = command.get_arguments().any(|one| one.get_id() == REPO);
    if !has_repo {
        return command;
    }
    let first = devices.first().map_or("", |device| leak(device));
    let all: Vec<_> = devices.iter().map(|device| leak(device)).collect();
    let name = leak(name);
    command.mut_args(|argument| match argument.get_id().as_str() {
        TO if takes_several(&argument) => argument.required(false).default_values(all.clone()),
        TO | "from" => argument.required(false).default_value(first),
        "set" if takes_several(&argument) => argument.required(false).default_value(name),
        _ => argument,
    })
}

fn takes_several(argument: &Arg) -> bool {
    let values = argument.get_num_args();
    let many = values.is_some_and(|range| range.max_values() > 1);
    matches!(argument.get_action(), ArgAction::Append) || many
}

/// The repository of a command.
pub struct Named {
    /// Its name.
    pub name: String,
    /// Whether it was typed, so that no word beside it can be a place.
    pub is_typed: bool,
}

/// The repository that the command line names when all is known. Fails if it names devices as well.
pub fn named(matches: &ArgMatches) -> Result<Option<Named>, Failure> {
    let mut level = matches;
    while let Some((_, inner)) = level.subcommand() {
        level = inner;
    }
    let Ok(Some(name)) = level.try_get_one::<String>(REPO) else {
        return Ok(None);
    };
    let rank = |id: &str| {
        let source = level
            .try_get_raw(id)
            .is_ok()
            .then(|| level.value_source(id));
        match source.flatten() {
            Some(ValueSource::CommandLine) => 2,
            Some(ValueSource::EnvVariable) => 1,
            _ => 0,
        }
    };
    for (id, option) in [(TO, "--to"), ("from", "--from")] {
        if rank(id) > rank(REPO) {
            // What was typed wins over what is set once for all runs.
            return Ok(None);
        }
        if rank(id) > 0 {
            return Err(Failure::usage(
                format!("{option} and --repo both say where"),
                "Leave one of them out; it may be WINDLASS_TO or WINDLASS_REPO in the environment.",
            ));
        }
    }
    Ok(Some(Named {
        name: name.clone(),
        is_typed: rank(REPO) == 2,
    }))
}

/// Where the sets of a configured database are, unless the command line says it.
pub fn of_section<'a>(
    config: &'a Config,
    sections: &[Option<&'a Section>],
) -> Result<&'a [String], Failure> {
    for section in sections.iter().flatten() {
        if let Some(entry) = section.entries.get(TO) {
            return Ok(&entry.values);
        }
        if let Some(name) = section
            .entries
            .get(REPO)
            .and_then(|entry| entry.values.first())
        {
            return devices(config, name);
        }
    }
    Ok(&[])
}

/// The repositories, as the commands that read sets know them.
pub fn configured(config: &Config) -> Result<Vec<Configured>, Failure> {
    let one = |(name, section): (&String, &Section)| {
        Ok(Configured::repository(
            name,
            places(name, section)?.iter().map(PathBuf::from).collect(),
        ))
    };
    config.repositories.iter().map(one).collect()
}

/// Makes the words for sets those of a repository: each is the name of a database.
pub fn resolve(config: &Config, named: &Named, command: &mut cli::Command) -> Result<(), Failure> {
    let repository = &*named.name;
    let Some((words, of)) = words(command) else {
        return Ok(());
    };
    for word in words {
        let text = word.to_string_lossy().into_owned();
        let (name, which) = match text.rsplit_once('@') {
            Some((name, which)) => (name, Some(which)),
            None => (&*text, None),
        };
        if config.databases.contains_key(name) || name == repository {
            continue;
        }
        if is_place(word) {
            if !named.is_typed {
                continue;
            }
            return Err(Failure::usage(
                format!("{text} and --repo both say where"),
                "With --repo, name a database.",
            ));
        }
        if of.as_ref().is_some_and(|other| other != name) {
            return Err(Failure::usage(
                format!(
                    "{name} and {} are two databases",
                    of.as_deref().unwrap_or_default()
                ),
                "Name one of them.",
            ));
        }
        *of = Some(name.to_owned());
        *word = PathBuf::from(match which {
            Some(which) => format!("{repository}@{which}"),
            None => repository.to_owned(),
        });
    }
    Ok(())
}

fn is_place(word: &Path) -> bool {
    is_in_bucket(word)
        || word.is_dir()
        || word.extension().is_some_and(|ending| ending == "windlass")
}

/// The words for sets of a command that takes a repository, and the choice of a database.
fn words(command: &mut cli::Command) -> Option<(Vec<&mut PathBuf>, &mut Option<String>)> {
    use cli::Command::{
        Diff, Drill, Expire, Extract, Hold, Info, Merge, Mount, Open, Restore, Verify,
    };
    Some(match command {
        Restore(it) => (it.set.iter_mut().collect(), &mut it.choice.of),
        Verify(it) => (it.set.iter_mut().collect(), &mut it.choice.of),
        Info(it) => (it.set.iter_mut().collect(), &mut it.choice.of),
        Merge(it) => (it.set.iter_mut().collect(), &mut it.choice.of),
        Drill(it) => (it.set.iter_mut().collect(), &mut it.choice.of),
        Open(it) => (it.set.iter_mut().collect(), &mut it.choice.of),
        Hold(it) => (it.set.iter_mut().collect(), &mut it.choice.of),
        Expire(it) => (it.set.iter_mut().collect(), &mut it.of),
        Extract(it) => (vec![&mut it.set], &mut it.choice.of),
        Mount(it) => (vec![&mut it.set], &mut it.choice.of),
        Diff(it) => {
            let words = std::iter::once(&mut it.first).chain(&mut it.second);
            (words.collect(), &mut it.of)
        }
        _ => return None,
    })
}
