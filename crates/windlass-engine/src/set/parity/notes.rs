//! What was lost, and what was rebuilt.

use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_media::MemberEntry;

/// How many rebuilt parts are kept. The rest is counted.
const PARTS_MAX: usize = 100;

/// A device of a set that is missing or cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LostDevice {
    /// Its number among the devices of the set, from 1: first the stripes, then the parities.
    pub number: u16,
    /// Where it is, or was written.
    pub location: String,
    /// Whether it has parity, not data.
    pub is_parity: bool,
    /// What is wrong with it.
    pub fault: String,
}

/// A part of a device that was damaged and could be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct RebuiltPart {
    /// The number of the device, as in [`LostDevice`].
    pub number: u16,
    /// Where the device is.
    pub location: String,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is. Up to a whole transfer is rebuilt, however little of it is damaged.
    pub bytes: u64,
}

/// What parity made up for.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Mends {
    /// How many parities the set has.
    pub parities: u16,
    /// Devices that are missing or cannot be opened.
    pub lost: Vec<LostDevice>,
    /// Damaged parts of the other devices that were read.
    pub parts: Vec<RebuiltPart>,
    /// How many there are, listed or not.
    pub part_count: u64,
}

impl Mends {
    /// What was lost and rebuilt of two sets.
    #[must_use]
    pub fn and(mut self, mut other: Self) -> Self {
        self.parities = self.parities.max(other.parities);
        self.lost.append(&mut other.lost);
        self.parts.append(&mut other.parts);
        self.parts.truncate(PARTS_MAX);
        self.part_count += other.part_count;
        self
    }

    /// Whether nothing was lost or damaged.
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.part_count == 0
    }
}

/// Notes that several threads add to.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Mends>);

impl Notes {
    pub(super) fn new(mends: Mends) -> Self {
        Self(Mutex::new(mends))
    }

    /// Notes that a part of a device was rebuilt, unless the whole device is lost.
    pub(super) fn rebuilt(&self, location: &str, member: &MemberEntry) {
        self.damaged(location, member.stripe + 1, (member.offset, member.bytes));
    }

    /// Notes that a part of a device is damaged.
    pub(super) fn damaged(&self, location: &str, number: u16, (offset, bytes): (u64, u32)) {
        let mut mends = self.lock();
        if mends.lost.iter().any(|device| device.number == number) {
            return;
        }
        let part = RebuiltPart {
            number,
            location: location.to_owned(),
            offset,
            bytes: u64::from(bytes),
        };
        if mends.parts.contains(&part) {
            return;
        }
        mends.part_count += 1;
        if mends.parts.len() < PARTS_MAX {
            mends.parts.push(part);
        }
    }

    pub(super) fn get(&self) -> Mends {
        let mut mends = self.lock().clone();
        mends.parts.sort();
        mends
    }

    fn lock(&self) -> MutexGuard<'_, Mends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
