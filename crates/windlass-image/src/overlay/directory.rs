//! An overlay's directory: made, bound to an image, locked, read again.
//!
//! `overlay`, 64 bytes:
//!   magic "WNDLOVLY"  8 | version  4 | page bytes  4 | identity of the image  32 | zeros  12 |
//!   CRC-32C  4
//!
//! Invariant: nothing is written to a file before it is proven to be the overlay's own. It is a
//! regular file with one name, reached through no link, and it begins as ours do.

use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};

use windlass_engine::durable::Locked;
use windlass_engine::media::{crc32c, fitted};
use windlass_engine::{durable, open_own};
use windlass_layout::{Geometry, StoreHeader};

use super::journal::{Journal, JournalEnd};
use super::record::{PAGE_BYTES, Record};
use super::replay::{Holds, Records, boot_id, survey};
use super::tree::Tree;
use super::{Overlay, Synced};
use crate::error::ImageError;
use crate::image::Image;
use crate::store::{PageOwner, PageStore, Slot, StoreError};

pub(super) const HEADER: &str = "overlay";
const PAGES: &str = "pages";
const JOURNAL: &str = "journal";

const MAGIC: [u8; 8] = *b"WNDLOVLY";
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 64;
/// The identity that no image has. An overlay of it is never opened again.
pub(super) const NO_IMAGE: [u8; 32] = [0; 32];

/// Makes a directory an overlay of an image, without any changes so far.
pub(super) fn create(identity: &[u8; 32], path: &Path) -> Result<(), ImageError> {
    let fault = |source| fault("create", path, source);
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(fault)?,
    }
    for entry in std::fs::read_dir(path).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let (name, found) = (entry.file_name(), entry.metadata().map_err(fault)?);
        // Files that an interrupted creation left may be removed. An overlay exists only with its
        // header, and nothing is written to these files before that.
        let is_empty = found.is_file() && found.len() == 0 && found.nlink() == 1;
        let is_ours = (name == PAGES || name == JOURNAL) && is_empty;
        if !is_ours {
            let path = path.to_owned();
            return Err(ImageError::OverlayPlace { path });
        }
    }
    for name in [PAGES, JOURNAL] {
        let mut options = File::options();
        options.write(true).create(true).mode(0o600);
        let file = open_own(&path.join(name), &mut options).map_err(fault)?;
        file.sync_all().map_err(fault)?;
    }
    // The header is written last, and durably: the overlay exists from then on.
    durable::write(&path.join(HEADER), &header(identity), 0o600).map_err(fault)?;
    durable::sync_parent(path).map_err(fault)
}

