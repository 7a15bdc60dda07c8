//! Files whose snapshots have no link to them yet: they are pinned when the server takes their name
//! away.
//!
//!   creation of a snapshot of many files: no links      server: unlink, or a rename over it
//!                                                         --> link in the graveyard --> the call
//!
//! A link costs more than everything else that a creation does with a file. So a snapshot of many
//! files makes none. Before the server removes a name, the hook gives the file another one, in a
//! directory on the same file system. So the inode stays, and its number is not used again.
//!
//! Invariants
//! - While such a snapshot has a file, the file has its own name or one in the graveyard.

use super::memory::{Memory, Phase};
use super::snapshot::{FileKey, FileLink, Snapshot};
use super::writer::{Fault, linked, lose};

/// Behind the identity of a data directory, this names its graveyards.
pub const GRAVEYARD_SUFFIX: &str = "-graves";
/// Length of the name of a file in a graveyard.
pub const GRAVE_NAME_BYTES: usize = 16;

impl FileLink {
    /// The file has no link of its snapshot.
    pub const NONE: Self = Self {
        directory: u32::MAX,
        name: 0,
    };
}

impl FileKey {
    /// The name of the file in a graveyard.
    pub fn grave_name(self, into: &mut [u8; GRAVE_NAME_BYTES]) {
        super::snapshot::hexadecimal(self.inode, into);
    }
}

impl Snapshot<'_> {
    fn needs_name(&self, key: FileKey) -> bool {
        let found = self.find(key);
        found.is_some_and(|record| record.link == FileLink::NONE)
    }
}

/// Whether a file must be pinned before it loses a name. The process must be inside.
pub fn needs_pin(memory: Memory<'_>, key: FileKey) -> bool {
    let mut kept = linked(memory).take_while(|it| it.state() != Phase::Lost);
    kept.any(|snapshot| snapshot.needs_name(key))
}

/// The file could not be pinned: the snapshots that need it are lost, and all older ones. True if
/// one was lost now.
pub fn lose_unpinned(
    memory: Memory<'_>,
    key: FileKey,
    fault: Fault,
    mut forget: impl FnMut(u32),
) -> bool {
    let newest = linked(memory).find(|snapshot| snapshot.needs_name(key));
    newest.is_some_and(|newest| lose(&newest, fault, &mut forget))
}

/// Whether any snapshot still has a file that is in a graveyard. The controller asks, after a
/// grace.
pub fn needs_grave(memory: Memory<'_>, key: FileKey) -> bool {
    let entries = (0..super::SNAPSHOTS_MAX).filter_map(|index| Snapshot::at(memory, index));
    let mut kept = entries.filter(|it| !matches!(it.state(), Phase::Free | Phase::Lost));
    kept.any(|snapshot| snapshot.needs_name(key))
}
