//! Prepares the data directory before a server starts on it: removes what would lead out of it.
//!
//! Invariants
//! - No link of the directory leads out of it. A server follows a tablespace's link wherever it
//!   leads. If it leads to the source's own files, the server would write to them. If it leads to
//!   nothing, the server would show empty tables.
//! - During replay the server cannot make a tablespace link. If a tablespace was made during the
//!   backup, the log names the source's directory, which may be on this machine and in use.
//! - The server may make directories in pg_tblspc only if its log creates tablespaces there, and
//!   none elsewhere.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use windlass_engine::durable;
use windlass_media::{FileEntry, FileFlags, FileKind, FileNo, FileTable};

use super::settings;
use crate::backup::BackupLabel;
use crate::configuration::{Configuration, Place};
use crate::control::Control;
use crate::error::{IoContext, PostgresError};
use crate::tablespace::{TABLESPACE_LINKS, TABLESPACE_MAP_PATH, check_links as check_set_links};
use crate::wal::outside::{ReplayedTablespace, replayed_in};

/// Where a view puts the tablespaces, each in a directory named by its number.
const TABLESPACES: &str = "windlass_tablespaces";
/// Settings of ALTER SYSTEM. A server reads them wherever its configuration file is.
const AUTO_CONF: &str = "postgresql.auto.conf";
const CONF: &str = "postgresql.conf";
const TABLESPACE_DIRECTORY: &str = "pg_tblspc";
/// The file that says where recovery begins.
const BACKUP_LABEL_PATH: &str = "backup_label";
/// The map from which recovery would make links, and the files that would make the server a standby
/// or let it fetch a log.
const REMOVED: [&str; 4] = [
    TABLESPACE_MAP_PATH,
    "recovery.signal",
    "standby.signal",
    AUTO_CONF,
];

/// The file table of a set as a server must see it: tablespaces are directories inside it, and the
/// links in pg_tblspc lead there.
///
/// They stay links, because servers refuse directories in pg_tblspc (15 and newer, unless
/// allow_in_place_tablespaces is set) or cannot say where they are (14). Windlass refuses a set
/// with any other link.
pub fn server_view(files: &FileTable) -> Result<FileTable, PostgresError> {
    check_set_links(files)?;
    let links = files.0.iter();
    let spaces: Vec<_> = links
        .filter(|entry| entry.kind == FileKind::Symlink)
        .collect();
    let Some(first) = spaces.first() else {
        return Ok(files.clone());
    };
    let mut next = files.0.iter().map(|entry| entry.file.0).max().unwrap_or(0);
    let mut directory = |like: &FileEntry, path: String| {
        next += 1;
        FileEntry {
            file: FileNo(next),
            kind: FileKind::Directory,
            flags: FileFlags::default(),
            mode: 0o700,
            path: path.into_bytes(),
            link_target: Vec::new(),
            ..like.clone()
        }
    };
    let mut entries = vec![directory(first, TABLESPACES.to_owned())];
    for space in &spaces {
        let name = String::from_utf8_lossy(&space.path[TABLESPACE_LINKS.len()..]);
        entries.push(directory(space, format!("{TABLESPACES}/{name}")));
    }
    let links: Vec<&[u8]> = spaces.iter().map(|space| space.path.as_slice()).collect();
    entries.extend(files.0.iter().map(|entry| moved(entry, &links)));
    Ok(FileTable(entries))
}

