//! What can go wrong in the laboratory.

use std::io;
use std::path::{Path, PathBuf};

use windlass_engine::{EngineError, show_size};
use windlass_model::ModelError;

use crate::setting::{LabFault, LabSetting};

/// Why an experiment or a plan failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A setting has a value that makes no sense.
    #[error("{setting}: {fault}")]
    Setting {
        /// Which one.
        setting: LabSetting,
        /// What is wrong with it.
        fault: LabFault,
    },
    /// A text is not a model of storage.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A file of Windlass, or of the database that is sampled, cannot be used.
    #[error("{operation} {path}: {source}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the state directory does not hold what it should.
    #[error("{path}: {what}")]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file of events cannot be understood.
    #[error("{path}, line {line}: {what}")]
    Events {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// A file does not hold a series of a sweep.
    #[error("{path} is not a series of a sweep: {what}")]
    Series {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// There is too little space for what an experiment writes.
    #[error(
        "{path}: this needs {} of free space, and there are {}",
        show_size(*needed_bytes), show_size(*free_bytes)
    )]
    Space {
        /// Where.
        path: PathBuf,
        /// What it writes plus what must stay free.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl LabError {
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }

    /// What to do next, as a sentence.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Setting { .. } => None,
            Self::Io { path, source, .. } => io_hint(path, source),
            Self::Events { .. } => Some("Name a file of events, in its default format.".to_owned()),
            Self::State { .. } => Some("Remove the file. Windlass makes a new one.".to_owned()),
            Self::Series { .. } => Some("Name a file that a sweep wrote.".to_owned()),
            Self::Space { .. } => {
                Some("Name a directory with more room, or write less.".to_owned())
            }
        }
    }
}

/// What to do when the system refuses a file or directory.
fn io_hint(path: &Path, source: &io::Error) -> Option<String> {
    let path = path.display();
    Some(match source.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "Run the command as a user who may use {path}, or name another one. For profiles and \
             predictions, WINDLASS_STATE_DIR names another directory."
        ),
        io::ErrorKind::ReadOnlyFilesystem => "Name a directory that can be written to.".to_owned(),
        io::ErrorKind::StorageFull => "Free some space, or name another directory.".to_owned(),
        _ => return None,
    })
}
