//! Opening a set: finding its stripes, and proving that they are whole and belong together.
//!
//! Any stripe leads to the others: its header and footer name them. What is checked here, before
//! anything is believed: each stripe's seal, the hash of its footer, the hash of its header and
//! index directory against what every stripe says of it, and that header, regions, index blocks,
//! footer and seal follow each other without a gap. Index blocks are checked when they are read,
//! frames when they are used.

pub(crate) mod places;
pub(crate) mod stripe;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use windlass_media::{
    BackupType, FRAME_BYTES_MAX, FileNo, FormatError, SetDescription, SetId, StripeHeader,
    StripeIndex, Structure,
};

use crate::error::EngineError;
use places::{candidates, expand, first_stripe, is_occupied};
pub use stripe::OpenStripe;
use stripe::{open_stripe, peek_header, read_header};

/// How much memory a set's metadata may take, unless the user sets it. Ten million files fit.
pub const METADATA_LIMIT_DEFAULT: u64 = 6 * 1024 * 1024 * 1024;

/// How many layers are possible.
const LAYERS: usize = 256;

/// The ranges above layer 0, by file: (start, end, layer), sorted. None is longer than a frame may
/// be.
pub type UpperLayers = BTreeMap<FileNo, Vec<(u64, u64, u8)>>;

/// A set whose stripes all exist, are sealed and agree with each other.
#[derive(Debug)]
pub struct OpenSet {
    set_id: SetId,
    root: [u8; 32],
    stripes: Vec<OpenStripe>,
    description: SetDescription,
}

impl OpenSet {
    /// Opens the set that `places` (stripes, or directories that hold them) lead to. All of its
    /// metadata takes at most `metadata_limit` bytes, and as much again while one stripe's copy is
    /// compared with another's.
    ///
    /// Refuses a set that builds on others. Alone it is no database, and nobody must take its list
    /// of files for the whole.
    pub fn open(places: &[PathBuf], metadata_limit: u64) -> Result<Self, EngineError> {
        let set = Self::open_any(places, metadata_limit)?;
        set.check_is_full()?;
        Ok(set)
    }

    /// Opens a set of any type, only to say what it is. Callers never use its content.
    pub fn open_any(places: &[PathBuf], metadata_limit: u64) -> Result<Self, EngineError> {
        let (first, footer) = first_stripe(places, metadata_limit)?;
        let set_id = first.header.set_id;
        let description = footer.description;
        let candidates = candidates(places, &first, &description);
        let mut found: BTreeMap<u16, OpenStripe> = BTreeMap::new();
        let count = first.header.stripe_count();
        found.insert(first.header.stripe.0, first);
        // If the set says that a stripe is at this place, a file there that cannot be read is that
        // damaged stripe. To use another copy from farther away would hide the damage.
        let mut broken: BTreeMap<u16, PathBuf> = BTreeMap::new();
        for (listed, candidate) in candidates {
            let Some(header) = peek_header(&candidate) else {
                if let Some(index) = listed.filter(|_| is_occupied(&candidate)) {
                    broken.entry(index).or_insert(candidate);
                }
                continue;
            };
            let index = header.stripe.0;
            let known = found.contains_key(&index) || broken.contains_key(&index);
            if header.set_id != set_id || known || index >= count {
                continue;
            }
            let held: u64 = found.values().map(OpenStripe::directory_bytes).sum();
            let left = metadata_limit.saturating_sub(held);
            let (stripe, other) = open_stripe(&candidate, left)?;
            if other.description != description {
                let fault = FormatError::Hash(Structure::StripeTable);
                return Err(stripe.damage(stripe.seal.footer_offset, fault));
            }
            found.insert(index, stripe);
        }
        for index in 0..count {
            if !found.contains_key(&index) {
                broken
                    .get(&index)
                    .map_or(Ok(()), |path| read_header(path).map(drop))?;
                return Err(missing(set_id, index, &description));
            }
        }
        let stripes: Vec<_> = found.into_values().collect();
        let root = stripes[0].seal.set_root;
        let set = Self {
            set_id,
            root,
            stripes,
            description,
        };
        set.check()?;
        Ok(set)
    }

