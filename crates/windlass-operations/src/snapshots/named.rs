//! What DATABASE@NAME means, and the directory of a snapshot: a snapshot in the place of a set or
//! an image.
//!
//! A path that exists is what it is. Otherwise an `@` divides a word. What stands before it
//! is a configured name, a SQLite file, a data directory, or a connection string. What stands
//! behind it is the name of a snapshot, or else the kind of rolling ones, of which it is the
//! newest.

use std::path::{Path, PathBuf};

use windlass_snapshot::{Place, Snapshot, SnapshotName};

use super::kind::newest_of_kind;
use super::subject::Subject;
use super::word::divided;
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::error::{DatabaseError, OperationError};
use crate::places::{Configured, Which};
use crate::privilege;

/// The snapshot that a word means, if it means one.
pub fn find(
    caller: &Caller,
    word: &Path,
    configured: &[Configured],
) -> Result<Option<Snapshot>, OperationError> {
    if word.symlink_metadata().is_ok() {
        let at = Snapshot::is_at(word).then(|| Snapshot::open(word));
        return Ok(at.transpose()?);
    }
    let Some((database, name)) = split(word)? else {
        return Ok(None);
    };
    let one = configured.iter().find(|one| one.name == database);
    if one.is_some_and(|one| one.is_repository) {
        return Ok(None);
    }
    // The name of a configured database stands for its sets, too.
    let has_sets = one.is_some_and(|one| !one.places.is_empty());
    let is_choice = has_sets && Which::parse(name.as_str()).is_ok();
    let source = one.map_or(database, |one| one.source.as_str());
    let Some(subject) = subject(source) else {
        return Ok(None);
    };
    let is_server = matches!(subject, Subject::Live(DatabaseName::Postgres(_)));
    if is_choice && is_server {
        // Sets are there although the server is not.
        return Ok(None);
    }
    let place = place(caller, &subject)?;
    if !place.has(&name)
        && let Some(newest) = newest_of_kind(&place, name.as_str())?
    {
        return Ok(Some(newest));
    }
    let is_none = !place.has(&name) && (is_choice || one.is_some() && !place.home().is_dir());
    match is_none {
        true => Ok(None),
        false => Ok(Some(place.find(&name)?)),
    }
}

/// The two parts of a word, if the second can be the name of a snapshot.
pub(super) fn split(word: &Path) -> Result<Option<(&str, SnapshotName)>, DatabaseError> {
    let parts = word.to_str().map(divided).transpose()?.flatten();
    Ok(parts.and_then(|(database, name)| Some((database, SnapshotName::parse(name).ok()?))))
}

/// The database that a word means; none if it means none.
fn subject(text: &str) -> Option<Subject> {
    let path = PathBuf::from(text);
    if path.join("PG_VERSION").is_file() {
        return Some(Subject::of_directory(&path));
    }
    if path.is_file() {
        let is_sqlite = windlass_sqlite::is_sqlite(&path).unwrap_or(false);
        let subject = Subject::Live(DatabaseName::Sqlite(path));
        return is_sqlite.then_some(subject);
    }
    if let Some(gone) = Subject::gone(&path) {
        return Some(gone);
    }
    let is_server = !path.exists() && DatabaseName::is_one(text);
    is_server.then(|| Subject::Live(DatabaseName::Postgres(text.to_owned())))
}

/// The place of the snapshots. A server is asked by the owner of its files, as a backup does it.
/// This process stays who it is.
pub(super) fn place(caller: &Caller, subject: &Subject) -> Result<Place, OperationError> {
    match subject {
        Subject::Live(DatabaseName::Postgres(_)) => {
            privilege::as_user(caller.process, subject.owner(), || subject.place())
        }
        _ => subject.place(),
    }
}
