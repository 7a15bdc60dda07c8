//! A drill: proves that a backup can be used, without a restore or with one.
//!
//!   request --> moment: newest, named, or drawn --> open it --> first answer --> checks, queries
//!                                                                 --> restored? --> time, removed
//!
//! Invariants
//! - The sets and their log are only read. What the opened server writes is thrown away.
//! - A drill succeeds only if the database answered, the database's own tools found no damage, and
//!   every query gave what was expected.

mod error;
mod pick;
mod restored;

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;
use windlass_engine::Cancel;

use crate::caller::Caller;
use crate::ended::RunCounts;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::history::RunAbout;
use crate::hooks::HookCommands;
use crate::opened::{OpenSettings, Opened};
use crate::places::SetRequest;
use crate::recovery::RecoveryRequest;
use crate::run::Run;
use crate::settings::RunSettings;
use crate::verify::{self, Inspected};
use crate::watch::Watching;

pub use error::DrillError;
pub use restored::RestoreProof;

/// What to prove.
#[derive(Clone, Debug)]
pub struct DrillRequest {
    /// The sets.
    pub set: SetRequest,
    /// The moment: without a choice of a set, the latest state of the place.
    pub moment: RecoveryRequest,
    /// Whether to draw one of the sets, by this seed.
    pub seed: Option<u64>,
    /// What to ask the database.
    pub questions: Vec<Question>,
    /// PostgreSQL: the database to ask.
    pub database: Option<String>,
    /// How it is opened.
    pub open: OpenSettings,
    /// Whether to restore all of it as well, into a new directory in this one that goes afterwards.
    pub restore: Option<PathBuf>,
    /// Buffers, threads, storage of that restore.
    pub settings: RunSettings,
    /// How the drill is recorded: its end is.
    pub watching: Watching,
}

/// A question to the database.
#[derive(Clone, Debug)]
pub struct Question {
    /// In SQL.
    pub sql: String,
    /// The answer that it must give; without it any answer is right.
    pub expected: Option<String>,
}

/// What the database answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// Columns separated by `|`, rows by line breaks; or why there is no answer.
    pub answer: Result<String, String>,
    /// How long it took.
    pub seconds: f64,
}

impl Answer {
    /// Whether it is what was expected.
    pub fn is_right(&self) -> bool {
        match (&self.answer, &self.question.expected) {
            (Ok(answer), Some(expected)) => answer.trim() == expected.trim(),
            (Ok(_), None) => true,
            (Err(_), _) => false,
        }
    }
}

/// What was proven.
pub struct DrillOutcome {
    /// The set.
    pub set_id: String,
    /// What was opened, in words.
    pub title: String,
    /// The seed with which the set was drawn.
    pub seed: Option<u64>,
    /// How long it took from the beginning to the first answer.
    pub first_answer_seconds: f64,
    /// What the database's own tools found.
    pub inspected: Inspected,
    /// What was asked, and answered.
    pub answers: Vec<Answer>,
    /// The restore, if one was asked for and nothing was damaged.
    pub restored: Option<RestoreProof>,
    /// How long all of it took.
    pub seconds: f64,
}

impl DrillOutcome {
    /// How the drill ends. A wrong answer is no damage of the set: it is a failure.
    pub fn ending(&self) -> Ending {
        let are_right = self.answers.iter().all(Answer::is_right);
        match (self.inspected.is_damaged(), are_right) {
            (true, _) => Ending::Damage,
            (false, false) => Ending::Failed,
            (false, true) if self.inspected.has_warnings() => Ending::Warnings,
            (false, true) => Ending::Done,
        }
    }
}

/// Does it.
pub fn drill(
    caller: &Caller,
    request: &DrillRequest,
    cancel: &Cancel,
) -> Result<(DrillOutcome, Ending), OperationError> {
    let about = (caller, &request.watching, &HookCommands::default());
    let series = verify::series_of(&request.set);
    let run = Run::new(about, "drill", (&series, &series), cancel);
    run.go_unwatched(|run| {
        let outcome = prove(caller, request, run, cancel)?;
        let ending = outcome.ending();
        let counts = RunCounts {
            set_id: Some(outcome.set_id.clone()),
            set_type: None,
            stripes: Vec::new(),
            bytes_read: 0,
            bytes_written: 0,
            seconds: outcome.seconds,
            verdict: String::new(),
        };
        Ok((outcome, ending, counts))
    })
}

fn prove(
    caller: &Caller,
    request: &DrillRequest,
    run: &Run<'_>,
    cancel: &Cancel,
) -> Result<DrillOutcome, OperationError> {
    let begun = Instant::now();
    let picked = pick::pick(caller, request)?;
    let mut about = RunAbout::of_set(picked.set().description());
    run.about(about.clone());
    let room = request.restore.as_deref();
    let room = room.map(|into| restored::room(caller, into, &picked));
    let room = room.transpose()?;
    let opened = picked.to_open(caller, &request.open, cancel);
    let (what, _scratch) = opened.map_err(|error| picked.advised(error))?;
    let mut first_answer = 0.0;
    let ask = |opened: &Opened| {
        verify::first_answer(opened)?;
        first_answer = begun.elapsed().as_secs_f64();
        Ok(request
            .questions
            .iter()
            .map(|one| answer(opened, request, one))
            .collect())
    };
    let done = verify::inspect_and_ask(caller, &what, &request.open, cancel, ask);
    let (inspected, answers): (_, Vec<Answer>) = done.map_err(|error| picked.advised(error))?;
    about.options["first_answer_seconds"] = json!(first_answer);
    about.options["questions"] = json!(answers.len());
    run.about(about.clone());
    // What is damaged need not be restored to know that it is.
    let room = room.filter(|_| !inspected.is_damaged());
    let restored = room.map(|room| room.restore(caller, request, &picked, cancel));
    let restored = restored.transpose()?;
    if let Some(restored) = &restored {
        about.options["restore_seconds"] = json!(restored.seconds);
        about.options["restore_predicted_seconds"] = json!(restored.predicted_seconds);
        about.options["restored_bytes"] = json!(restored.bytes);
        run.about(about);
    }
    Ok(DrillOutcome {
        restored,
        set_id: picked.set().set_id().to_string(),
        title: picked.title(),
        seed: request.seed,
        first_answer_seconds: first_answer,
        inspected,
        answers,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

fn answer(opened: &Opened, request: &DrillRequest, question: &Question) -> Answer {
    let begun = Instant::now();
    let answer = verify::ask(opened, request.database.as_deref(), &question.sql);
    Answer {
        question: question.clone(),
        answer: answer.map_err(|error| error.to_string()),
        seconds: begun.elapsed().as_secs_f64(),
    }
}
