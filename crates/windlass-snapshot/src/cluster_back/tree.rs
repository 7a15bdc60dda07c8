//! The files of a cluster that go back: which they are, which there are, and how their names become
//! those of another state.
//!
//! Settings, certificates, server logs and whatever else a user put into the data directory stay as
//! they are today. The log has its own file (`log.rs`), and so has pg_control.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_engine::media::{FileEntry, FileFlags, FileKind, FileNo, FileTable};
use windlass_postgres::{Control, is_skipped_anywhere};

use crate::cluster::CONTROL_PATH;
use crate::error::{Doing, SnapshotError};
use crate::hook::Keeper;

/// The files by their paths. A directory comes before what it holds.
pub(super) type Tree = BTreeMap<Vec<u8>, FileEntry>;

/// The directories whose content goes back.
const DIRECTORIES: [&str; 9] = [
    "base",
    "global",
    "pg_commit_ts",
    "pg_logical",
    "pg_multixact",
    "pg_replslot",
    "pg_tblspc",
    "pg_twophase",
    "pg_xact",
];
const TABLESPACES: &[u8] = b"pg_tblspc";
pub(super) const LOG: &str = "pg_wal";
pub(super) const LABEL: &str = "backup_label";

/// The name of a cluster's directory in each of its tablespaces.
pub(super) fn version_directory(data: &Path, control: &Control) -> Result<String, SnapshotError> {
    let path = data.join("PG_VERSION");
    let major = std::fs::read_to_string(&path).doing("read", &path)?;
    Ok(format!("PG_{}_{}", major.trim(), control.catalog_version))
}

/// The files of an image that go back.
pub(super) fn of_image(files: &FileTable) -> Tree {
    let files = files.0.iter().filter(|entry| is_reverted(&entry.path));
    files
        .map(|entry| (entry.path.clone(), entry.clone()))
        .collect()
}

fn is_reverted(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    let is_ours = |first: &[u8]| DIRECTORIES.iter().any(|name| name.as_bytes() == first);
    // pg_control, also aside.
    let is_control = path.starts_with(CONTROL_PATH.as_bytes());
    let first = parts.next().is_some_and(is_ours);
    first && !is_control && !parts.any(is_skipped_anywhere)
}

/// The files that are there.
pub(super) fn live(data: &Path, version: &str) -> Result<Tree, SnapshotError> {
    let mut found = Tree::new();
    let mut waiting: Vec<Vec<u8>> = DIRECTORIES.map(|name| name.as_bytes().to_vec()).into();
    while let Some(directory) = waiting.pop() {
        let at = at(data, &directory);
        let metadata = at.metadata().doing("inspect", &at)?;
        found.insert(
            directory.clone(),
            entry(&directory, &metadata, FileKind::Directory),
        );
        for child in std::fs::read_dir(&at).doing("list", &at)? {
            let child = child.doing("list", &at)?;
            let path = [&directory[..], b"/", child.file_name().as_bytes()].concat();
            if !is_reverted(&path) {
                continue;
            }
            let metadata = child.metadata().doing("inspect", &child.path())?;
            if metadata.is_dir() {
                waiting.push(path);
            } else if metadata.is_symlink() && directory == TABLESPACES {
                let target = std::fs::read_link(child.path()).doing("read", &child.path())?;
                let mut link = entry(&path, &metadata, FileKind::Symlink);
                link.link_target = target.as_os_str().as_bytes().to_vec();
                found.insert(path.clone(), link);
                let below = [&path[..], b"/", version.as_bytes()].concat();
                if self::at(data, &below).is_dir() {
                    waiting.push(below);
                }
            } else if metadata.is_file() {
                found.insert(path.clone(), entry(&path, &metadata, FileKind::File));
            }
        }
    }
    for (entry, number) in found.values_mut().zip(0..) {
        entry.file = FileNo(number);
    }
    Ok(found)
}

