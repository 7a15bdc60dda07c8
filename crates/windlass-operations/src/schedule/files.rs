//! The files of units: which of a directory are the schedule's own, and how they differ.
//!
//! Invariant: a file is the schedule's own only if it is a regular file whose first line says so. A
//! link is none: it is what an administrator masks a unit with.

use std::io;
use std::path::Path;

use windlass_engine::read_regular_at_most;

use super::error::ScheduleError;
use super::job::{Change, UnitFile};
use super::unit::{PREFIX, SERVICE, TIMER};

/// No unit is longer.
const BYTES_MAX: u64 = 65_536;

/// An error of a file.
pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ScheduleError {
    let path = path.to_owned();
    move |source| ScheduleError::Io {
        doing,
        path,
        source,
    }
}

/// Compares the wanted units with those that are there. Fails if a file of somebody else has the
/// name of a wanted one.
pub(super) fn compare(
    directory: &Path,
    maker: &str,
    marker: &str,
    wanted: Vec<(String, String)>,
) -> Result<Vec<UnitFile>, ScheduleError> {
    let mut files = Vec::new();
    for (name, text) in wanted {
        let path = directory.join(&name);
        let change = match text_at(&path)? {
            Found::Nothing => Change::New,
            Found::Text(found) if found == text => Change::Kept,
            Found::Text(found) if first_line(&found) == marker => Change::Changed,
            Found::Text(found) if first_line(&found).starts_with(&format!("# {maker}, ")) => {
                let first_line = first_line(&found).to_owned();
                return Err(ScheduleError::OtherConfiguration { path, first_line });
            }
            Found::Text(_) | Found::Other => return Err(ScheduleError::Foreign { path }),
        };
        files.push(UnitFile { name, text, change });
    }
    let gone = own(directory, marker)?.into_iter();
    let gone: Vec<_> = gone
        .filter(|(name, _)| !files.iter().any(|file| file.name == *name))
        .collect();
    files.extend(gone.into_iter().map(|(name, text)| UnitFile {
        name,
        text,
        change: Change::Gone,
    }));
    Ok(files)
}

/// What has a name.
enum Found {
    Nothing,
    Text(String),
    /// Something that no schedule writes.
    Other,
}

fn text_at(path: &Path) -> Result<Found, ScheduleError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(io("look at", path)(error)),
        Ok(found) if !found.is_file() || found.len() > BYTES_MAX => return Ok(Found::Other),
        Ok(_) => {}
    }
    let bytes = read_regular_at_most(path, BYTES_MAX).map_err(io("read", path))?;
    Ok(String::from_utf8(bytes).map_or(Found::Other, Found::Text))
}

/// The units of this schedule that are there, by their names: timers first, because they start the
/// others.
fn own(directory: &Path, marker: &str) -> Result<Vec<(String, String)>, ScheduleError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(io("list", directory))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io("list", directory))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let is_unit = name.ends_with(SERVICE) || name.ends_with(TIMER);
        if !name.starts_with(PREFIX) || !is_unit {
            continue;
        }
        if let Found::Text(text) = text_at(&entry.path())?
            && first_line(&text) == marker
        {
            found.push((name, text));
        }
    }
    found.sort_by_key(|(name, _)| (name.ends_with(SERVICE), name.clone()));
    Ok(found)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
