//! Repairing a set with parity: each device that is lost or damaged is written anew.
//!
//!   devices --every member, every parity--> which are damaged --> stripes anew --> parities anew
//!
//! Invariants
//! - A device without damage is only read.
//! - A device that is written anew gets its name when it is whole, sealed and durable, and when
//!   what holds the set and newer envelopes lie beside it. Until then everything is as it was, so a
//!   repair that was cut off can be begun again.
//! - Parity is never computed from stripes that are not known to be right.
//! - A part of a stripe that no group block describes stays as it is. A stripe that lacks such a
//!   part is left alone.

mod beside;
mod damaged;
mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{SetId, fitted};

use crate::cancel::Cancel;
use crate::check::{Damage, Survey, verify};
use crate::error::EngineError;
use crate::options::BufferRequest;
use crate::restore::RestoreOptions;
use crate::set::{
    Device, Devices, FoundSet, LostDevice, find_devices, identity_of_stripe, removal,
};
use crate::storage::{Kept, Storage};
use crate::stripe_name::is_partial;
use beside::Beside;
use damaged::Damaged;
use write::{Fresh, Known, Writing, Written};

/// A device that was written anew.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RepairedDevice {
    /// Its number among the devices of the set, from 1: first the stripes, then the parities.
    pub number: u16,
    /// Where it is.
    pub location: PathBuf,
    /// Whether it has parity, not data.
    pub is_parity: bool,
    /// What was wrong with it.
    pub fault: String,
    /// Its length.
    pub bytes: u64,
    /// Where the file is now that was in its place, if nothing proves that it was of the set.
    pub moved: Option<PathBuf>,
}

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedSet {
    /// The set.
    pub set: SetId,
    /// How many devices it has.
    pub devices: u16,
    /// Those that were written anew.
    pub repaired: Vec<RepairedDevice>,
    /// Those that could not be, or that are still damaged. If there are only such devices, the
    /// repair fails.
    pub left: Vec<LostDevice>,
}

/// Writes every device of a set anew that is missing or damaged. `each` is told of each before
/// that, and what is wrong with it. Devices are looked for in `further` places, too, where other
/// sets may be.
pub fn repair_set(
    storage: &dyn Storage,
    (places, further): (&[PathBuf], &[PathBuf]),
    (limit, cancel): (u64, &Cancel),
    each: &mut dyn FnMut(&Path, &str),
) -> Result<RepairedSet, EngineError> {
    let finder = Finder {
        storage,
        further,
        limit,
    };
    let mut devices = finder.found(places)?;
    // From now on by their own names: what is written anew may be all that was named.
    let places = devices.own_names();
    if devices.name_all()? {
        devices = finder.found(&places)?;
    }
    let (set, count) = (devices.set, devices.all().count());
    let mut job = Job {
        storage,
        further,
        limit,
        cancel,
        each,
        repaired: Vec::new(),
        left: Vec::new(),
        _kept: kept(storage, &devices)?,
    };
    devices.check_stays(storage)?;
    devices.check()?;
    let beside = Beside::of(storage, &devices);
    let damaged = Damaged::of(&devices.rebuilder, cancel)?;
    job.stripes(&devices, &damaged, &beside)?;
    job.parities(&finder.found(&places)?, &damaged, &beside)?;
    if job.left.is_empty() {
        // What was named may be parity alone, which leads to no set that is locked.
        finder.check(&finder.found(&places)?.own_names())?;
    }
    devices.put_beside(&beside)?;
    match job.repaired.is_empty() && !job.left.is_empty() {
        true => Err(job.beyond(&devices)),
        false => Ok(RepairedSet {
            set,
            devices: fitted(count),
            repaired: job.repaired,
            left: job.left,
        }),
    }
}

/// Finds the devices of the set.
struct Finder<'a> {
    storage: &'a dyn Storage,
    further: &'a [PathBuf],
    limit: u64,
}

impl Finder<'_> {
    fn found(&self, places: &[PathBuf]) -> Result<Devices, EngineError> {
        match find_devices(self.storage, (places, self.further), self.limit)? {
            Some(devices) => Ok(devices),
            // Says what is wrong with a set that is none.
            None => Err(EngineError::NoParity {
                set: FoundSet::whole(self.storage, places, self.limit)?.set_id(),
            }),
        }
    }

    /// Checks that the set can be opened, if the key of an encrypted one is there.
    fn check(&self, places: &[PathBuf]) -> Result<(), EngineError> {
        match FoundSet::whole(self.storage, places, self.limit) {
            Err(EngineError::Locked { .. }) => Ok(()),
            whole => whole.map(drop),
        }
    }
}

