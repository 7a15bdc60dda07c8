//! Finding the devices of a set with parity: its stripes and its files with parity, and which of
//! them are lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{ParityHeader, SetId, StripeHeader, fitted};

use super::file::{ParityFile, is_parity_file, parity_header};
use super::mended::{MendedBytes, MendedStorage};
use super::notes::{LostDevice, Mends};
use super::rebuild::{Rebuilder, Source};
use crate::error::{EngineError, damage};
use crate::set::ends::{Ends, check_same_stripe};
use crate::set::identity::identity_of_stripe;
use crate::set::places::{expand, is_occupied, where_it_may_be};
use crate::set::stripe::{OpenStripe, peek_header};
use crate::storage::{Lies, Storage};
use crate::stripe_name::is_partial;

/// What a header says of a set with parity.
struct Model {
    set: SetId,
    stripes: Vec<Vec<u8>>,
    parities: Vec<Vec<u8>>,
}

/// A stripe, or a file with parity, of a set.
#[derive(Debug)]
pub(crate) struct Device {
    /// Where it is, or was written.
    pub(crate) path: PathBuf,
    /// Whether something is there.
    pub(crate) is_there: bool,
    /// Why it cannot be used, if it cannot.
    pub(crate) fault: Option<String>,
    /// The root of the set, if the device can be opened.
    root: Option<[u8; 32]>,
}

/// The devices of a set.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) set: SetId,
    pub(crate) stripes: Vec<Device>,
    pub(crate) parities: Vec<Device>,
    pub(crate) rebuilder: Arc<Rebuilder>,
}

impl Model {
    fn of_stripe(header: StripeHeader) -> Option<Self> {
        (!header.parities.is_empty()).then_some(Self {
            set: header.set_id,
            stripes: header.locations,
            parities: header.parities,
        })
    }

    fn of_parity(header: ParityHeader) -> Self {
        Self {
            set: header.set_id,
            stripes: header.stripes,
            parities: header.parities,
        }
    }

    /// What a file says, whichever kind it is.
    fn of(storage: &dyn Storage, path: &Path) -> Option<Self> {
        if let Some(header) = peek_header(storage, path) {
            return Self::of_stripe(header);
        }
        parity_header(storage, path)
            .ok()
            .map(|(header, _)| Self::of_parity(header))
    }

    fn names(&self, path: &Path) -> bool {
        let locations = self.stripes.iter().chain(&self.parities);
        let mut names = locations.filter_map(|location| file_name(location));
        path.file_name()
            .is_some_and(|name| names.any(|own| own == name.as_encoded_bytes()))
    }
}

fn file_name(location: &[u8]) -> Option<&[u8]> {
    location.rsplit(|byte| *byte == b'/').next()
}

/// The files with parity in these places.
fn parity_files(storage: &dyn Storage, places: &[PathBuf]) -> Result<Vec<PathBuf>, EngineError> {
    let mut found = Vec::new();
    for place in places {
        if is_place(storage, place) {
            let mut all = Vec::new();
            storage.list(place, &mut |file| all.push(file.location))?;
            all.sort();
            found.extend(all);
        } else {
            found.push(place.clone());
        }
    }
    found.retain(|path| is_parity_file(storage, path));
    Ok(found)
}

fn is_place(storage: &dyn Storage, path: &Path) -> bool {
    matches!(storage.look(path), Ok(Lies::Place))
}

/// A stripe of the set of each file with parity that was named, if stripes are there.
pub(crate) fn stripes_of(storage: &dyn Storage, places: &[PathBuf]) -> Vec<PathBuf> {
    let files = places.iter().filter(|path| !is_place(storage, path));
    let stripe = |path: &PathBuf| {
        let (header, _) = parity_header(storage, path).ok()?;
        let beside = [path.clone()];
        let locations = header.stripes.iter();
        let mut may_be = locations.flat_map(|it| where_it_may_be(&beside, it));
        may_be.find(|path| {
            peek_header(storage, path).is_some_and(|found| found.set_id == header.set_id)
        })
    };
    files.filter_map(stripe).collect()
}

/// What the files in these places say of their set. If a file that was named says nothing, one
/// beside it may name it.
fn model(storage: &dyn Storage, places: &[PathBuf]) -> Result<Option<Model>, EngineError> {
    let told = told(storage, places)?.into_iter();
    // In a directory, what has a temporary name belongs to another run.
    let told: Vec<_> = told
        .filter(|path| places.contains(path) || !is_partial(path))
        .collect();
    if let Some(model) = told.iter().find_map(|path| Model::of(storage, path)) {
        let is_other = |path: &PathBuf| {
            identity_of_stripe(storage, path).is_some_and(|(set, _)| set != model.set)
        };
        return Ok((!told.iter().any(is_other)).then_some(model));
    }
    for path in places.iter().filter(|path| !is_place(storage, path)) {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let place = parent.unwrap_or(Path::new(".")).to_owned();
        if !is_place(storage, &place) {
            continue;
        }
        let mut beside = Vec::new();
        storage.list(&place, &mut |file| beside.push(file.location))?;
        beside.sort();
        let mut models = beside.iter().filter_map(|other| Model::of(storage, other));
        if let Some(model) = models.find(|model| model.names(path)) {
            return Ok(Some(model));
        }
    }
    Ok(None)
}

