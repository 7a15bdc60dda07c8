//! A place: where the stripes of many sets are, and what is known of a set without opening it.
//!
//!   files of the places --head, tail--> stripes --ids--> sets --one footer each--> SetList
//!
//! A place is a directory, or the prefix of objects in a bucket: whatever a `Storage` lists.
//!
//! Invariants
//! - Windlass reads the head and the tail of each stripe, and one footer of each sealed set. It
//!   never reads frames or index blocks here.
//! - One footer is in memory at a time. The list keeps a summary of bounded size of it.
//! - Ids decide which stripes belong together; names decide nothing.
//! - A file that is no stripe is passed over. A file that may have been one is listed.

mod list;
mod stripe;

use std::collections::BTreeMap;
use std::path::PathBuf;

use windlass_media::{BackupType, SetId, StripeIndex};

use crate::error::EngineError;
use crate::set::removal::Removal;
use crate::storage::PlaceFile;
pub use list::list_sets;

/// What lies in one place or in several.
#[derive(Debug, Default)]
pub struct SetList {
    /// The sets, the oldest first.
    pub sets: Vec<SetEntry>,
    /// Files of backups that are under way or were cut off, and do not yet say to which set they
    /// belong.
    pub unfinished: Vec<PathBuf>,
    /// Files with the name of a stripe, of which neither the beginning nor the end can be read.
    pub unknown: Vec<UnknownStripe>,
    /// Sets that somebody removes, or whose removal was cut off. They are not among the others.
    pub removals: Vec<Removal>,
    /// Sets that have expired and will be removed, unless one of the others builds on them: then
    /// they are among those.
    pub hidden: Vec<SetEntry>,
    /// Files that hide a set of which nothing is there.
    pub stale: Vec<PathBuf>,
}

/// A set, as far as its heads, its tails and one footer describe it.
#[derive(Debug)]
pub struct SetEntry {
    /// The set.
    pub set_id: SetId,
    /// When it was begun, in nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// False when no header could be read. Then `begun_nanos` is the time of the last write to a
    /// stripe.
    pub is_dated: bool,
    /// How many stripes it has.
    pub stripe_count: u16,
    /// The stripes that were found, by index. An index occurs twice when there are copies.
    pub stripes: Vec<StripeEntry>,
    /// What the set says about itself, if a footer could be read.
    pub about: Option<SetAbout>,
    /// Whether it may build on a set that nobody can name: its description cannot be read, and
    /// nothing says that it has no base. False for a set that is not sealed.
    pub may_have_base: bool,
    /// Whether the set can be used.
    pub state: SetState,
    /// The files beside its stripes that say it must stay.
    pub holds: Vec<PathBuf>,
    /// The files beside its stripes that hide it, because it has expired.
    pub hidden: Vec<PlaceFile>,
    /// Its parity.
    pub parity: SetParity,
}

/// The parity of a set, as far as it was found.
#[derive(Debug, Default)]
pub struct SetParity {
    /// The files with parity.
    pub files: Vec<PlaceFile>,
    /// How many more there should be that are complete and belong to the others.
    pub lost: u16,
    /// What is wrong with a stripe, if parity makes up for everything that is lost.
    pub mended: Option<EngineError>,
}

impl SetEntry {
    /// Bytes of its stripes and of its parity. Copies of a stripe count once.
    pub fn bytes(&self) -> u64 {
        let mut lengths: BTreeMap<u16, u64> = BTreeMap::new();
        for stripe in &self.stripes {
            let length = lengths.entry(stripe.index.0).or_default();
            *length = stripe.bytes.max(*length);
        }
        let parities = self.parity.files.iter().map(|file| file.bytes);
        lengths.into_values().chain(parities).sum()
    }

    /// Where its stripes are, and its files with parity.
    pub fn locations(&self) -> Vec<PathBuf> {
        let stripes = self.stripes.iter().map(|stripe| &stripe.location);
        let parities = self.parity.files.iter().map(|file| &file.location);
        stripes.chain(parities).cloned().collect()
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

/// The part of a set's description that a list keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct SetAbout {
    /// Kind of backup.
    pub backup_type: BackupType,
    /// The set that it builds on.
    pub base: Option<SetId>,
    /// RFC 3339 time at which the backup began.
    pub started: String,
    /// RFC 3339 time at which the last page had been read.
    pub finished: String,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Bytes that the backup read; none if the set does not say it.
    pub read_bytes: Option<u64>,
    /// Numbers, words and truth values that the set's database says about itself. Lists are left
    /// out.
    pub database: serde_json::Value,
}

/// Whether a set can be used, as far as heads, tails and one footer tell.
#[derive(Debug)]
pub enum SetState {
    /// All stripes exist and are sealed.
    Sealed,
    /// Its backup is under way, or was cut off.
    Unfinished,
    /// A stripe is missing.
    Incomplete(EngineError),
    /// A stripe exists but cannot be used, or exists twice.
    Damaged(EngineError),
    /// This user may not read a stripe.
    Denied(EngineError),
    /// It is sealed and encrypted, and there is no key that says more.
    Locked(EngineError),
}

impl SetState {
    /// The state of a set with a stripe that cannot be used.
    fn of_fault(fault: EngineError) -> Self {
        match fault {
            EngineError::Locked { .. } => Self::Locked(fault),
            fault if fault.is_denied() => Self::Denied(fault),
            fault => Self::Damaged(fault),
        }
    }

    /// The state in one word, for people and programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::Unfinished => "unfinished",
            Self::Incomplete(_) => "incomplete",
            Self::Damaged(_) => "damaged",
            Self::Denied(_) => "not readable",
            Self::Locked(_) => "encrypted",
        }
    }

    /// Why the set cannot be used, if that is known.
    pub fn fault(&self) -> Option<&EngineError> {
        match self {
            Self::Sealed | Self::Unfinished => None,
            Self::Incomplete(fault)
            | Self::Damaged(fault)
            | Self::Denied(fault)
            | Self::Locked(fault) => Some(fault),
        }
    }
}

/// A file that has the name of a stripe but is none.
#[derive(Debug)]
pub struct UnknownStripe {
    /// The file.
    pub file: PlaceFile,
    /// What is wrong with it.
    pub fault: EngineError,
}
