//! Opening a set: finding its stripes, and proving that they are whole and belong together.
//!
//! Any stripe leads to the others: its header and footer name them. What is checked here, before
//! anything is believed: each stripe's seal, the hash of its footer, the hash of its header and
//! index directory against what every stripe says of it, and that header, regions, index blocks,
//! footer and seal follow each other without a gap. Index blocks are checked when they are read,
//! frames when they are used.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_media::{
    FileNo, Footer, FormatError, IndexBlock, IndexDirectoryEntry, SEAL_BYTES, Seal, SetDescription,
    SetId, StripeHeader, StripeIndex, StripeTableEntry, Structure,
};

use crate::device::PARTIAL_SUFFIX;
use crate::error::EngineError;
use crate::read::ReadFile;

/// What a set's metadata may take in memory unless told otherwise.
pub const METADATA_LIMIT_DEFAULT: u64 = 1024 * 1024 * 1024;

/// Pieces above layer 0, by file: (start, end, layer), sorted.
pub type UpperLayers = BTreeMap<FileNo, Vec<(u64, u64, u8)>>;

/// One stripe of an open set.
#[derive(Debug)]
pub struct OpenStripe {
    location: PathBuf,
    pub(crate) file: ReadFile,
    header: StripeHeader,
    header_bytes: Vec<u8>,
    seal: Seal,
    directory: Vec<IndexDirectoryEntry>,
}

/// A set whose stripes are all there, sealed, and of one mind.
#[derive(Debug)]
pub struct OpenSet {
    set_id: SetId,
    root: [u8; 32],
    stripes: Vec<OpenStripe>,
    description: SetDescription,
}

impl OpenStripe {
    /// Where the stripe was found.
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// Its header.
    pub fn header(&self) -> &StripeHeader {
        &self.header
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.seal.stripe_bytes
    }

    /// Its index blocks.
    pub fn directory(&self) -> &[IndexDirectoryEntry] {
        &self.directory
    }

    /// Reads and checks one index block.
    pub fn index_block(&self, entry: &IndexDirectoryEntry) -> Result<IndexBlock, EngineError> {
        let mut bytes = vec![0; entry.bytes as usize];
        self.read(entry.offset, &mut bytes)?;
        if blake3::hash(&bytes).as_bytes() != &entry.hash {
            return Err(self.damage(entry.offset, FormatError::Hash(Structure::IndexBlock)));
        }
        let block = IndexBlock::decode(&bytes, entry.offset, self.header.alignment);
        let block = block.map_err(|source| self.damage(entry.offset, source))?;
        if block.set_id != self.header.set_id || block.stripe != self.header.stripe {
            let (expected, found) = (self.header.set_id, block.set_id);
            let structure = Structure::IndexBlock;
            let fault = FormatError::Foreign {
                structure,
                expected,
                found,
            };
            return Err(self.damage(entry.offset, fault));
        }
        let frame_bytes = self.header.frame_bytes;
        let too_large = |frame: &windlass_media::FrameEntry| {
            frame.raw_bytes.max(frame.stored_bytes) > frame_bytes
        };
        if block.frames.iter().any(too_large) || block.region_offset != entry.region_offset {
            let what = "a frame is larger, or the region elsewhere, than the stripe says";
            let fault = FormatError::Invalid {
                structure: Structure::IndexBlock,
                what,
            };
            return Err(self.damage(entry.offset, fault));
        }
        Ok(block)
    }

    /// Reads exactly `into.len()` bytes; a stripe that ends before is damaged.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), EngineError> {
        self.file
            .file()
            .read_exact_at(into, offset)
            .map_err(|source| self.io(offset, source))
    }

    pub(crate) fn damage(&self, offset: u64, source: FormatError) -> EngineError {
        damage(&self.location, offset, source)
    }

    pub(crate) fn io(&self, offset: u64, source: io::Error) -> EngineError {
        read_error(&self.location, offset, source)
    }

    /// Header, regions, index blocks, footer: each begins where the one before ends.
    fn check_layout(&self) -> Result<(), EngineError> {
        let mut position = self.header_bytes.len() as u64;
        for entry in &self.directory {
            if entry.region_offset != position {
                break;
            }
            position = entry.offset + u64::from(entry.bytes);
        }
        if position == self.seal.footer_offset {
            return Ok(());
        }
        let what = "header, regions and index blocks do not fill the stripe up to its footer";
        let fault = FormatError::Invalid {
            structure: Structure::IndexDirectory,
            what,
        };
        Err(self.damage(position, fault))
    }
}

