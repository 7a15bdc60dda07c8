//! What can go wrong with snapshots by the hook.

use std::io;
use std::path::{Path, PathBuf};

use windlass_engine::show_size;
use windlass_image::ImageError;
use windlass_postgres::{PostgresError, WindowCause};

/// Why a snapshot by the hook cannot be made, read or dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// The server does not run, or runs without the hook.
    #[error("the server on {data} does not write through the hook of windlass", data = data.display())]
    NotLoaded {
        /// The data directory.
        data: PathBuf,
    },
    /// A module of the server changes files in a way that the hook cannot follow.
    #[error("{library}, a module of the server, may change files by {call}, which the hook does not see", library = library.display())]
    Unseen {
        /// The module's file.
        library: PathBuf,
        /// The call that it imports.
        call: String,
    },
    /// The server has loaded a module whose writes the hook does not see.
    #[error("the server on {data} has loaded a module whose writes the hook does not see: no write counts as seen until the server starts again", data = data.display())]
    Blind {
        /// The data directory.
        data: PathBuf,
    },
    /// The file with the shared memory is not what a hook makes.
    #[error("{path} is not the memory of a hook that this user may use", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A library of another version made the memory.
    #[error("the server loaded a hook of another version: {path}", path = path.display())]
    Version {
        /// The file with the memory.
        path: PathBuf,
    },
    /// There is not enough shared memory for the map.
    #[error("allocate {bytes} bytes of shared memory in {path}: {source}", path = path.display())]
    Memory {
        /// The file with the memory.
        path: PathBuf,
        /// How much is needed.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The table has no more room.
    #[error("the database has {most} snapshots, and can have no more")]
    TooMany {
        /// How many it can have.
        most: u32,
    },
    /// A process of the server did not leave its call.
    #[error("process {pid} of the server did not finish a write in time")]
    Busy {
        /// The process; 0 if it is not known.
        pid: u32,
    },
    /// A process of the server did not leave its call, so the server could not be paused.
    #[error("process {pid} of the server did not finish a write in time for a pause")]
    PauseBusy {
        /// The process; 0 if it is not known.
        pid: u32,
    },
    /// The server went on before the snapshot was complete.
    #[error("the server could not be paused for long enough")]
    PauseBroken,
    /// Only a primary can be paused.
    #[error("a standby cannot be paused; its snapshots begin with a checkpoint")]
    Standby,
    /// A file cannot be linked.
    #[error("link {path}: {source}", path = path.display())]
    Link {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database has more blocks than a map can have.
    #[error("the database has more blocks than a snapshot can have")]
    TooLarge,
    /// Other operations came in between each time.
    #[error("make a snapshot: {cause} in each of {tries} tries")]
    Disturbed {
        /// The last reason.
        cause: Box<WindowCause>,
        /// How often it was tried.
        tries: u32,
    },
    /// The hook cannot remember where the pages go.
    #[error("the path of the file for the pages is too long: {}", path.display())]
    LongPath {
        /// The file.
        path: PathBuf,
    },
    /// Something else has the name of the file for the pages.
    #[error("{} is there, and is no file for the pages of snapshots", path.display())]
    StoreTaken {
        /// What has the name.
        path: PathBuf,
    },
    /// The disk has less free space than is to be kept.
    #[error("the disk of {} has {} free, and {} are to be kept", store.display(), show_size(*free), show_size(*keep))]
    NoRoom {
        /// The directory for the pages.
        store: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that are to stay free.
        keep: u64,
    },
    /// The snapshot lost a page while it was made.
    #[error("the snapshot is lost: {why}")]
    Lost {
        /// Why.
        why: String,
    },
    /// The document in the snapshot's directory is not one.
    #[error("read {path}: {what}", path = path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file of the snapshot is not what was written.
    #[error("read {path}: {what}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file cannot be read, written or removed.
    #[error("{doing} {path}: {source}", path = path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The server or its files.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The image of the snapshot.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl HookError {
    /// Whether this user may not do what was tried.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.into();
        Self::Io {
            doing,
            path,
            source,
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.into(),
            what: what.into(),
        }
    }

    /// Whether nobody knows by it if a snapshot is lost: it is damaged, another version of Windlass
    /// wrote it, or the system refused to read something of it now.
    pub(crate) fn is_unclear(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Document { .. }) || self.is_damage()
    }

    /// Whether bytes of a snapshot are not what they were.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Image(error) => error.is_damage(),
            _ => false,
        }
    }
}

/// Says what was being done when the system refused.
pub(crate) trait HookIo<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, HookError>;
}

impl<T> HookIo<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, HookError> {
        self.map_err(|source| HookError::io(doing, path, source))
    }
}
