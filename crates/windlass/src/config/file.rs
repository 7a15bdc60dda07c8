//! The content of the configuration's files: values, each with its file and line.
//!
//! Invariants
//! - A file that never ends, like /dev/full, is refused after [`BYTES_MAX`] bytes.
//! - A process that has read a password or the address of a webhook makes no core file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::mem::discriminant;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use windlass_engine::{read_stream_at_most, without_core_files};

use super::named::named;
use crate::exit::Failure;
use crate::nearest::nearest;

/// The configuration, unless another one is named.
pub const PATH: &str = "/etc/windlass/windlass.toml";
/// The directory of its further parts.
pub const DIRECTORY: &str = "/etc/windlass/conf.d";
/// The table of times, alone or inside one of a database or repository.
const SCHEDULE: &str = "schedule";
/// Commands that have commands below them, with options in `[GROUP.COMMAND]`.
const GROUPS: [&str; 2] = ["lab", "snapshot"];
/// The largest file that is read.
pub const BYTES_MAX: u64 = 1 << 20;

/// The place of a value.
#[derive(Clone, Debug)]
pub struct Place {
    file: PathBuf,
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file.display(), self.line)
    }
}

/// One key with its value, in the words of an option.
#[derive(Clone, Debug)]
pub struct Entry {
    pub place: Place,
    pub values: Vec<String>,
    /// Whether the value is a list. A list may have any number of values.
    pub is_list: bool,
    /// Whether the value, or each of the list, stands in quotes.
    pub is_text: bool,
}

/// A table with its keys.
#[derive(Clone, Debug)]
pub struct Section {
    pub place: Place,
    pub entries: BTreeMap<String, Entry>,
}

impl Section {
    /// The source of the configured database `name`, in the form of the command line.
    pub fn source(&self, name: &str) -> Result<String, Failure> {
        let hint = "Write: source = \"/path/of/the/database\"";
        let what = format!("database {name} has no source");
        let Some(entry) = self.entries.get("source") else {
            return Err(mistake(&self.place, &what, hint));
        };
        match entry.values.as_slice() {
            [source] if entry.is_text && !entry.is_list && !source.trim().is_empty() => {
                Ok(source.clone())
            }
            [source] if source.trim().is_empty() => {
                let what = format!("{what}: its text is empty");
                Err(mistake(&entry.place, &what, hint))
            }
            _ => {
                let what = format!("the source of database {name} must be one text");
                Err(mistake(&entry.place, &what, hint))
            }
        }
    }
}

/// The whole configuration.
#[derive(Debug, Default)]
pub struct Config {
    /// Options for every command.
    pub every: BTreeMap<String, Entry>,
    /// Sections of commands, by the command's words: `backup`, `lab probe`.
    pub commands: BTreeMap<String, Section>,
    /// Sections of databases, by their names.
    pub databases: BTreeMap<String, Section>,
    /// Sections of repositories, by their names.
    pub repositories: BTreeMap<String, Section>,
    /// Schedules: of each database and repository by its name, and of all under an empty one.
    pub schedules: BTreeMap<String, Section>,
    /// Who is told how runs end.
    pub notify: Option<Section>,
    /// How to reach buckets: each by its name, and all others under an empty one.
    pub buckets: BTreeMap<String, Section>,
}

impl Config {
    /// Whether nothing is configured.
    pub fn is_empty(&self) -> bool {
        let Self {
            every,
            commands,
            databases,
            repositories,
            schedules,
            notify,
            buckets,
        } = self;
        let sections = [commands, databases, repositories, schedules, buckets];
        every.is_empty() && notify.is_none() && sections.iter().all(|section| section.is_empty())
    }

    /// The database that a word means: its name, also with the name of a snapshot behind an `@`.
    pub fn database(&self, word: &str) -> Option<&Section> {
        let of_snapshot = || self.databases.get(word.rsplit_once('@')?.0);
        self.databases.get(word).or_else(of_snapshot)
    }

    /// Reads the file that the command line or the environment names. If they name none, it reads
    /// the default files. A command that writes the named file may create it (`may_be_new`).
    pub fn load(arguments: &[OsString], may_be_new: bool) -> Result<Self, Failure> {
        let mut config = Self::default();
        if let Some(path) = named(arguments) {
            let is_new = may_be_new && path.symlink_metadata().is_err_and(is_missing);
            if !is_new {
                config.read(&path)?;
            }
            return Ok(config);
        }
        let mut paths = vec![PathBuf::from(PATH)];
        if let Ok(entries) = std::fs::read_dir(DIRECTORY) {
            let mut parts: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            parts.retain(|path| path.extension().is_some_and(|it| it == "toml"));
            parts.sort();
            paths.extend(parts);
        }
        for path in paths.iter().filter(|path| path.exists()) {
            config.read(path)?;
        }
        Ok(config)
    }

