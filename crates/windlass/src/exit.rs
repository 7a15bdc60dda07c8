//! Exit codes, and failures, each of which has a code. The numbers are those of endings.

use std::process::ExitCode;

use windlass_engine::EngineError;
use windlass_image::ImageError;
use windlass_lab::LabError;
use windlass_model::ModelError;
use windlass_mount::MountError;
use windlass_operations::snapshots::SnapshotError;
use windlass_operations::{
    CompressionError, DatabaseError, DeviceError, Ending, HookError, OperationError, OwnerError,
    PlaceError,
};
use windlass_postgres::PostgresError;
use windlass_sqlite::SqliteError;

use crate::hints;

/// What a server takes for `there is no such file`. It then ends its recovery, or looks elsewhere.
const ABSENT: u8 = 1;
/// What ends a server's recovery with an error, as every number above 125 does.
pub const COULD_NOT_TELL: u8 = 255;

/// The exit code of a command that fetches log for a server, if it failed. A server takes 1 to 125
/// for `there is no such file`: it would end its recovery early and go on without that log.
pub fn of_failed_fetch() -> ExitCode {
    ExitCode::from(COULD_NOT_TELL)
}

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
    /// The place does not have the file that a server asked for.
    Absent,
    /// The program that ran on an opened set ended with this code.
    Program(u8),
}

impl Code {
    /// The number the shell sees. The table of numbers is that of endings.
    pub fn number(self) -> u8 {
        match self {
            Self::Program(code) => code,
            Self::Absent => ABSENT,
            _ => self.ending().number(),
        }
    }

    /// The code for a number with which a process ended.
    pub fn of_number(number: u8) -> Option<Self> {
        Ending::of_number(number).map(Self::from)
    }

    /// How the operation ended. Windlass did its work, however a program ended that it ran.
    pub fn ending(self) -> Ending {
        match self {
            Self::Done | Self::Absent | Self::Program(_) => Ending::Done,
            Self::Failed => Ending::Failed,
            Self::Usage => Ending::Usage,
            Self::Warnings => Ending::Warnings,
            Self::Damage => Ending::Damage,
            Self::Interrupted => Ending::Interrupted,
        }
    }
}

impl From<Ending> for Code {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Done => Self::Done,
            Ending::Failed => Self::Failed,
            Ending::Usage => Self::Usage,
            Ending::Warnings => Self::Warnings,
            Ending::Damage => Self::Damage,
            Ending::Interrupted => Self::Interrupted,
        }
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

    /// The same failure with another hint.
    pub fn hinting(self, hint: &str) -> Self {
        Self::new(self.code, self.message, hint)
    }
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Self {
        let (message, hint) = hints::operation::words(&error);
        Self::hinted(error.ending().into(), message, hint)
    }
}

/// A failure of what an operation is made of is one of an operation.
macro_rules! through_operation {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                OperationError::from(error).into()
            }
        }
    )*};
}

through_operation!(
    EngineError,
    ImageError,
    LabError,
    ModelError,
    PostgresError,
    SqliteError,
    SnapshotError,
    CompressionError,
    DatabaseError,
    DeviceError,
    HookError,
    MountError,
    OwnerError,
    PlaceError
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_a_code_of_the_same_number() {
        for ending in Ending::ALL {
            let code = Code::from(ending);
            assert_eq!(code.ending(), ending);
            assert_eq!(code.number(), ending.number());
            assert_eq!(Code::of_number(ending.number()), Some(code));
        }
    }
}
