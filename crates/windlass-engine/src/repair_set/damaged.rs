//! Which devices of a set have damaged parts, and which parts of stripes nobody can check, because
//! no group block that has them can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use windlass_media::fitted;

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::set::{Described, Group, Rebuilder};

/// How much of a part is tried to be read at once.
const PART_BYTES: u64 = 1024 * 1024;

/// Devices that can be opened, and that have damaged parts.
pub(super) struct Damaged {
    pub(super) stripes: BTreeSet<u16>,
    pub(super) parities: BTreeSet<u16>,
    /// Whether some file with parity says of each group what its members are.
    pub(super) is_known: bool,
    /// The parts of each stripe that no group block describes, in order.
    undescribed: BTreeMap<u16, Vec<Range<u64>>>,
    /// Where the devices are of which groups have lost more than can be rebuilt.
    beyond: BTreeSet<String>,
}

impl Damaged {
    /// Reads everything that is there. Fails if more of a group is lost than can be rebuilt, when
    /// everything was read: the error names each damaged device.
    pub(super) fn of(rebuilder: &Rebuilder, cancel: &Cancel) -> Result<Self, EngineError> {
        let mut damaged = Self {
            stripes: BTreeSet::new(),
            parities: BTreeSet::new(),
            is_known: !rebuilder.files().is_empty(),
            undescribed: BTreeMap::new(),
            beyond: BTreeSet::new(),
        };
        for file in rebuilder.files() {
            if !rebuilder.is_sound(file, cancel)? {
                damaged.parities.insert(file.header.parity);
            }
        }
        for block in 0..rebuilder.block_count() {
            let Ok(groups) = rebuilder.groups(block) else {
                damaged.without_block(rebuilder, block, cancel)?;
                continue;
            };
            for group in groups {
                cancel.check()?;
                let members = group.members.iter();
                let lost = members.filter(|member| rebuilder.stored(member).is_none());
                let lost: Vec<_> = lost.map(|member| member.stripe).collect();
                damaged.check(rebuilder, &group, &lost)?;
                damaged.stripes.extend(lost);
            }
        }
        match damaged.beyond.is_empty() {
            true => Ok(damaged),
            false => Err(damaged.refusal(rebuilder)),
        }
    }

    /// Notes whether more of a group is lost than can be rebuilt.
    fn check(
        &mut self,
        rebuilder: &Rebuilder,
        group: &Group,
        lost: &[u16],
    ) -> Result<(), EngineError> {
        match rebuilder.check(group, lost) {
            Err(EngineError::BeyondParity { lost, .. }) => {
                self.beyond.extend(lost);
                Ok(())
            }
            checked => checked,
        }
    }

    /// The error that names every damaged device.
    fn refusal(self, rebuilder: &Rebuilder) -> EngineError {
        let files = rebuilder.files().iter();
        let files = files.filter(|file| self.parities.contains(&file.header.parity));
        let files = files.map(|file| file.location.to_string_lossy().into_owned());
        let mut damaged: BTreeSet<String> = files.collect();
        damaged.extend(self.beyond);
        rebuilder.beyond_all(&self.stripes, damaged)
    }

    /// Looks at what the groups of a block had. Files with other groups may still describe it.
    fn without_block(
        &mut self,
        rebuilder: &Rebuilder,
        block: usize,
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        self.is_known = false;
        for (stripe, _) in (0u16..).zip(rebuilder.lengths()) {
            let Range { start, end } = rebuilder.covered(block, stripe);
            let mut at = start;
            while at < end {
                cancel.check()?;
                at = match rebuilder.described(stripe, at) {
                    Described::By(group, member) => {
                        if rebuilder.stored(&member).is_none() {
                            self.check(rebuilder, &group, &[stripe])?;
                            self.stripes.insert(stripe);
                        }
                        member.end()
                    }
                    Described::Not(until) => {
                        let until = until.min(end);
                        let parts = self.undescribed.entry(stripe).or_default();
                        parts.push(at..until);
                        until
                    }
                };
            }
        }
        Ok(())
    }

    /// The parts of a stripe that no group block describes. If the stripe is written anew, they
    /// stay as they are.
    pub(super) fn undescribed(&self, stripe: u16) -> &[Range<u64>] {
        self.undescribed.get(&stripe).map_or(&[], Vec::as_slice)
    }

    /// Whether the parts of a stripe that no group block describes can be read from itself.
    pub(super) fn can_stay(
        &self,
        rebuilder: &Rebuilder,
        stripe: u16,
        cancel: &Cancel,
    ) -> Result<bool, EngineError> {
        for part in self.undescribed(stripe) {
            let mut at = part.start;
            while at < part.end {
                cancel.check()?;
                let bytes = PART_BYTES.min(part.end - at);
                let read = rebuilder.unchecked(stripe, at, fitted(bytes));
                if read.is_err() {
                    return Ok(false);
                }
                at += bytes;
            }
        }
        Ok(true)
    }
}
