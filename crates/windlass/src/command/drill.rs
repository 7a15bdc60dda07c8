//! `windlass drill`: proves that a backup can be used.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use windlass_engine::show_size;
use windlass_operations::drill::{
    Answer, DrillOutcome, DrillRequest, Question, RestoreProof, drill,
};
use windlass_operations::{Ending, Watching};

use super::verify::relations;
use crate::cli::{Drill, Global, Layout};
use crate::exit::{Code, Failure};
use crate::observer::Terminal;
use crate::output::{self, Tone};
use crate::words::duration;
use crate::{requests, signals};

pub fn run(global: &Global, arguments: &Drill) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let caller = requests::caller(global, Terminal::new(global, false, 10));
    let (outcome, ending) = drill(&caller, &request(global, arguments)?, &cancel)?;
    if global.json {
        output::line(&document(&outcome).to_string());
    } else {
        show(&outcome, global.quiet);
    }
    relations::warn(&outcome.inspected);
    complain(&outcome);
    Ok(output::degraded(ending.into()))
}

fn request(global: &Global, arguments: &Drill) -> Result<DrillRequest, Failure> {
    let (asked, expected) = (arguments.query.len(), arguments.expect.len());
    if expected > 0 && expected != asked {
        return Err(Failure::usage(
            format!("--expect: there are {asked} queries and {expected} expected answers"),
            "Write one --expect for each --query, in the same order, or none.",
        ));
    }
    let question = |(index, sql): (usize, &String)| Question {
        sql: sql.clone(),
        expected: arguments.expect.get(index).cloned(),
    };
    Ok(DrillRequest {
        set: requests::sets(global, &arguments.set, &arguments.choice),
        moment: arguments.moment(),
        seed: arguments
            .random
            .then(|| arguments.seed.unwrap_or_else(any_seed)),
        questions: arguments.query.iter().enumerate().map(question).collect(),
        database: arguments.dbname.clone(),
        open: requests::opening(&arguments.opening, false),
        restore: arguments.into.clone().filter(|_| arguments.restore),
        settings: requests::settings(&arguments.buffers, &Layout::default())?,
        watching: Watching {
            metrics_file: arguments.metrics_file.clone(),
            ..Watching::default()
        },
    })
}

/// Another number each time.
fn any_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.unwrap_or_default().subsec_nanos();
    u64::from(nanos) ^ u64::from(std::process::id()).rotate_left(16)
}

fn show(outcome: &DrillOutcome, quiet: bool) {
    if !quiet {
        if let Some(seed) = outcome.seed {
            output::entry("drawn", &format!("by --seed {seed}"), Tone::Plain);
        }
        let first = duration(outcome.first_answer_seconds);
        let text = format!("{}: first answer after {first}", outcome.title);
        output::entry("drilled", &text, Tone::Plain);
    }
    relations::print(&outcome.inspected, quiet);
    for answer in &outcome.answers {
        let (sql, took) = (&answer.question.sql, duration(answer.seconds));
        match (&answer.answer, answer.is_right()) {
            (Ok(text), true) if !quiet => {
                output::entry("answer", &format!("{sql}: {text}, in {took}"), Tone::Good);
            }
            (_, true) => {}
            (answer, false) => {
                let (Ok(text) | Err(text)) = answer;
                output::entry("wrong", &format!("{sql}: {text}"), Tone::Bad);
            }
        }
    }
    if let Some(restored) = outcome.restored.as_ref().filter(|_| !quiet) {
        show_restore(restored);
    }
}

fn show_restore(restored: &RestoreProof) {
    let (size, took) = (show_size(restored.bytes), duration(restored.seconds));
    let foretold = match restored.predicted_seconds {
        Some(seconds) => {
            let times = restored.seconds / seconds;
            format!("the plan said {}: {times:.2} times that", duration(seconds))
        }
        None => "the plan says nothing of it: too short, or storage that nobody probed".to_owned(),
    };
    let text = format!("{size} in {took}; {foretold}");
    output::entry("restored", &text, Tone::Good);
    output::entry("verdict", &restored.verdict, Tone::Plain);
}

/// Reports at the end what is wrong.
fn complain(outcome: &DrillOutcome) {
    if outcome.inspected.is_damaged() {
        output::note(&format!(
            "error: set {} or its database is damaged",
            outcome.set_id
        ));
        output::note("hint: `windlass verify --open` on this set lists all of its damage.");
    }
    let wrong = outcome.answers.iter().filter(|one| !one.is_right());
    for Answer {
        question, answer, ..
    } in wrong
    {
        let sql = &question.sql;
        match (answer, &question.expected) {
            (Ok(answer), Some(expected)) => output::note(&format!(
                "error: {sql:?} gave {:?}, and {:?} was expected",
                answer.trim(),
                expected.trim()
            )),
            (Ok(answer) | Err(answer), _) => {
                output::note(&format!("error: {sql:?} gave no answer: {answer}"));
            }
        }
    }
}

fn document(outcome: &DrillOutcome) -> Value {
    let answers = outcome.answers.iter().map(|one| {
        json!({
            "query": one.question.sql,
            "expected": one.question.expected,
            "answer": one.answer.as_ref().ok(),
            "error": one.answer.as_ref().err(),
            "right": one.is_right(),
            "seconds": one.seconds,
        })
    });
    json!({
        "set_id": outcome.set_id,
        "drilled": outcome.title,
        "seed": outcome.seed,
        "first_answer_seconds": outcome.first_answer_seconds,
        "seconds": outcome.seconds,
        "open": relations::document(&outcome.inspected),
        "answers": answers.collect::<Vec<_>>(),
        "restore": outcome.restored.as_ref().map(|restored| json!({
            "seconds": restored.seconds,
            "predicted_seconds": restored.predicted_seconds,
            "bytes": restored.bytes,
            "verdict": restored.verdict,
        })),
        "ok": matches!(outcome.ending(), Ending::Done | Ending::Warnings),
    })
}