/// The stripes and the files with parity in these places.
fn told(storage: &dyn Storage, places: &[PathBuf]) -> Result<Vec<PathBuf>, EngineError> {
    let mut told = expand(storage, places)?;
    told.extend(parity_files(storage, places)?);
    Ok(told)
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
    let (parities, files) = model.find_parities(storage, &beside, None, limit);
    let truth = files
        .first()
        .map(|file| (file.end.set_root, file.directory.stripe_bytes.clone()));
    let (mut stripes, mut sources) = (Vec::new(), Vec::new());
    for (index, location) in (0u16..).zip(&model.stripes) {
        let truth = truth
            .as_ref()
            .map(|(root, lengths)| (root, lengths.get(usize::from(index)).copied().unwrap_or(0)));
        let found = model.find_stripe(storage, (index, location), &beside, truth, limit)?;
        sources.push(Source {
            location: found.path.to_string_lossy().into_owned(),
            bytes: match found.is_there {
                true => storage.open(&found.path).ok(),
                false => None,
            },
        });
        stripes.push(found);
    }
    let all = stripes
        .iter()
        .map(|one| (false, one))
        .chain(parities.iter().map(|one| (true, one)));
    let lost = (1..).zip(all).filter_map(|(number, (is_parity, device))| {
        Some(LostDevice {
            number,
            location: device.path.to_string_lossy().into_owned(),
            is_parity,
            fault: device.fault.clone()?,
        })
    });
    let mends = Mends {
        parities: fitted(parities.len()),
        lost: lost.collect(),
        ..Mends::default()
    };
    let root = truth.map(|(root, _)| root);
    let root = root.or_else(|| stripes.iter().find_map(|stripe| stripe.root));
    let rebuilder = Rebuilder::new((model.set, root), sources, files, mends);
    Ok(Some(Devices {
        set: model.set,
        stripes,
        parities,
        rebuilder: Arc::new(rebuilder),
    }))
}

impl Model {
    /// The files with parity, and what is known of each that should be there.
    fn find_parities(
        &self,
        storage: &dyn Storage,
        beside: &[PathBuf],
        root: Option<[u8; 32]>,
        limit: u64,
    ) -> (Vec<Device>, Vec<ParityFile>) {
        let (mut devices, mut files): (Vec<Device>, Vec<ParityFile>) = (Vec::new(), Vec::new());
        for (number, location) in (0u16..).zip(&self.parities) {
            let mut listed = where_it_may_be(beside, location);
            let is_whole = |path: &PathBuf| ParityFile::open(storage, path, limit).is_ok();
            listed.retain(|path| !is_partial(path) || is_whole(path));
            let mut may_be = beside.iter().chain(&listed);
            let is_own = |path: &&PathBuf| {
                let header = parity_header(storage, path).ok();
                header.is_some_and(|(it, _)| (it.set_id, it.parity) == (self.set, number))
            };
            let own = may_be.find(|path| is_own(path)).cloned();
            let broken = || listed.iter().find(|path| is_broken(storage, path)).cloned();
            let (path, is_there) = match own.or_else(broken) {
                Some(path) => (path, true),
                None => (written_to(location), false),
            };
            let opened = match is_there {
                true => ParityFile::open(storage, &path, limit).map_err(|error| error.to_string()),
                false => Err("is missing".to_owned()),
            };
            let agrees = |file: &ParityFile| {
                let is_of_set = root.is_none_or(|root| root == file.end.set_root);
                let of =
                    |file: &ParityFile| (file.end.set_root, file.directory.stripe_bytes.clone());
                is_of_set && files.first().is_none_or(|first| of(first) == of(file))
            };
            let fault = match opened {
                Ok(file) if agrees(&file) => {
                    files.push(file);
                    None
                }
                Ok(_) => Some("it is of another state of the set".to_owned()),
                Err(fault) => Some(fault),
            };
            devices.push(Device {
                path,
                is_there,
                fault,
                root: None,
            });
        }
        (devices, files)
    }

    /// A stripe, and whether it can be used. Any error that says nothing about the media is
    /// returned.
    fn find_stripe(
        &self,
        storage: &dyn Storage,
        (index, location): (u16, &Vec<u8>),
        beside: &[PathBuf],
        truth: Option<(&[u8; 32], u64)>,
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
                root: None,
            });
        };
        let mut root = None;
        let fault = match sealed(storage, path, limit) {
            Ok(found) => {
                root = Some(found.0);
                let is_right = truth.is_none_or(|(root, bytes)| (*root, bytes) == found);
                (!is_right).then(|| "it is of another state of the set".to_owned())
            }
            Err(error) if error.is_of_media() => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        Ok(Device {
            path: path.clone(),
            is_there: true,
            fault,
            root,
        })
    }
}

/// The root of the set, and the length of the stripe, if its header, its footer and its seal are
/// right. That needs no key.
fn sealed(storage: &dyn Storage, path: &Path, limit: u64) -> Result<([u8; 32], u64), EngineError> {
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
    let whole = devices.stripes.iter().filter(|it| it.fault.is_none());
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
    let root = stripes.first().map(|stripe| stripe.seal.set_root);
    let (parities, files) = model.find_parities(storage, &beside, root, limit);
    let lost = parities
        .iter()
        .zip(stripes.len() + 1..)
        .filter_map(|(device, number)| {
            Some(LostDevice {
                number: fitted(number),
                location: device.path.to_string_lossy().into_owned(),
                is_parity: true,
                fault: device.fault.clone()?,
            })
        });
    let mends = Mends {
        parities: fitted(parities.len()),
        lost: lost.collect(),
        ..Mends::default()
    };
    let sources = stripes.iter().map(|stripe| Source {
        location: stripe.location.to_string_lossy().into_owned(),
        bytes: Some(stripe.file.shared()),
    });
    let set = (model.set, root);
    Some(Arc::new(Rebuilder::new(
        set,
        sources.collect(),
        files,
        mends,
    )))
}
