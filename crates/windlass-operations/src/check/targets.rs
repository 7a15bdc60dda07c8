//! Where stripes are to go: whether they can be written there, and whether there is enough room.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_engine::{Outputs, free_bytes};
use windlass_object::{Removal, is_in_bucket};
use windlass_postgres::user_shown;

use super::sinks::{closed_to_all, may_create};
use crate::backup::BackupRequest;
use crate::checks::{Checks, Finding};
use crate::devices::{self, DeviceName};
use crate::error::{DeviceError, OperationError};
use crate::outputs::existing;
use crate::stored::buckets;

/// Checks each device, and whether each file system has room for its part of `bytes`. Then
/// `outputs` protects the stripes, too.
pub(super) fn check(
    checks: &mut Checks,
    request: &BackupRequest,
    outputs: &mut Outputs,
    (bytes, was_root): (Option<u64>, bool),
) -> Vec<DeviceName> {
    let mut devices = Vec::new();
    for text in &request.to {
        match DeviceName::resolve(text) {
            Ok(device) => devices.push(device),
            Err(error) => checks.failure("target", error),
        }
    }
    if request.to.is_empty() {
        checks.warning("target", Finding::NoDevices);
    }
    match devices::protect(&devices, outputs) {
        Ok(protected) => *outputs = protected,
        // Said of each directory below.
        Err(OperationError::Device(DeviceError::Attribute { .. })) => {}
        Err(error) => checks.failure("target", error),
    }
    // By file system, because all stripes on one file system share its room.
    let mut systems: BTreeMap<u64, (PathBuf, u64)> = BTreeMap::new();
    let share = bytes.map_or(0, |bytes| bytes / devices.len().max(1) as u64);
    let about_new = (was_root, request.to_is_expected);
    for device in &devices {
        if let Some(place) = device.place().filter(|place| is_in_bucket(place)) {
            bucket(checks, place);
            continue;
        }
        let Some(directory) = device.directory() else {
            checks.ok("target", "nul keeps nothing");
            continue;
        };
        let Some(directory) = existing(directory) else {
            continue;
        };
        if let Err(error) = devices::check_attributes(directory) {
            checks.failure("target", error);
            continue;
        }
        if let Some(error) = closed_to_all(directory) {
            checks.failure("target", error);
            continue;
        }
        match device {
            DeviceName::NewDirectory(new) => check_new(checks, new, directory, about_new),
            _ => check_one(checks, device, directory, request.overwrite),
        }
        left_over(checks, directory);
        if let Ok(data) = directory.metadata() {
            let system = systems
                .entry(data.dev())
                .or_insert((directory.to_owned(), 0));
            system.1 += share;
        }
    }
    if bytes.is_some() {
        systems.values().for_each(|(place, needed)| {
            room_for_set(checks, place, *needed, &request.compression_text)
        });
    }
    devices
}

/// Writes to a place in a bucket and reads it back. Nothing less proves that the keys allow it.
fn bucket(checks: &mut Checks, place: &Path) {
    let probed = match buckets().probe(place) {
        Ok(probed) => probed,
        Err(error) => return checks.failure("target", DeviceError::from(error)),
    };
    if !probed.heeds_conditions {
        let place = place.to_owned();
        checks.warning("target", Finding::NoConditions { place });
    }
    match probed.removal {
        Removal::Gone if probed.heeds_conditions => {
            let place = place.display();
            checks.ok("target", format!("{place} can be written to and read back"));
        }
        Removal::Gone => {}
        removal => {
            let place = place.to_owned();
            checks.warning("target", Finding::NoRemoval { place, removal });
        }
    }
}

/// Checks whether a stripe can be created there.
fn check_one(checks: &mut Checks, device: &DeviceName, directory: &Path, overwrite: bool) {
    if let DeviceName::File(path) = device
        && path.exists()
        && !overwrite
    {
        let path = path.clone();
        checks.failed("target", Finding::Exists { path });
    } else if may_create(directory).is_ok() {
        checks.ok(
            "target",
            format!("{} can be written to", directory.display()),
        );
    } else {
        let user = user_shown(rustix::process::geteuid().as_raw());
        let directory = directory.to_owned();
        checks.failed("target", Finding::MayNotWrite { user, directory });
    }
}

/// Checks whether a directory that does not exist yet can be made. If root starts the backup, root
/// makes it. A directory that was there on other nights may be one whose disk is not mounted.
fn check_new(
    checks: &mut Checks,
    new: &Path,
    parent: &Path,
    (was_root, is_configured): (bool, bool),
) {
    let path = new.display();
    let may_make = was_root || may_create(parent).is_ok();
    if may_make && is_configured {
        let path = new.to_owned();
        return checks.warning("target", Finding::Vanished { path });
    }
    if may_make {
        let text = format!(
            "{path} does not exist: the backup would make it. If a disk belongs there, mount it \
             first"
        );
        return checks.ok("target", text);
    }
    let user = user_shown(rustix::process::geteuid().as_raw());
    checks.failed(
        "target",
        Finding::MayNotMake {
            path: new.to_owned(),
            user,
            parent: parent.to_owned(),
        },
    );
}

/// The free bytes at a place, if they are known and have a limit.
pub(crate) fn free(place: &Path) -> Option<u64> {
    let free = free_bytes(place).ok()?;
    (free < u64::MAX).then_some(free)
}

/// Compares the free space with the size of the stripes without compression.
fn room_for_set(checks: &mut Checks, place: &Path, needed: u64, codec: &str) {
    let Some(free) = free(place) else { return };
    let place = place.to_owned();
    let room = Finding::RoomForSet {
        place,
        free,
        needed,
    };
    if free >= needed {
        checks.ok("room", room);
    } else if codec == "none" || free == 0 {
        checks.failed("room", room);
    } else {
        checks.warning("room", room);
    }
}

/// Compares the free space with the size of what a restore would write.
pub(super) fn room_for_files(checks: &mut Checks, place: &Path, needed: u64) {
    let Some(free) = free(place) else { return };
    let place = place.to_owned();
    let room = Finding::RoomForFiles {
        place,
        free,
        needed,
    };
    match free >= needed {
        true => checks.ok("room", room),
        false => checks.failed("room", room),
    }
}

/// Warns of what an interrupted run left there.
fn left_over(checks: &mut Checks, directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".partial"))
        .collect();
    names.sort();
    if let Some(first) = names.first() {
        let left = Finding::Unfinished {
            count: names.len(),
            directory: directory.to_owned(),
            first: first.clone(),
        };
        checks.warning("clean-up", left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check and a drill refused it as full.
    #[test]
    fn a_file_system_without_a_limit_has_no_free_bytes_to_compare() {
        assert_eq!(free(Path::new("/proc")), None);
        assert!(free(Path::new("/")).is_some());
    }
}