impl OpenSet {
    /// Opens the set that `places` (stripes, or directories that hold them) lead to.
    pub fn open(places: &[PathBuf], metadata_limit: u64) -> Result<Self, EngineError> {
        let (first, footer) = first_stripe(places, metadata_limit)?;
        let set_id = first.header.set_id;
        let description = footer.description;
        let candidates = candidates(places, &first, &description);
        let mut found: BTreeMap<u16, OpenStripe> = BTreeMap::new();
        let count = first.header.stripe_count();
        found.insert(first.header.stripe.0, first);
        for candidate in candidates {
            let Some(header) = peek_header(&candidate) else {
                continue;
            };
            let index = header.stripe.0;
            if header.set_id != set_id || found.contains_key(&index) || index >= count {
                continue;
            }
            let (stripe, other) = open_stripe(&candidate, metadata_limit)?;
            if other.description != description {
                let fault = FormatError::Hash(Structure::StripeTable);
                return Err(stripe.damage(stripe.seal.footer_offset, fault));
            }
            found.insert(index, stripe);
        }
        for index in 0..count {
            if !found.contains_key(&index) {
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

    fn check(&self) -> Result<(), EngineError> {
        if self.description.stripes.len() != self.stripes.len() {
            let what = "the stripe table does not list as many stripes as there are".to_owned();
            return Err(EngineError::Incomplete {
                set: self.set_id,
                what,
            });
        }
        let listed = self.description.stripes.iter();
        let held = listed.fold(0u64, |sum, entry| sum.saturating_add(entry.raw_bytes));
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
            let hash = StripeTableEntry::hash_of(&stripe.header_bytes, &stripe.directory);
            if hash != listed.hash || listed.data_bytes != stripe.seal.footer_offset {
                return Err(stripe.damage(0, FormatError::Hash(Structure::IndexDirectory)));
            }
            if stripe.seal.set_root != self.root {
                return Err(stripe.damage(0, FormatError::Hash(Structure::Seal)));
            }
            stripe.check_layout()?;
        }
        Ok(())
    }

    /// The set's id.
    pub fn set_id(&self) -> SetId {
        self.set_id
    }

    /// The set's root hash: everything in the set is bound to it.
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

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        let files = self.description.files.0.iter();
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Bytes of all stripes.
    pub fn stripe_bytes(&self) -> u64 {
        self.stripes.iter().map(OpenStripe::bytes).sum()
    }

    /// Reads and checks every index block: what `verify --quick` does beyond opening.
    pub fn check_index(&self) -> Result<(), EngineError> {
        for stripe in &self.stripes {
            for entry in &stripe.directory {
                stripe.index_block(entry)?;
            }
        }
        Ok(())
    }

    /// Pieces above layer 0, by file: (start, end, layer).
    pub fn upper_layers(&self) -> Result<UpperLayers, EngineError> {
        let mut upper = UpperLayers::new();
        for stripe in &self.stripes {
            for entry in stripe.directory.iter().filter(|entry| entry.layer_max > 0) {
                let block = stripe.index_block(entry)?;
                for piece in block.pieces.iter().filter(|piece| piece.layer > 0) {
                    let end = piece.offset + u64::from(piece.bytes);
                    let ranges = upper.entry(piece.file).or_default();
                    ranges.push((piece.offset, end, piece.layer));
                }
            }
        }
        upper.values_mut().for_each(|ranges| ranges.sort_unstable());
        Ok(upper)
    }
}

/// A stripe that could be read as far as its header, for lists and for damaged sets.
#[derive(Debug)]
pub struct StripeGlance {
    /// Where it is.
    pub location: PathBuf,
    /// Its header.
    pub header: StripeHeader,
    /// Why it cannot be used, if it cannot.
    pub fault: Option<EngineError>,
    /// What its footer says, if that can be read.
    pub description: Option<SetDescription>,
}

/// Looks at every stripe in `places`, damaged or not: what is there, and what is wrong with it.
pub fn glance(places: &[PathBuf], metadata_limit: u64) -> Result<Vec<StripeGlance>, EngineError> {
    let mut glances = Vec::new();
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

/// The first stripe that `places` lead to. All that are named must be of one set.
fn first_stripe(
    places: &[PathBuf],
    metadata_limit: u64,
) -> Result<(OpenStripe, Footer), EngineError> {
    let paths = expand(places)?;
    let mut first: Option<(PathBuf, StripeHeader)> = None;
    let mut fault = None;
    let mut seen: BTreeMap<u16, PathBuf> = BTreeMap::new();
    for path in paths {
        let named = places.contains(&path);
        let header = match read_header(&path) {
            Ok((header, _)) => header,
            Err(error) if named => return Err(error),
            Err(error) => {
                fault.get_or_insert(error);
                continue;
            }
        };
        // In a directory, what is not sealed is another run's business.
        if !named && path.to_string_lossy().ends_with(PARTIAL_SUFFIX) {
            continue;
        }
        if let Some((_, other)) = &first
            && other.set_id != header.set_id
        {
            return Err(EngineError::SetsMixed {
                first: other.set_id,
                second: header.set_id,
            });
        }
        if let Some(other) = seen.insert(header.stripe.0, path.clone())
            && !same_file(&other, &path)
        {
            return Err(EngineError::StripeTwice {
                set: header.set_id,
                stripe: header.stripe,
                first: other.to_string_lossy().into_owned(),
                second: path.to_string_lossy().into_owned(),
            });
        }
        first.get_or_insert((path, header));
    }
    match (first, fault) {
        (Some((path, _)), _) => open_stripe(&path, metadata_limit),
        (None, Some(fault)) => Err(fault),
        (None, None) => {
            let names: Vec<_> = places.iter().map(|place| place.to_string_lossy()).collect();
            Err(EngineError::NoSet {
                location: names.join(", "),
            })
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Files as they are, directories as the stripes in them.
fn expand(places: &[PathBuf]) -> Result<Vec<PathBuf>, EngineError> {
    let mut paths = Vec::new();
    for place in places {
        if !place.is_dir() {
            paths.push(place.clone());
            continue;
        }
        let entries = std::fs::read_dir(place).map_err(|source| read_error(place, 0, source))?;
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| read_error(place, 0, source))?;
            if entry.file_type().is_ok_and(|kind| kind.is_file())
                && looks_like_stripe(&entry.path())
            {
                found.push(entry.path());
            }
        }
        found.sort();
        paths.extend(found);
    }
    Ok(paths)
}

fn looks_like_stripe(path: &Path) -> bool {
    let mut magic = [0; 7];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut magic, 0));
    read.is_ok() && &magic == b"WNDLASS"
}

/// Where the other stripes may be: where they were written, beside the first, where one was told.
fn candidates(places: &[PathBuf], first: &OpenStripe, set: &SetDescription) -> Vec<PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let mut candidates = expand(places).unwrap_or_default();
    let beside = first.location.parent().unwrap_or(Path::new("."));
    for entry in &set.stripes {
        let written = PathBuf::from(OsStr::from_bytes(&entry.location));
        if let Some(name) = written.file_name() {
            candidates.push(beside.join(name));
        }
        let mut partial = written.clone().into_os_string();
        partial.push(PARTIAL_SUFFIX);
        candidates.push(written);
        candidates.push(PathBuf::from(partial));
    }
    candidates
}

fn peek_header(path: &Path) -> Option<StripeHeader> {
    read_header(path).ok().map(|(header, _)| header)
}

fn read_header(path: &Path) -> Result<(StripeHeader, Vec<u8>), EngineError> {
    let file = open_regular(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => EngineError::NoSet {
            location: path.to_string_lossy().into_owned(),
        },
        _ => read_error(path, 0, source),
    })?;
    let fault = |source| damage(path, 0, source);
    let mut prefix = [0; StripeHeader::PREFIX_BYTES];
    file.read_exact_at(&mut prefix, 0)
        .map_err(|source| read_error(path, 0, source))?;
    let total = StripeHeader::encoded_bytes(&prefix).map_err(fault)?;
    let mut bytes = vec![0; total as usize];
    file.read_exact_at(&mut bytes, 0)
        .map_err(|source| read_error(path, 0, source))?;
    let header = StripeHeader::decode(&bytes).map_err(fault)?;
    Ok((header, bytes))
}

