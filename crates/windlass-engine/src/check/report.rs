//! What a check found, as a value: for the command line's words and for its JSON.

use std::collections::BTreeSet;

use serde::Serialize;

/// How many damaged places are listed. Further ones are only counted.
pub const DAMAGE_LISTED_MAX: usize = 1000;
/// How many files that lost bytes are listed, and how many ranges of each. Further ones are only
/// counted.
pub const LOST_LISTED_MAX: usize = 1000;

/// The part of a set that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DamagedPart {
    /// A whole stripe: it is missing, or none of it can be read.
    Stripe,
    /// A stripe's header.
    Header,
    /// A frame: files lost bytes.
    Frame,
    /// An index block: nobody can say what its region holds.
    IndexBlock,
    /// The bytes between frames, which must be zero.
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
    /// The stripe, counted from 1; 0 for damage of the set as a whole.
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
    /// The first ranges of files that are lost with it. They are known only for a frame: nothing
    /// else says what it holds.
    pub files: Vec<FileRange>,
    /// How many such ranges there are.
    pub range_count: u64,
}

/// A file that lost bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostFile {
    /// Its path in the set.
    pub path: String,
    /// How long it is.
    pub file_bytes: u64,
    /// How many of its bytes are lost.
    pub lost_bytes: u64,
    /// The first of the lost ranges. Empty when there are too many to list.
    pub ranges: Vec<ByteRange>,
    /// How many ranges there are.
    pub range_count: u64,
}

/// Everything that is damaged in a set, and which bytes of files are lost with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DamageReport {
    /// Damaged places in the order of stripes and offsets, up to
    /// [`DAMAGE_LISTED_MAX`](crate::DAMAGE_LISTED_MAX).
    pub damage: Vec<Damage>,
    /// How many damaged places there are.
    pub damage_count: u64,
    /// Where the stripes are that have damaged places, those that are only counted, too.
    #[serde(skip)]
    pub locations: BTreeSet<String>,
    /// Files that lost bytes, in the order of the file table, up to
    /// [`LOST_LISTED_MAX`](crate::LOST_LISTED_MAX).
    pub lost: Vec<LostFile>,
    /// How many files lost bytes.
    pub lost_file_count: u64,
    /// How many bytes of files are lost.
    pub lost_bytes: u64,
    /// The list of files could be read. Without it, nobody can say which bytes are lost.
    pub files_known: bool,
    /// Some of the lost bytes were newer versions of others. So parts of files that seem complete
    /// may be in a state from shortly before the end of the backup.
    pub maybe_older: bool,
}

impl DamageReport {
    /// Adds what is wrong with the set as a whole. A database's crate can find more of that than
    /// this one.
    pub fn add(&mut self, fault: &str) {
        let damage = Damage::new(
            0,
            "",
            DamagedPart::Set,
            (self.damage_count, 0),
            fault.into(),
        );
        self.damage.push(damage);
        self.damage_count += 1;
    }

    /// True when nothing is damaged: the set can be restored.
    pub fn is_empty(&self) -> bool {
        self.damage_count == 0
    }
}
