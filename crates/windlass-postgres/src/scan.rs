//! The scan: lists the files of a data directory that go into a backup.
//!
//!   PGDATA --walk--> listing --every directory again--> listing --> without unlogged relations
//!
//! The server goes on during the scan, so anything may vanish between two calls. That is not an
//! error, because the log from the backup's start on says what became of it. Some file systems
//! leave entries out of a list, so the scan reads each directory again (`scan/again.rs`). Then it
//! looks for files that must be there and that no list named (`scan/unlisted.rs`).
//!
//! The scan does not list pg_control: the backup reads it last, separately.
//!
//! Links: `pg_wal` becomes a plain directory. Links in `pg_tblspc` stay, and behind them the scan
//! lists only this cluster's version directory. The scan follows any other link, with a warning. A
//! link may lead to another link, as far as the server itself would follow. The scan refuses a link
//! to a directory inside or above the data directory. It also refuses a link to a directory inside
//! or above the one that holds the link, because it would list that one for ever.

mod again;
mod catalogs;
mod changed;
mod unlisted;

pub(crate) use changed::scan_changed;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use windlass_engine::durable;
use windlass_media::FileKind;

use crate::control::CONTROL_PATH;
use crate::error::{IoContext, PostgresError};
use crate::listing::{Attributes, Listing};
use crate::names::{self, Fork, RelationFile};
use crate::relations::files::CatalogForm;
use crate::warning::Warning;

/// What a scan must know about the cluster.
#[derive(Debug)]
pub(crate) struct ScanRules {
    /// The data directory.
    pub(crate) root: PathBuf,
    /// Name of this cluster's directory in a tablespace: `PG_<major>_<catalog version>`.
    pub(crate) version_directory: Vec<u8>,
    /// PostgreSQL 14's stats_temp_directory, if it lies below the root; it is backed up empty.
    pub(crate) statistics_directory: Option<Vec<u8>>,
    /// PostgreSQL 17 and newer keep `pg_wal/summaries`.
    pub(crate) summaries: bool,
    /// Directories that the server knew before the scan: databases and tablespaces.
    pub(crate) expected: Vec<Vec<u8>>,
    /// How to read the catalogs; `None` to believe the lists.
    pub(crate) catalogs: Option<CatalogForm>,
}

/// What a scan found.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) listing: Listing,
    pub(crate) warnings: Vec<Warning>,
    /// The directories that were listed.
    pub(crate) directories: HashSet<Vec<u8>>,
}

/// Lists the data directory.
pub(crate) fn scan(rules: &ScanRules) -> Result<Scanned, PostgresError> {
    let mut scanner = Scanner::new(rules)?;
    scanner.list()?;
    Ok(scanner.scanned())
}

/// Lists the data directory if it has at most so many files, directories and links. It ends as soon
/// as it finds more. Until then it cannot know all unlogged relations, so their files count, too.
pub(crate) fn scan_at_most(
    rules: &ScanRules,
    entries_max: usize,
) -> Result<Option<Scanned>, PostgresError> {
    let mut scanner = Scanner::new(rules)?;
    scanner.entries_max = entries_max;
    scanner.list()?;
    Ok((!scanner.has_too_many()).then(|| scanner.scanned()))
}

struct Scanner<'a> {
    rules: &'a ScanRules,
    /// With more entries the scan ends.
    entries_max: usize,
    listing: Listing,
    warnings: Vec<Warning>,
    /// Directories that the scan has yet to list, relative to the root.
    pending: Vec<Vec<u8>>,
    /// Directories that the scan has listed.
    listed: Vec<again::Listed>,
    /// How many of them the scan has read again.
    read_again: usize,
    /// Paths that only a later read of their directory found.
    later: HashSet<Vec<u8>>,
    /// The unlogged relations of each directory: those with an `_init` fork.
    unlogged: HashMap<Vec<u8>, HashSet<u32>>,
    /// The root with all links resolved, to recognise links that lead back into it.
    real_root: PathBuf,
    /// Directories that the scan reached by links: the link's path with a slash, and the directory.
    followed: Vec<(Vec<u8>, PathBuf)>,
    /// Tablespaces inside the root. They are listed through `pg_tblspc`, so not a second time.
    inner_tablespaces: HashSet<Vec<u8>>,
}

impl<'a> Scanner<'a> {
    fn new(rules: &'a ScanRules) -> Result<Self, PostgresError> {
        let real_root = rules.root.canonicalize().doing("resolve", &rules.root)?;
        Ok(Self {
            rules,
            entries_max: usize::MAX,
            listing: Listing::default(),
            warnings: Vec::new(),
            pending: Vec::new(),
            listed: Vec::new(),
            read_again: 0,
            later: HashSet::new(),
            unlogged: HashMap::new(),
            followed: Vec::new(),
            inner_tablespaces: inner_tablespaces(&rules.root, &real_root)?,
            real_root,
        })
    }

    fn list(&mut self) -> Result<(), PostgresError> {
        self.walk()?;
        if self.has_too_many() {
            return Ok(());
        }
        self.read_again()?;
        self.look_for_unlisted()
    }

