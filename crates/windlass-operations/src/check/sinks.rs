//! What a run writes and serves besides its set: whether that can be done.

use std::io;
use std::net::TcpListener;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use windlass_engine::{EngineError, OutputKind, Outputs, place_hint_for_all};

use crate::caller::Caller;
use crate::checks::{Checks, Finding};
use crate::error::OperationError;
use crate::metrics;
use crate::outputs::{self, METRICS};
use crate::watch::{self, Watching};

/// Checks what the run would write and serve besides its set. What cannot be written is a warning
/// of the run, and of this check; what may not be written fails both.
pub(super) fn check(
    checks: &mut Checks,
    (caller, watching): (&Caller, &Watching),
    outputs: &Outputs,
) -> Result<(), OperationError> {
    if let Some(address) = &watching.metrics {
        match TcpListener::bind(address.as_str()) {
            Ok(_) => checks.ok("metrics", format!("{address} can be served on")),
            Err(error) => {
                let address = address.to_string();
                checks.warning("metrics", Finding::Unserved { address, error });
            }
        }
    }
    let mut outputs = outputs.clone();
    if let Some(path) = &caller.log {
        // Whether it can be written was seen when it was opened.
        let what = "the log of this run goes there";
        if let Err(error) = watch::check_log(caller, &outputs) {
            checks.failure("log", error);
        } else if let Err(error) = outputs.protect_output(path, what) {
            sink_fails(checks, "log", error);
        }
    }
    let events = watching.events.as_ref().map(|events| events.path.clone());
    let files = [
        ("metrics", &watching.metrics_file, METRICS),
        ("events", &events, OutputKind::EVENTS),
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
    match outputs::is_of_place(&error) {
        true => checks.warning(name, Finding::Error(error.into())),
        false => checks.failure(name, error),
    }
}

/// Whether the current user may do this to a path.
fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Whether the current user may create files in a directory.
pub(super) fn may_create(directory: &Path) -> io::Result<()> {
    may(directory, Access::WRITE_OK | Access::EXEC_OK)
}

/// Whether nobody may create files in a directory: its file system is mounted read-only, or it is
/// immutable. Then the error says so.
pub(super) fn closed_to_all(directory: &Path) -> Option<EngineError> {
    let source = may_create(directory).err()?;
    place_hint_for_all(&source)?;
    Some(EngineError::OutputIo {
        operation: "write",
        path: directory.to_owned(),
        source,
    })
}
