//! Finding the devices of a set with parity: its stripes and its files with parity, and which of
//! them are lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{ParityHeader, SetId, fitted};

use super::choice::{Candidate, Chosen, Truth, chosen};
use super::file::{ParityFile, parity_header};
use super::mended::{MendedBytes, MendedStorage};
use super::model::{Model, model, told};
use super::notes::{LostDevice, Mends};
use super::rebuild::{Rebuilder, Source};
use crate::error::{EngineError, damage};
use crate::set::ends::{Ends, check_same_stripe};
use crate::set::identity::identity_of_stripe;
use crate::set::places::{is_occupied, where_it_may_be};
use crate::set::stripe::{OpenStripe, peek_header};
use crate::storage::Storage;
use crate::stripe_name::is_partial;

/// A stripe, or a file with parity, of a set.
#[derive(Debug)]
pub(crate) struct Device {
    /// Where it is, or was written.
    pub(crate) path: PathBuf,
    /// Whether something is there.
    pub(crate) is_there: bool,
    /// Why it cannot be used, if it cannot.
    pub(crate) fault: Option<String>,
    /// The root of the set and the length of a stripe, if its seal is right.
    pub(super) sealed: Option<([u8; 32], u64)>,
}

impl Device {
    /// Whether it is a sealed stripe that says something else of the set than most devices do.
    pub(crate) fn is_of_another_state(&self) -> bool {
        self.sealed.is_some() && self.fault.is_some()
    }
}

/// The devices of a set.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) set: SetId,
    pub(crate) stripes: Vec<Device>,
    pub(crate) parities: Vec<Device>,
    pub(crate) rebuilder: Arc<Rebuilder>,
}

/// Finds the devices of the set with parity that these places lead to. `None` if they lead to none.
/// Devices of this set are looked for in `further` places, too, where other sets may be.
pub(crate) fn find_devices(
    storage: &dyn Storage,
    (places, further): (&[PathBuf], &[PathBuf]),
    limit: u64,
) -> Result<Option<Devices>, EngineError> {
    let Some(model) = model(storage, places)? else {
        return Ok(None);
    };
    // Named places that are gone still say where others may be.
    let mut beside = told(storage, places)?;
    beside.extend(places.iter().cloned());
    beside.extend(told(storage, further)?);
    let found = model.find_parities(storage, &beside, limit);
    let (mut stripes, mut sources) = (Vec::new(), Vec::new());
    for (index, location) in (0u16..).zip(&model.stripes) {
        let found = model.find_stripe(storage, (index, location), &beside, limit)?;
        sources.push(Source {
            location: found.path.to_string_lossy().into_owned(),
            bytes: match found.is_there {
                true => storage.open(&found.path).ok(),
                false => None,
            },
        });
        stripes.push(found);
    }
    let truth = Truth::of_most(&found, &stripes);
    for (index, stripe) in (0..).zip(&mut stripes) {
        if let (Some(truth), Some(sealed)) = (&truth, stripe.sealed)
            && !truth.has(index, sealed)
        {
            stripe.fault = Some("it is of another state of the set".to_owned());
        }
    }
    let root = truth.as_ref().map(|truth| truth.root);
    let sealed = || stripes.iter().find_map(|stripe| stripe.sealed);
    let root = root.or_else(|| sealed().map(|(root, _)| root));
    let Chosen {
        devices: parities,
        files,
        spare,
    } = chosen(found, truth.as_ref());
    let behind: u16 = fitted(stripes.len());
    let lost = [
        lost_of((1, false), &stripes),
        lost_of((behind + 1, true), &parities),
    ];
    let mends = Mends {
        parities: fitted(parities.len()),
        lost: lost.concat(),
        ..Mends::default()
    };
    let rebuilder = Rebuilder::new((model.set, root), sources, (files, spare), mends);
    let rebuilder = rebuilder.with_parity_at(paths_of(&parities));
    Ok(Some(Devices {
        set: model.set,
        stripes,
        parities,
        rebuilder: Arc::new(rebuilder),
    }))
}

