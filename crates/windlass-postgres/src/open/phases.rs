//! Where the time of a server's start goes, by the times in its own log.
//!
//!   starting --> redo starts --> redo done --> ready --> a session answers
//!
//! A log whose lines begin with something else than our configuration asks for has no phases: then
//! the whole start is one.

use std::path::Path;
use std::time::{Duration, Instant};

/// What the server says when a phase begins, and what it is called. Not every start has each.
const MARKS: [(&str, &str); 3] = [
    ("LOG:  starting PostgreSQL", STARTING),
    ("LOG:  redo starts at", "redo"),
    ("LOG:  redo done at", "checkpoint after the redo"),
];
const READY: &str = "LOG:  database system is ready to accept connections";
const STARTING: &str = "starting the server";
/// The letters of `2026-11-21 11:00:00.000`.
const TIME_LETTERS: usize = 23;

/// Measures the phases of a start.
pub(super) struct Watch {
    phases: Vec<(&'static str, Duration)>,
    since: Instant,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            phases: Vec::new(),
            since: Instant::now(),
        }
    }

    /// A phase ends now.
    pub(super) fn end(&mut self, name: &'static str) {
        let took = self.lap();
        self.phases.push((name, took));
    }

    /// The server has become ready, and this is its log.
    pub(super) fn end_start(&mut self, log: &str) {
        let took = self.lap();
        let mut found = of_log(log);
        let known: Duration = found.iter().map(|(_, took)| *took).sum();
        let rest = took.saturating_sub(known);
        match found.first_mut() {
            Some((_, first)) => *first += rest,
            None => found.push((STARTING, took)),
        }
        self.phases.append(&mut found);
    }

    /// All of them, in order.
    pub(super) fn phases(self) -> Vec<(&'static str, Duration)> {
        self.phases
    }

    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.since, now))
    }
}

/// The phases of which a log tells: from the first mark until the server is ready.
fn of_log(log: &str) -> Vec<(&'static str, Duration)> {
    let mut begun: Vec<(&'static str, jiff::civil::DateTime)> = Vec::new();
    for line in log.lines() {
        let ends = line.contains(READY);
        let mark = MARKS.iter().find(|(said, _)| line.contains(said));
        let time = line.get(..TIME_LETTERS).and_then(|text| text.parse().ok());
        match (mark, time) {
            (Some((_, name)), Some(time)) => begun.push((name, time)),
            (None, Some(time)) if ends => {
                let later = begun.iter().skip(1).map(|(_, time)| *time).chain([time]);
                let took = begun.iter().zip(later);
                return took
                    .map(|((name, from), to)| (*name, between(*from, to)))
                    .collect();
            }
            _ => {}
        }
    }
    Vec::new()
}

/// What a server wrote into its log. One that cannot be read says no phases, and the server runs.
pub(super) fn said(log: &Path) -> String {
    match std::fs::read(log) {
        Ok(said) => String::from_utf8_lossy(&said).into_owned(),
        Err(_) => String::new(),
    }
}

/// A clock that was set back in between took no time.
fn between(from: jiff::civil::DateTime, to: jiff::civil::DateTime) -> Duration {
    match to.duration_since(from).try_into() {
        Ok(passed) => passed,
        Err(_) => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_recovery_has_its_phases() {
        let log = "\
            2026-11-21 11:00:00.100 UTC [7] LOG:  starting PostgreSQL 15.18\n\
            2026-11-21 11:00:00.110 UTC [8] LOG:  database system was interrupted\n\
            2026-11-21 11:00:00.150 UTC [8] LOG:  redo starts at 0/1526930\n\
            2026-11-21 11:00:01.400 UTC [8] LOG:  redo done at 0/1596A50 system usage: CPU: user\n\
            2026-11-21 11:00:01.700 UTC [7] LOG:  database system is ready to accept connections\n";
        let millis = |(name, took): (&'static str, Duration)| (name, took.as_millis());
        let found: Vec<_> = of_log(log).into_iter().map(millis).collect();
        let after = "checkpoint after the redo";
        assert_eq!(found, [(STARTING, 50), ("redo", 1250), (after, 300)]);
    }

    #[test]
    fn a_start_without_a_redo_or_without_times_is_one_phase() {
        let log = "\
            2026-11-21 11:00:00.100 UTC [7] LOG:  starting PostgreSQL 15.18\n\
            2026-11-21 11:00:00.200 UTC [7] LOG:  database system is ready to accept connections\n";
        assert_eq!(of_log(log), [(STARTING, Duration::from_millis(100))]);
        let without: String = log
            .lines()
            .map(|line| format!("{}\n", &line[28..]))
            .collect();
        let mut watch = Watch::new();
        watch.end_start(&without);
        let names: Vec<_> = watch.phases().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [STARTING]);
    }
}
