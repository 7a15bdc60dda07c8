//! A place: where the stripes of many sets are, and what is known of a set without opening it.
//!
//!   files of the places --head, tail--> stripes --ids--> sets --one footer each--> SetList
//!
//! A place is a directory today. The trait asks for nothing that a prefix of an object store has
//! not: a listing with lengths and times, and reads of ranges.
//!
//! Invariants
//! - Windlass reads the head and the tail of each stripe, and one footer of each sealed set. It
//!   never reads frames or index blocks here.
//! - One footer is in memory at a time. The list keeps a summary of bounded size of it.
//! - Ids decide which stripes belong together; names decide nothing.
//! - A file that is no stripe is passed over. A file that may have been one is listed.

mod directory;
mod list;
mod stripe;

use std::io;
use std::path::{Path, PathBuf};

use windlass_media::{BackupType, SetId, StripeIndex};

use crate::error::EngineError;
pub use directory::DirectoryPlace;
pub use list::list_sets;

/// The end of the names that Windlass gives to stripes.
pub const STRIPE_SUFFIX: &str = ".windlass";

/// A file or object of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceFile {
    /// Where it is: what `Place::read` takes, and what opens it.
    pub location: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// When it was last written to, in nanoseconds since 1970 UTC.
    pub modified_nanos: i64,
}

/// Where stripes lie.
pub trait Place {
    /// Hands over everything that lies there, each file once, in any order.
    fn files(&self, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError>;

    /// Reads exactly `into.len()` bytes from `offset` on.
    fn read(&self, location: &Path, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Where a stripe may be that was written to `written` and is not among the files: what is
    /// there,
    /// whatever it is.
    fn elsewhere(&self, written: &[u8]) -> Vec<PlaceFile>;
}

/// What lies in one place or in several.
#[derive(Debug, Default)]
pub struct SetList {
    /// The sets, the oldest first.
    pub sets: Vec<SetEntry>,
    /// Files of backups under way, or cut off, that do not say yet of which set they are.
    pub unfinished: Vec<PathBuf>,
    /// Files that carry a stripe's name, and of which neither beginning nor end can be read.
    pub unknown: Vec<UnknownStripe>,
}

/// A set, as far as heads, tails and a footer tell.
#[derive(Debug)]
pub struct SetEntry {
    /// The set.
    pub set_id: SetId,
    /// When it was begun, in nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// False when no header could be read: `begun_nanos` is when a stripe was last written to.
    pub is_dated: bool,
    /// How many stripes it has.
    pub stripe_count: u16,
    /// Those that were found, by index; two of one index when there are copies.
    pub stripes: Vec<StripeEntry>,
    /// What the set says of itself, where a footer could be read.
    pub about: Option<SetAbout>,
    /// Whether it can be used.
    pub state: SetState,
}

impl SetEntry {
    /// Bytes of the stripes that were found.
    pub fn bytes(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.bytes).sum()
    }

    /// Where its stripes are.
    pub fn locations(&self) -> Vec<PathBuf> {
        let locations = self.stripes.iter().map(|stripe| stripe.location.clone());
        locations.collect()
    }
}

/// A stripe that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeEntry {
    /// Which one.
    pub index: StripeIndex,
    /// Where it is.
    pub location: PathBuf,
    /// Its length.
    pub bytes: u64,
}

/// What a list keeps of a set's description.
#[derive(Clone, Debug, PartialEq)]
pub struct SetAbout {
    /// Kind of backup.
    pub backup_type: BackupType,
    /// RFC 3339 time at which the backup began.
    pub started: String,
    /// RFC 3339 time at which the last page had been read.
    pub finished: String,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Numbers, words and truth values that the set's database says of itself; no lists.
    pub database: serde_json::Value,
}

/// Whether a set can be used, as far as heads, tails and one footer tell.
#[derive(Debug)]
pub enum SetState {
    /// All stripes are there and sealed.
    Sealed,
    /// Its backup is under way, or was cut off.
    Unfinished,
    /// A stripe is missing.
    Incomplete(EngineError),
    /// A stripe is there and cannot be used, or is there twice.
    Damaged(EngineError),
}

impl SetState {
    /// The state in a word, as people and programs read it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::Unfinished => "unfinished",
            Self::Incomplete(_) => "incomplete",
            Self::Damaged(_) => "damaged",
        }
    }

    /// Why the set cannot be used, if it is known.
    pub fn fault(&self) -> Option<&EngineError> {
        match self {
            Self::Sealed | Self::Unfinished => None,
            Self::Incomplete(fault) | Self::Damaged(fault) => Some(fault),
        }
    }
}

/// A file that carries a stripe's name and is none.
#[derive(Debug)]
pub struct UnknownStripe {
    /// The file.
    pub file: PlaceFile,
    /// What is wrong with it.
    pub fault: EngineError,
}
