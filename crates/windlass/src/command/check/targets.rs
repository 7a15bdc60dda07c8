//! Where stripes, metrics and events are to go: whether they can be written there, and whether
//! there is enough room.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use windlass_engine::{EngineError, OutputKind, Outputs, show_size};
use windlass_postgres::user_shown;

use crate::checks::Checks;
use crate::cli::{Backup, Global, Watching};
use crate::devices::{self, DeviceName};
use crate::exit::Failure;
use crate::hints::metrics::REMOVE;
use crate::metrics;
use crate::observer::Terminal;
use crate::outputs::{METRICS, existing};
use crate::{log, outputs, requests};
use windlass_operations::watch;

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
            Err(failure) => checks.failure("target", &failure.into()),
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
        Err(failure) => checks.failure("target", &failure.into()),
    }
    // By file system, because all stripes on one file system share its room.
    let mut systems: BTreeMap<u64, (PathBuf, u64)> = BTreeMap::new();
    let share = bytes.map_or(0, |bytes| bytes / devices.len().max(1) as u64);
    let about_new = (was_root, arguments.to_is_configured);
    for device in &devices {
        let Some(directory) = device.directory() else {
            checks.ok("target", "nul keeps nothing");
            continue;
        };
        let Some(directory) = existing(directory) else {
            continue;
        };
        match device {
            DeviceName::NewDirectory(new) => check_new(checks, new, directory, about_new),
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
fn check_new(
    checks: &mut Checks,
    new: &Path,
    parent: &Path,
    (was_root, is_configured): (bool, bool),
) {
    let path = new.display();
    let may_make = was_root || is_writable(parent);
    if may_make && is_configured {
        let text = format!("{path} does not exist, although the configuration names it");
        let hint = "If a disk belongs there, mount it. Otherwise make the directory, or let the \
                    backup make it once.";
        return checks.warning("target", text, hint);
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

/// Checks what the run would write and serve besides its set. What cannot be written is a warning
/// of the run, and of this check; what may not be written fails both.
pub fn check_watching(
    checks: &mut Checks,
    (global, watching): (&Global, &Watching),
    outputs: &Outputs,
) -> Result<(), Failure> {
    if let Some(address) = &watching.metrics {
        metrics::check_address(address)?;
        match TcpListener::bind(address) {
            Ok(_) => checks.ok("metrics", format!("{address} can be served on")),
            Err(error) => checks.warning(
                "metrics",
                format!("{address} cannot be served on: {error}"),
                "Name another address, or end what uses this one. A run goes on without it.",
            ),
        }
    }
    let mut outputs = outputs.clone();
    if let Some(path) = log::file(global) {
        // Whether it can be written was seen when it was opened.
        let what = "the log of this run goes there";
        let caller = requests::caller(global, Terminal::new(global, false, 10));
        let checked = watch::check_log(&caller, &outputs);
        if let Err(failure) = checked {
            checks.failure("log", &failure.into());
        } else if let Err(error) = outputs.protect_output(path, what) {
            sink_fails(checks, "log", error);
        }
    }
    let files = [
        ("metrics", &watching.metrics_file, METRICS),
        ("events", &watching.events, OutputKind::EVENTS),
    ];
    for (name, path, kind) in files {
        let Some(path) = path else { continue };
        match check_sink(&mut outputs, (name, path), &kind) {
            Ok(()) => checks.ok(name, format!("{} can be written", path.display())),
            Err(error) => sink_fails(checks, name, error),
        }
    }
    Ok(())
}

/// Checks one file that the run would write besides its set.
fn check_sink(
    outputs: &mut Outputs,
    (name, path): (&str, &Path),
    kind: &OutputKind,
) -> Result<(), EngineError> {
    outputs.check_kind(path, kind)?;
    let what = format!("the {name} of this run go there");
    outputs.protect_output(path, &what)?;
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let refused = match metrics::unreplaceable(path).filter(|_| kind.is_renamed) {
        Some(why) => Err(io::Error::other(why)),
        // A file that is there keeps its place in the directory.
        None if !kind.is_renamed && path.exists() => may(path, Access::WRITE_OK),
        None => may(directory, Access::WRITE_OK | Access::EXEC_OK),
    };
    refused.map_err(|source| EngineError::OutputIo {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

fn sink_fails(checks: &mut Checks, name: &'static str, error: EngineError) {
    let is_of_place = outputs::is_of_place(&error);
    let failure = Failure::from(error);
    match is_of_place {
        true => {
            let hint = failure.hint().unwrap_or(match name {
                "metrics" => REMOVE,
                _ => "Name another file. A run goes on without it.",
            });
            checks.warning(name, failure.message(), hint);
        }
        false => checks.failure(name, &failure),
    }
}

/// Whether the current user may do this to a path.
fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Whether the current user may create files in a directory.
pub fn is_writable(directory: &Path) -> bool {
    may(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
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
