//! The programs of systemd: what they say of times and units, and what they are told.
//!
//! Invariant: `systemctl` is run only for the directories of the machine or of this user, and never
//! for any other one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::error::ScheduleError;
use super::files;
use super::job::{Activation, Job, UnitFile, UnitPlace};
use crate::hooks::find_program;

/// The directory of the administrator's units.
pub(super) const SYSTEM_UNITS: &str = "/etc/systemd/system";
/// What judges units and times.
pub(super) const ANALYZE: &str = "systemd-analyze";
/// It is there while the machine's service manager runs.
const RUNNING: &str = "/run/systemd/system";

/// The directory of this user's units.
pub(super) fn user_units() -> Option<PathBuf> {
    let directory = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let configuration = directory("XDG_CONFIG_HOME");
    let configuration = configuration.or_else(|| Some(directory("HOME")?.join(".config")));
    Some(configuration?.join("systemd/user"))
}

/// When a job is due next. None if systemd is not there to say so.
pub(super) fn next(job: &Job) -> Result<Option<Timestamp>, ScheduleError> {
    if find_program(ANALYZE).is_none() {
        return Ok(None);
    }
    let mut all = Vec::new();
    for text in &job.calendars {
        let wrong = |fault: &str| ScheduleError::Calendar {
            origin: job.origin.clone(),
            text: text.clone(),
            fault: fault.to_owned(),
        };
        let (is_right, said) = run(Command::new(ANALYZE).args(["calendar", "--", text]))?;
        if !is_right {
            let fault = said.lines().next().unwrap_or_default();
            return Err(wrong(fault.rsplit(": ").next().unwrap_or(fault)));
        }
        match elapse(&said) {
            Elapse::Never => return Err(wrong("it is in the past, and does not come again")),
            Elapse::At(time) => all.push(time),
            Elapse::Unknown => {}
        }
    }
    Ok(all.into_iter().min())
}

/// What systemd says of a time.
#[derive(Debug, PartialEq, Eq)]
enum Elapse {
    Never,
    At(Timestamp),
    /// A line that this version does not know.
    Unknown,
}

/// Reads `Next elapse: Sun 2026-11-29 02:00:00 UTC`; in another zone a line `(in UTC)` follows.
fn elapse(said: &str) -> Elapse {
    let after = |label: &str| {
        let mut lines = said.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(label))
    };
    let Some(text) = after("(in UTC):").or_else(|| after("Next elapse:")) else {
        return Elapse::Unknown;
    };
    if text.trim() == "never" {
        return Elapse::Never;
    }
    let words: Vec<_> = text.split_whitespace().collect();
    let [_, day, time, "UTC"] = words.as_slice() else {
        return Elapse::Unknown;
    };
    let time = format!("{day}T{time}").parse::<DateTime>();
    let time = time.ok().and_then(|time| time.to_zoned(TimeZone::UTC).ok());
    time.map_or(Elapse::Unknown, |time| Elapse::At(time.timestamp()))
}

/// Lets systemd judge units, in a directory of their own.
pub(super) fn verify(units: &[&UnitFile]) -> Result<(), ScheduleError> {
    let place = Scratch::new()?;
    let mut command = Command::new(ANALYZE);
    command.args(["verify", "--man=no"]);
    for unit in units {
        let path = place.0.join(&unit.name);
        #[expect(clippy::disallowed_methods, reason = "it is removed at once")]
        std::fs::write(&path, &unit.text).map_err(files::io("write", &path))?;
        command.arg(&path);
    }
    // What is wrong with the machine's own units is not said here.
    let (_, said) = run(&mut command)?;
    let is_ours = |line: &&str| units.iter().any(|unit| line.contains(&unit.name));
    let ours: Vec<_> = said.lines().filter(is_ours).collect();
    match ours.is_empty() {
        true => Ok(()),
        false => Err(ScheduleError::Refused {
            said: ours.join("\n"),
        }),
    }
}

