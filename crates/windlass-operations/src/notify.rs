//! Who is told how a run ended: a webhook, and the JSON object that it gets.
//!
//! Invariant: what is sent has no password and no address of a webhook.

use serde_json::{Value, json};
use windlass_engine::to_json;
pub use windlass_object::{Webhook, WebhookError};

use crate::ended::RunEnd;
use crate::hidden::hidden;

/// What somebody is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A run failed, found damage, or was interrupted.
    Failure,
    /// A run was done, with warnings.
    Warnings,
    /// A run was done.
    Success,
}

impl Told {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Failure, Self::Warnings, Self::Success];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Warnings => "warnings",
            Self::Success => "success",
        }
    }

    /// What this exit code means.
    pub fn of(exit_code: u8) -> Self {
        match exit_code {
            0 => Self::Success,
            3 => Self::Warnings,
            _ => Self::Failure,
        }
    }
}

/// How a command ended.
#[derive(Clone, Debug, Default)]
pub struct CommandEnd {
    /// The name of the machine.
    pub host: String,
    /// The command.
    pub operation: String,
    /// What it worked on.
    pub database: String,
    /// With what its process ends.
    pub exit_code: u8,
    /// What went wrong, or the first warning.
    pub message: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// The run, if it came that far.
    pub run: Option<RunEnd>,
    /// The program and its version.
    pub tool: String,
}

impl CommandEnd {
    /// What is sent. `text` says it in one line, for services that show nothing else.
    pub fn document(&self) -> Value {
        let (host, event) = (&self.host, Told::of(self.exit_code));
        let (operation, database) = (&self.operation, hidden(&self.database));
        let how = match event {
            Told::Failure => "failed",
            Told::Warnings => "ended with warnings",
            Told::Success => "is done",
        };
        let message = self.message.as_deref().map(hidden);
        let mut text = format!("windlass {operation} of {database} on {host} {how}");
        if let Some(message) = &message {
            text = format!("{text} (exit code {}): {message}", self.exit_code);
        }
        let run = self.run.as_ref();
        let counts = run.and_then(|run| run.counts.as_ref());
        json!({
            "text": text,
            "event": event.name(),
            "host": host,
            "database": database,
            "operation": operation,
            "exit_code": self.exit_code,
            "message": message,
            "hint": self.hint.as_deref().map(hidden),
            "set_id": counts.and_then(|counts| counts.set_id.clone()),
            "type": counts.and_then(|counts| counts.set_type.clone()),
            "started": run.map(|run| run.run.started.to_string()),
            "ended": run.map(|run| run.ended.to_string()),
            "seconds": counts.map(|counts| to_json(&counts.seconds)),
            "verdict": counts.map(|counts| counts.verdict.clone()).filter(|text| !text.is_empty()),
            "tool": self.tool,
        })
    }
}
