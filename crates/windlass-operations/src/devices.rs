//! What the word DEVICE means: the file of a stripe, a directory for a stripe, a place in a bucket,
//! or `nul`.
//!
//! An existing name is what it is. A new name is a file only if it ends like the name of a stripe.
//! Every other new name becomes a directory, so that the next backup finds room there.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use windlass_engine::media::SetId;
use windlass_engine::{
    Device, FileDevice, FileDeviceOptions, NulDevice, Outputs, is_same_output, partial_path,
};
use windlass_object::{Location, is_in_bucket, is_stripe_name};

use crate::error::{DeviceError, OperationError};
use crate::objects::Objects;
pub(crate) use crate::stored::{STORAGE, is_place};
use crate::{outputs, privilege};

/// The device that keeps nothing.
pub(crate) const NUL: &str = "nul";
/// Endings of the names of new files, after a dot.
const FILE_ENDINGS: [&str; 3] = ["windlass", "stripe", "bak"];

/// A device as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// Discards what is written.
    Nul,
    /// The stripe's own file.
    File(PathBuf),
    /// A directory in which the stripe gets a name.
    Directory(PathBuf),
    /// A directory that does not exist yet.
    NewDirectory(PathBuf),
    /// A place in a bucket, in which the stripe gets a name.
    Bucket(PathBuf),
    /// The stripe's own name in a bucket.
    Object(PathBuf),
}

impl DeviceName {
    /// Finds out which kind of device a word means.
    pub fn resolve(text: &str) -> Result<Self, DeviceError> {
        if text == NUL {
            return Ok(Self::Nul);
        }
        if is_in_bucket(Path::new(text)) {
            let path = Location::parse(Path::new(text))?.path();
            return Ok(match is_stripe_name(&path) {
                true => Self::Object(path),
                false => Self::Bucket(path),
            });
        }
        let path = std::path::absolute(text).map_err(|source| DeviceError::NoPath {
            text: text.to_owned(),
            source,
        })?;
        if path.is_dir() {
            return Ok(Self::Directory(path));
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        if !parent.is_dir() {
            let parent = parent.to_owned();
            return Err(DeviceError::NoParent { parent });
        }
        if path.symlink_metadata().is_err() && (text.ends_with('/') || !is_file_name(&path)) {
            return Ok(Self::NewDirectory(path));
        }
        match path.exists() && !path.is_file() {
            true => Err(DeviceError::Special { path }),
            false => Ok(Self::File(path)),
        }
    }

    /// The absolute path of the file or directory; none for a device that keeps nothing.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Nul | Self::Bucket(_) | Self::Object(_) => None,
            Self::File(path) | Self::Directory(path) | Self::NewDirectory(path) => Some(path),
        }
    }

    /// The location in a bucket.
    pub fn in_bucket(&self) -> Option<&Path> {
        match self {
            Self::Bucket(path) | Self::Object(path) => Some(path),
            _ => None,
        }
    }

    /// The path of the stripe, if it was named.
    fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }

    /// The directory that holds the stripe.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Nul | Self::Bucket(_) | Self::Object(_) => None,
            Self::File(path) => path.parent(),
            Self::Directory(path) | Self::NewDirectory(path) => Some(path),
        }
    }

    /// The place that holds the stripe: a directory, or one in a bucket.
    pub fn place(&self) -> Option<&Path> {
        match self {
            Self::Object(path) => path.parent(),
            Self::Bucket(path) => Some(path),
            _ => self.directory(),
        }
    }
}

/// Whether a backup to these devices keeps nothing. Then it makes no set.
pub fn keep_nothing(words: &[String]) -> bool {
    !words.is_empty() && words.iter().all(|word| word == NUL)
}

/// The devices that these words name.
pub fn resolve(words: &[String]) -> Result<Vec<DeviceName>, DeviceError> {
    words.iter().map(|text| DeviceName::resolve(text)).collect()
}