/// A directory that is removed when the value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, ScheduleError> {
        let path = std::env::temp_dir().join(format!("windlass-units-{}", Uuid::new_v4()));
        let made = crate::privilege::make_directory(&path, None);
        made.map_err(|error| files::io("make", &path)(std::io::Error::other(error)))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// A service manager that has the units.
pub(super) struct Manager {
    is_user: bool,
    is_running: bool,
}

impl Manager {
    /// That of a place. None if nobody is to be told of the units. Fails if nobody can be.
    pub(super) fn of(place: &UnitPlace) -> Result<Option<Self>, ScheduleError> {
        let is_user = match place {
            UnitPlace::System => false,
            UnitPlace::User => true,
            UnitPlace::Other(_) => return Ok(None),
        };
        if find_program("systemctl").is_none() {
            return Err(ScheduleError::Systemd {
                command: "systemctl".to_owned(),
                said: "there is no such program on this machine".to_owned(),
            });
        }
        let of_user = std::env::var_os("XDG_RUNTIME_DIR");
        let is_running = match is_user {
            false => Path::new(RUNNING).is_dir(),
            true => of_user.is_some_and(|path| Path::new(&path).join("systemd/private").exists()),
        };
        Ok(Some(Self {
            is_user,
            is_running,
        }))
    }

    /// Makes timers known that are there, and starts them. `changed` are those among them that may
    /// have run with another text.
    pub(super) fn enable(
        &self,
        timers: &[String],
        changed: &[String],
    ) -> Result<Activation, ScheduleError> {
        if self.is_running {
            self.tell(&["daemon-reload"], &[])?;
            self.tell(&["enable", "--now"], timers)?;
            // It counts from its new times on.
            self.tell(&["restart"], changed)?;
        } else {
            self.tell(&["enable"], timers)?;
        }
        Ok(match (timers.is_empty(), self.is_running) {
            (true, _) => Activation::None,
            (false, false) => Activation::AtStart,
            (false, true) => Activation::Now,
        })
    }

    /// Ends timers whose units will go. What they have started goes on.
    pub(super) fn disable(&self, timers: &[String]) -> Result<(), ScheduleError> {
        match self.is_running {
            true => self.tell(&["disable", "--now"], timers),
            false => self.tell(&["disable"], timers),
        }
    }

    fn tell(&self, words: &[&str], units: &[String]) -> Result<(), ScheduleError> {
        if units.is_empty() && words != ["daemon-reload"] {
            return Ok(());
        }
        let mut command = Command::new("systemctl");
        if self.is_user {
            command.arg("--user");
        }
        if !self.is_running {
            command.env("SYSTEMD_OFFLINE", "1");
        }
        command.arg("--quiet").args(words).arg("--").args(units);
        match run(&mut command)? {
            (true, _) => Ok(()),
            (false, said) => Err(ScheduleError::Systemd {
                command: format!("systemctl {}", words.join(" ")),
                said: said.trim().to_owned(),
            }),
        }
    }
}

/// Runs a program. Returns whether it succeeded, and what it said.
fn run(command: &mut Command) -> Result<(bool, String), ScheduleError> {
    command.env("LC_ALL", "C").env("SYSTEMD_COLORS", "0");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| ScheduleError::Systemd {
        command: command.get_program().display().to_string(),
        said: error.to_string(),
    })?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ok((output.status.success(), said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_time_is_read_in_any_zone() {
        let utc = "  Original form: Sun 02:00\n    Next elapse: Sun 2026-11-29 02:00:00 UTC\n";
        let time = |text: &str| Elapse::At(text.parse().unwrap());
        assert_eq!(elapse(utc), time("2026-11-29T02:00:00Z"));
        let other = "    Next elapse: Sun 2026-11-29 02:00:00 CET\n       (in UTC): Sun 2026-11-29 \
                     01:00:00 UTC\n";
        assert_eq!(elapse(other), time("2026-11-29T01:00:00Z"));
        assert_eq!(elapse("    Next elapse: never\n"), Elapse::Never);
        assert_eq!(elapse("something else"), Elapse::Unknown);
    }
}
