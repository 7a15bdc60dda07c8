//! Prepares a PostgreSQL server for snapshots by the hook, and takes that back.
//!
//!   enable    find the library --> the server loads it for a trial --> shared_preload_libraries
//!             --restart--> enable again: does every process write through it?
//!   disable   no snapshot needs it --> shared_preload_libraries without it --restart-->
//!
//! Invariants
//! - A library is named only after the server has loaded it in a session. A server does not start
//!   if it cannot load a library that it shall preload.
//! - Every other name in the list stays.

use std::path::{Path, PathBuf};

use windlass_postgres::{Cluster, PostgresError, Preload};
use windlass_snapshot::{Method, Obstacle, Place, SnapshotError, hook};

use super::SnapshotsOf;
use super::subject::Subject;
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::error::{DatabaseError, OperationError};

/// The file name of the library.
pub const LIBRARY: &str = "libwindlass_interpose.so";
/// Where packages put it, below the directory of the program's own.
const BELOW_PREFIX: [&str; 2] = ["lib/windlass", "lib"];
/// Where else it may be.
const USUAL: [&str; 3] = [
    "/usr/local/lib/windlass",
    "/usr/local/lib",
    "/usr/lib/windlass",
];

/// Which server to prepare.
#[derive(Clone, Debug, Default)]
pub struct EnableRequest {
    /// The database.
    pub of: SnapshotsOf,
    /// The library or its directory, instead of the one beside this program or in a usual place.
    pub library: Option<PathBuf>,
}

/// How a server stands to the hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enabled {
    /// The library that the next start loads; `None` if it loads none.
    pub library: Option<String>,
    /// Whether the server's configuration was changed now.
    pub changed: bool,
    /// Whether every process of the server writes through the hook.
    pub active: bool,
    /// Whether the running server was told to load the same library.
    pub is_running: bool,
}

impl Enabled {
    /// Whether the next start of the server changes something.
    pub fn needs_restart(&self) -> bool {
        self.library.is_some() && !self.is_running || self.library.is_some() != self.active
    }
}

/// Names the library in shared_preload_libraries, or checks that the server writes through it.
pub fn enable(caller: &Caller, request: &EnableRequest) -> Result<Enabled, OperationError> {
    let mut cluster = connect(caller, &request.of)?;
    hook::sweep_memories();
    let data = cluster.facts().data_directory.clone();
    let before = cluster.preload()?;
    if before.is_fixed && named(&before.next).is_none() {
        let by = before.named_in.unwrap_or_default();
        return Err(SnapshotError::PreloadFixed { by }.into());
    }
    if request.library.is_none()
        && let Some(library) = named(&before.next)
    {
        return checked(&data, &before, library.to_owned(), false);
    }
    let library = find(request.library.as_deref())?;
    try_it(&mut cluster, &library)?;
    let library = library.to_string_lossy().into_owned();
    if before.next.contains(&library) {
        return checked(&data, &before, library, false);
    }
    let mut list = before.next.clone();
    list.retain(|name| !is_library(name));
    list.push(library.clone());
    change(&mut cluster, &list)?;
    checked(&data, &before, library, true)
}

/// Takes the library out of shared_preload_libraries. Refuses while snapshots need it.
pub fn disable(caller: &Caller, of: &SnapshotsOf) -> Result<Enabled, OperationError> {
    let mut cluster = connect(caller, of)?;
    hook::sweep_memories();
    let data = cluster.facts().data_directory.clone();
    let place = Place::beside(&data)?;
    let count = hook::depending(&data, place.home()).map_err(SnapshotError::from)?;
    if count > 0 {
        return Err(SnapshotError::Depending { count }.into());
    }
    let before = cluster.preload()?;
    let changed = named(&before.next).is_some();
    if changed {
        if before.is_fixed {
            let by = before.named_in.unwrap_or_default();
            return Err(SnapshotError::PreloadFixed { by }.into());
        }
        let mut list = before.next;
        list.retain(|name| !is_library(name));
        change(&mut cluster, &list)?;
    }
    Ok(Enabled {
        library: None,
        changed,
        active: hook::is_active(&data).map_err(SnapshotError::from)?,
        is_running: false,
    })
}

fn connect(caller: &Caller, of: &SnapshotsOf) -> Result<Cluster, OperationError> {
    let subject = Subject::resolve(&of.database, of.name.as_deref())?;
    let conninfo = match &subject {
        Subject::Live(DatabaseName::Postgres(conninfo)) => conninfo,
        Subject::Live(DatabaseName::Sqlite(_)) => {
            let (method, obstacle) = (Method::Hook, Obstacle::OtherDatabase);
            return Err(SnapshotError::Method { method, obstacle }.into());
        }
        Subject::DataDirectory(path) => {
            let path = path.clone();
            return Err(DatabaseError::DataDirectory { path }.into());
        }
        Subject::Gone(path) => {
            let path = path.clone();
            return Err(SnapshotError::Gone { path }.into());
        }
    };
    subject.become_owner(caller)?;
    Ok(Cluster::connect(conninfo)?)
}

