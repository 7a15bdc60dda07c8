//! Profiles: what a probe found. The state directory has one file for each device.
//!
//! A device is what a file system is mounted from, according to the kernel's mount table. A file
//! system without a device (tmpfs, overlay) is named by its mount point. So everything on the same
//! file system has the same profile. A directory that was moved to another disk does not keep the
//! old disk's profile. A bucket is a device, too, whatever the prefix.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use windlass_engine::{durable, read_regular_at_most};
use windlass_model::{Attachment, Model};

use crate::error::LabError;
use crate::numbers::to_f64;
use crate::points::{Knee, Operation, Pattern, Point};
use crate::speeds::{MemorySpeeds, Speeds};

/// The version of the files' format. Files of other versions are not read.
const VERSION: u32 = 1;
const DIRECTORY: &str = "profiles";
const CPU_FILE: &str = "cpu.json";
/// What a bucket has instead of a file system.
const BUCKET: &str = "bucket";
/// How many requests one stripe in a bucket has in flight: parts of its upload, or ranges ahead of
/// its reader.
const STREAM_DEPTH: usize = 4;
/// If a probe finds this share less than an older one did, something probably disturbed it. Storage
/// and cores do not get faster by chance, but anything else that uses them makes them slower.
const WORSE_SHARE: f64 = 0.10;

/// The device that a path lies on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceId {
    /// What is mounted, for example `/dev/nvme0n1p1` or `tmpfs`.
    pub source: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The file system's type.
    pub file_system: String,
}

/// What a probe found about a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The version of this file's format.
    pub version: u32,
    /// The device.
    pub device: DeviceId,
    /// The directory that was probed.
    pub path: PathBuf,
    /// When, RFC 3339.
    pub at: String,
    /// Bytes of the scratch file.
    pub scratch_bytes: u64,
    /// Every combination that was measured.
    pub points: Vec<Point>,
    /// For each kind of point, the depth beyond which more in flight does not help.
    pub knees: Vec<Knee>,
}

/// What a probe found about the cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuProfile {
    /// The version of this file's format.
    pub version: u32,
    /// When, RFC 3339.
    pub at: String,
    /// Each codec, on a sample of a database.
    pub speeds: Option<Speeds>,
    /// Checksums and copies.
    pub memory: MemorySpeeds,
}

impl Profile {
    /// A profile of this version.
    pub fn new(device: DeviceId, path: &Path, at: String, scratch_bytes: u64) -> Self {
        Self {
            version: VERSION,
            device,
            path: path.to_owned(),
            at,
            scratch_bytes,
            points: Vec::new(),
            knees: Vec::new(),
        }
    }

    /// The profile of the device that `path` lies on; `None` if it was never probed.
    pub fn for_path(state_directory: &Path, path: &Path) -> Result<Option<Self>, LabError> {
        Self::for_device(state_directory, &DeviceId::of_path(path)?)
    }

    /// The profile of a device; `None` if it was never probed.
    pub fn for_device(state_directory: &Path, device: &DeviceId) -> Result<Option<Self>, LabError> {
        let found: Option<Self> = load(&file(state_directory, &device.file_name()))?;
        Ok(found.filter(|profile| profile.version == VERSION))
    }

    /// Keeps it, in place of an older one.
    pub fn save(&self, state_directory: &Path) -> Result<PathBuf, LabError> {
        save(&file(state_directory, &self.device.file_name()), self)
    }

    /// The rate of sequential reading or writing that an older profile of the same device found to
    /// be higher than this one does, by more than a tenth.
    pub fn worse_than(&self, older: &Self) -> Option<Worse> {
        [Operation::Read, Operation::Write]
            .into_iter()
            .find_map(|operation| {
                let best = |profile: &Self| profile.best(Pattern::Sequential, operation);
                let (found, before) = (best(self)?, best(older)?);
                let what = match operation {
                    Operation::Read => "sequential read",
                    Operation::Write => "sequential write",
                };
                Worse::of(what, found, before)
            })
    }

    /// Bytes per second of the best point of this kind; past the page cache if that was possible.
    pub fn best(&self, pattern: Pattern, operation: Operation) -> Option<f64> {
        let of = |direct| {
            let points = self
                .points
                .iter()
                .filter(move |point| point.direct == direct);
            let points = points.filter(|point| point.is(pattern, operation));
            points
                .map(|point| point.bytes_per_second)
                .max_by(f64::total_cmp)
        };
        of(true).or_else(|| of(false))
    }