/// Whether the files that are there are those of a tree, with the same lengths. Replay may have
/// left an empty file; a relation that somebody made has changed pages of catalogs, too.
pub(super) fn is_alike(live: &Tree, tree: &Tree) -> bool {
    let length = |entry: &FileEntry| match entry.kind {
        FileKind::File => Some(entry.bytes),
        _ => None,
    };
    let same = |path: &[u8], entry: &FileEntry| {
        let found = tree.get(path);
        found.is_some_and(|it| it.kind == entry.kind && length(it) == length(entry))
    };
    let is_left = |path: &[u8], entry| length(entry) == Some(0) && !tree.contains_key(path);
    live.iter()
        .all(|(path, it)| same(path, it) || is_left(path, it))
        && tree.keys().all(|path| live.contains_key(path))
}

fn entry(path: &[u8], metadata: &Metadata, kind: FileKind) -> FileEntry {
    FileEntry {
        file: FileNo(0),
        kind,
        flags: FileFlags::default(),
        mode: metadata.mode() & 0o777,
        bytes: match kind {
            FileKind::File => metadata.len(),
            _ => 0,
        },
        mtime_nanos: 0,
        crc32c: 0,
        path: path.to_vec(),
        link_target: Vec::new(),
    }
}

/// Removes what is not in a tree, and makes what is missing. New files are empty.
pub(super) fn shape(
    (data, version): (&Path, &str),
    to: &Tree,
    mut keeper: Option<&mut Keeper>,
) -> Result<(), SnapshotError> {
    for (path, entry) in live(data, version)?.iter().rev() {
        // A tablespace that somebody has moved stays where it is now.
        if to.get(path).is_some_and(|wanted| wanted.kind == entry.kind) {
            continue;
        }
        let at = at(data, path);
        if let Some(keeper) = keeper.as_mut().filter(|_| entry.kind == FileKind::File) {
            keeper.pin(&at, Path::new(OsStr::from_bytes(path)))?;
        }
        let removed = match entry.kind {
            FileKind::Directory => std::fs::remove_dir_all(&at),
            FileKind::File | FileKind::Symlink => std::fs::remove_file(&at),
        };
        removed.doing("remove", &at)?;
    }
    for (path, entry) in to {
        let at = at(data, path);
        if at.symlink_metadata().is_err() {
            make(&at, entry)?;
        }
    }
    Ok(())
}

fn make(at: &Path, entry: &FileEntry) -> Result<(), SnapshotError> {
    let directory = |path: &Path, all: bool| {
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(all).create(path)
    };
    let made = match entry.kind {
        FileKind::Directory => directory(at, false),
        FileKind::Symlink => {
            let target = Path::new(OsStr::from_bytes(&entry.link_target));
            directory(target, true).and_then(|()| std::os::unix::fs::symlink(target, at))
        }
        FileKind::File => {
            let mut options = OpenOptions::new();
            let options = options.write(true).create_new(true);
            options.mode(entry.mode).open(at).map(drop)
        }
    };
    made.doing("make", at)
}

/// Writes everything to disk, on each file system that the cluster has files on.
pub(super) fn sync_all(data: &Path) -> Result<(), SnapshotError> {
    let links = data.join("pg_tblspc");
    let mut all = vec![data.to_owned(), data.join(LOG)];
    for link in std::fs::read_dir(&links).doing("list", &links)? {
        all.push(link.doing("list", &links)?.path());
    }
    let mut synced = Vec::new();
    for path in all {
        let directory = File::open(&path).doing("open", &path)?;
        let device = directory.metadata().doing("inspect", &path)?.dev();
        if !synced.contains(&device) {
            rustix::fs::syncfs(&directory).doing("sync", &path)?;
            synced.push(device);
        }
    }
    Ok(())
}

/// Where a file of the cluster is.
pub(super) fn at(data: &Path, path: &[u8]) -> PathBuf {
    data.join(OsStr::from_bytes(path))
}