    /// What it found, without the files of unlogged relations.
    fn scanned(mut self) -> Scanned {
        self.remove_unlogged();
        let directories = self.listed.iter().map(|it| it.path().to_vec());
        Scanned {
            directories: directories.collect(),
            listing: self.listing,
            warnings: self.warnings,
        }
    }

    fn has_too_many(&self) -> bool {
        self.listing.len() > self.entries_max
    }

    fn walk(&mut self) -> Result<(), PostgresError> {
        self.list_directory(&[])?;
        self.walk_pending()
    }

    fn walk_pending(&mut self) -> Result<(), PostgresError> {
        while let Some(directory) = self.pending.pop() {
            if self.has_too_many() {
                break;
            }
            self.list_directory(&directory)?;
        }
        Ok(())
    }

    fn list_directory(&mut self, directory: &[u8]) -> Result<(), PostgresError> {
        let path = self.path_of(directory);
        let Some(entries) = durable::if_there(std::fs::read_dir(&path)).doing("list", &path)?
        else {
            return Ok(());
        };
        let first = self.listing.len();
        for entry in entries {
            if self.has_too_many() {
                break;
            }
            let entry = entry.doing("list", &path)?;
            let name = entry.file_name();
            self.list_entry(directory, name.as_bytes(), || entry.metadata())?;
        }
        self.listing.sort_from(first);
        let entries = first..self.listing.len();
        self.listed.push(again::Listed::new(directory, entries));
        Ok(())
    }

    fn list_entry(
        &mut self,
        directory: &[u8],
        name: &[u8],
        metadata: impl FnOnce() -> io::Result<Metadata>,
    ) -> Result<(), PostgresError> {
        let relation = names::is_relation_directory(directory);
        let relation = relation.then(|| RelationFile::parse(name)).flatten();
        if let Some(relation) = relation.filter(|relation| relation.fork == Fork::Init) {
            let unlogged = self.unlogged.entry(directory.to_vec()).or_default();
            unlogged.insert(relation.number);
        }
        if is_skipped(directory, name) || relation.is_some_and(|relation| relation.temporary) {
            return Ok(());
        }
        let path = joined(directory, name);
        if path == CONTROL_PATH.as_bytes() {
            return Ok(());
        }
        let examined = durable::if_there(metadata());
        let Some(metadata) = examined.doing("examine", self.path_of(&path))? else {
            return Ok(());
        };
        let kind = metadata.file_type();
        if kind.is_file() {
            let attributes = Attributes::of(&metadata, FileKind::File);
            return self
                .listing
                .add(&path, b"", attributes, relation.map(|file| file.segment));
        }
        if kind.is_dir() {
            return self.list_subdirectory(path, &metadata);
        }
        if kind.is_symlink() {
            return self.list_link(path, directory == b"pg_tblspc");
        }
        self.note_special(&path, kind);
        Ok(())
    }

    /// Lists a directory. Also lists what it holds, if that belongs in a backup.
    fn list_subdirectory(
        &mut self,
        path: Vec<u8>,
        metadata: &Metadata,
    ) -> Result<(), PostgresError> {
        if self.inner_tablespaces.contains(&path) {
            return Ok(());
        }
        let attributes = Attributes::of(metadata, FileKind::Directory);
        self.listing.add(&path, b"", attributes, None)?;
        if path == b"pg_wal" {
            return self.list_wal_subdirectories(attributes);
        }
        if !self.is_emptied(&path) {
            self.pending.push(path);
        }
        Ok(())
    }

    /// The backup adds the log itself when its end is known, but these directories must exist.
    fn list_wal_subdirectories(&mut self, attributes: Attributes) -> Result<(), PostgresError> {
        self.listing
            .add(b"pg_wal/archive_status", b"", attributes, None)?;
        if self.rules.summaries {
            self.listing
                .add(b"pg_wal/summaries", b"", attributes, None)?;
        }
        Ok(())
    }

    fn is_emptied(&self, path: &[u8]) -> bool {
        names::is_emptied_directory(path)
            || self.rules.statistics_directory.as_deref() == Some(path)
    }

    fn list_link(&mut self, path: Vec<u8>, in_tablespaces: bool) -> Result<(), PostgresError> {
        let link = self.path_of(&path);
        let Some(target) =
            durable::if_there(std::fs::read_link(&link)).doing("read link", &link)?
        else {
            return Ok(());
        };
        // A relative target starts at the directory that holds the link.
        let target = link.parent().unwrap_or(&self.rules.root).join(target);
        let reached = match std::fs::metadata(&target) {
            // Links in a circle lead nowhere either.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => None,
            reached => durable::if_there(reached).doing("examine", &target)?,
        };
        let Some(metadata) = reached else {
            self.warn(Warning::LinkDangling { path: lossy(&path) });
            return Ok(());
        };
        if in_tablespaces {
            return self.list_tablespace(path, &target, &metadata);
        }
        if path == b"pg_wal" || self.is_emptied(&path) {
            return self.list_subdirectory(path, &metadata);
        }
        self.follow_link(path, &link, &target, &metadata)
    }

