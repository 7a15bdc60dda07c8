//! Storage: where stripes lie, and how their bytes are read.
//!
//! A directory tree is a storage, and so is a bucket, and what a test makes. A location is the name
//! of something in it, with parts between slashes. Sets, lists of sets and checks know no more than
//! this about where stripes are.
//!
//! Readers keep what they read (`keep`), and whoever removes it reserves it first (`reserve`). Both
//! hold across processes, and for no longer than the process lives. A storage without locks hides
//! sets for a time before they are removed (`hides`), and readers that may write there leave notes
//! (`note`), which whoever removes sets heeds (`noted`).

mod files;
mod hiding;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::SetId;

use crate::error::EngineError;
use crate::keys::{Keys, NoKeys};
pub(crate) use files::FileBytes;
pub use files::Files;
pub use hiding::{Going, NotRemoved};

/// Bytes that can be read from any offset on: of a file, of an object, of a file in an image.
pub trait ReadAt: Debug + Send + Sync {
    /// How many bytes there are.
    fn length(&self) -> io::Result<u64>;

    /// Reads from `offset` on. Fills `into`, unless the bytes end before that. The error
    /// `InvalidData` says that the bytes are damaged.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Announces that these bytes will be read soon. If that is ignored, it costs only time.
    fn will_need(&self, _offset: u64, _bytes: u64) {}

    /// The file of the operating system, if the bytes are those of one. Then they are read past the
    /// page cache, several reads at a time.
    fn file(&self) -> Option<&Arc<File>> {
        None
    }

    /// What people call these bytes; for messages.
    fn name(&self) -> Option<PathBuf> {
        None
    }
}

impl dyn ReadAt + '_ {
    /// Reads exactly `into.len()` bytes. If there are fewer, that is the error `UnexpectedEof`.
    pub fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self.read_at(offset, into)? {
            read if read == into.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// What lies at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// One file or object.
    File {
        /// Its length.
        bytes: u64,
        /// When it was last written to, in nanoseconds since 1970 UTC.
        modified_nanos: i64,
    },
    /// A place, which files lie in: a directory, or the prefix of objects.
    Place,
    /// Something else, such as a pipe.
    Other,
}

/// A file or object of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceFile {
    /// Where it is. It opens as a stripe.
    pub location: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// When it was last written to, in nanoseconds since 1970 UTC.
    pub modified_nanos: i64,
}

/// Where stripes lie.
pub trait Storage: Debug + Send + Sync {
    /// What lies at a location. If nothing does, that is the error `NotFound`.
    fn look(&self, location: &Path) -> io::Result<Lies>;

    /// Opens a file or object. Never waits for a writer of it.
    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>>;

    /// Hands over every file of a place once, in any order. What lies deeper is left out.
    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError>;

    /// The keys to the encrypted sets that lie here.
    fn keys(&self) -> &dyn Keys {
        &NoKeys
    }

    /// Whether two locations lead to the same file.
    fn is_same(&self, one: &Path, other: &Path) -> bool {
        one == other
    }

    /// Keeps what was opened at a location from being removed while the value lives. Waits while
    /// somebody removes it; if it is gone then, that is the error `NotFound`. A storage that cannot
    /// do it keeps nothing.
    fn keep(&self, _location: &Path, _opened: &dyn ReadAt) -> io::Result<Kept> {
        Ok(Box::new(()))
    }

    /// Reserves a file or object, to remove it. `None` if somebody keeps it. A storage that cannot
    /// know that says `Unsupported`.
    fn reserve(&self, _location: &Path) -> io::Result<Option<Kept>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file or object, durably. If there is none, nothing happens.
    fn remove(&self, _location: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Writes a small document, durably. One that is there is replaced.
    fn write(&self, _location: &Path, _content: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether not every reader can keep what it reads there. Then a set is hidden for a time
    /// before it is removed.
    fn hides(&self, _location: &Path) -> bool {
        false
    }

    /// Says to others that these sets of a place are read while the value lives, if this user may
    /// write there and readers cannot keep them in another way.
    fn note(&self, _place: &Path, _sets: &BTreeSet<SetId>) -> io::Result<Kept> {
        Ok(Box::new(()))
    }

    /// The sets of a place that somebody says to read.
    fn noted(&self, _place: &Path) -> io::Result<BTreeSet<SetId>> {
        Ok(BTreeSet::new())
    }

    /// What the clock says with which the storage dates what is written to a place, in nanoseconds
    /// since 1970 UTC.
    fn now_nanos(&self, _place: &Path) -> i64 {
        hiding::own_clock()
    }

    /// Removes what a place has of a set, durably: the stripes, and then the documents beside them.
    /// What is not there is passed over.
    fn remove_set(&self, going: &Going<'_>) -> Result<(), NotRemoved> {
        going.remove_each(&|path| self.remove(path))
    }
}

/// What keeps a file or object as it is, until it is dropped.
pub trait Keep: Debug + Send + Sync {
    /// Whether it has kept it all the time. Only what must be renewed may not have.
    fn has_kept(&self) -> io::Result<bool> {
        Ok(true)
    }
}

impl Keep for () {}

/// Any value that keeps something.
pub type Kept = Box<dyn Keep>;

/// A storage, and the keys to what lies there.
#[derive(Clone, Copy, Debug)]
pub struct Keyed<'a> {
    /// Where stripes lie.
    pub storage: &'a dyn Storage,
    /// The keys.
    pub keys: &'a dyn Keys,
}

impl Storage for Keyed<'_> {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        self.storage.look(location)
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        self.storage.open(location)
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        self.storage.list(place, each)
    }

    fn keys(&self) -> &dyn Keys {
        self.keys
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        self.storage.is_same(one, other)
    }

    fn keep(&self, location: &Path, opened: &dyn ReadAt) -> io::Result<Kept> {
        self.storage.keep(location, opened)
    }

    fn reserve(&self, location: &Path) -> io::Result<Option<Kept>> {
        self.storage.reserve(location)
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        self.storage.remove(location)
    }

    fn write(&self, location: &Path, content: &[u8]) -> io::Result<()> {
        self.storage.write(location, content)
    }

    fn hides(&self, location: &Path) -> bool {
        self.storage.hides(location)
    }

    fn note(&self, place: &Path, sets: &BTreeSet<SetId>) -> io::Result<Kept> {
        self.storage.note(place, sets)
    }

    fn noted(&self, place: &Path) -> io::Result<BTreeSet<SetId>> {
        self.storage.noted(place)
    }

    fn now_nanos(&self, place: &Path) -> i64 {
        self.storage.now_nanos(place)
    }

    fn remove_set(&self, going: &Going<'_>) -> Result<(), NotRemoved> {
        self.storage.remove_set(going)
    }
}

impl dyn Storage + '_ {
    /// The file at a location, if one lies there.
    pub(crate) fn file_at(&self, location: PathBuf) -> Option<PlaceFile> {
        match self.look(&location).ok()? {
            Lies::File {
                bytes,
                modified_nanos,
            } => Some(PlaceFile {
                location,
                bytes,
                modified_nanos,
            }),
            _ => None,
        }
    }
}
