//! Rebuilding members of stripes from the others of their groups.

mod survey;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_media::{
    FormatError, GroupBlock, GroupEntry, MemberEntry, Recipe, SetId, Structure, add_product,
    crc32c, fitted,
};

use super::cache::Recent;
use super::file::ParityFile;
use super::notes::{Mends, Notes};
use crate::error::{EngineError, damage};
use crate::storage::ReadAt;
pub(crate) use survey::Described;

/// Members that are kept beside two for each parity, and group blocks that are kept. A group block
/// has about 256 KiB.
const MEMBERS_KEPT: usize = 4;
const BLOCKS_KEPT: usize = 8;

/// A stripe, as far as it is there.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where it is, or was written.
    pub(crate) location: String,
    /// None if it is missing.
    pub(crate) bytes: Option<Arc<dyn ReadAt>>,
}

/// Rebuilds what is lost of the stripes of one set.
#[derive(Debug)]
pub struct Rebuilder {
    set: SetId,
    /// None if nothing that is left says it.
    root: Option<[u8; 32]>,
    sources: Vec<Source>,
    /// Those that are used together come first. Others may have other groups.
    files: Vec<ParityFile>,
    /// How many are used together.
    together: usize,
    blocks: Recent<(usize, usize), GroupBlock>,
    members: Recent<(u16, u64, u32), Vec<u8>>,
    notes: Notes,
    /// Where each parity is, or was written.
    parity_paths: Vec<PathBuf>,
}

/// A group: its members, and which parity of it is where.
pub(crate) struct Group {
    pub(crate) members: Vec<MemberEntry>,
    /// The group block, and the place in it.
    place: (usize, usize),
}

impl Rebuilder {
    /// `files` are used together. Of `spare` each is right for itself. `mends` says what is lost
    /// already.
    pub(crate) fn new(
        (set, root): (SetId, Option<[u8; 32]>),
        sources: Vec<Source>,
        (mut files, mut spare): (Vec<ParityFile>, Vec<ParityFile>),
        mends: Mends,
    ) -> Self {
        let together = files.len();
        let kept = 2 * together + MEMBERS_KEPT;
        files.append(&mut spare);
        Self {
            set,
            root,
            sources,
            files,
            together,
            blocks: Recent::new(BLOCKS_KEPT),
            members: Recent::new(kept),
            notes: Notes::new(mends),
            parity_paths: Vec::new(),
        }
    }

    /// Says where each parity is, or was written.
    pub(crate) fn with_parity_at(mut self, paths: Vec<PathBuf>) -> Self {
        self.parity_paths = paths;
        self
    }

    /// Whether something of a stripe is there.
    pub(crate) fn is_there(&self, stripe: u16) -> bool {
        let source = self.sources.get(usize::from(stripe));
        source.is_some_and(|source| source.bytes.is_some())
    }

    pub(crate) fn parity_paths(&self) -> &[PathBuf] {
        &self.parity_paths
    }

    /// What was lost, and what was rebuilt so far.
    pub fn mends(&self) -> Mends {
        self.notes.get()
    }

    /// The files with parity that are used together.
    pub(crate) fn files(&self) -> &[ParityFile] {
        &self.files[..self.together]
    }

    /// The root of the set.
    pub(crate) fn root(&self) -> [u8; 32] {
        self.root.unwrap_or_default()
    }

    /// The length of a stripe.
    pub(crate) fn stripe_bytes(&self, stripe: u16) -> u64 {
        self.lengths()
            .get(usize::from(stripe))
            .copied()
            .unwrap_or(0)
    }

    /// The length of each stripe.
    pub(crate) fn lengths(&self) -> Vec<u64> {
        if let Some(file) = self.files.first() {
            return file.directory.stripe_bytes.clone();
        }
        let length = |source: &Source| source.bytes.as_ref()?.length().ok();
        let lengths = self
            .sources
            .iter()
            .map(|source| length(source).unwrap_or(0));
        lengths.collect()
    }

    /// Reads bytes of a stripe, from itself as far as their checksums are right, and else rebuilt.
    /// Returns fewer bytes only at the end of the stripe.
    pub(crate) fn read(
        &self,
        stripe: u16,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, EngineError> {
        let length = self.stripe_bytes(stripe).saturating_sub(offset);
        let wanted = usize::try_from(length).map_or(into.len(), |length| length.min(into.len()));
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let (from, bytes) = self.member_of(stripe, at)?;
            let start = fitted::<usize, _>(at - from);
            let count = (bytes.len() - start).min(wanted - done);
            into[done..done + count].copy_from_slice(&bytes[start..start + count]);
            done += count;
        }
        Ok(done)
    }