impl Model {
    /// For each parity, the files that may be it.
    fn find_parities(
        &self,
        storage: &dyn Storage,
        beside: &[PathBuf],
        limit: u64,
    ) -> Vec<Vec<Candidate>> {
        let number = |path: &PathBuf| {
            let (header, _) = parity_header(storage, path).ok()?;
            (header.set_id == self.set).then_some(header.parity)
        };
        let known: Vec<_> = beside
            .iter()
            .filter_map(|path| Some((number(path)?, path)))
            .collect();
        let found = |(parity, location): (u16, &Vec<u8>)| {
            let mut listed = where_it_may_be(beside, location);
            let is_whole = |path: &PathBuf| ParityFile::open(storage, path, limit).is_ok();
            listed.retain(|path| !is_partial(path) || is_whole(path));
            let named = known.iter().filter(|(other, _)| *other == parity);
            let listed_own = listed.iter().filter(|path| number(path) == Some(parity));
            let own = named.map(|(_, path)| *path).chain(listed_own);
            let own = distinct(storage, own);
            let broken = || listed.iter().find(|path| is_broken(storage, path)).cloned();
            let own = match own.is_empty() {
                true => broken().into_iter().collect(),
                false => own,
            };
            let open = |path: PathBuf| Candidate {
                opened: ParityFile::open(storage, &path, limit).map_err(|it| it.to_string()),
                is_there: true,
                path,
            };
            let missing = || Candidate {
                path: written_to(location),
                is_there: false,
                opened: Err("is missing".to_owned()),
            };
            match own.is_empty() {
                true => vec![missing()],
                false => own.into_iter().map(open).collect(),
            }
        };
        (0..).zip(&self.parities).map(found).collect()
    }

    /// A stripe, and whether it can be used. Any error that says nothing about the media is
    /// returned.
    fn find_stripe(
        &self,
        storage: &dyn Storage,
        (index, location): (u16, &Vec<u8>),
        beside: &[PathBuf],
        limit: u64,
    ) -> Result<Device, EngineError> {
        let mut listed = where_it_may_be(beside, location);
        // What has a temporary name is complete, or counts for nothing.
        listed.retain(|path| !is_partial(path) || sealed(storage, path, limit).is_ok());
        let is_own = |path: &&PathBuf| {
            let identity = identity_of_stripe(storage, path);
            identity.is_some_and(|(set, stripe)| (set, stripe.0) == (self.set, index))
        };
        let own = beside.iter().chain(&listed).find(is_own);
        let broken = || listed.iter().find(|path| is_broken(storage, path));
        let Some(path) = own.or_else(broken) else {
            return Ok(Device {
                path: written_to(location),
                is_there: false,
                fault: Some("is missing".to_owned()),
                sealed: None,
            });
        };
        let (sealed, fault) = match sealed(storage, path, limit) {
            Ok(sealed) => (Some(sealed), None),
            Err(error) if error.is_of_media() => (None, Some(error.to_string())),
            Err(error) => return Err(error),
        };
        Ok(Device {
            path: path.clone(),
            is_there: true,
            fault,
            sealed,
        })
    }
}

/// Different files among these. What has a temporary name counts only if nothing else is there.
fn distinct<'a>(storage: &dyn Storage, paths: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in paths {
        if found.iter().all(|known| !storage.is_same(known, path)) {
            found.push(path.clone());
        }
    }
    if found.iter().any(|path| !is_partial(path)) {
        found.retain(|path| !is_partial(path));
    }
    found
}

/// The root of the set, and the length of the stripe, if its header, its footer and its seal are
/// right. That needs no key.
pub(crate) fn sealed(
    storage: &dyn Storage,
    path: &Path,
    limit: u64,
) -> Result<([u8; 32], u64), EngineError> {
    let ends = Ends::open(storage, path)?;
    let (header, _) = ends.header()?;
    let seal = ends.seal()?;
    check_same_stripe(&header, &seal).map_err(|fault| damage(path, ends.bytes, fault))?;
    ends.footer_bytes(&seal, limit)?;
    Ok((seal.set_root, seal.stripe_bytes))
}

/// Whether a file is there that nobody can read as a stripe or as parity of any set.
fn is_broken(storage: &dyn Storage, path: &Path) -> bool {
    is_occupied(storage, path)
        && identity_of_stripe(storage, path).is_none()
        && Ends::open(storage, path).is_ok()
}

fn paths_of(devices: &[Device]) -> Vec<PathBuf> {
    devices.iter().map(|device| device.path.clone()).collect()
}

/// Those of these devices that cannot be used. The first of them has this number.
fn lost_of((first, is_parity): (u16, bool), devices: &[Device]) -> Vec<LostDevice> {
    let lost = (first..).zip(devices).filter_map(|(number, device)| {
        Some(LostDevice {
            number,
            location: device.path.to_string_lossy().into_owned(),
            is_parity,
            fault: device.fault.clone()?,
        })
    });
    lost.collect()
}

fn written_to(location: &[u8]) -> PathBuf {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(OsStr::from_bytes(location))
}