/// Refuses parity on devices that cannot have it: on all of them, on those that keep nothing, and
/// in buckets. Mirrors copy the stripes only, so parity goes together with none.
pub fn check_parity(
    devices: &[DeviceName],
    parities: u16,
    is_mirrored: bool,
) -> Result<(), DeviceError> {
    let devices = match parities {
        0 => return Ok(()),
        _ => devices,
    };
    if is_mirrored {
        return Err(DeviceError::ParityWithMirror);
    }
    if usize::from(parities) >= devices.len() {
        let devices = devices.len();
        return Err(DeviceError::ParityOfAll { devices, parities });
    }
    if devices.contains(&DeviceName::Nul) {
        return Err(DeviceError::ParityOfNothing);
    }
    match devices.iter().find_map(DeviceName::in_bucket) {
        Some(path) => Err(DeviceError::InBucket {
            text: path.to_string_lossy().into_owned(),
            what: "sets with parity are written to files only",
        }),
        None => Ok(()),
    }
}

/// Creates the directories that do not exist yet, and returns them. A command calls this when
/// nothing else can refuse the run, so that a mistake leaves no directory behind. If this process
/// is root, it gives them to the owner of the database, who may not be allowed to create them.
/// Root sees what that owner may not see, so the guards look once more.
pub fn make_directories(
    devices: &[DeviceName],
    owner: Option<(u32, u32)>,
) -> Result<Vec<&Path>, OperationError> {
    check(devices, &outputs::outputs())?;
    let mut made = Vec::new();
    for device in devices {
        if let DeviceName::NewDirectory(path) = device
            && !path.is_dir()
        {
            privilege::make_directory(path, owner)?;
            made.push(path.as_path());
        }
    }
    Ok(made)
}

/// Whether a new name means a file.
fn is_file_name(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| FILE_ENDINGS.contains(&ending))
}

/// Makes the names of stripes in directories: `shop-20261121T081500Z-1f0c9a2e.2of4.windlass`.
pub struct StripeNames {
    /// The database's short name.
    pub database: String,
    /// When the backup began, as in the example.
    pub time: String,
    /// The set.
    pub set_id: SetId,
    /// How many stripes there are.
    pub count: usize,
}

impl StripeNames {
    fn name(&self, index: usize) -> String {
        let id = self.set_id.to_string();
        let (database, time, count) = (&self.database, &self.time, self.count);
        format!(
            "{database}-{time}-{}.{}of{count}.windlass",
            &id[..8],
            index + 1
        )
    }
}

/// Refuses devices at places where no output may be, before anything is created or removed there.
pub fn check(devices: &[DeviceName], outputs: &Outputs) -> Result<(), OperationError> {
    let nuls = devices.iter().filter(|one| **one == DeviceName::Nul);
    let nuls = nuls.count();
    if nuls > 0 && nuls < devices.len() {
        return Err(DeviceError::Mixed.into());
    }
    for device in devices {
        device.directory().map_or(Ok(()), check_attributes)?;
        match device {
            DeviceName::Nul | DeviceName::Bucket(_) | DeviceName::Object(_) => {}
            DeviceName::Directory(path) | DeviceName::NewDirectory(path) => outputs.check(path)?,
            DeviceName::File(path) => {
                outputs.check(path)?;
                outputs.check(&partial_path(path))?;
            }
        }
    }
    Ok(())
}

/// Refuses a directory in which a stripe could not be made, or could not get its name: there a
/// complete set would be called `.partial` for ever.
pub(crate) fn check_attributes(directory: &Path) -> Result<(), DeviceError> {
    // Not every file system has attributes, and a directory that is not there has none.
    let found = statx(CWD, directory, AtFlags::empty(), StatxFlags::empty());
    let attributes = found.map_or(0, |found| found.stx_attributes.bits());
    let known = [
        (StatxAttributes::APPEND, "append-only", 'a'),
        (StatxAttributes::IMMUTABLE, "immutable", 'i'),
    ];
    let set = known.iter().find(|(one, ..)| attributes & one.bits() != 0);
    match set {
        None => Ok(()),
        Some((_, word, letter)) => Err(DeviceError::Attribute {
            directory: directory.to_owned(),
            word,
            letter: *letter,
        }),
    }
}

