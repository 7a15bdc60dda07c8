//! What can go wrong between an image and its reader.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use windlass_engine::EngineError;
use windlass_engine::media::FileNo;

/// Why an image cannot be read, compared or extracted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The image has no file of this number.
    #[error("the image has no file {file}")]
    NoFile {
        /// The number.
        file: FileNo,
    },
    /// A directory or a link was to be read like a file.
    #[error("{path} is not a regular file")]
    NotAFile {
        /// Its path in the image.
        path: String,
    },
    /// Bytes of a file cannot be had from their set.
    #[error("read {path} at offset {offset}: {source}")]
    Read {
        /// The file's path in the image.
        path: String,
        /// Where in the file.
        offset: u64,
        /// What is wrong, by stripe and position on it.
        source: EngineError,
    },
    /// No piece of the set holds these bytes, though the set lists the file.
    #[error("read {path} at offset {offset}: the set does not hold these bytes")]
    Missing {
        /// The file's path in the image.
        path: String,
        /// Where in the file.
        offset: u64,
    },
    /// The set's index cannot be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A directory that is used as an image cannot be listed or read.
    #[error("{operation} {path}: {source}")]
    Directory {
        /// What was being done: `list`, `open`, `read`.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of a directory became shorter after the directory was listed.
    #[error(
        "read {path}: it had {listed_bytes} bytes when it was listed and ends at {found_bytes} now"
    )]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// Its length when the directory was listed.
        listed_bytes: u64,
        /// Where it ended when it was read.
        found_bytes: u64,
    },
    /// A pattern that is not a glob.
    #[error("pattern {pattern}: {source}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: globset::Error,
    },
    /// What a file system says to something it does not do: a name is not there, or is there.
    #[error("{errno}")]
    Refused {
        /// The answer.
        errno: Errno,
    },
    /// An extracted file cannot be written.
    #[error("{operation} {path}: {source}")]
    Extract {
        /// What was being done: `create`, `write`, `sync`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ImageError {
    /// True when a set was read and found damaged or incomplete.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Missing { .. } => true,
            Self::Read { source, .. } | Self::Engine(source) => source.is_damage(),
            _ => false,
        }
    }

    /// True when a file of a directory went or shrank while it was used as an image.
    pub fn is_vanished(&self) -> bool {
        match self {
            Self::Shrunk { .. } => true,
            Self::Directory { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// What a program that uses the image as a file system is told.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Refused { errno } => *errno,
            _ => Errno::IO,
        }
    }

    /// What can be done about it, as a full sentence.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Read { source, .. } | Self::Engine(source) => return source.hint(),
            Self::Missing { .. } => "Run `windlass verify` on the set to see all that is damaged.",
            Self::Shrunk { .. } => "Compare with a directory that nobody writes to.",
            Self::Extract { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                "Files are never overwritten: name a new directory with --into."
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
