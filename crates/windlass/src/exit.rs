//! Exit codes, in one table, and failures, each of which has a code. The numbers never change.

use std::io::ErrorKind;
use std::process::ExitCode;

use windlass_engine::{EngineError, FILE_SIZE_LIMIT};
use windlass_image::ImageError;
use windlass_lab::LabError;
use windlass_model::ModelError;
use windlass_postgres::PostgresError;
use windlass_sqlite::SqliteError;

use crate::denied;
use crate::hints;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Done.
    Done,
    /// The command failed, and changed nothing that existed before.
    Failed,
    /// The arguments or the configuration cannot be understood.
    Usage,
    /// Done, with warnings on standard error.
    Warnings,
    /// Damage was found in a backup set.
    Damage,
    /// Interrupted by SIGINT or SIGTERM.
    Interrupted,
    /// The program that ran on an opened set ended with this code.
    Program(u8),
}

impl Code {
    /// The number the shell sees.
    pub fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Warnings => 3,
            Self::Damage => 4,
            Self::Interrupted => 130,
            Self::Program(code) => code,
        }
    }
}

impl Code {
    /// The code for a number with which a process ended.
    pub fn of_number(number: u8) -> Option<Self> {
        let codes = [
            Self::Done,
            Self::Failed,
            Self::Usage,
            Self::Warnings,
            Self::Damage,
            Self::Interrupted,
        ];
        codes.into_iter().find(|code| code.number() == number)
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        code.number().into()
    }
}

/// Why a command failed, in words.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure, with a hint if there is one.
    pub fn hinted(code: Code, message: String, hint: Option<String>) -> Self {
        Self {
            code,
            message,
            hint,
        }
    }

    /// A failure with a hint.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    /// Arguments that make no sense.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::Usage, message, hint)
    }

    /// A failure that a fault of the media causes. If the fault is damage, so is the failure.
    pub fn from_fault(fault: &EngineError, message: String, hint: String) -> Self {
        let code = match fault.is_damage() {
            true => Code::Damage,
            false => Code::Failed,
        };
        Self::new(code, message, hint)
    }

    /// How the command ends.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same failure. It gets this hint if it has none.
    pub fn or_hint(self, hint: &str) -> Self {
        let hint = self.hint.or_else(|| Some(hint.to_owned()));
        Self { hint, ..self }
    }

    /// The same failure, as one caused by damage of a set.
    pub fn of_damage(self) -> Self {
        let hint = self.hint.unwrap_or(hints::DAMAGED.to_owned());
        Self::new(Code::Damage, self.message, hint)
    }

    /// Whether damage of a set causes it.
    pub fn is_damage(&self) -> bool {
        self.code == Code::Damage
    }

    /// Whether other sets may succeed in spite of it.
    pub fn is_of_one_set(&self) -> bool {
        matches!(self.code, Code::Damage | Code::Failed)
    }

    /// The same failure with another hint.
    pub fn hinting(self, hint: &str) -> Self {
        Self::new(self.code, self.message, hint)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let code = match &error {
            EngineError::Cancelled => Code::Interrupted,
            EngineError::Setting { .. } | EngineError::MemoryLimit { .. } => Code::Usage,
            error if error.is_damage() => Code::Damage,
            _ => Code::Failed,
        };
        if let Some((message, hint)) = denied::words(&error) {
            return Self::new(code, message, hint);
        }
        Self {
            code,
            hint: hints::engine(&error),
            message: hints::engine_message(&error),
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let message = match error {
            ModelError::Emulation { .. } => format!("--emulate: {error}"),
            _ => error.to_string(),
        };
        let hint = error.hint();
        let hint = hint.unwrap_or_else(|| hints::OPTION_VALUES.to_owned());
        Self::usage(message, hint)
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Engine(error) => error.into(),
            LabError::Model(error) => error.into(),
            error => {
                let code = match error {
                    LabError::Setting { .. } | LabError::TrialDevices { .. } => Code::Usage,
                    _ => Code::Failed,
                };
                let hint = hints::lab(&error).or_else(|| limited(&error));
                Self {
                    code,
                    message: chain(hints::lab_message(&error), &error),
                    hint,
                }
            }
        }
    }
}

impl From<PostgresError> for Failure {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::Engine(error) => error.into(),
            error => {
                let hint = hints::postgres(&error).or_else(|| limited(&error));
                let code = match &error {
                    // The words on the command line are wrong, whatever exists.
                    PostgresError::Conninfo { .. }
                    | PostgresError::Service { .. }
                    | PostgresError::Label { .. } => Code::Usage,
                    PostgresError::Set { .. } => Code::Damage,
                    _ => Code::Failed,
                };
                Self {
                    code,
                    message: chain(error.to_string(), &error),
                    hint,
                }
            }
        }
    }
}

impl From<SqliteError> for Failure {
    fn from(error: SqliteError) -> Self {
        match error {
            SqliteError::Engine(error) => error.into(),
            error => {
                let hint = hints::sqlite(&error).or_else(|| limited(&error));
                let code = match &error {
                    SqliteError::Facts { .. } => Code::Damage,
                    SqliteError::TargetName { .. } => Code::Usage,
                    _ => Code::Failed,
                };
                Self {
                    code,
                    message: chain(error.to_string(), &error),
                    hint,
                }
            }
        }
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Engine(source) => source.into(),
            error => {
                let code = if error.is_damage() {
                    Code::Damage
                } else {
                    Code::Failed
                };
                Self {
                    code,
                    message: chain(error.to_string(), &error),
                    hint: hints::image(&error).or_else(|| limited(&error)),
                }
            }
        }
    }
}

/// What to do if the cause of an error is the limit on the size of a file.
fn limited(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut faults = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    let is_limit = faults.any(|fault| fault.kind() == ErrorKind::FileTooLarge);
    is_limit.then(|| FILE_SIZE_LIMIT.to_owned())
}

/// The message of an error and of its causes, each named once.
fn chain(message: String, error: &dyn std::error::Error) -> String {
    let mut text = message;
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_change() {
        let codes = [
            (Code::Done, 0),
            (Code::Failed, 1),
            (Code::Usage, 2),
            (Code::Warnings, 3),
            (Code::Damage, 4),
            (Code::Interrupted, 130),
        ];
        for (code, number) in codes {
            assert_eq!(code.number(), number);
            assert_eq!(Code::of_number(number), Some(code));
        }
    }
}
