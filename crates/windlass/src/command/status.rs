//! `windlass status`: what is under way.

use serde_json::Value;

use crate::cli::Global;
use crate::exit::{Code, Failure};
use crate::status::{self, Report};
use crate::{output, table};

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
    table::row("process", &format!("{pid}, since {started}"));
    table::row("phase", phase);
    let Value::Object(numbers) = &report.numbers else {
        return;
    };
    for (name, value) in numbers {
        match value {
            Value::Object(parts) => {
                let parts: Vec<_> = parts
                    .iter()
                    .map(|(name, value)| format!("{} {}", plain(value), words(name)))
                    .collect();
                table::row(&words(name), &parts.join(", "));
            }
            Value::Array(lines) => {
                lines
                    .iter()
                    .for_each(|line| table::row(&words(name), &plain(line)));
            }
            value => table::row(&words(name), &plain(value)),
        }
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