/// Moves an entry to where a server must find it: if it lies behind one of the links, it goes
/// inside.
fn moved(entry: &FileEntry, links: &[&[u8]]) -> FileEntry {
    let mut entry = entry.clone();
    let below = |link: &&&[u8]| {
        let rest = entry.path.strip_prefix(**link);
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    if links.iter().find(below).is_none() {
        return entry;
    }
    let name = &entry.path[TABLESPACE_LINKS.len()..];
    let inside = [TABLESPACES.as_bytes(), b"/", name].concat();
    if entry.kind == FileKind::Symlink {
        entry.link_target = [b"../".as_slice(), &inside].concat();
    } else {
        entry.path = inside;
    }
    entry
}

/// The way back: the file table of a directory that a server had open, as a set would have it.
/// `was` is the table of the set from which the directory came.
pub fn source_view(now: &FileTable, was: &FileTable) -> FileTable {
    let links = |table: &FileTable| -> BTreeMap<Vec<u8>, Vec<u8>> {
        let links = table.0.iter();
        let links = links.filter(|entry| entry.kind == FileKind::Symlink);
        links
            .map(|entry| (entry.path.clone(), entry.link_target.clone()))
            .collect()
    };
    let (kept, targets) = (links(now), links(was));
    let mut entries: Vec<_> = now
        .0
        .iter()
        .filter_map(|entry| {
            let mut entry = entry.clone();
            if let Some(target) = targets.get(&entry.path) {
                entry.link_target.clone_from(target);
            }
            let Some(rest) = entry.path.strip_prefix(TABLESPACES.as_bytes()) else {
                return Some(entry);
            };
            let rest = rest.strip_prefix(b"/")?;
            let name = &rest[..rest.iter().position(|byte| *byte == b'/')?];
            let link = [TABLESPACE_LINKS.as_bytes(), name].concat();
            // A tablespace that was dropped meanwhile has no link any more.
            if !kept.contains_key(&link) {
                return None;
            }
            entry.path = [TABLESPACE_LINKS.as_bytes(), rest].concat();
            Some(entry)
        })
        .collect();
    // What lies below a link comes after the link.
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    FileTable(entries)
}

/// What the directory's files said, and what was changed in it.
pub(super) struct Prepared {
    /// Settings of the source that still apply.
    pub(super) carried: Vec<(String, String)>,
    /// True if a tablespace is a directory in pg_tblspc itself.
    pub(super) in_place_tablespaces: bool,
    links: PathBuf,
}

/// Prepares a data directory for its server. `was` is where the source had it.
pub(super) fn prepare(
    data: &Path,
    was: &Path,
    replayed: Replayed,
) -> Result<Prepared, PostgresError> {
    let mut source = Configuration::default();
    let place = Place {
        root: data,
        was,
        everywhere: false,
    };
    for name in [CONF, AUTO_CONF] {
        source.read(&data.join(name), place)?;
    }
    let carried = settings::carried(&source);
    for name in REMOVED {
        let path = data.join(name);
        durable::if_there(std::fs::remove_file(&path)).doing("remove", &path)?;
    }
    let links = data.join(TABLESPACE_DIRECTORY);
    let in_place_tablespaces = check_links(data, &links)?;
    set_mode(&links, if replayed.in_place { 0o700 } else { 0o500 })?;
    Ok(Prepared {
        carried,
        in_place_tablespaces: in_place_tablespaces || replayed.in_place,
        links,
    })
}

/// The tablespaces that the log of a directory creates.
#[derive(Clone, Copy, Default)]
pub(super) struct Replayed {
    /// True if it creates some in pg_tblspc itself.
    in_place: bool,
}

/// Refuses a directory whose log creates a tablespace elsewhere. Before replay comes to the link,
/// it changes the mode of the path that the log names, and makes a directory there.
pub(super) fn check_log(data: &Path, control: &Control) -> Result<Replayed, PostgresError> {
    let path = data.join(BACKUP_LABEL_PATH);
    let start = match durable::if_there(std::fs::read(&path)).doing("read", &path)? {
        Some(label) => BackupLabel::parse(&label)?.start,
        None if control.is_shut_down() => return Ok(Replayed::default()),
        None => control.redo,
    };
    let replayed = replayed_in(data, u64::from(control.wal_segment_bytes), start)?;
    let in_place = replayed.iter().any(ReplayedTablespace::is_in_place);
    match replayed.into_iter().find(|space| !space.is_in_place()) {
        Some(space) => Err(space.refused_inside()),
        None => Ok(Replayed { in_place }),
    }
}

impl Prepared {
    /// Allows tablespaces again, once the server has replayed the log.
    pub(super) fn finish(&self) -> Result<(), PostgresError> {
        set_mode(&self.links, 0o700)
    }
}

/// Refuses links that lead out of the directory. Returns true if a tablespace has no link.
fn check_links(data: &Path, links: &Path) -> Result<bool, PostgresError> {
    let root = data.canonicalize().doing("resolve", data)?;
    let mut in_place = false;
    for entry in std::fs::read_dir(links).doing("list", links)? {
        let entry = entry.doing("list", links)?;
        let path = entry.path();
        let kind = entry.file_type().doing("examine", &path)?;
        in_place |= kind.is_dir();
        let inside = |target: PathBuf| target.starts_with(&root) && target.is_dir();
        if kind.is_symlink() && !path.canonicalize().is_ok_and(inside) {
            return Err(PostgresError::Link {
                path,
                what: "leads out of the directory to be opened, or to nothing",
            });
        }
    }
    Ok(in_place)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), PostgresError> {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).doing("set the mode of", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(file: u32, kind: FileKind, path: &str, target: &str) -> FileEntry {
        FileEntry {
            file: FileNo(file),
            kind,
            flags: FileFlags::default(),
            mode: 0o600,
            bytes: 0,
            mtime_nanos: 1,
            crc32c: 0,
            path: path.into(),
            link_target: target.into(),
        }
    }

    #[test]
    fn what_lies_behind_a_link_is_inside_and_the_link_leads_there() {
        let files = FileTable(vec![
            entry(0, FileKind::Directory, "pg_tblspc", ""),
            entry(1, FileKind::Symlink, "pg_tblspc/16", "/srv/space"),
            entry(2, FileKind::Directory, "pg_tblspc/16/PG_15_1", ""),
            entry(3, FileKind::File, "pg_tblspc/16/PG_15_1/7", ""),
            entry(4, FileKind::Directory, "pg_tblspc/165", ""),
            entry(5, FileKind::File, "pg_tblspc/165/PG_15_1", ""),
            entry(6, FileKind::File, "PG_VERSION", ""),
        ]);
        let view = server_view(&files).unwrap();
        let shown = |entry: &FileEntry| {
            let target = String::from_utf8_lossy(&entry.link_target).into_owned();
            format!("{} {} {target}", entry.file.0, entry.path_lossy())
        };
        let shown: Vec<_> = view.0.iter().map(shown).collect();
        let expected = [
            "7 windlass_tablespaces ",
            "8 windlass_tablespaces/16 ",
            "0 pg_tblspc ",
            "1 pg_tblspc/16 ../windlass_tablespaces/16",
            "2 windlass_tablespaces/16/PG_15_1 ",
            "3 windlass_tablespaces/16/PG_15_1/7 ",
            "4 pg_tblspc/165 ",
            "5 pg_tblspc/165/PG_15_1 ",
            "6 PG_VERSION ",
        ];
        assert_eq!(shown, expected);
        // The way back has the same files, each behind its parent.
        let back = source_view(&view, &files);
        let paths = |table: &FileTable| -> Vec<_> {
            let entries = table.0.iter();
            entries
                .map(|entry| (entry.path.clone(), entry.file, entry.link_target.clone()))
                .collect()
        };
        let mut expected = paths(&files);
        expected.sort();
        assert_eq!(paths(&back), expected);
    }

    #[test]
    fn a_link_that_is_no_tablespaces_is_refused() {
        let files = FileTable(vec![entry(0, FileKind::Symlink, "pg_tblspc", "/etc")]);
        let error = server_view(&files).unwrap_err().to_string();
        assert!(error.contains("pg_tblspc"), "{error}");
    }
}