/// Refuses devices as `check` does, and two stripes that would be one file. The result protects
/// the stripes of this run from each other output of it, also under the names that they have until
/// the set is sealed.
pub fn protect(devices: &[DeviceName], outputs: &Outputs) -> Result<Outputs, OperationError> {
    check(devices, outputs)?;
    let mut outputs = outputs.clone();
    for (index, device) in devices.iter().enumerate() {
        if let DeviceName::Object(path) = device
            && devices[..index].contains(device)
        {
            let path = path.clone();
            return Err(DeviceError::Twice { path }.into());
        }
        if let DeviceName::File(path) = device {
            let names = [path.clone(), partial_path(path)];
            for earlier in devices[..index].iter().filter_map(DeviceName::file) {
                check_differ(earlier, path)?;
            }
            let number = index + 1;
            let what = format!("this run writes stripe {number} of its set there");
            for name in &names {
                outputs.protect_file(name, &what)?;
            }
        }
    }
    Ok(outputs)
}

/// Refuses two devices that are one file, or of which one has the name that the other has until
/// the set is sealed.
fn check_differ(one: &Path, other: &Path) -> Result<(), OperationError> {
    let (first, second) = (one.to_owned(), other.to_owned());
    if is_same_output(one, other)? {
        let error = match one == other {
            true => DeviceError::Twice { path: first },
            false => DeviceError::Same {
                one: first,
                other: second,
            },
        };
        return Err(error.into());
    }
    for (named, partial) in [(other, one), (one, other)] {
        if is_same_output(named, &partial_path(partial))? {
            let (named, partial) = (named.to_owned(), partial.to_owned());
            return Err(DeviceError::Partial { named, partial }.into());
        }
    }
    Ok(())
}

/// Opens the devices for a new set.
pub fn create(
    devices: &[DeviceName],
    names: &StripeNames,
    options: FileDeviceOptions,
    (outputs, objects): (&Outputs, &Objects),
) -> Result<Vec<Box<dyn Device>>, OperationError> {
    protect(devices, outputs)?;
    let paths: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(index, device)| match device {
            DeviceName::Nul => None,
            DeviceName::File(path) | DeviceName::Object(path) => Some(path.clone()),
            DeviceName::Directory(path)
            | DeviceName::NewDirectory(path)
            | DeviceName::Bucket(path) => Some(path.join(names.name(index))),
        })
        .collect();
    make_directories(devices, None)?;
    let mut created: Vec<Box<dyn Device>> = Vec::with_capacity(paths.len());
    for (index, path) in (0..).zip(paths) {
        created.push(match path {
            None => Box::new(NulDevice::new(options.alignment)),
            Some(path) if is_in_bucket(&path) => {
                Box::new(objects.create(&path, (names.set_id, index), options.alignment)?)
            }
            Some(path) => Box::new(FileDevice::create(&path, options)?),
        });
    }
    Ok(created)
}

/// The directories that hold stripes of these devices, without duplicates.
pub fn directories(devices: &[DeviceName]) -> Vec<PathBuf> {
    unique(devices.iter().filter_map(DeviceName::directory))
}

/// The places that hold stripes of these devices, without duplicates: directories, and places in
/// buckets.
pub fn places(devices: &[DeviceName]) -> Vec<PathBuf> {
    let mut found = unique(devices.iter().filter_map(DeviceName::place));
    // A clean-up looks at the stripes in buckets first: it sees those in files, too.
    found.sort_by_key(|place| !is_in_bucket(place));
    found
}

fn unique<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut found: Vec<_> = paths.map(Path::to_owned).collect();
    found.sort();
    found.dedup();
    found
}