    /// Refuses a set that is not a full backup.
    pub(crate) fn check_is_full(&self) -> Result<(), EngineError> {
        let facts = &self.description.facts;
        let what = match facts.backup_type {
            BackupType::Full if facts.parents.is_empty() => return Ok(()),
            BackupType::Full => "a backup that builds on other sets",
            BackupType::Diff => "a differential backup",
            BackupType::Incr => "an incremental backup",
            BackupType::Log => "a backup of the log",
        };
        let set = self.set_id;
        Err(EngineError::NotFull { set, what })
    }

    /// A set as it was found, complete or not. This is for checks, never for a restore.
    pub(crate) fn as_found(
        set_id: SetId,
        root: [u8; 32],
        stripes: Vec<OpenStripe>,
        description: SetDescription,
    ) -> Self {
        Self {
            set_id,
            root,
            stripes,
            description,
        }
    }

    fn check(&self) -> Result<(), EngineError> {
        if self.description.stripes.len() != self.stripes.len() {
            let what = "the stripe table does not list as many stripes as there are".to_owned();
            return Err(EngineError::Incomplete {
                set: self.set_id,
                what,
            });
        }
        let held = self.held_bytes();
        if self.file_bytes() > held {
            let what = format!(
                "its files are {} bytes long, and its stripes hold {held}",
                self.file_bytes()
            );
            return Err(EngineError::Incomplete {
                set: self.set_id,
                what,
            });
        }
        for (stripe, listed) in self.stripes.iter().zip(&self.description.stripes) {
            stripe.check(listed, &self.root)?;
        }
        Ok(())
    }

    /// The set's id.
    pub fn set_id(&self) -> SetId {
        self.set_id
    }

    /// The set's root hash. Everything in the set depends on it.
    pub fn root(&self) -> [u8; 32] {
        self.root
    }

    /// Its stripes, in order.
    pub fn stripes(&self) -> &[OpenStripe] {
        &self.stripes
    }

    /// Files, facts and stripe table.
    pub fn description(&self) -> &SetDescription {
        &self.description
    }

