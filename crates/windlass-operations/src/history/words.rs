//! Sentences about changes, gaps and clocks. They are the same on the terminal and on a page.

use std::fmt::{Display, Formatter, Result};

use windlass_engine::media::fitted;
use windlass_engine::{counted, show_bytes, show_rate};

use super::causes::{Cause, CauseKind};
use super::changes::{Break, Quantity};
use super::schedule::{ClockJump, Gap};
use crate::moments::local_time;

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self {
            kind,
            before,
            after,
        } = self;
        match kind {
            CauseKind::Setting(name) => {
                let name = name.replace('_', " ");
                write!(f, "{name} was {before} and is {after}")
            }
            CauseKind::Version => write!(f, "{before} made the backups, and {after} does now"),
            CauseKind::Places => write!(f, "the stripes went to {before} and go to {after}"),
            CauseKind::Limit => {
                let words = |text: &str| text.replace('_', " ");
                write!(
                    f,
                    "the limit was the {} and is the {}",
                    words(before),
                    words(after)
                )
            }
            CauseKind::Data(old, new) => {
                let (what, factor) = match new > old {
                    true => ("more data", new / old),
                    false => ("less data", new / old),
                };
                let (old, new) = (show_bytes(*old), show_bytes(*new));
                write!(
                    f,
                    "{what}: {old} were read and {new} are ({factor:.2} times)"
                )
            }
            CauseKind::Latency(place, old, new) => {
                let what = if new > old { "slower" } else { "faster" };
                let (before, after, factor) = (micros(*old), micros(*new), new / old);
                write!(
                    f,
                    "{place} is {what}: half of the transfers took up to {before} and take up to \
                     {after} ({factor:.2} times)"
                )
            }
            CauseKind::Processor(old, new) => {
                let factor = new / old;
                write!(
                    f,
                    "processor time for each GB was {:.2} s and is {:.2} s ({factor:.2} times)",
                    old * 1e9,
                    new * 1e9
                )
            }
        }
    }
}

fn micros(value: f64) -> String {
    match value {
        value if value < 1e3 => format!("{value:.0} us"),
        value if value < 1e6 => format!("{:.1} ms", value / 1e3),
        value => format!("{:.1} s", value / 1e6),
    }
}

/// A moment in nanoseconds since 1970, for [`local_time`].
fn nanos(time: jiff::Timestamp) -> i64 {
    fitted(time.as_nanosecond())
}

impl Display for Break {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let show = |value: f64| match self.quantity {
            Quantity::Rate => show_rate(value),
            Quantity::Ratio => format!("{value:.2}"),
        };
        let (quantity, set_type) = (self.quantity.name(), &self.set_type);
        let ((before, old), (after, new)) = (self.before, self.after);
        let runs = |count: usize| counted(count as u64, "run");
        write!(
            f,
            "{quantity} of {set_type} backups: {} in {}, {} in {} since {}: {:.2} times, and noise \
             explains {:.2}",
            show(before),
            runs(old),
            show(after),
            runs(new),
            local_time(nanos(self.since)),
            self.difference.ratio,
            match self.difference.ratio < 1.0 {
                true => 1.0 / self.difference.needed,
                false => self.difference.needed,
            }
        )
    }
}

impl Display for Gap {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (set_type, from) = (&self.set_type, local_time(nanos(self.from)));
        let usual = hours(self.usual_seconds);
        match self.to {
            Some(to) => {
                let to = local_time(nanos(to));
                write!(f, "no {set_type} backup between {from} and {to}")?;
            }
            None => write!(f, "no {set_type} backup since {from}")?,
        }
        write!(f, "; usual is one every {usual}")?;
        match self.failed {
            0 => Ok(()),
            failed => write!(f, "; {} failed", counted(failed as u64, "run")),
        }
    }
}

fn hours(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

impl Display for ClockJump {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (from, to) = (local_time(nanos(self.from)), local_time(nanos(self.to)));
        write!(f, "the clock went back from {from} to {to} or earlier")
    }
}
