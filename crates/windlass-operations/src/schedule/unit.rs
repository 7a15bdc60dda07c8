//! A job as the text of two units: a service that runs it once, and a timer that starts it.
//!
//! What a user wrote reaches a unit only through [`word`] or [`plain`]: no percent sign, dollar,
//! quote or line break of a name or a path means something to systemd.

use std::fmt::Write as _;

use super::error::ScheduleError;
use super::job::{Job, JobKind};

/// With what all names of units begin.
pub(super) const PREFIX: &str = "windlass-";
/// The ending of a service.
pub(super) const SERVICE: &str = ".service";
/// The ending of a timer.
pub(super) const TIMER: &str = ".timer";
/// Longest name of a file.
const NAME_BYTES_MAX: usize = 255;

/// The name of the units of a job, without an ending. Two jobs never have the same name: the
/// characters that a name of a unit may not have are written as numbers.
pub fn unit_name(subject: &str, kind: JobKind) -> String {
    let mut name = PREFIX.to_owned();
    for byte in subject.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b':' => {
                name.push(byte.into());
            }
            other => write!(name, "\\x{other:02x}").unwrap_or_default(),
        }
    }
    format!("{name}-{}", kind.name())
}

/// The first line of every unit of a schedule.
pub(super) fn marker(maker: &str, configuration: &str) -> String {
    let configuration = serde_json::Value::from(configuration);
    format!("# {maker}, from {configuration}")
}

/// The two units of a job, each with its name.
pub(super) fn texts(
    job: &Job,
    all: &[Job],
    marker: &str,
) -> Result<[(String, String); 2], ScheduleError> {
    let name = unit_name(&job.subject, job.kind);
    let bytes = name.len() + SERVICE.len();
    if bytes > NAME_BYTES_MAX {
        let subject = job.subject.clone();
        return Err(ScheduleError::LongName { subject, bytes });
    }
    Ok([
        (format!("{name}{SERVICE}"), service(job, all, marker)),
        (format!("{name}{TIMER}"), timer(job, marker)),
    ])
}

const WARNING: &str = "\
# Do not edit: change the configuration, and install the schedule again.
# What you add in a drop-in (systemctl edit) stays.
";

fn unit_section(job: &Job) -> String {
    let (title, subject) = (job.kind.title(), plain(&job.subject));
    format!(
        "[Unit]\nDescription=Windlass: {title} of {subject}\n\
         Documentation=man:windlass-schedule(1)\n"
    )
}

fn service(job: &Job, all: &[Job], marker: &str) -> String {
    let mut text = format!("{marker}\n{WARNING}{}", unit_section(job));
    text.push_str("After=network-online.target\nWants=network-online.target\n");
    let earlier = all.iter().filter(|other| {
        let is_earlier = other.kind < job.kind && other.subject == job.subject;
        is_earlier && job.kind.is_in_line() && other.kind.is_in_line()
    });
    for other in earlier {
        let name = unit_name(&other.subject, other.kind);
        text.push_str(&format!("After={name}{SERVICE}\n"));
    }
    if let Some(unit) = &job.failure_unit {
        text.push_str(&format!("OnFailure={unit}\n"));
    }
    let command: Vec<_> = job
        .command
        .iter()
        .enumerate()
        .map(|(index, text)| word(text, index == 0))
        .collect();
    text.push_str("\n[Service]\nType=oneshot\n");
    text.push_str(&format!("ExecStart={}\n", command.join(" ")));
    if let Some(user) = &job.user {
        text.push_str(&format!("User={user}\n"));
    }
    text.push_str(
        "# A file in the working directory would come before a database of the same name.\n\
         WorkingDirectory=/\n\
         # 3 means: done, with warnings. They are in the journal.\n\
         SuccessExitStatus=3\n\
         # SIGTERM interrupts the run, which then removes what it has written.\n\
         KillMode=mixed\nTimeoutStopSec=2min\n\
         Nice=10\nIOSchedulingClass=best-effort\nIOSchedulingPriority=7\n",
    );
    text
}

fn timer(job: &Job, marker: &str) -> String {
    let mut text = format!("{marker}\n{WARNING}{}\n[Timer]\n", unit_section(job));
    for calendar in &job.calendars {
        text.push_str(&format!("OnCalendar={calendar}\n"));
    }
    let delay = job.delay.as_secs();
    if delay > 0 {
        text.push_str(&format!(
            "# Each machine begins a little later than the others, and always at the same time.\n\
             RandomizedDelaySec={delay}\nFixedRandomDelay=yes\n"
        ));
    }
    text.push_str(
        "# What was missed while the machine was off is made up for.\nPersistent=yes\n\
         \n[Install]\nWantedBy=timers.target\n",
    );
    text
}

/// A word of a command line, as systemd reads it. The path of the program takes no variables, so a
/// dollar in it stands for itself.
fn word(text: &str, is_program: bool) -> String {
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./=:,+@".contains(&byte);
    let may_begin = !text.starts_with(['@', '-', ':', '+']) || !is_program;
    if !text.is_empty() && text.bytes().all(is_simple) && may_begin {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '%' => quoted.push_str("%%"),
            '$' if !is_program => quoted.push_str("$$"),
            '\n' => quoted.push_str("\\n"),
            letter if letter.is_ascii_control() => {
                write!(quoted, "\\x{:02x}", u32::from(letter)).unwrap_or_default();
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A text for people. A backslash at its end would join the next line.
fn plain(text: &str) -> String {
    let letters = text.chars().map(|letter| match letter {
        '%' => "%%".to_owned(),
        '\\' => "?".to_owned(),
        letter if letter.is_control() => "?".to_owned(),
        letter => letter.to_string(),
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_jobs_never_have_units_of_one_name() {
        let names = ["a b", "a\\x20b", "a/b", "a-b", "a%b", "a@b", "ä", "a-full"];
        let mut units: Vec<_> = names
            .iter()
            .flat_map(|name| JobKind::ALL.map(|kind| unit_name(name, kind)))
            .collect();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\".contains(&byte);
        assert!(units.iter().all(|name| name.bytes().all(is_name)));
        let count = units.len();
        units.sort();
        units.dedup();
        assert_eq!(units.len(), count);
        assert_eq!(unit_name("shop", JobKind::Full), "windlass-shop-full");
        assert_eq!(unit_name("a b", JobKind::Log), "windlass-a\\x20b-log");
    }

    #[test]
    fn nothing_in_a_word_means_something_to_systemd() {
        assert_eq!(word("/usr/bin/windlass", true), "/usr/bin/windlass");
        assert_eq!(word("100% of $HOME", false), "\"100%% of $$HOME\"");
        assert_eq!(word("/opt/$x/w", true), "\"/opt/$x/w\"");
        assert_eq!(word("a\"b\\c\n\u{7}", false), "\"a\\\"b\\\\c\\n\\x07\"");
        assert_eq!(word(";", false), "\";\"");
        assert_eq!(word("", false), "\"\"");
        assert_eq!(plain("50%\n\\"), "50%%??");
    }
}
