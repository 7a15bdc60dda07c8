//! Things that were looked at before a run: each is right, doubtful or wrong, and says what to do.

use serde::Serialize;

use crate::cli::Global;
use crate::exit::{Code, Failure};
use crate::output;

/// What came of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    Warning,
    Failed,
}

/// One look.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was looked at, in one or two words.
    pub name: &'static str,
    pub state: State,
    /// What was found.
    pub text: String,
    pub hint: Option<String>,
}

/// All of them, in their order.
#[derive(Debug, Default)]
pub struct Checks(Vec<Check>);

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

    /// What an error says is wrong.
    pub fn failure(&mut self, name: &'static str, failure: &Failure) {
        let (text, hint) = (
            failure.message().to_owned(),
            failure.hint().map(str::to_owned),
        );
        self.push(name, State::Failed, text, hint);
    }

    fn push(&mut self, name: &'static str, state: State, text: String, hint: Option<String>) {
        self.0.push(Check {
            name,
            state,
            text,
            hint,
        });
    }

    /// The code of the worst.
    pub fn code(&self) -> Code {
        match self.0.iter().map(|check| check.state).max() {
            None | Some(State::Ok) => Code::Done,
            Some(State::Warning) => Code::Warnings,
            Some(State::Failed) => Code::Failed,
        }
    }

    /// A line for each, with its hint below; nothing of what is right to somebody who wants quiet.
    pub fn print(&self, global: &Global) {
        for check in &self.0 {
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

    /// For JSON.
    pub fn document(&self) -> serde_json::Value {
        serde_json::json!(self.0)
    }
}
