//! Stripes as they were found: whole or not, of any type of backup.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_media::{
    BackupType, FileNo, FormatError, SetDescription, SetId, StripeIndex, Structure,
};

use super::ends::Ends;
use super::places::{candidates, first_stripe, is_occupied};
use super::stripe::{OpenStripe, open_stripe, peek_header};
use super::upper::UpperLayers;
use crate::error::EngineError;
use crate::mismatch::Mismatch;
use crate::storage::Storage;

/// How many layers are possible.
const LAYERS: usize = 256;

/// The stripes of a set as they were found, complete or not. It is for checks, and to say what a
/// set is. A restore takes an [`OpenSet`](super::OpenSet).
#[derive(Debug)]
pub struct FoundSet {
    set_id: SetId,
    root: [u8; 32],
    stripes: Arc<[OpenStripe]>,
    description: SetDescription,
}

impl FoundSet {
    /// Finds a set of any type whose stripes all exist, are sealed and agree with each other.
    pub fn whole(
        storage: &dyn Storage,
        places: &[PathBuf],
        metadata_limit: u64,
    ) -> Result<Self, EngineError> {
        let (first, footer) = first_stripe(storage, places, metadata_limit)?;
        let set_id = first.header.set_id;
        let description = footer.description;
        let candidates = candidates(storage, places, &first, &description)?;
        let mut found: BTreeMap<u16, OpenStripe> = BTreeMap::new();
        let count = first.header.stripe_count();
        found.insert(first.header.stripe.0, first);
        // If the set says that a stripe is at this place, a file there that cannot be read is that
        // damaged stripe. To use another copy from farther away would hide the damage.
        let mut broken: BTreeMap<u16, PathBuf> = BTreeMap::new();
        for (listed, candidate) in candidates {
            let Some(header) = peek_header(storage, &candidate) else {
                if let Some(index) = listed.filter(|_| is_occupied(storage, &candidate)) {
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
            let (stripe, other) = open_stripe(storage, &candidate, left)?;
            if other.description != description {
                let fault = FormatError::Hash(Structure::StripeTable);
                return Err(stripe.damage(stripe.seal.footer_offset, fault));
            }
            found.insert(index, stripe);
        }
        for index in 0..count {
            if !found.contains_key(&index) {
                if let Some(location) = broken.get(&index) {
                    Ends::open(storage, location)?.header()?;
                }
                return Err(missing(set_id, index, &description));
            }
        }
        let stripes: Arc<[_]> = found.into_values().collect();
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

    /// What was found of a set.
    pub(crate) fn new(
        set_id: SetId,
        root: [u8; 32],
        stripes: Vec<OpenStripe>,
        description: SetDescription,
    ) -> Self {
        Self {
            set_id,
            root,
            stripes: stripes.into(),
            description,
        }
    }

    fn check(&self) -> Result<(), EngineError> {
        if self.description.stripes.len() != self.stripes.len() {
            let what = Mismatch::Stripes {
                listed: self.description.stripes.len(),
                found: self.stripes.len(),
            };
            return Err(EngineError::Incomplete {
                set: self.set_id,
                what,
            });
        }
        let held = self.held_bytes();
        // A set that builds on others holds only a part of its files.
        if self.check_is_full().is_ok() && self.file_bytes() > held {
            let what = Mismatch::TooLong {
                file_bytes: self.file_bytes(),
                held_bytes: held,
            };
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

    /// Refuses pieces of one layer that overlap, even if they are in different index blocks.
    pub(crate) fn check_upper(&self, upper: &UpperLayers) -> Result<(), EngineError> {
        let mut ends = [(FileNo(0), 0); LAYERS];
        upper.each_in_order(|pieces| {
            for piece in pieces {
                let last = &mut ends[usize::from(piece.layer)];
                if last.0 == piece.file && piece.start < last.1 {
                    return Err(EngineError::Incomplete {
                        set: self.set_id,
                        what: Mismatch::Overlap {
                            layer: piece.layer,
                            file: piece.file,
                            offset: piece.start,
                        },
                    });
                }
                *last = (piece.file, piece.end());
            }
            Ok(())
        })
    }

    /// Refuses a file with layers whose entry states a CRC. The format knows no CRC of such a file,
    /// so nobody could say which content has it.
    pub(crate) fn check_layered(
        &self,
        layered: impl Fn(FileNo) -> bool,
    ) -> Result<(), EngineError> {
        let mut files = self.description.files.0.iter();
        match files.find(|file| file.flags.crc_known && layered(file.file)) {
            Some(file) => Err(EngineError::Incomplete {
                set: self.set_id,
                what: Mismatch::LayeredChecksum {
                    path: file.path_lossy(),
                },
            }),
            None => Ok(()),
        }
    }

    /// The ranges above layer 0, without the checks. It leaves out index blocks that cannot be
    /// read, if `passes` accepts the error.
    pub(crate) fn upper_layers_unless(
        &self,
        passes: impl Fn(&EngineError) -> bool,
    ) -> Result<UpperLayers, EngineError> {
        UpperLayers::read(&self.stripes, passes)
    }
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
