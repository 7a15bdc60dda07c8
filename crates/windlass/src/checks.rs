//! Checks that are made before a run. Each has the result right, doubtful or wrong, and says what
//! to do.

use serde::Serialize;

use crate::cli::Global;
use crate::exit::{Code, Failure};
use crate::{log, output};

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    Warning,
    Failed,
}

/// One check.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was checked, in one or two words.
    pub name: &'static str,
    pub state: State,
    /// What was found.
    pub text: String,
    pub hint: Option<String>,
}

/// All checks, in their order.
#[derive(Debug, Default)]
pub struct Checks {
    all: Vec<Check>,
    /// Whether the run would end with the exit code for usage.
    is_misused: bool,
}

impl Checks {
    pub fn ok(&mut self, name: &'static str, text: impl Into<String>) {
        self.push(name, State::Ok, text.into(), None);
    }

    pub fn warning(
        &mut self,
        name: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(name, State::Warning, text.into(), Some(hint.into()));
    }

    pub fn failed(&mut self, name: &'static str, text: impl Into<String>, hint: impl Into<String>) {
        self.push(name, State::Failed, text.into(), Some(hint.into()));
    }

    /// Adds what an error says is wrong.
    pub fn failure(&mut self, name: &'static str, failure: &Failure) {
        let (text, hint) = (
            failure.message().to_owned(),
            failure.hint().map(str::to_owned),
        );
        self.is_misused |= failure.code() == Code::Usage;
        self.push(name, State::Failed, text, hint);
    }

    /// Adds a check, and logs it.
    fn push(&mut self, name: &'static str, state: State, text: String, hint: Option<String>) {
        let hinted = hint.as_ref().map(|hint| format!(" hint: {hint}"));
        let line = format!("{name}: {text}{}", hinted.unwrap_or_default());
        match state {
            State::Ok => log::info(&line),
            State::Warning => log::warn(&line),
            State::Failed => log::error(&line),
        }
        self.all.push(Check {
            name,
            state,
            text,
            hint,
        });
    }

    /// The exit code of the worst check. If the run would end as one that was asked for something
    /// impossible, so does the check.
    pub fn code(&self) -> Code {
        match self.all.iter().map(|check| check.state).max() {
            None | Some(State::Ok) => Code::Done,
            Some(State::Warning) => Code::Warnings,
            Some(State::Failed) if self.is_misused => Code::Usage,
            Some(State::Failed) => Code::Failed,
        }
    }

    /// Prints a line for each check, with its hint below. With `--quiet` it leaves out what is
    /// right.
    pub fn print(&self, global: &Global) {
        for check in &self.all {
            if global.quiet && check.state == State::Ok {
                continue;
            }
            let word = match check.state {
                State::Ok => "ok",
                State::Warning => "warning",
                State::Failed => "failed",
            };
            output::line(&format!("{word:<8} {:<12} {}", check.name, check.text));
            if let Some(hint) = &check.hint {
                output::line(&format!("{:21} hint: {hint}", ""));
            }
        }
    }

    /// The checks as JSON.
    pub fn document(&self) -> serde_json::Value {
        serde_json::json!(self.all)
    }
}
