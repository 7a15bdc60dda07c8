//! Where stripes, metrics and events are to go: whether they can be written there, and whether
//! there is enough room.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use windlass_engine::{OutputKind, Outputs, show_size};
use windlass_postgres::user_shown;

use super::existing;
use crate::checks::Checks;
use crate::cli::{Backup, Watching};
use crate::devices::{self, DeviceName};
use crate::metrics::{self, REMOVE};
use crate::outputs::METRICS;

/// Checks each device, and whether each file system has room for its part of `bytes`. Then
/// `outputs` protects the stripes, too.
pub fn check(
    checks: &mut Checks,
    arguments: &Backup,
    outputs: &mut Outputs,
    (bytes, was_root): (Option<u64>, bool),
) -> Vec<DeviceName> {
    let mut devices = Vec::new();
    for text in &arguments.to {
        match DeviceName::resolve(text) {
            Ok(device) => devices.push(device),
            Err(failure) => checks.failure("target", &failure),
        }
    }
    if arguments.to.is_empty() {
        checks.warning(
            "target",
            "no device was named, so none was checked",
            "Name the devices of the backup with --to, or in the configuration.",
        );
    }
    match devices::protect(&devices, outputs) {
        Ok(protected) => *outputs = protected,
        Err(failure) => checks.failure("target", &failure),
    }
    // By file system, because all stripes on one file system share its room.
    let mut systems: BTreeMap<u64, (PathBuf, u64)> = BTreeMap::new();
    let share = bytes.map_or(0, |bytes| bytes / devices.len().max(1) as u64);
    for device in &devices {
        let Some(directory) = device.directory() else {
            checks.ok("target", "nul keeps nothing");
            continue;
        };
        let Some(directory) = existing(directory) else {
            continue;
        };
        match device {
            DeviceName::NewDirectory(new) => check_new(checks, new, directory, was_root),
            _ => check_one(checks, device, directory, arguments.overwrite),
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
        systems
            .values()
            .for_each(|(place, needed)| room_for_set(checks, place, *needed, &arguments.compress));
    }
    devices
}

/// Checks whether a stripe can be created there.
fn check_one(checks: &mut Checks, device: &DeviceName, directory: &Path, overwrite: bool) {
    if let DeviceName::File(path) = device
        && path.exists()
        && !overwrite
    {
        checks.failed(
            "target",
            format!("{} exists", path.display()),
            "Choose another name, name a directory, or pass --overwrite.",
        );
    } else if is_writable(directory) {
        checks.ok(
            "target",
            format!("{} can be written to", directory.display()),
        );
    } else {
        let user = user_shown(rustix::process::geteuid().as_raw());
        checks.failed(
            "target",
            format!("{user} may not write to {}", directory.display()),
            "Give the directory to the database's owner: backups run as that user.",
        );
    }
}

/// Checks whether a directory that does not exist yet can be made. If root starts the backup, root
/// makes it. A directory that was there on other nights may be one whose disk is not mounted.
fn check_new(checks: &mut Checks, new: &Path, parent: &Path, was_root: bool) {
    let path = new.display();
    if was_root || is_writable(parent) {
        let text = format!(
            "{path} does not exist: the backup would make it. If a disk belongs there, mount it \
             first"
        );
        return checks.ok("target", text);
    }
    let user = user_shown(rustix::process::geteuid().as_raw());
    checks.failed(
        "target",
        format!(
            "{path} does not exist, and {user} may not make it in {}",
            parent.display()
        ),
        "If a disk belongs there, mount it. Or make the directory and give it to the database's \
         owner, or run the backup as root.",
    );
}

/// The free bytes at a place, if they are known.
fn free(place: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(place).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Compares the free space with the size of the stripes without compression.
fn room_for_set(checks: &mut Checks, place: &Path, needed: u64, codec: &str) {
    let Some(free) = free(place) else { return };
    let text = format!(
        "{} free at {}, for {} before compression",
        show_size(free),
        place.display(),
        show_size(needed)
    );
    let hint = "Free space there, name another device, or compress harder.";
    if free >= needed {
        checks.ok("room", text);
    } else if codec == "none" || free == 0 {
        checks.failed("room", text, hint);
    } else {
        checks.warning("room", text, hint);
    }
}

/// Compares the free space with the size of what a restore would write.
pub fn room_for_files(checks: &mut Checks, place: &Path, needed: u64) {
    let Some(free) = free(place) else { return };
    let (place, needed_words) = (place.display(), show_size(needed));
    let text = format!(
        "{} free at {place}, for {needed_words} at most",
        show_size(free)
    );
    match free >= needed {
        true => checks.ok("room", text),
        false => checks.failed(
            "room",
            text,
            "Free space there, or restore to another place.",
        ),
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
        checks.warning(
            "clean-up",
            format!(
                "{} unfinished in {}: {first}",
                names.len(),
                directory.display()
            ),
            "Another backup is under way there, or one was cut off: then the next one cleans up.",
        );
    }
}

/// Checks the files that the run would write besides its set.
pub fn check_watching(checks: &mut Checks, watching: &Watching, outputs: &Outputs) {
    let mut outputs = outputs.clone();
    let files = [
        ("metrics", &watching.metrics_file, METRICS),
        ("events", &watching.events, OutputKind::EVENTS),
    ];
    for (name, path, kind) in files {
        let Some(path) = path else { continue };
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let checked = outputs.check_kind(path, &kind);
        let what = format!("the {name} of this run go there");
        if let (true, Some(why)) = (kind.is_renamed, metrics::unreplaceable(path)) {
            checks.failed(
                name,
                format!("{} cannot be replaced: {why}", path.display()),
                REMOVE,
            );
            continue;
        }
        match checked.and_then(|()| outputs.protect_output(path, &what)) {
            Err(error) => checks.failure(name, &error.into()),
            Ok(()) if is_writable(directory) => {
                checks.ok(name, format!("{} can be written", path.display()));
            }
            Ok(()) => checks.failed(
                name,
                format!("{} cannot be written to", directory.display()),
                "Name a file in a directory that the database's owner can write to.",
            ),
        }
    }
}

/// Whether the current user may create files in a directory.
pub fn is_writable(directory: &Path) -> bool {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, directory, access, AtFlags::EACCESS).is_ok()
}

/// The path of a program, found as the system would find it.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let can_run = |path: &PathBuf| {
        path.is_file() && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(can_run);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(can_run)
}

/// What would be written, in a few words.
pub fn describe(device: &DeviceName) -> String {
    match device {
        DeviceName::Nul => "nothing (nul)".to_owned(),
        DeviceName::File(path) => path.display().to_string(),
        DeviceName::Directory(path) => format!("a new stripe in {}", path.display()),
        DeviceName::NewDirectory(path) => {
            format!("a new stripe in {}, a directory to be made", path.display())
        }
    }
}
