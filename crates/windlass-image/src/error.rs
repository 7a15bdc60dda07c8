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
    /// The image has no file with this number.
    #[error("the image has no file {file}")]
    NoFile {
        /// The number.
        file: FileNo,
    },
    /// A caller tried to read a directory or a link like a file.
    #[error("{path} is not a regular file")]
    NotAFile {
        /// Its path in the image.
        path: String,
    },
    /// Bytes of a file cannot be read from their set.
    #[error("read {path} at offset {offset}: {source}")]
    Read {
        /// The file's path in the image.
        path: String,
        /// Where in the file.
        offset: u64,
        /// What is wrong, with the stripe and the position on it.
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
    /// Every byte of a file was read and passed its checksum, but the file as a whole does not.
    #[error("read {path}: the checksum of the whole file is {found:08x}, not {expected:08x}")]
    FileChecksum {
        /// The file's path in the image.
        path: String,
        /// The checksum that the image keeps.
        expected: u32,
        /// That of the bytes that were read.
        found: u32,
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
    /// A snapshot no longer has all of its pages.
    #[error("read {path} at offset {offset}: the snapshot is lost: {why}")]
    SnapshotLost {
        /// The file's path in the image.
        path: String,
        /// Where in the file.
        offset: u64,
        /// Why.
        why: String,
    },
    /// A page in the store of a snapshot is not the one that was preserved.
    #[error("read {path} at offset {offset}: the page in the snapshot's store is damaged")]
    SnapshotPage {
        /// The file's path in the image.
        path: String,
        /// Where in the file.
        offset: u64,
    },
    /// A file in the directory of a snapshot is not what was written there.
    #[error("read {path}: {what}")]
    SnapshotFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A pattern is not a valid glob.
    #[error("pattern {pattern}: {source}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: globset::Error,
    },
    /// A file system refuses an operation. For example, a name does not exist, or exists already.
    #[error("{errno}")]
    Refused {
        /// The answer.
        errno: Errno,
    },
    /// The image may be different tomorrow, so no overlay can be bound to it.
    #[error("an overlay needs a set under it, because anything else may change")]
    NoIdentity,
    /// The directory for a new overlay is not empty.
    #[error("make an overlay in {path}: the directory is not empty")]
    OverlayPlace {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds no overlay.
    #[error("{path} does not contain an overlay")]
    NoOverlay {
        /// The directory.
        path: PathBuf,
    },
    /// Another process has the overlay open.
    #[error("the overlay in {path} is in use")]
    OverlayInUse {
        /// The directory.
        path: PathBuf,
    },
    /// The overlay was made over another set.
    #[error("the overlay in {path} belongs to another set")]
    OverlayForeign {
        /// The directory.
        path: PathBuf,
    },
    /// The overlay was made by another version.
    #[error("the overlay in {path} was made by another version of windlass")]
    OverlayVersion {
        /// The directory.
        path: PathBuf,
    },
    /// The overlay's own files are damaged.
    #[error("the overlay in {path} is damaged at offset {offset} of its journal")]
    OverlayDamaged {
        /// The directory.
        path: PathBuf,
        /// Where in the journal.
        offset: u64,
    },
    /// A page that was written to the overlay is not there as it was.
    #[error(
        "the overlay in {path} is damaged: its page at offset {offset} is not what was written"
    )]
    OverlayPage {
        /// The directory.
        path: PathBuf,
        /// Where in the file of pages.
        offset: u64,
    },
    /// The overlay's files cannot be read or written.
    #[error("{operation} the overlay in {path}: {source}")]
    Overlay {
        /// What was being done.
        operation: &'static str,
        /// The directory, or the file in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
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
            Self::Missing { .. }
            | Self::FileChecksum { .. }
            | Self::SnapshotLost { .. }
            | Self::SnapshotPage { .. }
            | Self::SnapshotFile { .. } => true,
            Self::Read { source, .. } | Self::Engine(source) => source.is_damage(),
            _ => false,
        }
    }

    /// The same for whoever reads bytes: `InvalidData` says that they are damaged.
    pub(crate) fn into_io(self) -> io::Error {
        match self.is_damage() {
            true => io::Error::new(io::ErrorKind::InvalidData, self),
            false => io::Error::other(self),
        }
    }

    /// True when the set itself is at fault: it is damaged or cannot be read. False for faults of
    /// what is kept beside the set.
    pub fn is_of_set(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. } | Self::FileChecksum { .. } | Self::Read { .. } | Self::Engine(_)
        )
    }

    /// True when there is no room for what was written.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Overlay { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }

    /// True when a file of a directory disappeared or shrank while it was used as an image.
    pub fn is_vanished(&self) -> bool {
        match self {
            Self::Shrunk { .. } => true,
            Self::Directory { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// The error number for a program that uses the image as a file system.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Refused { errno } => *errno,
            Self::Overlay { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            _ => Errno::IO,
        }
    }

    /// What can be done about it, as a full sentence.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Read { source, .. } | Self::Engine(source) => return source.hint(),
            Self::Missing { .. } | Self::FileChecksum { .. } => "Verify the set to see all damage.",
            Self::SnapshotLost { .. } | Self::SnapshotPage { .. } | Self::SnapshotFile { .. } => {
                "Drop the snapshot and make a new one."
            }
            Self::Shrunk { .. } => "Compare with a directory that nobody writes to.",
            Self::NoIdentity => "Back the database up first, and name that set.",
            Self::OverlayPlace { .. } => "Name a directory that is empty or does not exist.",
            Self::NoOverlay { .. } => "Name the directory of an overlay that exists.",
            Self::OverlayInUse { .. } => "Unmount it first, or name another directory.",
            Self::OverlayForeign { .. } => {
                "Name the set that the overlay was made for, or another directory."
            }
            Self::OverlayVersion { .. } => "Use the version of windlass that made it.",
            Self::OverlayDamaged { .. } | Self::OverlayPage { .. } => {
                "The set is not damaged. Remove the overlay's directory, with all its changes, and start again."
            }
            Self::Overlay { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "Free space where the overlay is."
            }
            Self::Overlay { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                "Windlass writes to this file in place, so it must be a file of its own. Copy the \
                 overlay's directory without links, or name another directory."
            }
            Self::Extract { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                "Windlass overwrites no files. Name a new directory."
            }
            Self::Extract { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "Free space there, or name another directory. What was extracted \
                 completely is there already: remove it before the next try, because Windlass \
                 overwrites no files."
            }
            Self::Extract { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "If root starts it, Windlass becomes the owner of the directory that exists: let \
                 that user write there, or name another directory."
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
