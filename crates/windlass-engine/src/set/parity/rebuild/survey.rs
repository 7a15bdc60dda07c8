//! What a repair asks of the whole set: which parts of it are damaged, and of which nobody knows
//! what they were.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use windlass_media::{MemberEntry, add_product, coefficient};

use super::{Group, Rebuilder};
use crate::cancel::Cancel;
use crate::error::{EngineError, read_error};
use crate::set::parity::file::ParityFile;

/// What the group blocks that can be read say of a byte of a stripe.
pub(crate) enum Described {
    /// The group that has it, and the member.
    By(Group, MemberEntry),
    /// Nothing, and nothing of the bytes behind it up to here.
    Not(u64),
}

impl Rebuilder {
    /// How many group blocks there are.
    pub(crate) fn block_count(&self) -> usize {
        self.files
            .first()
            .map_or(0, |file| file.directory.entries.len())
    }

    /// How many groups a block has.
    pub(crate) fn group_count(&self, block: usize) -> usize {
        let entry = self
            .files
            .first()
            .and_then(|file| file.directory.entries.get(block));
        entry.map_or(0, |entry| entry.groups as usize)
    }

    /// Reads a file with parity to its end. False if a part of it is damaged, which is noted.
    pub(crate) fn is_sound(&self, file: &ParityFile, cancel: &Cancel) -> Result<bool, EngineError> {
        let mut is_sound = true;
        let number = file.number();
        let location = file.location.to_string_lossy();
        for (block, entry) in file.directory.entries.iter().enumerate() {
            let Ok(groups) = file.block(block) else {
                self.notes
                    .damaged(&location, number, (entry.offset, entry.bytes));
                is_sound = false;
                continue;
            };
            for group in &groups.groups {
                cancel.check()?;
                if file.parity(group).is_err() {
                    self.notes
                        .damaged(&location, number, (group.offset, group.bytes));
                    is_sound = false;
                }
            }
        }
        Ok(is_sound)
    }

    /// Bytes of a stripe as they are there, right or not.
    pub(crate) fn unchecked(
        &self,
        stripe: u16,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, EngineError> {
        let mut into = vec![0; bytes];
        let source = self.sources.get(usize::from(stripe));
        let source = source.and_then(|source| source.bytes.as_ref());
        let source = source.ok_or_else(|| self.lost(stripe, offset))?;
        let read = source.read_exact_at(offset, &mut into);
        let location = Path::new(self.location(stripe));
        read.map_err(|fault| read_error(location, offset, fault))?;
        Ok(into)
    }

    /// Fails if more of a group is lost than can be rebuilt, by other groups either.
    pub(crate) fn check(&self, group: &Group, lost: &[u16]) -> Result<(), EngineError> {
        if self.parities(group, lost.len()).len() >= lost.len() {
            return Ok(());
        }
        let beyond = || self.beyond(group, lost);
        if self.together == self.files.len() {
            return Err(beyond());
        }
        let mut bytes = Vec::new();
        let mut members = group.members.iter().filter(|it| lost.contains(&it.stripe));
        members.try_for_each(|member| {
            bytes.resize(member.bytes as usize, 0);
            let read = self.read(member.stripe, member.offset, &mut bytes);
            read.map(drop).map_err(|_| beyond())
        })
    }

    /// The error when more of some groups is lost than can be rebuilt. It names each of these
    /// stripes and `others`, and what cannot be used at all: each once, stripes first.
    pub(crate) fn beyond_all(
        &self,
        stripes: &BTreeSet<u16>,
        mut others: BTreeSet<String>,
    ) -> EngineError {
        let mends = self.mends();
        others.extend(stripes.iter().map(|it| self.location(*it).to_owned()));
        others.extend(mends.lost.iter().map(|device| device.location.clone()));
        let stripes = self.sources.iter().map(|it| it.location.clone());
        let parities = self.parity_paths.iter();
        let parities = parities.map(|path| path.to_string_lossy().into_owned());
        let in_order = stripes.chain(parities);
        let mut lost: Vec<_> = in_order.filter(|it| others.remove(it)).collect();
        lost.extend(others);
        EngineError::BeyondParity {
            set: self.set,
            parities: mends.parities,
            lost,
        }
    }

    /// The parity of a group, computed from its members.
    pub(crate) fn computed(&self, parity: u16, group: &Group) -> Result<Vec<u8>, EngineError> {
        let longest = group.members.iter().map(|it| it.bytes).max();
        let mut sum = vec![0; longest.unwrap_or(0) as usize];
        for member in &group.members {
            let bytes = self.member(group, member)?;
            add_product(
                coefficient(parity, member.stripe),
                &bytes,
                &mut sum[..bytes.len()],
            );
        }
        Ok(sum)
    }

    /// All groups of a block, from whichever file has it.
    pub(crate) fn groups(&self, block: usize) -> Result<Vec<Group>, EngineError> {
        let mut fault = EngineError::Stopped;
        for file in 0..self.together {
            match self.block(file, block) {
                Ok(found) => {
                    let groups = found.iter().enumerate();
                    let group = |(at, (_, members)): (usize, (_, &[MemberEntry]))| Group {
                        members: members.to_vec(),
                        place: (block, at),
                    };
                    return Ok(groups.map(group).collect());
                }
                Err(error) => fault = error,
            }
        }
        Err(fault)
    }

    /// The bytes of a stripe that the groups of a block have.
    pub(crate) fn covered(&self, block: usize, stripe: u16) -> Range<u64> {
        let Some(file) = self.files.first() else {
            return 0..0;
        };
        let (entries, stripe) = (&file.directory.entries, usize::from(stripe));
        let start = |block: usize| entries.get(block).map(|entry| entry.starts[stripe]);
        let end = file.directory.stripe_bytes[stripe];
        start(block).unwrap_or(end)..start(block + 1).unwrap_or(end)
    }

    /// What is known of a byte of a stripe, from whichever file.
    pub(crate) fn described(&self, stripe: u16, offset: u64) -> Described {
        let mut until = self.stripe_bytes(stripe);
        for (number, file) in self.files.iter().enumerate() {
            if let Ok(Some(group)) = self.group_of(number, stripe, offset)
                && let Some(member) = group.member_at(stripe, offset).copied()
            {
                return Described::By(group, member);
            }
            let starts = file.directory.entries.iter();
            let starts = starts.map(|entry| entry.starts[usize::from(stripe)]);
            let next = starts.filter(|start| *start > offset).min();
            until = until.min(next.unwrap_or(until));
        }
        Described::Not(until.max(offset + 1))
    }
}