impl Devices {
    /// All of them: first the stripes, then the parities.
    fn all(&self) -> impl Iterator<Item = &Device> {
        self.stripes.iter().chain(&self.parities)
    }

    /// The names of the devices that are there. In the place of another may be one of another set.
    fn own_names(&self) -> Vec<PathBuf> {
        let there = self.all().filter(|device| device.is_there);
        there.map(|device| write::own_name(&device.path)).collect()
    }

    /// Gives their names to devices that a cut-off run left without. False if there are none.
    fn name_all(&self) -> Result<bool, EngineError> {
        let whole = self
            .all()
            .filter(|device| device.is_there && device.fault.is_none());
        let unnamed: Vec<_> = whole.filter(|device| is_partial(&device.path)).collect();
        unnamed
            .iter()
            .try_for_each(|device| write::name(&device.path))?;
        Ok(!unnamed.is_empty())
    }

    /// Puts what lies beside devices where it is missing: an older version gave a device its name
    /// first, and may have been cut off then.
    fn put_beside(&self, beside: &Beside<'_>) -> Result<(), EngineError> {
        for device in self.all() {
            if device.is_there && device.fault.is_none() {
                beside.put(&device.path)?;
            }
        }
        Ok(())
    }

    /// Refuses a set that is going.
    fn check_stays(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        let directories = self.all().filter_map(|device| device.path.parent());
        removal::check_stays_in(storage, self.set, directories.collect())
    }
}

/// Nobody removes the devices meanwhile.
fn kept(storage: &dyn Storage, devices: &Devices) -> Result<Vec<Kept>, EngineError> {
    let there = devices
        .all()
        .filter(|device| device.is_there && device.fault.is_none());
    let keep = |path: &Path| {
        let opened = storage.open(path)?;
        storage.keep(path, &*opened)
    };
    let kept = there.map(|device| {
        let kept = keep(&device.path);
        kept.map_err(|source| crate::error::read_error(&device.path, 0, source))
    });
    kept.collect()
}

struct Job<'a> {
    storage: &'a dyn Storage,
    further: &'a [PathBuf],
    limit: u64,
    cancel: &'a Cancel,
    each: &'a mut dyn FnMut(&Path, &str),
    repaired: Vec<RepairedDevice>,
    left: Vec<LostDevice>,
    _kept: Vec<Kept>,
}