fn header(identity: &[u8; 32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    let page: u32 = fitted(PAGE_BYTES);
    bytes.extend_from_slice(&page.to_le_bytes());
    bytes.extend_from_slice(identity);
    bytes.resize(HEADER_BYTES - 4, 0);
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes
}

/// Opens the overlay in a directory.
pub(super) fn open(
    image: Arc<dyn Image>,
    identity: &[u8; 32],
    path: &Path,
) -> Result<Overlay, ImageError> {
    let fault = |source| fault("open", path, source);
    let lock = lock(path)?;
    check_header(&lock, identity, path)?;
    let open = |name| {
        let path = path.join(name);
        let opened = open_own(&path, File::options().read(true).write(true));
        opened.map_err(|source| self::fault("open", &path, source))
    };
    let (pages, journal) = (open(PAGES)?, open(JOURNAL)?);
    let boot = boot_id().map_err(fault)?;
    let end = match survey(&journal, &boot).map_err(fault)? {
        Holds::Until(end) => end,
        Holds::DamagedAt(offset) => return Err(damaged(path, offset)),
    };
    let (tree, unsynced) = replay(&*image, path, &journal, end)?;
    let store = store(pages, identity, &tree, &unsynced).map_err(|error| match error {
        StoreError::Io(source) => fault(source),
        StoreError::Twice { .. } => damaged(path, end.bytes),
        _ => ImageError::OverlayPage {
            path: path.to_owned(),
            offset: 0,
        },
    })?;
    let journal = Journal::new(journal, end).map_err(fault)?;
    let overlay = Overlay {
        image,
        path: path.to_owned(),
        tree: RwLock::new(tree),
        store,
        journal,
        changes: AtomicU64::new(0),
        synced: Mutex::new(Synced::default()),
        _lock: lock,
    };
    overlay.append(&[Record::Opened { boot }])?;
    drop_orphans(&overlay)?;
    // From here on, a power cut can only lose later changes.
    overlay.sync_all().map_err(fault)?;
    Ok(overlay)
}

/// Rebuilds the tree from the records of the journal. Also returns the slots whose pages no sync
/// covers.
fn replay(
    image: &dyn Image,
    path: &Path,
    journal: &File,
    end: JournalEnd,
) -> Result<(Tree, HashSet<Slot>), ImageError> {
    let mut unsynced = HashSet::new();
    let mut tree = Tree::new(image);
    let mut records = Records::new(journal, end.bytes);
    let mut before = 0;
    while let Some((record, after)) = records
        .next()
        .map_err(|source| fault("read", path, source))?
    {
        // We write only records that are possible. A record that is not possible was not written by
        // us.
        tree.check(&record).map_err(|_| damaged(path, before))?;
        tree.apply(&record);
        if before >= end.synced_bytes {
            unsynced.extend(record.slots().into_iter().flatten());
        }
        before = after;
    }
    Ok((tree, unsynced))
}

/// Opens the store with the pages of the tree.
fn store(
    pages: File,
    identity: &[u8; 32],
    tree: &Tree,
    unsynced: &HashSet<Slot>,
) -> Result<PageStore, StoreError> {
    let geometry = Geometry::new(fitted(PAGE_BYTES)).map_err(|_| StoreError::Header)?;
    let header = StoreHeader {
        geometry,
        identity: *identity,
    };
    let mut used = Vec::new();
    for node in tree.nodes() {
        let state = node.read();
        let file = node.number.0;
        let owner = |(block, slot)| (slot, PageOwner { file, block });
        used.extend(state.blocks.slots().map(owner));
    }
    let store = PageStore::open(pages, &header, used.iter().map(|(slot, _)| *slot))?;
    let torn = used.iter().filter(|(slot, _)| unsynced.contains(slot));
    for (slot, owner) in torn {
        store.accept_torn(*slot, *owner)?;
    }
    Ok(store)
}

/// Removes files without a name. They were open when the overlay was last used, and nobody has them
/// open any more.
fn drop_orphans(overlay: &Overlay) -> Result<(), ImageError> {
    let mut tree = overlay.tree_mut();
    for node in tree.orphans() {
        let record = Record::Dropped { node };
        overlay.append(std::slice::from_ref(&record))?;
        overlay.store.free(tree.apply(&record));
    }
    Ok(())
}

fn lock(path: &Path) -> Result<Locked<File>, ImageError> {
    let header = path.join(HEADER);
    let file =
        open_own(&header, File::options().read(true)).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ImageError::NoOverlay {
                path: path.to_owned(),
            },
            _ => fault("open", &header, source),
        })?;
    Locked::take(file).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => ImageError::OverlayInUse {
            path: path.to_owned(),
        },
        _ => fault("lock", path, source),
    })
}

fn check_header(file: &File, identity: &[u8; 32], path: &Path) -> Result<(), ImageError> {
    let expected = header(identity);
    let mut found = Vec::new();
    let read = file.take(HEADER_BYTES as u64 + 1).read_to_end(&mut found);
    read.map_err(|source| fault("read", path, source))?;
    if found == expected {
        return Ok(());
    }
    let is_whole = found.len() == HEADER_BYTES
        && found.starts_with(&MAGIC)
        && found[HEADER_BYTES - 4..] == crc32c(&found[..HEADER_BYTES - 4]).to_le_bytes();
    let path = path.to_owned();
    if !is_whole {
        return Err(ImageError::OverlayDamaged { path, offset: 0 });
    }
    let is_version = found[8..16] == expected[8..16];
    Err(match is_version {
        true => ImageError::OverlayForeign { path },
        false => ImageError::OverlayVersion { path },
    })
}

fn damaged(path: &Path, offset: u64) -> ImageError {
    let path = path.to_owned();
    ImageError::OverlayDamaged { path, offset }
}

fn fault(operation: &'static str, path: &Path, source: io::Error) -> ImageError {
    let path = path.to_owned();
    ImageError::Overlay {
        operation,
        path,
        source,
    }
}
