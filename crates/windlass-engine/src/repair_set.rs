//! Repairing a set with parity: each device that is lost or damaged is written anew.
//!
//!   devices --every member, every parity--> which are damaged --> stripes anew --> parities anew
//!
//! Invariants
//! - A device without damage is only read.
//! - A device that is written anew gets its name when it is whole, sealed and durable. Until then
//!   everything is as it was, so a repair that was cut off can be begun again.
//! - Parity is never computed from stripes that are not known to be right.

mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{KeyFile, SetId, fitted};

use crate::cancel::Cancel;
use crate::check::{Damage, Survey, verify};
use crate::durable;
use crate::error::{DeviceOperation, EngineError};
use crate::options::BufferRequest;
use crate::restore::RestoreOptions;
use crate::set::{
    Device, Devices, FoundSet, Rebuilder, find_devices, hold_path, key_file_of, removal,
};
use crate::storage::{Kept, Storage};
use crate::stripe_name::is_partial;
use write::{Fresh, Known, Writing, Written};

/// The mode of a file of envelopes.
const KEYS_MODE: u32 = 0o600;
/// Longest file that holds a set.
const HOLD_BYTES_MAX: u64 = 65_536;

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
        _kept: kept(storage, &devices)?,
    };
    devices.check_stays(storage)?;
    devices.check()?;
    let damaged = Damaged::of(&devices.rebuilder, cancel)?;
    job.stripes(&devices, &damaged.stripes)?;
    job.parities(&finder.found(&places)?, &damaged)?;
    finder.check(&places)?;
    Ok(RepairedSet {
        set,
        devices: fitted(count),
        repaired: job.repaired,
    })
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

/// The content of a small file; none if it cannot be read.
fn document(storage: &dyn Storage, path: &Path) -> Option<Vec<u8>> {
    let opened = storage.open(path).ok()?;
    let bytes = opened.length().ok().filter(|it| *it <= HOLD_BYTES_MAX)?;
    let mut text = vec![0; fitted(bytes)];
    opened.read_exact_at(0, &mut text).ok()?;
    Some(text)
}

/// Devices that can be opened, and that have damaged parts.
struct Damaged {
    stripes: BTreeSet<u16>,
    parities: BTreeSet<u16>,
    /// Whether some file with parity says of each group what its members are.
    is_known: bool,
}

impl Damaged {
    /// Reads everything that is there. Fails if more of a group is lost than can be rebuilt.
    fn of(rebuilder: &Rebuilder, cancel: &Cancel) -> Result<Self, EngineError> {
        let mut damaged = Self {
            stripes: BTreeSet::new(),
            parities: BTreeSet::new(),
            is_known: !rebuilder.files().is_empty(),
        };
        for file in rebuilder.files() {
            if !rebuilder.is_sound(file, cancel)? {
                damaged.parities.insert(file.header.parity);
            }
        }
        for block in 0..rebuilder.block_count() {
            let Ok(groups) = rebuilder.groups(block) else {
                damaged.is_known = false;
                continue;
            };
            for group in groups {
                cancel.check()?;
                let members = group.members.iter();
                let lost = members.filter(|member| rebuilder.stored(member).is_none());
                let lost: Vec<_> = lost.map(|member| member.stripe).collect();
                rebuilder.check(&group, &lost)?;
                damaged.stripes.extend(lost);
            }
        }
        Ok(damaged)
    }
}

struct Job<'a> {
    storage: &'a dyn Storage,
    further: &'a [PathBuf],
    limit: u64,
    cancel: &'a Cancel,
    each: &'a mut dyn FnMut(&Path, &str),
    repaired: Vec<RepairedDevice>,
    _kept: Vec<Kept>,
}