/// A set whose lost stripes are mended: the storage that has it, and where its stripes are there.
pub(crate) struct Mended<'a> {
    pub(crate) storage: MendedStorage<'a>,
    pub(crate) stripes: Vec<PathBuf>,
    pub(crate) rebuilder: Arc<Rebuilder>,
}

/// Mends the set with parity that these places lead to. `None` if there is none, or if nothing of
/// it is lost. It is an error if more is lost than can be rebuilt.
pub(crate) fn mended<'a>(
    storage: &'a dyn Storage,
    places: &[PathBuf],
    limit: u64,
) -> Result<Option<Mended<'a>>, EngineError> {
    let Some(devices) = find_devices(storage, (places, &[]), limit)? else {
        return Ok(None);
    };
    if devices.stripes.iter().all(|stripe| stripe.fault.is_none()) {
        return Ok(None);
    }
    devices.check()?;
    let mut mended = BTreeMap::new();
    for (stripe, device) in (0..).zip(&devices.stripes) {
        if device.fault.is_some() {
            let rebuilder = Arc::clone(&devices.rebuilder);
            let bytes = MendedBytes { rebuilder, stripe };
            mended.insert(device.path.clone(), Arc::new(bytes));
        }
    }
    let parities = devices.parities.iter().filter(|it| it.is_there);
    let whole = devices.stripes.iter().filter(|it| it.fault.is_none());
    let whole = whole.chain(parities);
    Ok(Some(Mended {
        storage: MendedStorage {
            inner: storage,
            set: devices.set,
            mended,
            whole: whole.map(|it| it.path.clone()).collect(),
        },
        stripes: devices.stripes.iter().map(|it| it.path.clone()).collect(),
        rebuilder: devices.rebuilder,
    }))
}

impl Devices {
    /// The header of a file with parity, as far as it is the same in all of them.
    pub(crate) fn header(&self, storage: &dyn Storage) -> Result<ParityHeader, EngineError> {
        if let Some(file) = self.rebuilder.files().first() {
            return Ok(file.header.clone());
        }
        let headers = self
            .stripes
            .iter()
            .map(|stripe| peek_header(storage, &stripe.path));
        let header = headers.flatten().next().ok_or_else(|| self.beyond())?;
        Ok(ParityHeader::of(&header, 0, header.transfer_bytes))
    }

    /// Refuses a set of which more stripes are missing than can be rebuilt. Of those that are
    /// there, each group says itself whether it can be.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let missing = self.stripes.iter().filter(|stripe| !stripe.is_there);
        let is_damaged = self.stripes.iter().any(|stripe| stripe.fault.is_some());
        let there = self.rebuilder.files().len();
        match missing.count() > there || is_damaged && there == 0 {
            true => Err(self.beyond()),
            false => Ok(()),
        }
    }

    /// The error when more is lost than can be rebuilt.
    pub(crate) fn beyond(&self) -> EngineError {
        let mends = self.rebuilder.mends();
        EngineError::BeyondParity {
            set: self.set,
            parities: mends.parities,
            lost: mends
                .lost
                .into_iter()
                .map(|device| device.location)
                .collect(),
        }
    }
}

/// What rebuilds parts of these stripes, which are whole as far as is known. None if their set has
/// no parity.
pub(crate) fn rebuilder_of(
    storage: &dyn Storage,
    stripes: &[OpenStripe],
    beside: &[PathBuf],
    limit: u64,
) -> Option<Arc<Rebuilder>> {
    let model = Model::of_stripe(stripes.first()?.header.clone())?;
    let own = stripes.iter().map(|stripe| stripe.location.clone());
    let beside: Vec<_> = beside.iter().cloned().chain(own).collect();
    let truth = Truth {
        root: stripes.first()?.seal.set_root,
        lengths: stripes.iter().map(OpenStripe::bytes).collect(),
    };
    let found = model.find_parities(storage, &beside, limit);
    let Chosen {
        devices: parities,
        files,
        spare,
    } = chosen(found, Some(&truth));
    let behind: u16 = fitted(stripes.len());
    let mends = Mends {
        parities: fitted(parities.len()),
        lost: lost_of((behind + 1, true), &parities),
        ..Mends::default()
    };
    let sources = stripes.iter().map(|stripe| Source {
        location: stripe.location.to_string_lossy().into_owned(),
        bytes: Some(stripe.file.shared()),
    });
    let set = (model.set, Some(truth.root));
    let rebuilder = Rebuilder::new(set, sources.collect(), (files, spare), mends);
    Some(Arc::new(rebuilder.with_parity_at(paths_of(&parities))))
}