    /// False for a set of which no description was found.
    pub(crate) fn is_described(&self) -> bool {
        !self.description.stripes.is_empty()
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        let files = self.description.files.0.iter();
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Bytes that the stripes hold of files, also of files that were copied again later.
    pub(crate) fn held_bytes(&self) -> u64 {
        let listed = self.description.stripes.iter();
        listed.fold(0, |sum, entry| sum.saturating_add(entry.raw_bytes))
    }

    /// Bytes of all stripes.
    pub fn stripe_bytes(&self) -> u64 {
        self.stripes.iter().map(OpenStripe::bytes).sum()
    }

    /// Reads and checks every index block. `verify --quick` does this after opening.
    pub fn check_index(&self) -> Result<(), EngineError> {
        for stripe in &self.stripes {
            for entry in &stripe.directory {
                stripe.index_block(entry)?;
            }
        }
        Ok(())
    }

    /// The ranges above layer 0, by file: (start, end, layer).
    pub fn upper_layers(&self) -> Result<UpperLayers, EngineError> {
        let upper = self.upper_layers_unless(|_| false)?;
        self.check_upper(&upper)?;
        Ok(upper)
    }

    /// Refuses pieces of one layer that overlap, even if they are in different index blocks.
    pub(crate) fn check_upper(&self, upper: &UpperLayers) -> Result<(), EngineError> {
        for (file, ranges) in upper {
            let mut ends = [0; LAYERS];
            for (start, end, layer) in ranges {
                let last = &mut ends[usize::from(*layer)];
                if start < last {
                    return Err(EngineError::Incomplete {
                        set: self.set_id,
                        what: format!("pieces of layer {layer} of file {file} overlap at {start}"),
                    });
                }
                *last = *end;
            }
        }
        Ok(())
    }

    /// Does the same without the check. It leaves out index blocks that cannot be read, if `passes`
    /// accepts the error.
    pub(crate) fn upper_layers_unless(
        &self,
        passes: impl Fn(&EngineError) -> bool,
    ) -> Result<UpperLayers, EngineError> {
        let mut upper = UpperLayers::new();
        for stripe in &self.stripes {
            for entry in stripe.directory.iter().filter(|entry| entry.layer_max > 0) {
                let block = match stripe.index_block(entry) {
                    Err(error) if passes(&error) => continue,
                    block => block?,
                };
                for piece in block.pieces.iter().filter(|piece| piece.layer > 0) {
                    let end = piece.offset + u64::from(piece.bytes);
                    let ranges = upper.entry(piece.file).or_default();
                    push_joined(ranges, (piece.offset, end, piece.layer));
                }
            }
        }
        for ranges in upper.values_mut() {
            ranges.sort_unstable();
            let mut joined = Vec::new();
            for range in ranges.drain(..) {
                push_joined(&mut joined, range);
            }
            *ranges = joined;
        }
        Ok(upper)
    }
}

/// Adds a range. It is joined to the last one if both are of one layer and touch. If much of a
/// database was copied again, there are millions of pieces but few joined ranges. No range becomes
/// longer than a frame may be. So a search for what lies over a piece need not go back farther than
/// that.
fn push_joined(ranges: &mut Vec<(u64, u64, u8)>, (start, end, layer): (u64, u64, u8)) {
    let most = u64::from(FRAME_BYTES_MAX);
    match ranges.last_mut() {
        Some(last) if (last.1, last.2) == (start, layer) && end - last.0 <= most => last.1 = end,
        _ => ranges.push((start, end, layer)),
    }
}

/// The set to which a stripe belongs. The header says it, or the seal if the header is damaged.
pub fn set_of_stripe(path: &Path) -> Option<SetId> {
    if let Some(header) = peek_header(path) {
        return Some(header.set_id);
    }
    let file = crate::bounded::open_regular(path).ok()?;
    let length = file.metadata().ok()?.len();
    let seal = stripe::read_seal(path, &file, length).ok()?;
    Some(seal.set_id)
}

/// A stripe whose header could be read, for lists and for damaged sets.
#[derive(Debug)]
pub struct StripeGlance {
    /// Where it is.
    pub location: PathBuf,
    /// Its header.
    pub header: StripeHeader,
    /// Why the stripe cannot be used, if it cannot.
    pub fault: Option<EngineError>,
    /// The description in its footer, if that can be read.
    pub description: Option<SetDescription>,
}

/// Looks at every stripe in `places`, damaged or not. Reports what exists and what is wrong with
/// it.
pub fn glance(places: &[PathBuf], metadata_limit: u64) -> Result<Vec<StripeGlance>, EngineError> {
    let mut glances: Vec<StripeGlance> = Vec::new();
    for path in expand(places)? {
        let Some(header) = peek_header(&path) else {
            continue;
        };
        let (fault, description) = match open_stripe(&path, metadata_limit) {
            Ok((_, footer)) => (None, Some(footer.description)),
            Err(fault) => (Some(fault), None),
        };
        glances.push(StripeGlance {
            location: path,
            header,
            fault,
            description,
        });
    }
    Ok(glances)
}

fn missing(set: SetId, index: u16, description: &SetDescription) -> EngineError {
    let listed = description.stripes.get(usize::from(index));
    let location = listed.map(|entry| String::from_utf8_lossy(&entry.location).into_owned());
    let location = location.unwrap_or_default();
    EngineError::StripeMissing {
        set,
        stripe: StripeIndex(index),
        location,
    }
}