    /// The member that has this byte of a stripe, and where it begins. If files have other groups
    /// than the first ones, the next one is tried.
    fn member_of(&self, stripe: u16, offset: u64) -> Result<(u64, Arc<Vec<u8>>), EngineError> {
        if self.files.is_empty() {
            return Err(self.beyond_of(&[stripe], std::iter::empty()));
        }
        let mut fault = self.lost(stripe, offset);
        for file in 0..self.files.len() {
            let group = match self.group_of(file, stripe, offset) {
                Ok(Some(group)) => group,
                Ok(None) => continue,
                Err(error) => {
                    fault = error;
                    continue;
                }
            };
            let Some(member) = group.member_at(stripe, offset) else {
                continue;
            };
            let key = (stripe, member.offset, member.bytes);
            match self.members.get_or(key, || self.member(&group, member)) {
                Ok(bytes) => return Ok((member.offset, bytes)),
                Err(error) => fault = error,
            }
        }
        Err(fault)
    }

    /// The group of a file that has this byte of a stripe.
    fn group_of(
        &self,
        file: usize,
        stripe: u16,
        offset: u64,
    ) -> Result<Option<Group>, EngineError> {
        let Some(place) = self.files[file].directory.block_of(stripe, offset) else {
            return Ok(None);
        };
        let block = self.block(file, place)?;
        let has = |(_, members): &(&GroupEntry, &[MemberEntry])| {
            let mut own = members.iter().filter(|it| it.stripe == stripe);
            own.any(|it| (it.offset..it.end()).contains(&offset))
        };
        let found = block.iter().enumerate().find(|(_, group)| has(group));
        Ok(found.map(|(at, (_, members))| Group {
            members: members.to_vec(),
            place: (place, at),
        }))
    }

    fn block(&self, file: usize, number: usize) -> Result<Arc<GroupBlock>, EngineError> {
        self.blocks
            .get_or((file, number), || self.files[file].block(number))
    }

    /// The bytes of a member, from its stripe or rebuilt.
    pub(crate) fn member(
        &self,
        group: &Group,
        member: &MemberEntry,
    ) -> Result<Vec<u8>, EngineError> {
        match self.stored(member) {
            Some(bytes) => Ok(bytes),
            None => self.rebuilt(group, member),
        }
    }

    /// The bytes of a member as its stripe has them, if their checksum is right.
    pub(crate) fn stored(&self, member: &MemberEntry) -> Option<Vec<u8>> {
        let source = self.sources.get(usize::from(member.stripe))?;
        let mut bytes = vec![0; member.bytes as usize];
        let read = source
            .bytes
            .as_ref()?
            .read_exact_at(member.offset, &mut bytes);
        (read.is_ok() && crc32c(&bytes) == member.crc32c).then_some(bytes)
    }

    /// The bytes of a member, computed from the others of its group and from parities. Only one of
    /// the others is in memory at a time.
    fn rebuilt(&self, group: &Group, wanted: &MemberEntry) -> Result<Vec<u8>, EngineError> {
        let is_missing = |it: &&MemberEntry| {
            let source = self.sources.get(usize::from(it.stripe));
            it.stripe == wanted.stripe || source.is_none_or(|source| source.bytes.is_none())
        };
        let members = group.members.iter();
        let mut lost: Vec<_> = members.filter(is_missing).map(|it| it.stripe).collect();
        loop {
            match self.summed(group, wanted, &lost)? {
                Ok(bytes) => return self.checked(wanted, bytes),
                // One more is damaged, so other factors are needed.
                Err(stripe) => lost.push(stripe),
            }
        }
    }

    /// The sum that is the wanted member if nothing but these members is lost. The inner error is
    /// the stripe of another member that turned out to be damaged.
    fn summed(
        &self,
        group: &Group,
        wanted: &MemberEntry,
        lost: &[u16],
    ) -> Result<Result<Vec<u8>, u16>, EngineError> {
        let parities = self.parities(group, lost.len());
        let numbers: Vec<_> = parities.iter().map(|(number, _)| *number).collect();
        let Some(recipe) = Recipe::new(wanted.stripe, lost, &numbers) else {
            return Err(self.beyond(group, lost));
        };
        let longest = group.members.iter().map(|it| it.bytes).max();
        let mut sum = vec![0; longest.unwrap_or(0) as usize];
        for ((_, factor), (_, bytes)) in recipe.parities().iter().zip(parities) {
            add_product(*factor, &bytes, &mut sum);
        }
        for member in group.members.iter().filter(|it| !lost.contains(&it.stripe)) {
            let Some(bytes) = self.stored(member) else {
                return Ok(Err(member.stripe));
            };
            add_product(
                recipe.factor(member.stripe),
                &bytes,
                &mut sum[..bytes.len()],
            );
        }
        Ok(Ok(sum))
    }

