//! Writes pages into a stopped cluster, after what is there was kept.
//!
//! Invariant: a page is overwritten only when its damaged bytes are durable elsewhere, under a name
//! that nothing had before.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_engine::durable;
use windlass_postgres::{PageAt, StoppedCluster};

use super::RepairedPage;
use super::error::RepairError;
use super::judge::SafePage;

const MODE: u32 = 0o600;
/// How many repairs of one page can be kept in one directory.
const KEPT_MAX: u32 = 1000;

/// Makes sure that damaged pages can be kept there.
pub(super) fn check_place(keep: &Path, data: &Path) -> Result<(), RepairError> {
    match DirBuilder::new().mode(0o700).create(keep) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(io("make directory", keep, error));
        }
        _ => {}
    }
    let found = keep
        .canonicalize()
        .map_err(|error| io("find", keep, error))?;
    match found.starts_with(data) {
        true => Err(RepairError::KeptInside { path: found }),
        false => Ok(()),
    }
}

/// Writes the pages, durably.
pub(super) fn put(
    cluster: &StoppedCluster,
    keep: &Path,
    pages: &[SafePage],
) -> Result<Vec<RepairedPage>, RepairError> {
    let mut repaired = Vec::new();
    for safe in pages {
        let (path, offset) = safe.page.file(cluster.control());
        let path = cluster.data().join(path);
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).open(&path);
        let file = opened.map_err(|error| io("open", &path, error))?;
        let kept = set_aside(keep, &safe.page, (&file, offset), safe.bytes.len())?;
        let written = file.write_all_at(&safe.bytes, offset);
        written.map_err(|error| io("write", &path, error))?;
        file.sync_all().map_err(|error| io("sync", &path, error))?;
        repaired.push(RepairedPage {
            page: safe.page.clone(),
            lsn: safe.lsn,
            kept,
        });
    }
    Ok(repaired)
}

/// Keeps what can be read of a damaged page.
fn set_aside(
    keep: &Path,
    page: &PageAt,
    (file, offset): (&File, u64),
    length: usize,
) -> Result<PathBuf, RepairError> {
    let mut bytes = vec![0; length];
    // A disk that cannot read the page has no bytes of it.
    let count = file.read_at(&mut bytes, offset).unwrap_or_default();
    let (mut kept, path) = new_file(keep, page)?;
    let written = kept
        .write_all(&bytes[..count])
        .and_then(|()| kept.sync_all());
    written.map_err(|error| io("write", &path, error))?;
    durable::sync_parent(&path).map_err(|error| io("sync the directory of", &path, error))?;
    Ok(path)
}

fn new_file(keep: &Path, page: &PageAt) -> Result<(File, PathBuf), RepairError> {
    let name = format!("{}.block-{}", page.relation.replace('/', "_"), page.block);
    for number in 1..KEPT_MAX {
        let path = keep.join(match number {
            1 => format!("{name}.page"),
            _ => format!("{name}.{number}.page"),
        });
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(MODE).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io("create", &path, error)),
        }
    }
    Err(io("create", keep, ErrorKind::AlreadyExists.into()))
}

fn io(doing: &'static str, path: &Path, source: std::io::Error) -> RepairError {
    RepairError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
