//! Why a sweep cannot be made.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use windlass_engine::show_size;

use crate::ending::Ending;

/// Why a sweep cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SweepError {
    /// Other operations run in the process, whose children would be measured too.
    #[error("a sweep needs a process of its own")]
    SharedProcess,
    /// Scratch files belong to the owner of what is backed up, and there are several.
    #[error("the databases belong to different users")]
    DifferentOwners,
    /// What keeps nothing is named beside directories, or restores are to read it.
    #[error("nul keeps nothing: it stands alone, and no restore can read it")]
    NulAlone,
    /// The experiment `device` measures one directory.
    #[error("the experiment `device` takes one directory")]
    NotOneDirectory,
    /// What the experiment `device` is to measure is no directory.
    #[error("{} is no directory", path.display())]
    NoDirectory {
        /// What was named.
        path: PathBuf,
    },
    /// The stripes or the restored files would fill a file system.
    #[error(
        "{}: a sweep needs {} free, and {} are",
        place.display(), show_size(*needed_bytes), show_size(*free_bytes)
    )]
    Room {
        /// Where.
        place: PathBuf,
        /// What a run writes plus what must stay free.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// A scratch directory, or what a run left there, cannot be used.
    #[error("cannot {operation} {}: {source}", path.display())]
    Scratch {
        /// What was being done.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory of the series and its report cannot be made.
    #[error("cannot make {}: {source}", path.display())]
    Out {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process of a run cannot be started or waited for.
    #[error("cannot run a backup or restore: {source}")]
    Process {
        /// Why.
        source: io::Error,
    },
    /// A run failed.
    #[error("{0}")]
    Failed(Box<FailedRun>),
    /// A run did not end with its report.
    #[error("{}: {source}", words.join(" "))]
    NoReport {
        /// The words of its command line, without the program.
        words: Vec<String>,
        /// What is wrong with what it printed.
        source: serde_json::Error,
    },
}

/// A run of a sweep that failed.
#[derive(Debug, Error)]
#[error("{}: {}", words.join(" "), errors.trim())]
pub struct FailedRun {
    /// The words of its command line, without the program.
    pub words: Vec<String>,
    /// How it ended.
    pub ending: Ending,
    /// What it printed on standard output.
    pub output: String,
    /// What it printed on standard error.
    pub errors: String,
}

impl SweepError {
    /// How an operation ends that fails like this.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::DifferentOwners
            | Self::NulAlone
            | Self::NotOneDirectory
            | Self::NoDirectory { .. } => Ending::Usage,
            Self::Failed(run) => run.ending,
            _ => Ending::Failed,
        }
    }

    pub(crate) fn scratch(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Scratch {
            operation,
            path,
            source,
        }
    }
}
