//! The schedule: when each database is backed up, verified and so on, from the tables of it.
//!
//!   [schedule]                    # for every database
//!   full = "Sun 02:00"
//!   diff = "Mon..Sat 02:00"
//!
//!   [database.shop.schedule]      # for this one; what it says wins
//!   full = "02:00"
//!   diff = "off"
//!
//! A repository has a table of its own for what is done with all of its sets. The times are those
//! of systemd, which alone understands them.

use std::path::Path;
use std::time::Duration;

use windlass_engine::parse_seconds;
use windlass_operations::schedule::{Job, JobKind};

use super::file::{Config, Entry, Section, mistake};
use super::repositories;
use crate::exit::Failure;
use crate::nearest;

/// What leaves a job out.
const OFF: &str = "off";
const SETTINGS: [&str; 3] = ["delay", "user", "failure-unit"];
/// What is done with the sets of a repository, of whatever database.
const OF_REPOSITORY: [JobKind; 2] = [JobKind::Verify, JobKind::Expire];
const DELAY: Duration = Duration::from_secs(600);
/// The log comes every few minutes.
const LOG_DELAY_MAX: Duration = Duration::from_secs(30);
const DELAY_MAX: Duration = Duration::from_secs(24 * 3600);

/// Refuses tables that make no schedule, whatever command runs.
pub fn check(config: &Config) -> Result<(), Failure> {
    for (name, section) in &config.schedules {
        let of_repository = config.repositories.contains_key(name);
        for (key, entry) in &section.entries {
            check_entry(key, entry, of_repository)?;
        }
    }
    Ok(())
}

fn check_entry(key: &str, entry: &Entry, of_repository: bool) -> Result<(), Failure> {
    let kinds = JobKind::ALL.iter();
    let kinds = kinds.filter(|kind| !of_repository || OF_REPOSITORY.contains(kind));
    let jobs: Vec<_> = kinds.map(|kind| kind.name()).collect();
    if jobs.contains(&key) {
        let is_time = |text: &String| {
            let is_plain = |letter: char| !letter.is_control() && letter != '%' && letter != '\\';
            !text.trim().is_empty() && text.chars().all(is_plain)
        };
        let is_off = entry.values.iter().any(|text| text == OFF) && entry.is_list;
        if !entry.is_text || !entry.values.iter().all(is_time) || is_off {
            let what = format!("{key} is no time, and no list of times");
            let hint = format!(
                "Write it as systemd does: {key} = \"Sun 02:00\", or [\"06:00\", \"18:00\"], or \"off\"."
            );
            return Err(mistake(&entry.place, &what, &hint));
        }
        return Ok(());
    }
    if SETTINGS.contains(&key) {
        return check_setting(key, entry);
    }
    let owner = match of_repository {
        true => "the schedule of a repository",
        false => "a schedule",
    };
    let what = format!("{owner} has no key {key}");
    let meant = match key {
        "differential" => Some("diff"),
        "incremental" => Some("incr"),
        _ => nearest::nearest(key, jobs.iter().copied().chain(SETTINGS)),
    };
    let hint = match meant {
        Some(near) if jobs.contains(&near) || SETTINGS.contains(&near) => {
            format!("Did you mean {near}?")
        }
        _ => format!("It has {}, {}.", jobs.join(", "), SETTINGS.join(", ")),
    };
    Err(mistake(&entry.place, &what, &hint))
}

fn check_setting(key: &str, entry: &Entry) -> Result<(), Failure> {
    let text = entry.values.first().map_or("", String::as_str);
    let is_name = |allowed: &str| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || allowed.contains(letter);
        !text.is_empty() && text.chars().all(is_letter)
    };
    let (is_right, hint) = match key {
        "delay" => (
            delay_of(text).is_some(),
            "Write a time up to a day: delay = \"10m\"; \"0s\" is without one.",
        ),
        "user" => (
            is_name("_-."),
            "Write the name of a user: user = \"postgres\"",
        ),
        _ => (
            is_name(":-_.\\@%") && text.contains('.'),
            "Write the name of a unit: failure-unit = \"mail@%n.service\"",
        ),
    };
    match is_right && !entry.is_list && entry.is_text {
        true => Ok(()),
        false => Err(mistake(
            &entry.place,
            &format!("{key} cannot be {text:?}"),
            hint,
        )),
    }
}

fn delay_of(text: &str) -> Option<Duration> {
    let seconds = parse_seconds(text).ok().filter(|it| *it >= 0.0)?;
    let delay = Duration::from_secs_f64(seconds);
    (delay <= DELAY_MAX).then_some(delay)
}

/// The jobs. Their commands lack the program.
pub fn jobs(config: &Config) -> Result<Vec<Job>, Failure> {
    let mut jobs = Vec::new();
    let common = config.schedules.get("");
    for (name, section) in &config.databases {
        let own = config.schedules.get(name);
        let of = Scheduled {
            config,
            name,
            tables: [own, common],
        };
        for kind in JobKind::ALL {
            if let Some(entry) = of.entry(kind.name(), [own, common]) {
                of.check(kind, section, entry)?;
                jobs.extend(of.job(kind, entry));
            }
        }
    }
    for name in config.repositories.keys() {
        let own = config.schedules.get(name);
        let of = Scheduled {
            config,
            name,
            tables: [own, common],
        };
        for kind in OF_REPOSITORY {
            if let Some(entry) = of.entry(kind.name(), [own, None]) {
                of.check_rules(kind, entry)?;
                jobs.extend(of.job(kind, entry));
            }
        }
    }
    Ok(jobs)
}