impl Job<'_> {
    /// Writes stripes anew: those that cannot be used, and those with damaged parts.
    fn stripes(
        &mut self,
        devices: &Devices,
        damaged: &Damaged,
        beside: &Beside<'_>,
    ) -> Result<(), EngineError> {
        for (stripe, device) in (0..).zip(&devices.stripes) {
            let Some(fault) = fault_of(device, damaged.stripes.contains(&stripe)) else {
                continue;
            };
            if !self.can_be_whole((devices, stripe), device, damaged)? {
                let fault = format!("{fault}; a part of it is in no group that can be read");
                self.leave((stripe + 1, false), device, fault);
                continue;
            }
            (self.each)(&device.path, &fault);
            let writing = Writing::begin(self.storage, devices, (&device.path, device.is_there))?;
            beside.put(&device.path)?;
            let undescribed = damaged.undescribed(stripe);
            let written = writing.stripe((&devices.rebuilder, undescribed), stripe, self.cancel)?;
            self.done((stripe + 1, false), fault, written);
        }
        Ok(())
    }

    /// Whether there is something for each part of a stripe: a group that describes it, or the part
    /// itself, if the stripe that has it says that it is this one.
    fn can_be_whole(
        &self,
        (devices, stripe): (&Devices, u16),
        device: &Device,
        damaged: &Damaged,
    ) -> Result<bool, EngineError> {
        if damaged.undescribed(stripe).is_empty() {
            return Ok(true);
        }
        // If all that is described is right, the fault is in the rest, and would stay.
        if !damaged.stripes.contains(&stripe) {
            return Ok(false);
        }
        let identity = identity_of_stripe(self.storage, &device.path);
        let is_own = identity.is_some_and(|(set, own)| (set, own.0) == (devices.set, stripe));
        let is_source = device.is_there && is_own && !device.is_of_another_state();
        Ok(is_source && damaged.can_stay(&devices.rebuilder, stripe, self.cancel)?)
    }

    /// Writes files with parity anew.
    fn parities(
        &mut self,
        devices: &Devices,
        damaged: &Damaged,
        beside: &Beside<'_>,
    ) -> Result<(), EngineError> {
        let rebuilder = &devices.rebuilder;
        let stripes: u16 = fitted(devices.stripes.len());
        let is_known = damaged.is_known;
        let faulty = (0u16..).zip(&devices.parities).filter_map(|(parity, one)| {
            let fault = fault_of(one, damaged.parities.contains(&parity))?;
            Some((parity, one, fault))
        });
        let faulty: Vec<_> = faulty.collect();
        let are_sound = is_known || faulty.is_empty() || self.are_sound(devices)?;
        for (parity, device, fault) in faulty {
            let number = (stripes + parity + 1, true);
            if !are_sound {
                let fault = format!("{fault}; it is computed only from stripes that are right");
                self.leave(number, device, fault);
                continue;
            }
            (self.each)(&device.path, &fault);
            let writing = Writing::begin(self.storage, devices, (&device.path, device.is_there))?;
            beside.put(&device.path)?;
            let written = match is_known {
                true => writing.parity(parity, &Known(rebuilder), self.cancel)?,
                false => writing.parity(parity, &Fresh(rebuilder), self.cancel)?,
            };
            self.done(number, fault, written);
        }
        Ok(())
    }

    /// Whether parity can be computed anew from the stripes: if they are damaged, it would be of
    /// wrong bytes. Those that are damaged are left. If some are left already, the others are still
    /// looked at, so that each damaged one is named.
    fn are_sound(&mut self, devices: &Devices) -> Result<bool, EngineError> {
        let is_left = !self.left.is_empty();
        let (damaged, are_sound) = match self.check_stripes(devices) {
            Ok(found) => found,
            Err(EngineError::Cancelled) => return Err(EngineError::Cancelled),
            // What is left already is reason enough, and nothing else is known.
            Err(_) if is_left => return Ok(false),
            Err(error) => return Err(error),
        };
        for (number, device) in (1..).zip(&devices.stripes) {
            let location = device.path.to_string_lossy();
            let is_named = self.left.iter().any(|it| it.number == number);
            if !is_named && damaged.contains(&*location) {
                let fault = "has damaged parts that are in no group that can be read";
                self.leave((number, false), device, fault.to_owned());
            }
        }
        self.left.sort_by_key(|device| device.number);
        Ok(are_sound && !is_left)
    }

    /// Where damaged stripes are, and whether there is no damage of this set. Stripes can be
    /// checked only together with the sets on which they build, whose own damage does not matter.
    fn check_stripes(&self, devices: &Devices) -> Result<(BTreeSet<String>, bool), EngineError> {
        let there = devices.stripes.iter().filter(|it| it.is_there);
        let stripes: Vec<_> = there.map(|it| it.path.clone()).collect();
        if stripes.is_empty() {
            return Ok((BTreeSet::new(), false));
        }
        let survey = Survey::among(self.storage, &stripes, self.further, self.limit)?;
        let own = survey.set().stripes().iter();
        let own: Vec<_> = own.map(|it| it.location().to_string_lossy()).collect();
        let plan = BufferRequest::default().plan(stripes.len(), 1)?;
        let options = RestoreOptions {
            plan,
            device_rate: None,
            ring: true,
            pacing: None,
        };
        let options = options.fit(survey.set())?;
        let found = verify(&survey, &options, &Arc::default(), self.cancel)?.damage;
        let is_own = |it: &Damage| it.stripe == 0 || own.iter().any(|own| *own == it.location);
        let is_all_listed = found.damage_count == found.damage.len() as u64;
        let are_sound = is_all_listed && !found.damage.iter().any(is_own);
        Ok((found.locations, are_sound))
    }

    fn leave(&mut self, (number, is_parity): (u16, bool), device: &Device, fault: String) {
        self.left.push(LostDevice {
            number,
            location: device.path.to_string_lossy().into_owned(),
            is_parity,
            fault,
        });
    }

    /// The error when nothing could be repaired.
    fn beyond(&self, devices: &Devices) -> EngineError {
        EngineError::BeyondParity {
            set: devices.set,
            parities: fitted(devices.parities.len()),
            lost: self.left.iter().map(|it| it.location.clone()).collect(),
        }
    }

    fn done(&mut self, (number, is_parity): (u16, bool), fault: String, written: Written) {
        let device = RepairedDevice {
            number,
            location: written.path,
            is_parity,
            fault,
            bytes: written.bytes,
            moved: written.moved,
        };
        self.repaired.push(device);
    }
}

/// What is wrong with a device, if something is.
fn fault_of(device: &Device, is_damaged: bool) -> Option<String> {
    let of_parts = || is_damaged.then(|| "has damaged parts".to_owned());
    device.fault.clone().or_else(of_parts)
}
