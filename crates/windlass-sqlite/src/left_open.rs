//! Who still has a database open whose file is not there any more.
//!
//!   /proc/PID/fd/N --> /srv/shop.db (deleted)     a program that opened it before
//!   /srv/shop.db-shm, locked                      the same, whoever runs the program
//!
//! SQLite finds log, index and journal by the name of the database, and not by its file. So a
//! program that has the old file open, and another one that opens a new file of that name, share
//! them, and each writes pages of its own database into the other one
//! (<https://sqlite.org/howtocorrupt.html>, "unlinking or renaming a database file while in use").
//! A program that has not read anything yet opens the log only when it does.
//!
//! A program may have opened it through another mount of the same directory, as in a container. So
//! files are compared by where they are in their file system (`mounted`).
//!
//! What cannot be seen: a program of another user without an index of the log, unless root asks;
//! and a program that has a file open which was moved elsewhere, with no side file under the old
//! name.

mod mounted;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::lock;
use crate::sides::SIDE_SUFFIXES;
use crate::view::beside;
use mounted::Inside;

const INDEX_SUFFIX: &str = "-shm";
/// What the system writes behind the name of an open file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// A process that has a file of a database open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOpen {
    /// The process; 0 if the system cannot name it.
    pub process: i32,
    /// The name of its program, if that is known.
    pub program: Option<String>,
    /// The file, by the name that it has or had.
    pub path: PathBuf,
}

impl LeftOpen {
    fn new(process: i32, path: PathBuf) -> Self {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
        let name = name.ok().map(|name| name.trim_end().to_owned());
        Self {
            process,
            program: name,
            path,
        }
    }
}

/// A process that has a file open that is, or was, this database or one of its side files. The
/// database itself must not be there; its directory must.
pub fn left_open(database: &Path) -> io::Result<Option<LeftOpen>> {
    // The system shows real names.
    let database = std::path::absolute(database)?;
    let directory = database.parent().unwrap_or(&database);
    let directory = directory.canonicalize()?;
    let database = directory.join(database.file_name().unwrap_or_default());
    match Wanted::of(&database)?.find()? {
        None => by_lock(&database),
        found => Ok(found),
    }
}

/// By SQLite's own lock of the index, which other users' processes cannot hide.
fn by_lock(database: &Path) -> io::Result<Option<LeftOpen>> {
    let path = beside(database, INDEX_SUFFIX);
    let index = match File::open(&path) {
        Err(error) if is_not_there(&error) => return Ok(None),
        index => index?,
    };
    let user = lock::index_user(&index)?;
    Ok(user.map(|process| LeftOpen::new(process, path)))
}

/// Nothing has a name that is too long for the file system.
fn is_not_there(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotFound};
    matches!(error.kind(), NotFound | InvalidFilename)
}

/// The files that are looked for.
struct Wanted {
    /// The database, and its side files.
    paths: Vec<PathBuf>,
    /// Those of them that are there.
    inodes: Vec<u64>,
    device: u64,
    /// The directory of all of them.
    directory: Option<Inside>,
    /// Names mean the same for processes that see the same mounts.
    mounts: Option<PathBuf>,
}

impl Wanted {
    fn of(database: &Path) -> io::Result<Self> {
        let sides = SIDE_SUFFIXES.map(|suffix| beside(database, suffix));
        let inodes = sides.iter().filter_map(|side| side.metadata().ok());
        let inodes = inodes.map(|found| found.ino()).collect();
        let directory = database.parent().unwrap_or(database);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
        Ok(Self {
            inodes,
            device: opened.metadata()?.dev(),
            directory: Inside::of_own(&opened, directory),
            mounts: mounts("self"),
            paths: sides.into_iter().chain([database.to_owned()]).collect(),
        })
    }

