//! Options for runs that nobody watches: the log, and hooks.

use clap::{Args, ValueEnum};

/// What a log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Failures
    Error,
    /// And warnings
    Warn,
    /// And start, settings, phases and end of each run
    Info,
    /// And everything else
    Debug,
}

impl LogLevel {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Syslog's number for it.
    pub fn severity(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warn => 4,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }
}

/// Commands that are run before and after.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Hooks")]
pub struct Hooks {
    /// Run this command first; if it fails, the run ends with exit code 1
    #[arg(long, value_name = "COMMAND", env = "WINDLASS_BEFORE")]
    pub before: Option<String>,
    /// Run this command when all is done
    #[arg(long, value_name = "COMMAND", env = "WINDLASS_AFTER")]
    pub after: Option<String>,
    /// Run this command when the run has failed or was interrupted
    #[arg(long, value_name = "COMMAND", env = "WINDLASS_ON_FAILURE")]
    pub on_failure: Option<String>,
    /// End a hook that takes longer than this [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = super::lab::time)]
    pub hook_timeout: Option<f64>,
}