impl Job<'_> {
    /// Writes stripes anew: those that cannot be used, and those with damaged parts.
    fn stripes(&mut self, devices: &Devices, damaged: &BTreeSet<u16>) -> Result<(), EngineError> {
        for (stripe, device) in (0..).zip(&devices.stripes) {
            let fault = match (&device.fault, damaged.contains(&stripe)) {
                (Some(fault), _) => fault.clone(),
                (None, true) => "has damaged parts".to_owned(),
                (None, false) => continue,
            };
            (self.each)(&device.path, &fault);
            let writing = Writing::begin(self.storage, devices, (&device.path, device.is_there))?;
            let written = writing.stripe(&devices.rebuilder, stripe, self.cancel)?;
            self.keys(devices, &written.path)?;
            self.hold(devices, &written.path)?;
            self.done((stripe + 1, false), fault, written);
        }
        Ok(())
    }

    /// What holds the set lies beside each device, so the new one needs it, too.
    fn hold(&self, devices: &Devices, path: &Path) -> Result<(), EngineError> {
        let beside = |path: &Path| hold_path(path.parent().unwrap_or(Path::new("")), devices.set);
        let own = beside(path);
        let is_there = |hold: &PathBuf| self.storage.look(hold).is_ok();
        let mut holds = devices.all().map(|device| beside(&device.path));
        if is_there(&own) {
            return Ok(());
        }
        let Some(other) = holds.find(is_there) else {
            return Ok(());
        };
        // One that cannot be read holds all the same.
        let text = document(self.storage, &other).unwrap_or_default();
        let written = self.storage.write(&own, &text);
        written.map_err(write::fault(DeviceOperation::Write, &own))
    }

    /// Newer envelopes of an encrypted set lie beside each stripe, so the new one needs them, too.
    fn keys(&self, devices: &Devices, path: &Path) -> Result<(), EngineError> {
        if key_file_of(self.storage, path, devices.set).is_ok_and(|own| own.is_some()) {
            return Ok(());
        }
        let others = devices.stripes.iter().map(|device| &device.path);
        let mut files = others.map(|other| key_file_of(self.storage, other, devices.set));
        let Some(file) = files.find_map(|file| file.ok().flatten()) else {
            return Ok(());
        };
        let path = path.with_file_name(KeyFile::name(devices.set));
        let written = durable::write(&path, &file.encode()?, KEYS_MODE);
        written.map_err(write::fault(DeviceOperation::Write, &path))
    }

    /// Writes files with parity anew.
    fn parities(&mut self, devices: &Devices, damaged: &Damaged) -> Result<(), EngineError> {
        let rebuilder = &devices.rebuilder;
        let is_known = damaged.is_known;
        let mut is_checked = false;
        for (parity, device) in (0..).zip(&devices.parities) {
            let fault = match (&device.fault, damaged.parities.contains(&parity)) {
                (Some(fault), _) => fault.clone(),
                (None, true) => "has damaged parts".to_owned(),
                (None, false) => continue,
            };
            if !is_known && !is_checked {
                self.check_stripes(devices, &device.path)?;
                is_checked = true;
            }
            (self.each)(&device.path, &fault);
            let writing = Writing::begin(self.storage, devices, (&device.path, device.is_there))?;
            let written = match is_known {
                true => writing.parity(parity, &Known(rebuilder), self.cancel)?,
                false => writing.parity(parity, &Fresh(rebuilder), self.cancel)?,
            };
            self.hold(devices, &written.path)?;
            let stripes: u16 = fitted(devices.stripes.len());
            self.done((stripes + parity + 1, true), fault, written);
        }
        Ok(())
    }

    /// Refuses to compute parity anew if the stripes are damaged: then it would be of wrong bytes.
    /// They can be checked only together with the sets on which they build, whose own damage does
    /// not matter.
    fn check_stripes(&self, devices: &Devices, parity: &Path) -> Result<(), EngineError> {
        let stripes: Vec<_> = devices.stripes.iter().map(|it| it.path.clone()).collect();
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
        if is_all_listed && !found.damage.iter().any(is_own) {
            return Ok(());
        }
        let damaged = found.damage.iter().filter(|it| is_own(it));
        let mut lost: Vec<_> = damaged.map(|it| it.location.clone()).collect();
        lost.dedup();
        lost.push(parity.to_string_lossy().into_owned());
        Err(EngineError::BeyondParity {
            set: devices.set,
            parities: fitted(devices.parities.len()),
            lost,
        })
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