    /// Bytes per second of sequential blocks of the measured size that is nearest to this one.
    pub fn best_at(&self, operation: Operation, block_bytes: u64) -> Option<f64> {
        let sequential = |point: &&Point| point.is(Pattern::Sequential, operation) && point.direct;
        let points = || self.points.iter().filter(sequential);
        let size = points()
            .map(|point| point.block_bytes)
            .min_by_key(|size| size.abs_diff(block_bytes));
        let same = points().filter(|point| Some(point.block_bytes) == size);
        let found = same
            .map(|point| point.bytes_per_second)
            .max_by(f64::total_cmp);
        found.or_else(|| self.best(Pattern::Sequential, operation))
    }

    /// The same of so many stripes together. In a bucket each has only some requests in flight.
    pub fn best_of(&self, operation: Operation, block_bytes: u64, stripes: usize) -> Option<f64> {
        let best = self.best_at(operation, block_bytes)?;
        let stream = self.stream_rate(operation);
        let stream = stream.filter(|_| self.device.is_bucket());
        Some(stream.map_or(best, |rate| best.min(rate * to_f64(stripes as u64))))
    }

    /// The device as a model for reading from it, or for writing to it.
    pub fn model(&self, operation: Operation) -> Model {
        let mut model = Model::unlimited(&format!("profile of {}", self.device.source));
        model.whole.bytes_per_second = self.best(Pattern::Sequential, operation);
        let small = self
            .points
            .iter()
            .filter(|point| point.is(Pattern::Random, operation));
        let operations = small
            .map(|point| point.operations_per_second)
            .max_by(f64::total_cmp);
        model.whole.operations_per_second = operations;
        model.latency_seconds = self.latency_seconds(operation);
        // The probe counts each block as one operation, so a large operation is as good as several.
        model.io_bytes = 1 << 30;
        if self.device.is_bucket() {
            // The rate of a stripe has the latency of its requests in it.
            model.latency_seconds = 0.0;
            model.stream.bytes_per_second = self.stream_rate(operation);
            model.attachment = Attachment::Network;
        }
        model
    }

    /// Bytes per second of as many requests as one stripe in a bucket has in flight.
    fn stream_rate(&self, operation: Operation) -> Option<f64> {
        let of = |point: &&Point| {
            point.is(Pattern::Sequential, operation) && point.depth == STREAM_DEPTH
        };
        self.points
            .iter()
            .find(of)
            .map(|point| point.bytes_per_second)
    }

    /// The time of a single small I/O: nearly all of it is latency.
    fn latency_seconds(&self, operation: Operation) -> f64 {
        let single = |point: &&Point| {
            point.is(Pattern::Sequential, operation) && point.direct && point.depth == 1
        };
        let smallest = self
            .points
            .iter()
            .filter(single)
            .min_by_key(|point| point.block_bytes);
        smallest.map_or(0.0, |point| point.latency_micros_p50 / 1e6)
    }
}

/// A rate that a probe found to be lower than an older probe did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worse {
    /// What was measured.
    pub what: &'static str,
    /// Bytes per second in this probe.
    pub found: f64,
    /// Bytes per second in the older probe.
    pub before: f64,
}

impl Worse {
    fn of(what: &'static str, found: f64, before: f64) -> Option<Self> {
        (found < before * (1.0 - WORSE_SHARE)).then_some(Self {
            what,
            found,
            before,
        })
    }
}

impl CpuProfile {
    /// The rate that an older profile found to be higher than this one does, by more than a tenth.
    pub fn worse_than(&self, older: &Self) -> Option<Worse> {
        let (now, then) = (&self.memory, &older.memory);
        [
            (
                "crc32c",
                now.crc32c_bytes_per_second,
                then.crc32c_bytes_per_second,
            ),
            (
                "blake3",
                now.blake3_bytes_per_second,
                then.blake3_bytes_per_second,
            ),
            (
                "copy",
                now.copy_bytes_per_second,
                then.copy_bytes_per_second,
            ),
        ]
        .into_iter()
        .find_map(|(what, found, before)| Worse::of(what, found, before))
    }

    /// A profile of this version.
    pub fn new(at: String, speeds: Option<Speeds>, memory: MemorySpeeds) -> Self {
        Self {
            version: VERSION,
            at,
            speeds,
            memory,
        }
    }

