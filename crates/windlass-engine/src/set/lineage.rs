//! Lineage: which files of older sets lie under the files of the newest set of a chain.
//!
//!   newest set          its base            the base of that
//!   file 7  --below 9 MB-->  file 12  --below 5 MB-->  file 3
//!
//! Invariants
//! - Each set says which file of its base lies under which of its own. Nothing here compares paths.
//! - A limit cuts everything below it: what a newer set has cut off never comes back.

use std::collections::HashMap;

use windlass_media::{FileKind, FileNo};

use super::found::FoundSet;
use crate::error::EngineError;
use crate::mismatch::Mismatch;

/// A file of one of the sets, as far as it lies under a file of the newest set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Its number in that set.
    pub file: FileNo,
    /// Only its bytes before this offset can count.
    pub bytes: u64,
}

/// The files of a chain's older sets that lie under files of the newest one.
#[derive(Debug, Default)]
pub struct Lineage {
    /// By file of the newest set: its file in each older set, the newest of these first.
    ancestors: HashMap<FileNo, Vec<Ancestor>>,
    /// For each older set, by file of that set: the file of the newest.
    heirs: Vec<HashMap<FileNo, FileNo>>,
}

impl Lineage {
    /// Follows the files of a chain, the newest set first. If nothing is known of a set any more,
    /// the sets below it have no files here.
    pub(super) fn of(links: &[&FoundSet]) -> Self {
        let mut lineage = Self::default();
        for (place, pair) in links.windows(2).enumerate() {
            let mut heirs = HashMap::new();
            let base = pair[0].description().base.as_ref();
            let inherited = base.map(|base| base.files.all()).unwrap_or_default();
            for one in inherited {
                let above = lineage.heir(place, one.file);
                let Some((heir, limit)) = above else {
                    continue;
                };
                heirs.insert(one.base_file, heir);
                lineage.ancestors.entry(heir).or_default().push(Ancestor {
                    file: one.base_file,
                    bytes: limit.min(one.bytes),
                });
            }
            lineage.heirs.push(heirs);
        }
        lineage
    }

    /// The file of the newest set that lies over a file of this link, and the offset up to which
    /// the link's bytes can count. Link 0 is the newest set itself.
    pub(crate) fn heir(&self, link: usize, file: FileNo) -> Option<(FileNo, u64)> {
        let Some(older) = link.checked_sub(1) else {
            return Some((file, u64::MAX));
        };
        let heir = *self.heirs.get(older)?.get(&file)?;
        let ancestor = self.ancestors.get(&heir)?.get(older)?;
        Some((heir, ancestor.bytes))
    }

    /// What lies under a file of the newest set, in each older set that has a part of it.
    pub fn ancestors(&self, file: FileNo) -> &[Ancestor] {
        self.ancestors.get(&file).map_or(&[], Vec::as_slice)
    }
}

/// Checks that the base has the files that a set takes from it, and that they are long enough.
pub(super) fn check_files(set: &FoundSet, base_set: &FoundSet) -> Result<(), EngineError> {
    let Some(base) = &set.description().base else {
        return Ok(());
    };
    let entries = base_set.description().files.0.iter();
    let files = entries.filter(|entry| entry.kind == FileKind::File);
    let lengths: HashMap<_, _> = files.map(|entry| (entry.file, entry.bytes)).collect();
    let fits = |file, bytes| lengths.get(file).is_some_and(|length| bytes <= *length);
    let mut all = base.files.all().iter();
    match all.find(|one| !fits(&one.base_file, one.bytes)) {
        None => Ok(()),
        Some(one) => Err(EngineError::Incomplete {
            set: set.set_id(),
            what: Mismatch::BaseFile {
                base: base.set,
                file: one.base_file,
                bytes: one.bytes,
            },
        }),
    }
}