/// Whether the server writes through the library that stands in its configuration.
fn checked(
    data: &Path,
    preload: &Preload,
    library: String,
    changed: bool,
) -> Result<Enabled, OperationError> {
    let active = hook::is_active(data).map_err(SnapshotError::from)?;
    if is_gone(&library) {
        // The server goes on with what it has loaded, and would not start again.
        let looked = vec![PathBuf::from(library)];
        let name = LIBRARY;
        return Err(SnapshotError::NoLibrary { name, looked }.into());
    }
    let is_running = preload.running.contains(&library);
    if !active && is_running {
        return Err(SnapshotError::Inactive { data: data.into() }.into());
    }
    hook::check_modules(data).map_err(SnapshotError::from)?;
    Ok(Enabled {
        library: Some(library),
        changed,
        active,
        is_running,
    })
}

/// Whether the file of a library is certainly not there. The server looks for a name without a path
/// in directories of its own, and puts the end behind a name that has none.
fn is_gone(library: &str) -> bool {
    let path = Path::new(library);
    let is_absent = |path: &Path| matches!(path.try_exists(), Ok(false));
    path.is_absolute() && is_absent(path) && is_absent(&path.with_extension("so"))
}

fn try_it(cluster: &mut Cluster, library: &Path) -> Result<(), OperationError> {
    match cluster.try_library(library) {
        Err(PostgresError::Sql { source, .. }) => Err(SnapshotError::Library {
            library: library.into(),
            said: source.to_string(),
        }
        .into()),
        tried => Ok(tried?),
    }
}

fn change(cluster: &mut Cluster, list: &[String]) -> Result<(), OperationError> {
    let after = cluster.set_preload(list)?;
    if after.next == list {
        return Ok(());
    }
    let place = after.named_in.unwrap_or_default();
    Err(SnapshotError::PreloadElsewhere { place }.into())
}

/// The name of our library in a list.
fn named(list: &[String]) -> Option<&str> {
    list.iter()
        .map(String::as_str)
        .find(|name| is_library(name))
}

/// Whether a list of libraries has ours.
pub(super) fn is_named(list: &[String]) -> bool {
    named(list).is_some()
}

fn is_library(name: &str) -> bool {
    let file = Path::new(name).file_name().unwrap_or_default();
    // The server finds a library without its ending, too.
    file == LIBRARY || file == LIBRARY.trim_end_matches(".so")
}

/// The library: the one that is asked for, or the first that is there.
pub(crate) fn find(asked: Option<&Path>) -> Result<PathBuf, OperationError> {
    let looked = match asked {
        Some(path) if path.is_dir() => vec![path.join(LIBRARY)],
        Some(path) => vec![path.to_owned()],
        None => places(&std::env::current_exe().unwrap_or_default()),
    };
    // By another name `disable` could not find it in the list.
    let has_name = |path: &&PathBuf| path.file_name() == Some(LIBRARY.as_ref()) && path.is_file();
    let found = looked.iter().find(has_name);
    let found = found.and_then(|path| std::path::absolute(path).ok());
    let name = LIBRARY;
    found.ok_or_else(|| SnapshotError::NoLibrary { name, looked }.into())
}

/// Where the library of this program may be: beside it, where its package has libraries, and in the
/// usual directories.
fn places(program: &Path) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    if let Some(beside) = program.parent() {
        directories.push(beside.to_owned());
        let prefix = beside.parent().unwrap_or(beside);
        directories.extend(BELOW_PREFIX.map(|below| prefix.join(below)));
    }
    for usual in USUAL.map(PathBuf::from) {
        if !directories.contains(&usual) {
            directories.push(usual);
        }
    }
    let paths = directories.iter();
    paths.map(|directory| directory.join(LIBRARY)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_looked_for_beside_the_program_first() {
        let found = places(Path::new("/opt/windlass/bin/windlass"));
        let expected = [
            "/opt/windlass/bin",
            "/opt/windlass/lib/windlass",
            "/opt/windlass/lib",
            "/usr/local/lib/windlass",
            "/usr/local/lib",
            "/usr/lib/windlass",
        ];
        let expected: Vec<_> = expected.map(|at| Path::new(at).join(LIBRARY)).into();
        assert_eq!(found, expected);
        let installed = places(Path::new("/usr/local/bin/windlass"));
        assert_eq!(installed.len(), 4, "none twice: {installed:?}");
    }

    #[test]
    fn the_library_is_known_by_its_name_wherever_it_is() {
        for name in [
            "/usr/lib/libwindlass_interpose.so",
            "$libdir/libwindlass_interpose",
            LIBRARY,
        ] {
            assert!(is_library(name), "{name}");
        }
        for name in ["windlass", "pg_stat_statements", ""] {
            assert!(!is_library(name), "{name}");
        }
    }
}