    /// The first process that has one of them open. Processes that end meanwhile, and those that
    /// this one may not look into, have none.
    fn find(&self) -> io::Result<Option<LeftOpen>> {
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let process = name.to_str().and_then(|name| name.parse().ok());
            let found = process.and_then(|process| self.find_in(process));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn find_in(&self, process: i32) -> Option<LeftOpen> {
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let process_name = process.to_string();
        let has_our_names = mounts(&process_name) == self.mounts;
        let mut descriptors = descriptors.flatten();
        let path = descriptors.find_map(|descriptor| {
            let path = opened_as(&descriptor.path())?;
            let is_wanted = has_our_names && self.paths.contains(&path)
                || self.is_wanted_elsewhere(&path, (&process_name, &descriptor));
            is_wanted.then_some(path)
        })?;
        Some(LeftOpen::new(process, path))
    }

    /// The same by another mount: there the directory may have any name.
    fn is_wanted_elsewhere(
        &self,
        path: &Path,
        (process, descriptor): (&str, &std::fs::DirEntry),
    ) -> bool {
        let mut names = self.paths.iter().filter_map(|wanted| wanted.file_name());
        let Some(name) = names.find(|name| Some(*name) == path.file_name()) else {
            return false;
        };
        let number = descriptor.file_name();
        let there = number
            .to_str()
            .and_then(|number| Inside::of(process, number, path));
        if let (Some(directory), Some(there)) = (&self.directory, there) {
            return there == directory.join(Path::new(name));
        }
        // Nobody knows where it is. One of this name that was deleted here may be it.
        descriptor.path().metadata().is_ok_and(|found| {
            let is_known = found.nlink() == 0 || self.inodes.contains(&found.ino());
            found.dev() == self.device && is_known
        })
    }
}

/// The name that an open file has, or had.
fn opened_as(descriptor: &Path) -> Option<PathBuf> {
    let shown: OsString = std::fs::read_link(descriptor).ok()?.into();
    let shown = shown.as_bytes();
    let name = shown.strip_suffix(DELETED).unwrap_or(shown);
    Some(OsStr::from_bytes(name).into())
}

/// What tells the mounts that a process sees.
fn mounts(process: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use windlass_testkit::sqlite::{CommitLedger, LedgerSpec};
    use windlass_testkit::starting;

    use super::*;

    fn database(place: &Path, mode: &str) -> (PathBuf, Connection) {
        let path = place.canonicalize().unwrap().join("shop.db");
        let made = Connection::open(&path).unwrap();
        let setup = format!("PRAGMA journal_mode={mode}; CREATE TABLE item(name)");
        made.execute_batch(&setup).unwrap();
        made.close().unwrap();
        let opened = Connection::open(&path).unwrap();
        (path, opened)
    }

    #[test]
    fn a_deleted_database_is_found_open_until_it_is_closed() {
        for mode in ["wal", "delete"] {
            let place = tempfile::tempdir().unwrap();
            let (path, opened) = database(place.path(), mode);
            std::fs::remove_file(&path).unwrap();
            let found = left_open(&path).unwrap().unwrap();
            assert_eq!(found.path, path, "{mode}");
            assert!(found.program.is_some(), "{found:?}");
            assert_eq!(u32::try_from(found.process), Ok(std::process::id()));
            // One in another directory, or of another name, is not this one.
            let other = place.path().canonicalize().unwrap();
            assert_eq!(left_open(&other.join("shop.db-wal.db")).unwrap(), None);
            drop(opened);
            // A process has the files of the test until it runs its program.
            let _none = starting::none_starts();
            assert_eq!(left_open(&path).unwrap(), None, "{mode}");
        }
    }

    /// Runs the calling test again, in a process that can mount something without anybody else
    /// seeing that. True in that process.
    fn is_apart(test: &str) -> bool {
        const APART: &str = "WINDLASS_TEST_APART";
        if std::env::var_os(APART).is_some() {
            return true;
        }
        let mut again = std::process::Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            again.args(["--user", "--map-root-user"]);
        }
        again.arg("--mount").arg(std::env::current_exe().unwrap());
        let name = format!("left_open::tests::{test}");
        let again = again.args(["--exact", &name]).env(APART, "1");
        let output = starting::output(again).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(said.contains("1 passed"), "{said}");
        false
    }

    fn bind(from: &Path, to: &Path) {
        std::fs::create_dir(to).unwrap();
        let mut mount = std::process::Command::new("mount");
        let mounted = mount.arg("--bind").args([from, to]).status();
        assert!(mounted.unwrap().success());
    }

    #[test]
    fn a_database_is_found_open_through_a_second_mount_and_no_other_one_is() {
        if !is_apart("a_database_is_found_open_through_a_second_mount_and_no_other_one_is") {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().canonicalize().unwrap().join(name);
        for mode in ["wal", "delete"] {
            let (first, other, second) = (at("first"), at("other"), at("second"));
            std::fs::create_dir(&first).unwrap();
            std::fs::create_dir(&other).unwrap();
            let (path, opened) = database(&first, mode);
            let (elsewhere, opened_elsewhere) = database(&other, mode);
            opened.close().unwrap();
            bind(&first, &second);
            let opened = Connection::open(second.join("shop.db")).unwrap();
            let count = |opened: &Connection| {
                opened.query_row("SELECT count(*) FROM item", (), |row| row.get::<_, i64>(0))
            };
            assert_eq!(count(&opened), Ok(0));
            for path in [&path, &elsewhere] {
                std::fs::remove_file(path).unwrap();
            }
            let found = left_open(&path).unwrap().unwrap();
            assert!(found.path.starts_with(&second), "{mode}: {found:?}");
            drop(opened);
            assert_eq!(left_open(&path).unwrap(), None, "{mode}");
            drop(opened_elsewhere);
            let mut umount = std::process::Command::new("umount");
            assert!(umount.arg(&second).status().unwrap().success());
            for path in [&first, &other, &second] {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }

    /// The other process is seen by its lock alone, as if it were another user's.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_moved_database_is_found_open_by_its_side_files() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().canonicalize().unwrap().join("shop.db");
        let ledger = CommitLedger::create(&path, LedgerSpec::default());
        let mut shell = ledger.shell();
        shell.run("SELECT count(*) FROM log;");
        std::fs::rename(&path, path.with_file_name("elsewhere.db")).unwrap();
        let index = beside(&path, INDEX_SUFFIX);
        let found = by_lock(&path).unwrap().unwrap();
        assert_eq!(
            (&found.path, found.program.as_deref()),
            (&index, Some("sqlite3"))
        );
        let found = left_open(&path).unwrap().unwrap();
        assert_ne!(found.path, path);
        assert_eq!(found.program.as_deref(), Some("sqlite3"));
        shell.kill();
        // What it left is locked by nobody.
        assert!(index.exists());
        assert_eq!(left_open(&path).unwrap(), None);
    }
}
