//! Mirrors of a set that was just sealed: the same stripes, byte for byte, in other places. The
//! database is read once, whatever the number of mirrors.
//!
//!   stripe --> a file under a temporary name, or an object --> durable --> name --> opened once
//!
//! Invariants
//! - In a directory nothing of a mirror looks like a stripe before all of it is durable. So no
//!   clean-up takes it for a stripe of the set that was cut off.
//! - A mirror that fails takes nothing from the set or from other mirrors. What it has of the set
//!   is removed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use windlass_engine::media::{SetId, StripeHeader, fitted};
use windlass_engine::{
    Cancel, Device, EngineError, METADATA_LIMIT_DEFAULT, Outputs, ReadAt, SetEntry, SetState,
    durable, glance,
};
use windlass_object::is_in_bucket;

use crate::devices::{self, DeviceName, STORAGE};
use crate::error::{DeviceError, OperationError};
use crate::objects::Objects;
use crate::places;

/// The mode of a stripe's file: as that of the set.
const MODE: u32 = 0o600;
/// How much is copied at a time.
const STEP_BYTES: u64 = 4 << 20;
/// After so many bytes they are written out, and leave the page cache to the database.
const SYNC_BYTES: u64 = 64 << 20;

/// Where a set is to be, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorRequest {
    /// What people call it: a repository, or the place.
    pub name: String,
    /// Its places: directories that exist, or places in buckets.
    pub places: Vec<String>,
}

/// What became of a mirror.
#[derive(Debug)]
pub struct Mirrored {
    /// What people call it.
    pub name: String,
    /// The stripes there; none if it failed.
    pub stripes: Vec<PathBuf>,
    /// Their bytes.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Why the set is not there.
    pub fault: Option<OperationError>,
    /// Whether a set below it is not there, so that it cannot be restored from there.
    pub lacks_base: bool,
}

/// Refuses mirrors that could never be some: at the place of the set, or twice.
pub(super) fn check(
    mirrors: &[MirrorRequest],
    devices: &[DeviceName],
) -> Result<(), OperationError> {
    let mut taken: Vec<PathBuf> = devices.iter().filter_map(same_place).collect();
    for mirror in mirrors {
        for word in &mirror.places {
            // What cannot be looked at fails later, and alone.
            let Some(place) = DeviceName::resolve(word).ok().as_ref().and_then(same_place) else {
                continue;
            };
            if taken.contains(&place) {
                let text = word.clone();
                return Err(DeviceError::MirrorTwice { text }.into());
            }
            taken.push(place);
        }
    }
    Ok(())
}

/// Refuses mirrors where no output may be. What cannot be looked at fails later, and alone.
pub(super) fn guard(mirrors: &[MirrorRequest], outputs: &Outputs) -> Result<(), OperationError> {
    let words = mirrors.iter().flat_map(|mirror| &mirror.places);
    let found: Vec<_> = words
        .filter_map(|word| DeviceName::resolve(word).ok())
        .collect();
    devices::check(&found, outputs)
}

/// The place of a device, by which two of them are compared.
fn same_place(device: &DeviceName) -> Option<PathBuf> {
    let place = device.place()?;
    Some(place.canonicalize().unwrap_or_else(|_| place.to_owned()))
}

/// Whether a mirror is in a bucket.
pub(super) fn is_any_in_bucket(mirrors: &[MirrorRequest]) -> bool {
    let mut places = mirrors.iter().flat_map(|mirror| &mirror.places);
    places.any(|place| is_in_bucket(Path::new(place)))
}

/// The memory that copying to a mirror in a bucket takes, when the buffers of the run are gone:
/// parts that are on their way, what is behind them, and what was read. One stripe is copied at a
/// time.
pub(super) fn memory_bytes(mirrors: &[MirrorRequest], set_bytes: u64, cancel: &Cancel) -> u64 {
    let of_one = |mirror: &MirrorRequest| {
        // What cannot be looked at fails later, and alone.
        let devices = devices::resolve(&mirror.places).ok()?;
        let objects = Objects::new(&devices, set_bytes, cancel).ok()?;
        Some(objects.stripe_bytes() + 2 * STEP_BYTES)
    };
    let in_buckets = mirrors
        .iter()
        .filter(|one| is_any_in_bucket(std::slice::from_ref(*one)));
    in_buckets.filter_map(of_one).max().unwrap_or(0)
}

