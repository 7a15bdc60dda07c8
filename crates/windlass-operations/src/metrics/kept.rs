//! What a file of metrics says about the databases of other runs. Several databases may share one
//! file, and a run replaces only its own series.
//!
//!   the file as it is --> `Kept::read` --> behind this run's own series of the same family
//!
//! Invariants
//! - Of this run's own operation and subject only the time of the last success is kept.
//! - A line is kept only if Prometheus can read it: one bad line would cost the whole file.
//! - A restore is forgotten a week after it began. Each restore may have another target, and the
//!   file would grow for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The labels that tell runs apart: the operation and the subject, escaped as in the file.
type RunLabels = (String, String);

/// After this time a restore is no longer in the file.
const RESTORE_SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;

/// The metric of which a run's own series is kept, too.
pub const LAST_SUCCESS: &str = "windlass_last_success_time_seconds";
const STARTED: &str = "windlass_run_start_time_seconds";

/// One metric with all of its kept series.
#[derive(Default)]
struct Family {
    kind: Option<String>,
    help: Option<String>,
    /// The value of each series, as it stands in the file, by its labels.
    series: BTreeMap<String, (RunLabels, String)>,
}

/// The series of other runs.
#[derive(Default)]
pub struct Kept {
    families: BTreeMap<String, Family>,
    /// When this run's operation and subject last succeeded.
    pub own_success: Option<f64>,
}

impl Kept {
    /// Reads a file. `own` are the labels that this run's series have in common.
    pub fn read(file: &str, own: &str, now: f64) -> Self {
        let mut kept = Self::default();
        let own = run_of(own);
        for line in file.lines() {
            match line.strip_prefix("# ") {
                Some(comment) => kept.describe(comment),
                None => kept.add(line, own.as_ref()).unwrap_or_default(),
            }
        }
        kept.forget_restores(now);
        kept
    }

    /// Appends the kept series of a family whose description has been written.
    pub fn append(&mut self, name: &str, out: &mut String) {
        for (labels, (_, value)) in self.families.remove(name).unwrap_or_default().series {
            // Writing into memory does not fail.
            writeln!(out, "{name}{{{labels}}} {value}").unwrap_or_default();
        }
    }

    /// Appends all that is left: families of which this run has no series.
    pub fn append_rest(&mut self, out: &mut String) {
        let names: Vec<_> = self.families.keys().cloned().collect();
        for name in names {
            let family = &self.families[&name];
            if !family.series.is_empty() {
                let help = family.help.as_deref().unwrap_or("Of another run.");
                let kind = family.kind.as_deref().unwrap_or("untyped");
                writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").unwrap_or_default();
            }
            self.append(&name, out);
        }
    }

    fn describe(&mut self, comment: &str) {
        let mut words = comment.splitn(3, ' ');
        let (Some(what), Some(name), Some(text)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        if !is_ours(name) {
            return;
        }
        let family = self.families.entry(name.to_owned()).or_default();
        match what {
            "HELP" if !text.contains('\\') => family.help = Some(text.to_owned()),
            "TYPE" if ["gauge", "counter"].contains(&text) => family.kind = Some(text.to_owned()),
            _ => {}
        }
    }

    /// Keeps a series, unless it is this run's own or Prometheus could not read it.
    fn add(&mut self, line: &str, own: Option<&RunLabels>) -> Option<()> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.strip_suffix('}')?.split_once('{')?;
        let (run, number) = (run_of(labels)?, value.parse::<f64>().ok()?);
        if !is_ours(name) {
            return None;
        }
        if Some(&run) == own {
            self.own_success = (name == LAST_SUCCESS)
                .then_some(number)
                .or(self.own_success);
            return None;
        }
        let family = self.families.entry(name.to_owned()).or_default();
        family
            .series
            .insert(labels.to_owned(), (run, value.to_owned()));
        Some(())
    }