/// Opens a file, and never waits: a set may say that a stripe of it is a pipe or a terminal.
fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other("not a regular file"))
}

fn open_stripe(path: &Path, limit: u64) -> Result<(OpenStripe, Footer), EngineError> {
    let (header, header_bytes) = read_header(path)?;
    let io = |source| read_error(path, 0, source);
    let file = ReadFile::open(path).map_err(io)?;
    let length = file.file().metadata().map_err(io)?.len();
    let seal = read_seal(path, file.file(), length)?;
    if seal.set_id != header.set_id || seal.alignment != header.alignment {
        let (expected, found) = (header.set_id, seal.set_id);
        let fault = FormatError::Foreign {
            structure: Structure::Seal,
            expected,
            found,
        };
        return Err(damage(path, length, fault));
    }
    if seal.stripe != header.stripe || seal.stripe_count != header.stripe_count() {
        let (expected, found) = (header.stripe, seal.stripe);
        let fault = FormatError::StripeIndex {
            structure: Structure::Seal,
            expected,
            found,
        };
        return Err(damage(path, length, fault));
    }
    let footer = read_footer(path, file.file(), &seal, limit)?;
    if footer.set_id != header.set_id || footer.stripe != header.stripe {
        let (expected, found) = (header.set_id, footer.set_id);
        let fault = FormatError::Foreign {
            structure: Structure::Footer,
            expected,
            found,
        };
        return Err(damage(path, seal.footer_offset, fault));
    }
    if footer.set_root != seal.set_root {
        return Err(damage(
            path,
            seal.footer_offset,
            FormatError::Hash(Structure::Seal),
        ));
    }
    let directory = footer.directory.clone();
    let location = path.to_owned();
    let stripe = OpenStripe {
        location,
        file,
        header,
        header_bytes,
        seal,
        directory,
    };
    Ok((stripe, footer))
}