/// Copies the stripes of a set to a mirror. `base` is the set on which it builds.
pub(super) fn copy(
    mirror: &MirrorRequest,
    (stripes, base): (&[PathBuf], Option<SetId>),
    cancel: &Cancel,
) -> Mirrored {
    let begun = Instant::now();
    let (copied, fault) = match copied(mirror, stripes, cancel) {
        Ok(copied) => (copied, None),
        Err(fault) => (Vec::new(), Some(fault)),
    };
    let lacks_base = fault.is_none() && base.is_some_and(|base| !has_chain(mirror, base));
    Mirrored {
        name: mirror.name.clone(),
        bytes: copied.iter().map(|(_, bytes)| bytes).sum(),
        stripes: copied.into_iter().map(|(path, _)| path).collect(),
        seconds: begun.elapsed().as_secs_f64(),
        fault,
        lacks_base,
    }
}

/// Whether a mirror has a set and all that the set builds on. What cannot be looked at it has not,
/// and of an encrypted set without its key nobody knows what it builds on.
fn has_chain(mirror: &MirrorRequest, newest: SetId) -> bool {
    let Ok(found) = devices::resolve(&mirror.places) else {
        return false;
    };
    let Ok(list) = places::list(&devices::places(&found)) else {
        return false;
    };
    let sets: BTreeMap<SetId, &SetEntry> = list.sets.iter().map(|one| (one.set_id, one)).collect();
    let mut wanted = Some(newest);
    // A chain without an end is none.
    for _ in 0..=sets.len() {
        let Some(set) = wanted else {
            return true;
        };
        wanted = match sets.get(&set) {
            Some(one) if matches!(one.state, SetState::Sealed | SetState::Locked(_)) => {
                one.about.as_ref().and_then(|about| about.base)
            }
            _ => return false,
        };
    }
    false
}

type Copied = Vec<(PathBuf, u64)>;

fn copied(
    mirror: &MirrorRequest,
    stripes: &[PathBuf],
    cancel: &Cancel,
) -> Result<Copied, OperationError> {
    let devices = devices::resolve(&mirror.places)?;
    let is_place =
        |one: &&DeviceName| matches!(one, DeviceName::Directory(_) | DeviceName::Bucket(_));
    if devices.is_empty() || devices.iter().filter(is_place).count() < devices.len() {
        let text = mirror.places.join(", ");
        return Err(DeviceError::NoMirror { text }.into());
    }
    let set = Stripe::all(stripes)?;
    let objects = Objects::new(&devices, set.iter().map(|one| one.bytes).sum(), cancel)?;
    let mut unnamed = Vec::new();
    for (stripe, device) in set.iter().zip(devices.iter().cycle()) {
        let place = device.place().unwrap_or(Path::new("."));
        let path = place.join(stripe.location.file_name().unwrap_or_default());
        let about = (stripe, path.as_path());
        let copy = match device {
            DeviceName::Bucket(_) => Unnamed::Object(to_object(about, &objects, cancel)?),
            _ => to_file(about, cancel)?,
        };
        unnamed.push((copy, path, stripe.bytes));
    }
    let mut named = Named(Vec::new());
    for (copy, path, bytes) in unnamed {
        copy.name(&path).map_err(|source| failed(&path, source))?;
        named.0.push((path, bytes));
    }
    let paths: Vec<_> = named.0.iter().map(|(path, _)| path.clone()).collect();
    let there = Stripe::all(&paths)?;
    let is_same =
        |(one, other): (&Stripe, &Stripe)| (&one.header, one.bytes) == (&other.header, other.bytes);
    match there.len() == set.len() && there.iter().zip(&set).all(is_same) {
        true => Ok(std::mem::take(&mut named.0)),
        false => {
            let text = mirror.places.join(", ");
            Err(DeviceError::NotMirrored { text }.into())
        }
    }
}

/// A sealed stripe.
struct Stripe {
    location: PathBuf,
    header: StripeHeader,
    bytes: u64,
}

impl Stripe {
    /// These stripes, sealed and whole as far as their ends say. An encrypted one can be copied
    /// without its key.
    fn all(stripes: &[PathBuf]) -> Result<Vec<Self>, OperationError> {
        let mut found = Vec::with_capacity(stripes.len());
        for one in glance(STORAGE, stripes, METADATA_LIMIT_DEFAULT)? {
            match one.fault {
                None | Some(EngineError::Locked { .. }) => {}
                Some(fault) => return Err(fault.into()),
            }
            let length = STORAGE.open(&one.location).and_then(|it| it.length());
            found.push(Self {
                bytes: length.map_err(|source| failed(&one.location, source))?,
                location: one.location,
                header: one.header,
            });
        }
        Ok(found)
    }

