//! Opening a set: finding its stripes, and proving that they are whole and belong together.
//!
//! Any stripe leads to the others: its header and footer name them. What is checked here, before
//! anything is believed: each stripe's seal, the hash of its footer, the hash of its header and
//! index directory against what every stripe says of it, and that header, regions, index blocks,
//! footer and seal follow each other without a gap. Index blocks are checked when they are read,
//! frames when they are used.

mod bases;
mod ends;
mod found;
mod identity;
mod lineage;
mod noted;
mod parity;
pub(crate) mod places;
pub(crate) mod removal;
mod spans;
pub(crate) mod stripe;
mod tally;
mod unlock;
mod upper;

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{SetDescription, SetId, StripeHeader};

use crate::error::{EngineError, read_error};
use crate::storage::{Files, Kept, Storage};
use crate::stripe_name::is_partial;
pub(crate) use bases::Search;
pub(crate) use ends::{Ends, check_same_footer, check_same_stripe};
pub use found::FoundSet;
pub(crate) use identity::{identity_of_stripe, set_of_device};
pub use lineage::{Ancestor, Lineage};
pub(crate) use noted::note_all;
pub(crate) use parity::file::{ParityFile, header_of, is_parity_file, parity_header};
use parity::parity_files;
pub(crate) use parity::{Described, Device, Devices, Group, Said, find_devices, mended, sealed};
pub use parity::{LostDevice, Mends, Rebuilder, RebuiltPart};
use places::expand;
pub use removal::{Beside, MarkedRemoval, Removal, hide, hold_path, is_removed, show};
pub(crate) use spans::StripeSpans;
pub use stripe::OpenStripe;
use stripe::{open_stripe, peek_header};
pub(crate) use tally::Tally;
pub(crate) use unlock::cipher_of;
pub use unlock::{key_file_of, key_of_set};
pub use upper::{AskedLayers, UpperLayers, UpperRange};

/// How much memory a set's metadata may take, unless the user sets it. Ten million files fit.
pub const METADATA_LIMIT_DEFAULT: u64 = 6 * 1024 * 1024 * 1024;

/// A set that can be restored: all its stripes exist, are sealed and agree with each other, and so
/// do those of all sets that it builds on.
#[derive(Debug)]
pub struct OpenSet {
    set: FoundSet,
    /// Nobody removes its stripes meanwhile.
    _kept: Vec<Kept>,
}

impl OpenSet {
    /// Opens the set that `places` (stripes, or directories that hold them) lead to, and all sets
    /// that it builds on. The metadata of each takes at most `metadata_limit` bytes, and as much
    /// again while one stripe's copy is compared with another's.
    ///
    /// A base is looked for where it was, and beside the set. Without its base a set is no
    /// database, and nobody must take its list of files for the whole.
    pub fn open(places: &[PathBuf], metadata_limit: u64) -> Result<Self, EngineError> {
        Self::open_in(&Files, places, metadata_limit)
    }

    /// Does the same in any storage.
    pub fn open_in(
        storage: &dyn Storage,
        places: &[PathBuf],
        metadata_limit: u64,
    ) -> Result<Self, EngineError> {
        Self::open_among(storage, places, &[], metadata_limit)
    }

    /// Does the same, and looks for bases in `further` places, too.
    pub fn open_among(
        storage: &dyn Storage,
        places: &[PathBuf],
        further: &[PathBuf],
        metadata_limit: u64,
    ) -> Result<Self, EngineError> {
        let set = FoundSet::whole(storage, places, metadata_limit);
        let mut set = set.map_err(|error| removal::explained(storage, places, error))?;
        set.check_type()?;
        let search = Search { storage, further };
        let open = |stripes: &[PathBuf]| {
            let base = FoundSet::whole(storage, stripes, metadata_limit)?;
            base.check_type()?;
            Ok(base)
        };
        let bases = search.all(&set, open, |base| base)?;
        set.stand_on(bases);
        let stripes = set.links().flat_map(FoundSet::stripes);
        let mut kept = stripes
            .map(|stripe| kept(storage, stripe))
            .collect::<Result<Vec<_>, _>>()?;
        kept.extend(note_all(storage, &set)?);
        // Whoever removes sets marks them first, and looks for readers then.
        for link in set.links() {
            removal::check_stays(storage, link)?;
        }
        Ok(Self { set, _kept: kept })
    }

    /// Reads and checks every index block. `verify --quick` does this after opening.
    pub fn check_index(&self) -> Result<(), EngineError> {
        for set in self.links() {
            for stripe in set.stripes() {
                let mut tally = Tally::default();
                for entry in stripe.directory() {
                    tally.add(&stripe.index_block(entry)?);
                }
                tally.check(set, stripe)?;
            }
        }
        Ok(())
    }

    /// What lies over other bytes, for each set of the chain, the newest first. All checks are
    /// made. One cache serves all of them.
    pub fn upper_layers(&self) -> Result<Vec<UpperLayers>, EngineError> {
        let cache = Arc::default();
        let of = |set: &FoundSet| {
            let upper = set.upper_layers_unless(&cache, |_| false)?;
            set.check_upper(&upper)?;
            set.check_layered(|file| upper.has(file))?;
            Ok(upper)
        };
        self.links().map(of).collect()
    }

    /// What lies over other bytes, for a reader of some files: it reads the index blocks that may
    /// tell of a file when somebody asks for the file, and checks them then. One entry for each set
    /// of the chain, the newest first. One cache serves all of them.
    pub fn asked_layers(&self) -> Result<Vec<AskedLayers>, EngineError> {
        let cache = Arc::default();
        let of = |set: &FoundSet| set.asked_layers(&cache);
        self.links().map(of).collect()
    }
}

impl Deref for OpenSet {
    type Target = FoundSet;

    fn deref(&self) -> &FoundSet {
        &self.set
    }
}

fn kept(storage: &dyn Storage, stripe: &OpenStripe) -> Result<Kept, EngineError> {
    let kept = storage.keep(&stripe.location, stripe.file.bytes());
    kept.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => EngineError::SetRemoved {
            set: stripe.header.set_id,
        },
        _ => read_error(&stripe.location, 0, source),
    })
}

/// The set to which a stripe belongs. The header says it, or the seal if the header is damaged.
pub fn set_of_stripe(storage: &dyn Storage, location: &Path) -> Option<SetId> {
    identity_of_stripe(storage, location).map(|(set, _)| set)
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
pub fn glance(
    storage: &dyn Storage,
    places: &[PathBuf],
    metadata_limit: u64,
) -> Result<Vec<StripeGlance>, EngineError> {
    let mut glances: Vec<StripeGlance> = Vec::new();
    for path in expand(storage, places)? {
        let Some(header) = peek_header(storage, &path) else {
            continue;
        };
        let (fault, description) = match open_stripe(storage, &path, metadata_limit) {
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

/// The files with parity in `places`, each with its set. In a directory, what has a temporary name
/// belongs to another run.
pub fn glance_parities(
    storage: &dyn Storage,
    places: &[PathBuf],
) -> Result<Vec<(SetId, PathBuf)>, EngineError> {
    let mut found = parity_files(storage, places)?;
    found.retain(|path| places.contains(path) || !is_partial(path));
    let of_set = |path: PathBuf| {
        let (header, _) = parity_header(storage, &path).ok()?;
        Some((header.set_id, path))
    };
    Ok(found.into_iter().filter_map(of_set).collect())
}
