//! `windlass status`: which operations are under way.

mod run;

use std::time::Duration;

use serde_json::Value;

use crate::cli::Global;
use crate::exit::{Code, Failure};
use crate::status::{self, Report};
use crate::words::moment_of;
use crate::{output, table};
use windlass_engine::show_size;

pub fn run(global: &Global) -> Result<Code, Failure> {
    let reports = status::list().map_err(|error| {
        let message = format!("cannot list what is under way: {error}");
        Failure::new(
            Code::Failed,
            message,
            "Run as the user whose operations they are.",
        )
    })?;
    if global.json {
        let document = serde_json::json!({ "operations": reports });
        output::line(&document.to_string());
    } else if reports.is_empty() {
        output::note("nothing is under way");
    } else {
        reports.iter().for_each(show);
    }
    Ok(Code::Done)
}

fn show(report: &Report) {
    let Report {
        kind,
        title,
        pid,
        phase,
        started,
        ..
    } = report;
    output::line(&format!("{kind:<12}  {title}"));
    table::row("process", &format!("{pid}, since {}", moment_of(started)));
    table::row("phase", phase);
    let lines = run::lines(&report.numbers).unwrap_or_else(|| lines(&report.numbers));
    for (name, text) in lines {
        table::row(&name, &text);
    }
}

/// Numbers of any kind, with the unit at the end of their name. Zeros are left out.
fn lines(numbers: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, value) in numbers.as_object().into_iter().flatten() {
        match value {
            Value::Object(parts) => {
                let there = |(_, value): &(&String, &Value)| value.as_u64() != Some(0);
                let part = |(name, value): (&String, &Value)| {
                    let (name, text) = line(name, value);
                    format!("{name} {text}")
                };
                let parts: Vec<_> = parts.iter().filter(there).map(part).collect();
                if !parts.is_empty() {
                    found.push((words(name), parts.join(", ")));
                }
            }
            Value::Array(lines) => {
                found.extend(lines.iter().map(|line| (words(name), shown(line))));
            }
            value => found.push(line(name, value)),
        }
    }
    found
}

/// The name without its unit, and the number with its unit.
fn line(name: &str, value: &Value) -> (String, String) {
    let unit = value.as_u64().zip(name.rsplit_once('_'));
    match unit {
        Some((number, (name, "bytes"))) => (words(name), show_size(number)),
        Some((number, (name, "nanos"))) => {
            let seconds = Duration::from_nanos(number).as_secs_f64();
            (words(name), format!("{seconds:.2} s"))
        }
        _ => (words(name), shown(value)),
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_kind_are_lines() {
        let numbers = serde_json::json!({
            "reads": 3,
            "cache": {"hits": 2, "misses": 0, "read_bytes": 3072, "decode_nanos": 1_500_000_000},
            "idle": {"hits": 0},
            "messages": ["a"],
        });
        let lines = lines(&numbers);
        let line = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let expected = [
            line("cache", "decode 1.50 s, hits 2, read 3 KiB"),
            line("messages", "a"),
            line("reads", "3"),
        ];
        assert_eq!(lines, expected);
    }
}