    fn open(&self) -> io::Result<Arc<dyn ReadAt>> {
        STORAGE.open(&self.location)
    }
}

/// Stripes that have their names. What of them is not handed on is removed.
struct Named(Copied);

impl Drop for Named {
    fn drop(&mut self) {
        for (path, _) in &self.0 {
            // The mirror has failed already, and that is said.
            STORAGE.remove(path).unwrap_or_default();
        }
    }
}

/// A stripe that is complete and durable, and has no name yet.
enum Unnamed {
    File(Temporary),
    Object(Box<dyn Device>),
}

/// A file under a temporary name, which is removed unless it is named.
struct Temporary {
    file: File,
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The file is ours alone. If it has its name already, nothing has this one.
        std::fs::remove_file(&self.path).unwrap_or_default();
    }
}

impl Unnamed {
    fn name(self, path: &Path) -> io::Result<()> {
        match self {
            Self::File(made) => Ok(durable::name_new(&made.file, &made.path, path)?),
            Self::Object(mut device) => device.publish().map_err(io::Error::other),
        }
    }
}

fn to_file((stripe, path): (&Stripe, &Path), cancel: &Cancel) -> Result<Unnamed, OperationError> {
    let write = || -> io::Result<Temporary> {
        let (file, temporary) = durable::create_temporary(path, MODE)?;
        let mut made = Temporary {
            file,
            path: temporary,
        };
        let mut unsynced = 0;
        each(stripe, stripe.bytes, cancel, |_, bytes| {
            made.file.write_all(bytes)?;
            unsynced += bytes.len() as u64;
            if unsynced >= SYNC_BYTES {
                unsynced = 0;
                leave_cache(&made.file)?;
            }
            Ok(())
        })?;
        made.file.sync_all()?;
        leave_cache(&made.file)?;
        Ok(made)
    };
    Ok(Unnamed::File(
        write().map_err(|source| failed(path, source))?,
    ))
}

/// Writes out what was written, and lets it leave the page cache.
fn leave_cache(file: &File) -> io::Result<()> {
    file.sync_data()?;
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

fn to_object(
    (stripe, path): (&Stripe, &Path),
    objects: &Objects,
    cancel: &Cancel,
) -> Result<Box<dyn Device>, OperationError> {
    let header = &stripe.header;
    let of = (header.set_id, header.stripe.0);
    let mut device = objects.create(path, of, header.alignment)?;
    // The order of a commit: data, length, seal, name.
    let data = stripe.bytes - u64::from(header.alignment);
    let mut fault = None;
    let copied = each(stripe, data, cancel, |at, bytes| {
        device.write(at, bytes).map_err(|error| {
            fault = Some(error);
            io::Error::from(io::ErrorKind::Other)
        })
    });
    if let Some(error) = fault {
        return Err(error.into());
    }
    copied.map_err(|source| failed(path, source))?;
    device.truncate(stripe.bytes)?;
    device.sync()?;
    let mut seal = vec![0; header.alignment as usize];
    let bytes = stripe
        .open()
        .and_then(|bytes| bytes.read_exact_at(data, &mut seal));
    bytes.map_err(|source| failed(&stripe.location, source))?;
    device.write(data, &seal)?;
    device.sync()?;
    Ok(Box::new(device))
}

/// Reads the first bytes of a stripe, one part after the other.
fn each(
    stripe: &Stripe,
    bytes: u64,
    cancel: &Cancel,
    mut take: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let source = stripe.open()?;
    let mut part = vec![0; fitted(STEP_BYTES.min(bytes))];
    let mut at = 0;
    while at < bytes {
        if cancel.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let step = fitted::<usize, u64>((bytes - at).min(STEP_BYTES));
        source.read_exact_at(at, &mut part[..step])?;
        take(at, &part[..step])?;
        at += step as u64;
    }
    Ok(())
}

fn failed(path: &Path, source: io::Error) -> OperationError {
    match source.kind() {
        io::ErrorKind::Interrupted => EngineError::Cancelled.into(),
        _ => DeviceError::Mirror {
            path: path.to_owned(),
            source,
        }
        .into(),
    }
}