    fn read(&mut self, path: &Path) -> Result<(), Failure> {
        let text = read(path)?;
        let table = DeTable::parse(&text).map_err(|error| {
            let line = line(&text, error.span().map_or(0, |span| span.start));
            let place = Place {
                file: path.into(),
                line,
            };
            let hint = match text.lines().nth(line - 1).map(str::trim) {
                Some(table) if table.starts_with('[') && !table.contains(']') => {
                    format!("Close the bracket: {}]", table.trim_end())
                }
                _ => "The file must be TOML: key = \"value\" below [TABLE].".to_owned(),
            };
            mistake(&place, error.message(), &hint)
        })?;
        let lines = Lines {
            text: &text,
            file: path,
        };
        self.take(&lines, table.get_ref())
    }

    fn take(&mut self, lines: &Lines<'_>, table: &DeTable<'_>) -> Result<(), Failure> {
        for (key, value) in table {
            let place = lines.place(key.span().start);
            let name: &str = key.get_ref();
            match value.get_ref() {
                DeValue::Table(inner) if name == "database" => {
                    lines.check_named("database", inner)?;
                    lines.sections(inner, "database", &mut self.databases)?;
                    lines.schedules(inner, &mut self.schedules)?;
                }
                DeValue::Table(inner) if name == "repository" => {
                    lines.check_named("repository", inner)?;
                    lines.sections(inner, "repository", &mut self.repositories)?;
                    lines.schedules(inner, &mut self.schedules)?;
                }
                DeValue::Table(inner) if GROUPS.contains(&name) => {
                    let mut found = BTreeMap::new();
                    lines.sections(inner, name, &mut found)?;
                    for (command, section) in found {
                        merge(&mut self.commands, format!("{name} {command}"), section);
                    }
                }
                DeValue::Table(inner) if name == SCHEDULE => {
                    lines.check_alone(name, inner)?;
                    let section = lines.section(place, inner)?;
                    merge(&mut self.schedules, String::new(), section);
                }
                DeValue::Table(inner) if name == "notify" => {
                    lines.check_alone(name, inner)?;
                    let section = lines.section(place, inner)?;
                    match &mut self.notify {
                        Some(old) => old.entries.extend(section.entries),
                        none => *none = Some(section),
                    }
                }
                DeValue::Table(inner) if name == "object" => {
                    lines.buckets(place, inner, &mut self.buckets)?;
                }
                DeValue::Table(inner) => {
                    lines.check_alone(name, inner)?;
                    let section = lines.section(place, inner)?;
                    merge(&mut self.commands, name.to_owned(), section);
                }
                value => {
                    let entry = lines.entry(place, name, value)?;
                    self.every.insert(name.replace('_', "-"), entry);
                }
            }
        }
        Ok(())
    }
}

/// Merges two sections with one name. The keys of the later file win.
fn merge(into: &mut BTreeMap<String, Section>, name: String, section: Section) {
    match into.get_mut(&name) {
        Some(old) => old.entries.extend(section.entries),
        None => drop(into.insert(name, section)),
    }
}

/// The text of a file, from which the line of a value is found.
struct Lines<'a> {
    text: &'a str,
    file: &'a Path,
}

