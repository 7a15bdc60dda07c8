//! Stripes as they were found: whole or not, of any type of backup.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_media::{
    BackupType, Base, FileNo, FormatError, InheritedFiles, SetDescription, SetId, StripeIndex,
    Structure,
};

use super::ends::Ends;
use super::lineage::Lineage;
use super::parity::{LostDevice, Mends, Rebuilder, mended, rebuilder_of, stripes_of};
use super::places::{candidates, first_stripe, is_occupied};
use super::spans::check_lengths;
use super::stripe::{OpenStripe, open_stripe, peek_header};
use super::upper::{AskedLayers, PieceCache, UpperLayers};
use crate::error::EngineError;
use crate::mismatch::Mismatch;
use crate::storage::Storage;

/// The stripes of a set as they were found, complete or not. It is for checks, and to say what a
/// set is. A restore takes an [`OpenSet`](super::OpenSet).
#[derive(Debug)]
pub struct FoundSet {
    set_id: SetId,
    root: [u8; 32],
    stripes: Arc<[OpenStripe]>,
    description: SetDescription,
    /// The sets below it, its base first, as far as they were looked for.
    bases: Vec<FoundSet>,
    lineage: Arc<Lineage>,
    /// What rebuilds what is lost of it, if it has parity.
    rebuilder: Option<Arc<Rebuilder>>,
}

impl FoundSet {
    /// Finds a set of any type, without the sets that it builds on, whose stripes all exist, are
    /// sealed and agree with each other. If the set has parity, stripes that are lost are rebuilt
    /// as they are read.
    pub fn whole(
        storage: &dyn Storage,
        places: &[PathBuf],
        metadata_limit: u64,
    ) -> Result<Self, EngineError> {
        let whole = |places: &[PathBuf]| Self::whole_of(storage, places, metadata_limit, None);
        let error = match whole(places) {
            Err(error) if may_be_mended(&error) => error,
            result => return result,
        };
        // Maybe nothing but a file with parity was named.
        let error = match whole(&stripes_of(storage, places)) {
            Ok(set) => return Ok(set),
            Err(other @ EngineError::SetsMixed { .. }) => return Err(other),
            Err(_) => error,
        };
        match mended(storage, places, metadata_limit)? {
            Some(mended) => {
                let (storage, rebuilder) = (&mended.storage, mended.rebuilder);
                Self::whole_of(storage, &mended.stripes, metadata_limit, Some(rebuilder))
            }
            None => Err(error),
        }
    }

    /// Does the same with what is there.
    fn whole_of(
        storage: &dyn Storage,
        places: &[PathBuf],
        metadata_limit: u64,
        rebuilder: Option<Arc<Rebuilder>>,
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
        if let Some(index) = (0..count).find(|index| !found.contains_key(index)) {
            if let Some(location) = broken.get(&index) {
                Ends::open(storage, location)?.header()?;
            }
            return Err(missing(set_id, index, &description));
        }
        let mut stripes: Vec<_> = found.into_values().collect();
        let of_stripes = || rebuilder_of(storage, &stripes, places, metadata_limit);
        let rebuilder = rebuilder.or_else(of_stripes);
        let give = |stripe: &mut OpenStripe| stripe.rebuilder.clone_from(&rebuilder);
        stripes.iter_mut().for_each(give);
        let set = Self {
            set_id,
            root: stripes[0].seal.set_root,
            stripes: stripes.into(),
            description,
            bases: Vec::new(),
            lineage: Arc::default(),
            rebuilder,
        };
        set.check()?;
        Ok(set)
    }