/// Whether a device or a source is a path that depends on where a command runs.
fn is_relative(word: &str) -> bool {
    word != "nul" && !word.starts_with('/') && !word.contains("://") && !word.contains('=')
}

/// A database or a repository with its tables.
struct Scheduled<'a> {
    config: &'a Config,
    name: &'a str,
    tables: [Option<&'a Section>; 2],
}

impl<'a> Scheduled<'a> {
    /// What the first of these tables says that has the key. None if that leaves the job out.
    fn entry(&self, key: &str, tables: [Option<&'a Section>; 2]) -> Option<&'a Entry> {
        let found = tables.into_iter().flatten();
        let found = found.filter_map(|section| section.entries.get(key)).next();
        found.filter(|entry| entry.values != [OFF])
    }

    fn setting(&self, key: &str) -> Option<&'a str> {
        let entry = self.entry(key, self.tables)?;
        entry.values.first().map(String::as_str)
    }

    /// Refuses a job that would fail each time.
    fn check(&self, kind: JobKind, section: &Section, entry: &Entry) -> Result<(), Failure> {
        let name = self.name;
        let backup = self.config.commands.get("backup");
        let places = repositories::of_section(self.config, &[Some(section), backup])?;
        if !places.iter().any(|place| place != "nul") {
            let what = format!("{} of {name}: nothing says where its sets are", kind.name());
            let hint = format!(
                "Write to = [\"/path/of/a/directory\"], or repo = \"NAME\", below [database.{name}]."
            );
            return Err(mistake(&entry.place, &what, &hint));
        }
        let source = section.source(name)?;
        let all = places.iter().chain([&source]);
        if let Some(relative) = all.into_iter().find(|word| is_relative(word)) {
            let what = format!(
                "{} of {name}: {relative} is relative, and jobs run in /",
                kind.name()
            );
            return Err(mistake(&entry.place, &what, "Write the whole path."));
        }
        self.check_name(kind, entry)?;
        if kind == JobKind::Log {
            self.check_log(places, entry)?;
        }
        self.check_rules(kind, entry)
    }

    /// Refuses to keep a log where no command keeps it.
    fn check_log(&self, places: &[String], entry: &Entry) -> Result<(), Failure> {
        if places.len() == 1 {
            return Ok(());
        }
        let what = format!("log of {}: a log goes to one place", self.name);
        let hint = "Write log = \"off\" in its schedule, and let `windlass receive` or archive-push \
                    keep the log in one of its places.";
        Err(mistake(&entry.place, &what, hint))
    }

    /// Refuses a name that a command which reads sets would take for a path.
    fn check_name(&self, kind: JobKind, entry: &Entry) -> Result<(), Failure> {
        let reads_sets = matches!(kind, JobKind::Verify | JobKind::Drill | JobKind::Expire);
        let path = Path::new("/").join(self.name);
        let is_there = path.symlink_metadata().is_ok();
        if !reads_sets || !is_there && !self.name.contains('/') {
            return Ok(());
        }
        let why = match is_there {
            true => format!("there is {}, and jobs run in /", path.display()),
            false => "a word with a slash is a path".to_owned(),
        };
        let what = format!("{} of {}: {why}", kind.name(), self.name);
        let hint = "Give the database another name.";
        Err(mistake(&entry.place, &what, hint))
    }

    /// Refuses to remove sets without rules.
    fn check_rules(&self, kind: JobKind, entry: &Entry) -> Result<(), Failure> {
        let rules = self.config.commands.get("expire");
        let has_rule =
            |section: &Section| section.entries.keys().any(|key| key.starts_with("keep-"));
        if kind != JobKind::Expire || rules.is_some_and(has_rule) {
            return Ok(());
        }
        let what = format!("expire of {}: no rule says what stays", self.name);
        let hint = "Write a rule below [expire], as in keep-full = 2 or keep-within = \"30d\".";
        Err(mistake(&entry.place, &what, hint))
    }

    fn job(&self, kind: JobKind, entry: &Entry) -> Option<Job> {
        let delay = self.setting("delay").map_or(Some(DELAY), delay_of)?;
        let delay = match kind {
            JobKind::Log => delay.min(LOG_DELAY_MAX),
            _ => delay,
        };
        let words: &[&str] = match kind {
            JobKind::Full => &["backup", "--type", "full"],
            JobKind::Diff => &["backup", "--type", "diff"],
            JobKind::Incr => &["backup", "--type", "incr"],
            JobKind::Log => &["backup", "--type", "log"],
            JobKind::Check => &["check"],
            JobKind::Verify => &["verify"],
            JobKind::Drill => &["drill"],
            JobKind::Expire => &["expire"],
        };
        let mut command: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        command.push("--quiet".to_owned());
        if self.name.starts_with('-') {
            command.push("--".to_owned());
        }
        command.push(self.name.to_owned());
        Some(Job {
            subject: self.name.to_owned(),
            kind,
            calendars: entry.values.clone(),
            delay,
            user: self.setting("user").map(str::to_owned),
            failure_unit: self.setting("failure-unit").map(str::to_owned),
            command,
            origin: format!("configuration {}: {}", entry.place, kind.name()),
        })
    }
}