impl Lines<'_> {
    fn place(&self, offset: usize) -> Place {
        Place {
            file: self.file.to_owned(),
            line: line(self.text, offset),
        }
    }

    /// The tables inside a table.
    fn sections(
        &self,
        table: &DeTable<'_>,
        outer: &str,
        into: &mut BTreeMap<String, Section>,
    ) -> Result<(), Failure> {
        for (key, value) in table {
            let place = self.place(key.span().start);
            let name: &str = key.get_ref();
            let DeValue::Table(inner) = value.get_ref() else {
                let what = format!("{outer} has tables only, and {name} is none");
                return Err(mistake(
                    &place,
                    &what,
                    &format!("Write [{outer}.NAME] above the keys."),
                ));
            };
            let mut own = inner.clone();
            if !GROUPS.contains(&outer)
                && own.get(SCHEDULE).is_some_and(|it| it.get_ref().is_table())
            {
                own.remove(SCHEDULE);
            }
            merge(into, name.to_owned(), self.section(place, &own)?);
        }
        Ok(())
    }

    /// The schedules in the tables of databases or repositories.
    fn schedules(
        &self,
        table: &DeTable<'_>,
        into: &mut BTreeMap<String, Section>,
    ) -> Result<(), Failure> {
        for (key, value) in table {
            let name: &str = key.get_ref();
            for (word, value) in value.get_ref().as_table().into_iter().flatten() {
                let word_is = |text: &str| word.get_ref() == text;
                if let DeValue::Table(inner) = value.get_ref()
                    && word_is(SCHEDULE)
                {
                    let section = self.section(self.place(word.span().start), inner)?;
                    merge(into, name.to_owned(), section);
                }
            }
        }
        Ok(())
    }

    /// The table of all buckets, and the tables of single ones in it.
    fn buckets(
        &self,
        place: Place,
        table: &DeTable<'_>,
        into: &mut BTreeMap<String, Section>,
    ) -> Result<(), Failure> {
        let mut entries = BTreeMap::new();
        for (key, value) in table {
            let place = self.place(key.span().start);
            let name: &str = key.get_ref();
            match value.get_ref() {
                DeValue::Table(inner) => {
                    merge(into, name.to_owned(), self.section(place, inner)?);
                }
                value => {
                    let entry = self.entry(place, name, value)?;
                    entries.insert(name.replace('_', "-"), entry);
                }
            }
        }
        merge(into, String::new(), Section { place, entries });
        Ok(())
    }

    /// Refuses a database or a repository without a name: nobody could say that name to a command.
    fn check_named(&self, outer: &str, named: &DeTable<'_>) -> Result<(), Failure> {
        let mut names = named.keys();
        match names.find(|name| name.get_ref().trim().is_empty()) {
            None => Ok(()),
            Some(name) => Err(mistake(
                &self.place(name.span().start),
                &format!("a {outer} has no name"),
                &format!("Write [{outer}.NAME], with the name that you want to type."),
            )),
        }
    }

    /// Refuses a table in a table that takes keys only.
    fn check_alone(&self, outer: &str, table: &DeTable<'_>) -> Result<(), Failure> {
        let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
        let mut tables = table.iter().filter(|(_, value)| is_table(value.get_ref()));
        let Some((key, _)) = tables.next() else {
            return Ok(());
        };
        let name: &str = key.get_ref();
        let what = format!("no table is called [{outer}.{name}]");
        let hint = match nearest(
            outer,
            ["database", "lab", "object", "repository", "snapshot"],
        ) {
            Some(near) => format!("Did you mean [{near}.{name}]?"),
            None => "Only [database.NAME], [repository.NAME], [object.\"s3://BUCKET\"], \
                     [lab.COMMAND] and [snapshot.COMMAND] have a name of two parts."
                .to_owned(),
        };
        Err(mistake(&self.place(key.span().start), &what, &hint))
    }

    fn section(&self, place: Place, table: &DeTable<'_>) -> Result<Section, Failure> {
        let mut entries = BTreeMap::new();
        for (key, value) in table {
            let place = self.place(key.span().start);
            let name: &str = key.get_ref();
            let entry = self.entry(place.clone(), name, value.get_ref())?;
            let option = name.replace('_', "-");
            if entries.contains_key(&option) {
                let what = format!("{option} is there twice, as {option} and as {name}");
                return Err(mistake(&place, &what, "Keep one of the two lines."));
            }
            entries.insert(option, entry);
        }
        Ok(Section { place, entries })
    }

    fn entry(&self, place: Place, name: &str, value: &DeValue<'_>) -> Result<Entry, Failure> {
        let is_list = matches!(value, DeValue::Array(_));
        let values = texts(value).ok_or_else(|| {
            let (what, hint) = match is_list {
                true => (
                    "a list of texts, or a list of numbers",
                    "Write [\"A\", \"B\"], or leave the line out for the default.",
                ),
                false => (
                    "a text, a number, true or false, or a list of texts",
                    "Options stand in the table of their command, as key = value.",
                ),
            };
            mistake(&place, &format!("{name} must be {what}"), hint)
        })?;
        Ok(Entry {
            place,
            values,
            is_list,
            is_text: is_text(value),
        })
    }
}

/// Whether a value is a text, or a list of texts.
fn is_text(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::String(_) => true,
        DeValue::Array(values) => values.iter().all(|it| is_text(it.get_ref())),
        _ => false,
    }
}

/// A value in the words of an option. A list has at least one value, and all are of one kind.
fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::String(text) => Some(vec![text.clone().into_owned()]),
        DeValue::Integer(number) => Some(vec![number.to_string()]),
        DeValue::Float(number) => Some(vec![number.to_string()]),
        DeValue::Boolean(yes) => Some(vec![yes.to_string()]),
        DeValue::Array(values) => {
            let first = values.iter().next()?.get_ref();
            let each = values.iter().map(|it| {
                let it = it.get_ref();
                let is_alike = discriminant(it) == discriminant(first) && !it.is_array();
                texts(it).filter(|_| is_alike)
            });
            each.collect::<Option<Vec<_>>>().map(|words| words.concat())
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

fn line(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// An error at a place in a file.
pub fn mistake(place: &Place, what: &str, hint: &str) -> Failure {
    Failure::usage(format!("configuration {place}: {what}"), hint)
}

fn is_missing(error: std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// The text of a file. Fails if the file is not text or does not end.
fn read(path: &Path) -> Result<String, Failure> {
    let fault = |what: String| {
        let message = format!("configuration {}: {what}", path.display());
        Failure::usage(message, "Name a file that can be read with --config.")
    };
    let bytes = read_stream_at_most(path, BYTES_MAX).map_err(|error| fault(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| fault("it is not text in UTF-8".to_owned()))?;
    if has_password(&text) || text.contains("webhook") {
        without_core_files();
    }
    Ok(text)
}

/// Whether a connection string in this text may hold a password: `password=...` as in libpq, or
/// `//user:password@host` as in a URI.
pub fn has_password(text: &str) -> bool {
    let in_uri = |line: &str| {
        let mut rests = line.split("://").skip(1);
        rests.any(|rest| {
            let user = rest.split_once('@').map(|(user, _)| user);
            user.is_some_and(|user| user.contains(':') && !user.contains('/'))
        })
    };
    text.lines()
        .any(|line| line.contains("password") || in_uri(line))
}