    /// A member that was computed, if its checksum is right.
    fn checked(&self, wanted: &MemberEntry, mut bytes: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        bytes.truncate(wanted.bytes as usize);
        let found = crc32c(&bytes);
        let location = self.location(wanted.stripe);
        if found != wanted.crc32c {
            let fault = FormatError::Checksum {
                structure: Structure::Parity,
                expected: wanted.crc32c,
                found,
            };
            return Err(damage(location.as_ref(), wanted.offset, fault));
        }
        self.notes.rebuilt(location, wanted);
        Ok(bytes)
    }

    /// So many parities of a group, of those that are there. A file with another group at the same
    /// place has none of it.
    fn parities(&self, group: &Group, count: usize) -> Vec<(u16, Vec<u8>)> {
        let mut found: Vec<(u16, Vec<u8>)> = Vec::new();
        for (number, file) in self.files.iter().enumerate() {
            let is_known = found
                .iter()
                .any(|(parity, _)| *parity == file.header.parity);
            if found.len() == count || is_known {
                continue;
            }
            let Some(entry) = self.entry_of(number, group) else {
                continue;
            };
            match file.parity(&entry) {
                Ok(bytes) => found.push((file.header.parity, bytes)),
                Err(_) => {
                    let location = file.location.to_string_lossy();
                    self.notes
                        .damaged(&location, file.number(), (entry.offset, entry.bytes));
                }
            }
        }
        found
    }

    /// Where a file has the parity of a group, if it has exactly this group.
    fn entry_of(&self, file: usize, group: &Group) -> Option<GroupEntry> {
        let (block, at) = group.place;
        let block = self.block(file, block).ok()?;
        let (entry, members) = block.iter().nth(at)?;
        (members == group.members).then_some(*entry)
    }

    fn location(&self, stripe: u16) -> &str {
        let source = self.sources.get(usize::from(stripe));
        source.map_or("", |source| &source.location)
    }

    fn lost(&self, stripe: u16, offset: u64) -> EngineError {
        let (structure, what) = (
            Structure::GroupBlock,
            "no group has this part of the stripe",
        );
        let fault = FormatError::Invalid { structure, what };
        damage(self.location(stripe).as_ref(), offset, fault)
    }

    /// The error when more of a group is lost than can be rebuilt. It names all that is.
    fn beyond(&self, group: &Group, known: &[u16]) -> EngineError {
        let members = group.members.iter();
        let is_lost = |it: &&MemberEntry| known.contains(&it.stripe) || self.stored(it).is_none();
        let stripes: Vec<_> = members.filter(is_lost).map(|it| it.stripe).collect();
        let files = self.files().iter().enumerate();
        let damaged = files.filter(|(number, file)| {
            let entry = self.entry_of(*number, group);
            entry.is_none_or(|entry| file.parity(&entry).is_err())
        });
        let damaged = damaged.map(|(_, file)| file.location.to_string_lossy().into_owned());
        self.beyond_of(&stripes, damaged)
    }

    fn beyond_of(&self, stripes: &[u16], damaged: impl Iterator<Item = String>) -> EngineError {
        let stripes = stripes.iter().map(|it| self.location(*it).to_owned());
        let mends = self.mends();
        let parities = mends.lost.iter().filter(|device| device.is_parity);
        let parities = parities.map(|device| device.location.clone());
        EngineError::BeyondParity {
            set: self.set,
            parities: mends.parities,
            lost: stripes.chain(parities).chain(damaged).collect(),
        }
    }
}

impl Group {
    fn member_at(&self, stripe: u16, offset: u64) -> Option<&MemberEntry> {
        let mut members = self.members.iter();
        members.find(|it| it.stripe == stripe && (it.offset..it.end()).contains(&offset))
    }
}

/// The error of a read that parity could not help, for a reader that knows only files. It is taken
/// out again where the read began.
pub(super) fn io_error(error: EngineError) -> io::Error {
    match error {
        EngineError::DeviceIo { source, .. } => source,
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}