fn read_seal(path: &Path, file: &File, length: u64) -> Result<Seal, EngineError> {
    let unsealed = || EngineError::NotSealed {
        location: path.to_string_lossy().into_owned(),
    };
    let offset = length.checked_sub(SEAL_BYTES as u64).ok_or_else(unsealed)?;
    let mut record = [0; SEAL_BYTES];
    file.read_exact_at(&mut record, offset)
        .map_err(|source| read_error(path, offset, source))?;
    let seal = Seal::decode(&record, length).map_err(|source| match source {
        // A run that was cut off leaves no seal; a seal that does not add up is damage.
        FormatError::Magic(_) if path.to_string_lossy().ends_with(PARTIAL_SUFFIX) => unsealed(),
        source => damage(path, offset, source),
    })?;
    let mut padding = vec![0; seal.alignment as usize - SEAL_BYTES];
    let start = length - u64::from(seal.alignment);
    file.read_exact_at(&mut padding, start)
        .map_err(|source| read_error(path, start, source))?;
    if !windlass_media::is_zero(&padding) {
        let what = "padding is not zero";
        return Err(damage(
            path,
            start,
            FormatError::Invalid {
                structure: Structure::Seal,
                what,
            },
        ));
    }
    Ok(seal)
}

fn read_footer(path: &Path, file: &File, seal: &Seal, limit: u64) -> Result<Footer, EngineError> {
    let fault = |source| damage(path, seal.footer_offset, source);
    if seal.footer_bytes > limit {
        return Err(fault(FormatError::Limit {
            structure: Structure::Footer,
            what: "length",
            found: seal.footer_bytes,
            limit,
        }));
    }
    let mut bytes = vec![0; usize::try_from(seal.footer_bytes).unwrap_or(usize::MAX)];
    let read = file.read_exact_at(&mut bytes, seal.footer_offset);
    read.map_err(|source| read_error(path, seal.footer_offset, source))?;
    if blake3::hash(&bytes).as_bytes() != &seal.footer_hash {
        return Err(fault(FormatError::Hash(Structure::Footer)));
    }
    Footer::decode(&bytes, limit).map_err(fault)
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

fn damage(path: &Path, offset: u64, source: FormatError) -> EngineError {
    EngineError::Damage {
        location: path.to_string_lossy().into_owned(),
        offset,
        source,
    }
}

fn read_error(path: &Path, offset: u64, source: io::Error) -> EngineError {
    let location = path.to_string_lossy().into_owned();
    if source.kind() == io::ErrorKind::UnexpectedEof {
        let source = FormatError::Truncated(Structure::Header);
        return EngineError::Damage {
            location,
            offset,
            source,
        };
    }
    EngineError::DeviceIo {
        operation: "read",
        device: location,
        offset,
        source,
    }
}
