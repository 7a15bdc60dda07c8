//! What a request names and what is none: a database, a device, a way to compress.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use windlass_engine::show_size;
use windlass_object::PARTS_MAX;

use crate::ending::Ending;
use crate::hidden::hidden;

/// What was named as a database is none.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// Nothing has this path.
    #[error("the file {text} does not exist")]
    Missing {
        /// What was named.
        text: String,
    },
    /// The configuration names it, and it is not there.
    #[error("the file {text} does not exist")]
    Vanished {
        /// What was named.
        text: String,
        /// What the configuration calls the database.
        name: String,
    },
    /// Nothing is named.
    #[error("the name of the database is empty")]
    Empty,
    /// Neither a path nor a connection string.
    #[error("{text} is no file, no connection string and no configured database")]
    Unknown {
        /// What was named.
        text: String,
    },
    /// An `@` that may be part of a password, or may stand before the name of a snapshot.
    #[error(
        "{}: the last @ can be part of the password, or stand before the name of a snapshot",
        hidden(text)
    )]
    Divided {
        /// What was named.
        text: String,
    },
    /// A data directory alone cannot be copied consistently.
    #[error("{} is a PostgreSQL data directory", path.display())]
    DataDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A directory.
    #[error("{} is a directory", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A device, a pipe or a socket.
    #[error("{} is a device or a pipe, not a file", path.display())]
    Special {
        /// Its path.
        path: PathBuf,
    },
    /// A file of another kind.
    #[error("{} is not a SQLite database", path.display())]
    NotSqlite {
        /// The file.
        path: PathBuf,
    },
    /// The files of the database cannot be found.
    #[error("{}: {source}", path.display())]
    Files {
        /// The database.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What was named as a device is none, or is named twice.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// None is named.
    #[error("no device is named")]
    NoneNamed,
    /// A location in a bucket that cannot be used.
    #[error(transparent)]
    Object(#[from] windlass_object::ObjectError),
    /// A bucket where only a directory will do.
    #[error("{text} is in a bucket, and {what}")]
    InBucket {
        /// What was named.
        text: String,
        /// What cannot be done with it.
        what: &'static str,
    },
    /// A bucket, for which no setting is looked for by trials.
    #[error("{text} is in a bucket, and tune tries settings on files only")]
    NotTuned {
        /// What was named.
        text: String,
    },
    /// A database that is too large for one object.
    #[error(
        "a stripe in a bucket has at most {PARTS_MAX} parts, and {} is too much for parts of {}",
        show_size(*database_bytes), show_size(*part_bytes)
    )]
    PartsTooMany {
        /// Bytes of the database.
        database_bytes: u64,
        /// Bytes of the largest part that may be made.
        part_bytes: u64,
    },
    /// No path.
    #[error("{text:?}: {source}")]
    NoPath {
        /// What was named.
        text: String,
        /// Why.
        source: io::Error,
    },
    /// The directory that should hold it does not exist.
    #[error("there is no directory {}", parent.display())]
    NoParent {
        /// That directory.
        parent: PathBuf,
    },
    /// Something else has the name.
    #[error("{} is neither a file nor a directory", path.display())]
    Special {
        /// Its path.
        path: PathBuf,
    },
    /// A directory in which no file can be made or renamed.
    #[error("{} is {word} (chattr +{letter}): no stripe can get its name there", directory.display())]
    Attribute {
        /// The directory.
        directory: PathBuf,
        /// `append-only` or `immutable`.
        word: &'static str,
        /// The letter of chattr(1) for that.
        letter: char,
    },
    /// `nul` beside others.
    #[error("nul keeps nothing, and the other devices would hold a part of the set only")]
    Mixed,
    /// No device is left for data.
    #[error("parity on {parities} of {devices} devices leaves none for data")]
    ParityOfAll {
        /// How many devices there are.
        devices: usize,
        /// How many are to have parity.
        parities: u16,
    },
    /// A mirror would have no parity.
    #[error("parity: a mirror copies the stripes of a set only")]
    ParityWithMirror,
    /// `nul` needs no parity.
    #[error("parity: nul keeps nothing that could be rebuilt")]
    ParityOfNothing,
    /// One file for two stripes.
    #[error("{} is named twice", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
    },
    /// Log goes into one directory.
    #[error("a backup of the log goes to one directory that exists")]
    NotOnePlace,
    /// A mirror that is no place.
    #[error("the mirror {text} is no directory that exists, and no place in a bucket")]
    NoMirror {
        /// What was named.
        text: String,
    },
    /// A mirror at the place of the set, or of another mirror.
    #[error("{text} is named twice: a mirror needs a place of its own")]
    MirrorTwice {
        /// What was named.
        text: String,
    },
    /// A mirror cannot be written.
    #[error("{}: {source}", path.display())]
    Mirror {
        /// The stripe.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is in a mirror is not what was copied.
    #[error("the stripes in {text} are not those that were copied there")]
    NotMirrored {
        /// The places.
        text: String,
    },
    /// Two names of one file.
    #[error("{} and {} are the same file", one.display(), other.display())]
    Same {
        /// One name.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// One stripe has the name that another one has until the set is sealed.
    #[error("{} is the file that {} is until its set is sealed", named.display(), partial.display())]
    Partial {
        /// The stripe with that name.
        named: PathBuf,
        /// The other stripe.
        partial: PathBuf,
    },
}

/// Not a way to compress.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CompressionError {
    /// No codec.
    #[error("{text:?} is no codec")]
    Codec {
        /// What was asked for.
        text: String,
    },
    /// No range of codecs.
    #[error("{text:?} is no range of codecs")]
    Range {
        /// What was asked for.
        text: String,
    },
}

impl DatabaseError {
    /// How an operation ends that fails like this.
    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::Missing { .. } | Self::Vanished { .. } | Self::NotSqlite { .. } => Ending::Failed,
            _ => Ending::Usage,
        }
    }
}

impl DeviceError {
    /// How an operation ends that fails like this.
    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::NoParent { .. } | Self::Attribute { .. } => Ending::Failed,
            Self::Object(error) if error.fault().is_some() => Ending::Failed,
            _ => Ending::Usage,
        }
    }
}
