//! Who is told how runs end: the table `[notify]`.
//!
//! Invariant: no message shows the address of a webhook, because whoever knows it can use it.

use std::time::Duration;

use windlass_engine::{parse_seconds, read_regular_at_most};
use windlass_operations::notify::{Told, Webhook};

use super::file::{Config, Entry, Section, mistake};
use crate::exit::Failure;
use crate::nearest;

const KEYS: [&str; 4] = ["webhook", "webhook-file", "on", "timeout"];
const LIMIT: Duration = Duration::from_secs(10);
const LIMIT_MAX_SECONDS: f64 = 300.0;
/// An address is one line.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Whom to tell, and of what.
#[derive(Clone, Debug)]
pub struct Notify {
    /// Or why its file cannot be read: no run fails for that.
    pub webhook: Result<Webhook, String>,
    pub on: Vec<Told>,
}

/// Refuses a table that tells nobody anything. It reads no file.
pub fn check(config: &Config) -> Result<(), Failure> {
    let Some(section) = &config.notify else {
        return Ok(());
    };
    for (name, entry) in &section.entries {
        if !KEYS.contains(&name.as_str()) {
            let hint = nearest::hint(name, KEYS, &format!("It has {}.", KEYS.join(", ")));
            return Err(mistake(
                &entry.place,
                &format!("[notify] has no key {name}"),
                &hint,
            ));
        }
        let is_text = entry.is_text && (!entry.is_list || name == "on");
        if !is_text {
            let what = format!("{name} must be a text");
            return Err(mistake(&entry.place, &what, "Write it in quotes."));
        }
    }
    let one = |key: &str| section.entries.get(key);
    match (one("webhook"), one("webhook-file")) {
        (None, None) => {
            let hint = "Write webhook = \"https://...\", or webhook-file = \"/path\" with a file \
                        that only you can read.";
            Err(mistake(&section.place, "[notify] tells nobody", hint))
        }
        (Some(_), Some(entry)) => {
            let hint = "Leave one of them out.";
            let what = "webhook and webhook-file both say where";
            Err(mistake(&entry.place, what, hint))
        }
        (Some(entry), None) => {
            limit(section)?;
            on(section)?;
            of_text(entry, first(entry), LIMIT).map(drop)
        }
        (None, Some(_)) => {
            limit(section)?;
            on(section).map(drop)
        }
    }
}

/// Whom to tell, and of what. Reads the file with the address, if there is one.
pub fn settings(config: &Config) -> Result<Option<Notify>, Failure> {
    let Some(section) = &config.notify else {
        return Ok(None);
    };
    let limit = limit(section)?;
    let webhook = match (
        section.entries.get("webhook"),
        section.entries.get("webhook-file"),
    ) {
        (Some(entry), _) => Ok(of_text(entry, first(entry), limit)?),
        (None, Some(entry)) => of_file(first(entry), limit),
        (None, None) => return Ok(None),
    };
    Ok(Some(Notify {
        webhook,
        on: on(section)?,
    }))
}

fn of_file(path: &str, limit: Duration) -> Result<Webhook, String> {
    let read = read_regular_at_most(path, FILE_BYTES_MAX);
    let text = read.map_err(|error| format!("webhook-file: cannot read {path}: {error}"))?;
    let webhook = Webhook::new(String::from_utf8_lossy(&text).trim(), limit);
    webhook.map_err(|error| format!("webhook-file {path}: {error}"))
}

fn first(entry: &Entry) -> &str {
    entry.values.first().map_or("", String::as_str)
}

fn of_text(entry: &Entry, text: &str, limit: Duration) -> Result<Webhook, Failure> {
    Webhook::new(text, limit).map_err(|error| {
        let hint = "Write an address that begins with https://";
        mistake(&entry.place, &format!("webhook: {error}"), hint)
    })
}

fn limit(section: &Section) -> Result<Duration, Failure> {
    let Some(entry) = section.entries.get("timeout") else {
        return Ok(LIMIT);
    };
    let seconds = parse_seconds(first(entry)).ok();
    let seconds = seconds.filter(|it| (0.1..=LIMIT_MAX_SECONDS).contains(it));
    let seconds = seconds.ok_or_else(|| {
        let what = format!("timeout cannot be {:?}", first(entry));
        mistake(&entry.place, &what, "Write a time up to 5m, as in 10s.")
    })?;
    Ok(Duration::from_secs_f64(seconds))
}

fn on(section: &Section) -> Result<Vec<Told>, Failure> {
    let Some(entry) = section.entries.get("on") else {
        return Ok(vec![Told::Failure]);
    };
    let known = |text: &String| Told::ALL.into_iter().find(|one| one.name() == text);
    entry
        .values
        .iter()
        .map(|text| {
            known(text).ok_or_else(|| {
                let hint = "Write \"failure\", \"warnings\" or \"success\", or a list of them.";
                mistake(&entry.place, &format!("on cannot be {text:?}"), hint)
            })
        })
        .collect()
}