    /// The profile of this machine; `None` if it was never probed.
    pub fn load(state_directory: &Path) -> Result<Option<Self>, LabError> {
        let found: Option<Self> = load(&file(state_directory, CPU_FILE))?;
        Ok(found.filter(|profile| profile.version == VERSION))
    }

    /// Keeps it, in place of an older one.
    pub fn save(&self, state_directory: &Path) -> Result<PathBuf, LabError> {
        save(&file(state_directory, CPU_FILE), self)
    }
}

impl Speeds {
    /// The speeds in this machine's profile; the default ones if it was never probed.
    pub fn probed(state_directory: Option<&Path>) -> Result<Self, LabError> {
        let cpu = match state_directory {
            Some(state) => CpuProfile::load(state)?,
            None => None,
        };
        Ok(cpu.and_then(|cpu| cpu.speeds).unwrap_or_default())
    }
}

/// The directory of the profiles. It exists once something was probed.
pub fn profiles_directory(state_directory: &Path) -> PathBuf {
    state_directory.join(DIRECTORY)
}

fn file(state_directory: &Path, name: &str) -> PathBuf {
    profiles_directory(state_directory).join(name)
}

/// A longer file is no profile.
const PROFILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LabError> {
    let bytes = match read_regular_at_most(path, PROFILE_BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(LabError::io("read", path))?,
    };
    let parsed = serde_json::from_slice(&bytes);
    parsed.map(Some).map_err(|error| LabError::State {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

fn save<T: Serialize>(path: &Path, value: &T) -> Result<PathBuf, LabError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(LabError::io("create", directory))?;
    let text = serde_json::to_vec_pretty(value)
        .map_err(|error| LabError::io("write", path)(error.into()))?;
    durable::write(path, &text, 0o644).map_err(LabError::io("write", path))?;
    Ok(path.to_owned())
}

impl DeviceId {
    /// The device that `path` lies on.
    pub fn of_path(path: &Path) -> Result<Self, LabError> {
        let real = fs::canonicalize(path).map_err(LabError::io("find", path))?;
        let table = Path::new("/proc/self/mountinfo");
        let text = fs::read_to_string(table).map_err(LabError::io("read", table))?;
        Self::in_table(&text, &real).ok_or_else(|| LabError::State {
            path: real,
            what: "is on no file system that the mount table knows".to_owned(),
        })
    }

    /// A bucket, by its name as in `s3://shop`.
    pub fn of_bucket(name: &str) -> Self {
        Self {
            source: name.to_owned(),
            mount_point: name.into(),
            file_system: BUCKET.to_owned(),
        }
    }

    /// Whether it is a bucket.
    pub fn is_bucket(&self) -> bool {
        self.file_system == BUCKET
    }

    /// The mount that a path lies on: the deepest one. If several are at one place, it is the last
    /// one.
    fn in_table(table: &str, path: &Path) -> Option<Self> {
        let mounts = table.lines().filter_map(Self::of_line);
        let above = mounts.filter(|mount| path.starts_with(&mount.mount_point));
        above.max_by_key(|mount| mount.mount_point.components().count())
    }

    /// `36 35 98:0 /root /mount/point options [fields ...] - type source options` (proc(5)).
    fn of_line(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mount_point = left.split(' ').nth(4)?;
        let mut right = right.split(' ');
        Some(Self {
            file_system: right.next()?.to_owned(),
            source: unescape(right.next()?),
            mount_point: unescape(mount_point).into(),
        })
    }

    /// A file name that no other device has.
    fn file_name(&self) -> String {
        let key = if self.source.starts_with('/') {
            self.source.clone()
        } else {
            format!("{}:{}", self.file_system, self.mount_point.display())
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let letter = |byte: u8| match byte {
            byte if plain(byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02x}"),
        };
        let name: String = key.trim_start_matches('/').bytes().map(letter).collect();
        format!("{name}.json")
    }
}

/// Undoes the kernel's escapes: it writes a space and the like as a backslash and three octal
/// digits.
fn unescape(text: &str) -> String {
    let mut plain = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        rest = match value {
            Some(value) if *first == b'\\' => {
                plain.push(value);
                &after[3..]
            }
            _ => {
                plain.push(*first);
                after
            }
        };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests;
