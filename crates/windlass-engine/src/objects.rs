//! Named objects: what a place keeps besides stripes, such as archived log.
//!
//!   create --> bytes --> end, and name --> the object is there: whole, and durable
//!
//! A directory tree has them as files, a bucket as objects. A location is a name with parts between
//! slashes; the parts before the last one are folders.
//!
//! Invariants
//! - A list is complete, or an error. A folder that cannot be read never looks like an empty one.
//! - An object appears whole. Nothing is put in the place of another one, unless that is damaged.

mod directory;

use std::fmt::Debug;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::ReadAt;
pub use directory::Directory;

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Where it is.
    pub location: PathBuf,
    /// Its length, if the list says it.
    pub bytes: Option<u64>,
}

/// Which objects of a folder are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing<'a> {
    /// Those that lie in the folder.
    Own,
    /// The same, but none whose name comes before this one.
    From(&'a str),
    /// Those that lie in the folders of the folder.
    Below,
}

/// What will be read of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// All of it, or most.
    Whole,
    /// Its ends, and perhaps parts between.
    Ends,
}

/// What keeps named objects.
pub trait Objects: Debug + Send + Sync {
    /// Fails if a place is not there: its disk may not be mounted.
    fn find(&self, place: &Path) -> io::Result<()>;

    /// The names of the folders in a folder, in any order; none if there is no such folder. There
    /// may be names of objects between them.
    fn folders(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Objects of a folder, in any order; none if there is no such folder.
    fn objects(&self, folder: &Path, listing: Listing<'_>) -> io::Result<Vec<ListedObject>>;

    /// Opens an object, whose length may be known.
    fn open(
        &self,
        location: &Path,
        bytes: Option<u64>,
        reading: Reading,
    ) -> io::Result<Arc<dyn ReadAt>>;

    /// Begins an object of a place, which must be there.
    fn create(&self, place: &Path, location: &Path) -> io::Result<Box<dyn NewObject>>;

    /// Removes an object, durably. If there is none, nothing happens.
    fn remove(&self, location: &Path) -> io::Result<()>;

    /// Makes the name of an object durable that somebody else may just have given.
    fn settle(&self, place: &Path, location: &Path) -> io::Result<()>;

    /// The files that the objects of this storage are, if they are some. These can also grow, and
    /// be locked.
    fn directory(&self) -> Option<&Directory> {
        None
    }
}

/// An object that is being written. Nothing of it is there before it has its name. Dropped, it
/// leaves nothing.
pub trait NewObject: Write + Send {
    /// Completes the object and gives it its name. `Taken` if another one has that.
    ///
    /// The last `hash_bytes` bytes have a hash of all others. They tell this object from every
    /// other, and are read back from where that could be in doubt.
    fn name(self: Box<Self>, hash_bytes: usize) -> io::Result<Naming>;

    /// The same, but puts it in the place of a damaged object.
    fn name_over(self: Box<Self>, hash_bytes: usize) -> io::Result<()>;
}

/// Whether an object got its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// It is durable.
    Named,
    /// Another object has the name. It stays as it is.
    Taken,
}