    /// Refuses a set of which nobody here knows how to make a database.
    pub(crate) fn check_type(&self) -> Result<(), EngineError> {
        let facts = &self.description.facts;
        let what = match (facts.backup_type, &self.description.base) {
            (BackupType::Full, None) if facts.parents.is_empty() => return Ok(()),
            (BackupType::Diff | BackupType::Incr, Some(_)) => return Ok(()),
            (BackupType::Full, _) => "a full backup that builds on other sets",
            (BackupType::Diff, None) => "a differential backup without a base",
            (BackupType::Incr, None) => "an incremental backup without a base",
            (BackupType::Log, _) => "a backup of the log",
        };
        let set = self.set_id;
        Err(EngineError::NoDatabase { set, what })
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
            bases: Vec::new(),
            lineage: Arc::default(),
            rebuilder: None,
        }
    }

    /// Takes the sets that this one builds on, its base first.
    pub(crate) fn stand_on(&mut self, bases: Vec<FoundSet>) {
        self.bases = bases;
        let links: Vec<_> = self.links().collect();
        self.lineage = Arc::new(Lineage::of(&links));
    }

    /// This set, and then those that it builds on, down to the full one.
    pub fn links(&self) -> impl Iterator<Item = &FoundSet> + Clone {
        std::iter::once(self).chain(&self.bases)
    }

    /// What a set says of this one if it builds on it, without files.
    pub fn as_base(&self) -> Base {
        let stripes = self.stripes.iter();
        let location = |stripe: &OpenStripe| {
            let path = stripe.location().as_os_str();
            path.as_encoded_bytes().to_vec()
        };
        Base {
            set: self.set_id,
            root: self.root,
            locations: stripes.map(location).collect(),
            files: InheritedFiles::default(),
        }
    }

    /// Which files of the sets below lie under its own.
    pub fn lineage(&self) -> &Arc<Lineage> {
        &self.lineage
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
        let is_whole = self.description.base.is_none() && self.check_type().is_ok();
        if is_whole && self.file_bytes() > held {
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
        let stripes = self.stripes.iter();
        let spans = stripes.map(|stripe| (&stripe.spans, stripe.directory()));
        let set = self.set_id;
        check_lengths(spans, &self.description)
            .map_err(|what| EngineError::Incomplete { set, what })
    }

    /// The set's id.
    pub fn set_id(&self) -> SetId {
        self.set_id
    }

    /// The set's root hash. Everything in the set depends on it.
    pub fn root(&self) -> [u8; 32] {
        self.root
    }

    /// What parity made up for so far, of this set and of those that it builds on; none if none of
    /// them has parity.
    pub fn mends(&self) -> Option<Mends> {
        self.rebuilders().map(|it| it.mends()).reduce(Mends::and)
    }

    /// What rebuilds what is lost of this set and of those that it builds on.
    pub fn rebuilders(&self) -> impl Iterator<Item = &Arc<Rebuilder>> {
        self.links().filter_map(|link| link.rebuilder.as_ref())
    }

    /// Its complete files with parity, each with its number among the devices, from 1.
    pub fn parities(&self) -> Vec<(u16, PathBuf)> {
        let files = self.rebuilder.iter().flat_map(|it| it.files());
        files.map(|it| (it.number(), it.location.clone())).collect()
    }

    /// Where those of its stripes are that are there, and its complete files with parity: what
    /// leads to it again.
    pub fn locations(&self) -> Vec<PathBuf> {
        let is_there = |stripe: &&OpenStripe| {
            let rebuilder = self.rebuilder.as_ref();
            rebuilder.is_none_or(|it| it.is_there(stripe.header.stripe.0))
        };
        let stripes = self.stripes.iter().filter(is_there);
        let stripes = stripes.map(|stripe| stripe.location().to_owned());
        let parities = self.parities().into_iter().map(|(_, path)| path);
        stripes.chain(parities).collect()
    }

    /// Where each device of this set is, or was written, stripes first. Those that are lost are
    /// among them.
    pub fn devices(&self) -> Vec<PathBuf> {
        let stripes = self.stripes.iter().map(|stripe| stripe.location());
        let parities = self.rebuilder.iter().flat_map(|it| it.parity_paths());
        let stripes = stripes.map(ToOwned::to_owned);
        stripes.chain(parities.cloned()).collect()
    }

    /// The devices of this set that are missing or cannot be opened, although it can be read.
    pub fn lost(&self) -> Vec<LostDevice> {
        let mends = self.rebuilder.as_ref().map(|it| it.mends());
        mends.unwrap_or_default().lost
    }

    /// What rebuilds what is lost of this set, if it has parity.
    pub(crate) fn rebuilder(&self) -> Option<&Arc<Rebuilder>> {
        self.rebuilder.as_ref()
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

    /// Bytes of all stripes, without those of the sets that it builds on.
    pub fn stripe_bytes(&self) -> u64 {
        self.stripes.iter().map(OpenStripe::bytes).sum()
    }

    /// Bytes of all stripes of all sets of the chain.
    pub fn chain_bytes(&self) -> u64 {
        self.links().map(FoundSet::stripe_bytes).sum()
    }

    /// Refuses pieces of one layer that overlap, even if they are in different index blocks.
    pub(crate) fn check_upper(&self, upper: &UpperLayers) -> Result<(), EngineError> {
        upper.check_overlaps(self.set_id)
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

    /// What lies over other bytes, without the checks. It leaves out index blocks that cannot be
    /// read, if `passes` accepts the error.
    pub(crate) fn upper_layers_unless(
        &self,
        cache: &Arc<PieceCache>,
        passes: impl Fn(&EngineError) -> bool,
    ) -> Result<UpperLayers, EngineError> {
        UpperLayers::read(&self.stripes, self.inherited(), cache, passes)
    }

    /// What lies over other bytes, for a reader of some files. It reads only index blocks that may
    /// have layers of a file whose entry states a CRC, and refuses a set in which one has.
    pub(crate) fn asked_layers(&self, cache: &Arc<PieceCache>) -> Result<AskedLayers, EngineError> {
        let layers = AskedLayers::new(self.set_id, &self.stripes, self.inherited(), cache);
        let files = self.description.files.0.iter();
        let stated = files.filter(|file| file.flags.crc_known);
        let mut stated: Vec<_> = stated.map(|file| file.file).collect();
        stated.sort_unstable();
        let layered = layers.first_layered(&stated)?;
        self.check_layered(|file| layered == Some(file))?;
        Ok(layers)
    }

    /// The files of which the base has bytes.
    fn inherited(&self) -> InheritedFiles {
        let base = self.description.base.as_ref();
        base.map(|base| base.files.clone()).unwrap_or_default()
    }
}

/// Whether parity may help.
fn may_be_mended(error: &EngineError) -> bool {
    match error {
        EngineError::SetsMixed { .. } | EngineError::StripeTwice { .. } => false,
        EngineError::NoSet { .. } => true,
        error => error.is_of_media(),
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