    fn forget_restores(&mut self, now: f64) {
        let started = self.families.get(STARTED).into_iter();
        let series = started.flat_map(|family| family.series.values());
        let is_old = |value: &str| {
            value
                .parse()
                .is_ok_and(|at: f64| now - at > RESTORE_SECONDS_MAX)
        };
        let old: BTreeSet<RunLabels> = series
            .filter(|(run, value)| run.0 == "restore" && is_old(value))
            .map(|(run, _)| run.clone())
            .collect();
        for family in self.families.values_mut() {
            family.series.retain(|_, (run, _)| !old.contains(run));
        }
    }
}

/// The run that a series is of. None if the labels are not written as Prometheus reads them.
fn run_of(labels: &str) -> Option<RunLabels> {
    let mut pairs = BTreeMap::new();
    let mut rest = labels;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_at(value_end(after)?);
        if !is_name(name) || pairs.insert(name, value).is_some() {
            return None;
        }
        match &after[1..] {
            "" => break,
            more => rest = more.strip_prefix(',')?,
        }
    }
    let label = |name| pairs.get(name).map(|value| (*value).to_owned());
    Some((label("operation")?, label("subject")?))
}

/// Where the quotation mark at the end of a label's value is.
fn value_end(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    loop {
        match bytes.next()? {
            (at, b'"') => return Some(at),
            (_, b'\\') if !matches!(bytes.next()?.1, b'\\' | b'"' | b'n') => return None,
            _ => {}
        }
    }
}

fn is_ours(metric: &str) -> bool {
    metric.starts_with("windlass_") && is_name(metric)
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let mut bytes = name.bytes();
    bytes.next().is_some_and(is_letter)
        && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = r#"operation="backup",subject="own""#;

    fn told(file: &str, now: f64) -> String {
        let mut out = String::new();
        Kept::read(file, OWN, now).append_rest(&mut out);
        out
    }

    #[test]
    fn only_lines_that_prometheus_reads_are_kept() {
        let good = concat!(
            "# HELP windlass_run_success x\n# TYPE windlass_run_success gauge\n",
            r#"windlass_run_success{operation="backup",subject="a \"b\", c} 1"} 0"#,
            "\n"
        );
        assert_eq!(told(good, 0.0), good);
        for bad in [
            r#"windlass_run_success{operation="backup",subject="own"} 0"#,
            r#"windlass_run_success{subject="own",operation="backup"} 0"#,
            r#"windlass_run_success{operation="backup",subject="x"} zero"#,
            r#"windlass_run_success{operation="backup",subject="x"} 0 1700000000000"#,
            r#"windlass_run_success{operation="backup",subject="x\y"} 0"#,
            r#"windlass_run_success{operation="backup",subject="x"y} 0"#,
            r#"windlass_run_success{operation="backup",subject="x",subject="y"} 0"#,
            r#"windlass_run_success{operation="backup",subject="x",1="y"} 0"#,
            r#"windlass_run_success{operation="backup"} 0"#,
            r#"other_run_success{operation="backup",subject="x"} 0"#,
            r#"windlass_run success{operation="backup",subject="x"} 0"#,
        ] {
            assert_eq!(told(bad, 0.0), "", "{bad}");
        }
    }

    #[test]
    fn a_restore_is_forgotten_after_a_week_and_a_backup_is_not() {
        let line = |metric: &str, operation: &str| {
            format!("windlass_{metric}{{operation=\"{operation}\",subject=\"x\"}} 1000\n")
        };
        let file = ["restore", "backup"].map(|operation| {
            line("run_start_time_seconds", operation) + &line("run_success", operation)
        });
        let week = 7.0 * 86400.0;
        let early = told(&file.concat(), 1000.0 + week);
        assert_eq!(early.matches("\"restore\"").count(), 2, "{early}");
        let late = told(&file.concat(), 1001.0 + week);
        assert_eq!(late.matches("\"restore\"").count(), 0, "{late}");
        assert_eq!(late.matches("\"backup\"").count(), 2, "{late}");
    }
}