    fn follow_link(
        &mut self,
        path: Vec<u8>,
        link: &Path,
        target: &Path,
        metadata: &Metadata,
    ) -> Result<(), PostgresError> {
        let shown = (lossy(&path), target.display().to_string());
        if metadata.is_file() {
            self.listing
                .add(&path, b"", Attributes::of(metadata, FileKind::File), None)?;
        } else if metadata.is_dir() {
            let real = target.canonicalize().doing("resolve", target)?;
            self.check_directory_link(&path, link, &real)?;
            self.followed.push((joined(&path, b""), real));
            self.list_subdirectory(path, metadata)?;
        } else {
            self.note_special(&path, metadata.file_type());
            return Ok(());
        }
        self.warn(Warning::LinkFollowed {
            path: shown.0,
            target: shown.1,
        });
        Ok(())
    }

    /// Refuses a link to a directory that overlaps the data directory, or the directory that holds
    /// the link.
    fn check_directory_link(
        &self,
        path: &[u8],
        link: &Path,
        real: &Path,
    ) -> Result<(), PostgresError> {
        let refuse = |what| {
            Err(PostgresError::Link {
                path: link.into(),
                what,
            })
        };
        let overlaps = |other: &PathBuf| real.starts_with(other) || other.starts_with(real);
        if overlaps(&self.real_root) {
            return refuse("it points into, or above, the data directory");
        }
        let mut holding = self.followed.iter();
        if holding.any(|(prefix, followed)| path.starts_with(prefix) && overlaps(followed)) {
            return refuse("it points into, or above, the directory that it stands in");
        }
        Ok(())
    }

    /// Lists a tablespace: the link, and behind it only the directory of this version. Clusters of
    /// several versions may share the place (pg_upgrade).
    fn list_tablespace(
        &mut self,
        path: Vec<u8>,
        target: &Path,
        metadata: &Metadata,
    ) -> Result<(), PostgresError> {
        if !metadata.is_dir() {
            let what = "a tablespace must be a directory";
            return Err(PostgresError::Link {
                path: self.path_of(&path),
                what,
            });
        }
        let attributes = Attributes::of(metadata, FileKind::Symlink);
        self.listing
            .add(&path, target.as_os_str().as_bytes(), attributes, None)?;
        let version = joined(&path, &self.rules.version_directory);
        let version_path = self.path_of(&version);
        match durable::if_there(std::fs::metadata(&version_path)).doing("examine", &version_path)? {
            Some(metadata) if metadata.is_dir() => self.list_subdirectory(version, &metadata),
            _ => Ok(()),
        }
    }

    /// Sockets need no warning: a server in this directory makes its own.
    fn note_special(&mut self, path: &[u8], kind: FileType) {
        if !kind.is_socket() {
            self.warn(Warning::SpecialFile { path: lossy(path) });
        }
    }

    /// A later read of a directory comes to the same entries again.
    fn warn(&mut self, warning: Warning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The backup leaves out an unlogged relation's files, except its `_init` fork.
    fn remove_unlogged(&mut self) {
        let unlogged = std::mem::take(&mut self.unlogged);
        self.listing.retain(|path| {
            let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            let numbers = unlogged.get(&path[..slash]);
            let name = path.get(slash + 1..).unwrap_or_default();
            match (numbers, RelationFile::parse(name)) {
                (Some(numbers), Some(relation)) => {
                    relation.fork == Fork::Init || !numbers.contains(&relation.number)
                }
                _ => true,
            }
        });
    }

    fn path_of(&self, relative: &[u8]) -> PathBuf {
        self.rules.root.join(OsStr::from_bytes(relative))
    }
}

fn is_skipped(directory: &[u8], name: &[u8]) -> bool {
    let in_root = directory.is_empty();
    names::is_skipped_anywhere(name)
        || (in_root && (names::is_skipped_root_file(name) || name == b"lost+found"))
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    [directory, b"/", name].concat()
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Tablespace directories that lie below the root, as paths relative to it.
fn inner_tablespaces(root: &Path, real_root: &Path) -> Result<HashSet<Vec<u8>>, PostgresError> {
    let directory = root.join("pg_tblspc");
    let mut found = HashSet::new();
    // A list may leave entries out, so the directory is read twice.
    let list = || std::fs::read_dir(&directory).doing("list", &directory);
    for entry in list()?.chain(list()?) {
        let path = entry.doing("list", &directory)?.path();
        let is_link = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        if !is_link {
            continue;
        }
        let real = match path.canonicalize() {
            // The scan itself tells of a link that leads nowhere.
            Err(error) if leads_nowhere(&error) => continue,
            real => real.doing("follow", &path)?,
        };
        if let Ok(inner) = real.strip_prefix(real_root) {
            found.insert(inner.as_os_str().as_bytes().to_vec());
        }
    }
    Ok(found)
}

fn leads_nowhere(error: &std::io::Error) -> bool {
    durable::is_absent(error) || error.raw_os_error() == Some(nix::libc::ELOOP)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests;
