//! What a check found, as a value: for the command line's words and for its JSON.

use serde::Serialize;

/// The part of a set that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DamagedPart {
    /// A whole stripe: it is missing, or nothing of it can be read.
    Stripe,
    /// A stripe's header.
    Header,
    /// A frame: files lost bytes.
    Frame,
    /// An index block: what its region holds cannot be told.
    IndexBlock,
    /// What lies between frames, which must be zero.
    Padding,
    /// A stripe's copy of the set's description, and its index directory.
    Footer,
    /// A stripe's seal.
    Seal,
    /// Every part is right, but together they are not the files that the set lists.
    Set,
}

impl DamagedPart {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::Header => "header",
            Self::Frame => "frame",
            Self::IndexBlock => "index block",
            Self::Padding => "padding",
            Self::Footer => "footer",
            Self::Seal => "seal",
            Self::Set => "set",
        }
    }
}

/// A run of bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileRange {
    /// The file's path in the set.
    pub path: String,
    /// Where the run begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// A run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ByteRange {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Which stripe, counted from 1; 0 when it is the set as a whole.
    pub stripe: u16,
    /// The stripe's file.
    pub location: String,
    /// What is damaged.
    pub part: DamagedPart,
    /// Where on the stripe.
    pub offset: u64,
    /// How many bytes cannot be used because of it.
    pub bytes: u64,
    /// What is wrong.
    pub fault: String,
    /// The first of the files' ranges that are lost by it; of a frame only, since nobody else says
    /// what it holds.
    pub files: Vec<FileRange>,
    /// How many such ranges there are.
    pub range_count: u64,
}

/// A file of which bytes are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostFile {
    /// Its path in the set.
    pub path: String,
    /// How long it is.
    pub file_bytes: u64,
    /// How many of its bytes are lost.
    pub lost_bytes: u64,
    /// The first of the ranges that are lost; empty when they are too many to tell.
    pub ranges: Vec<ByteRange>,
    /// How many ranges there are.
    pub range_count: u64,
}

/// Everything that is damaged in a set, and what that costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DamageReport {
    /// Damaged places in the order of stripes and offsets, up to
    /// [`DAMAGE_LISTED_MAX`](crate::DAMAGE_LISTED_MAX).
    pub damage: Vec<Damage>,
    /// How many there are.
    pub damage_count: u64,
    /// Files that lost bytes, in the order of the file table, up to
    /// [`LOST_LISTED_MAX`](crate::LOST_LISTED_MAX).
    pub lost: Vec<LostFile>,
    /// How many files lost bytes.
    pub lost_file_count: u64,
    /// How many bytes of files are lost.
    pub lost_bytes: u64,
    /// The list of files could be read; without it nobody can say which bytes are lost.
    pub files_known: bool,
    /// Some of what is lost were newer versions of bytes: of files that seem whole, parts may be as
    /// they were a little before the backup ended.
    pub maybe_older: bool,
}

impl DamageReport {
    /// True when nothing is damaged: the set can be restored.
    pub fn is_empty(&self) -> bool {
        self.damage_count == 0
    }
}
