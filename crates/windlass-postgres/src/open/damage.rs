//! Looks for damage in the files that a server reads before it can answer anybody: the version, the
//! maps of file numbers, and the catalogs of roles and databases.
//!
//!   PG_VERSION, pg_control, pg_filenode.map --> before the start: the server's words name them
//!                                               badly or not at all
//!   shared catalogs, each page -------------> after a login that failed
//!
//! A login that fails says little. If the catalog of databases has lost its rows, the server says
//! that the database does not exist, as it does for a wrong name.
//!
//! Invariants
//! - What is found is in the files. A wrong name for a role is never called damage.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::checksum::is_whole;
use crate::control::{CONTROL_PATH, Checksums, Control};
use crate::error::{IoContext, PostgresError};
use crate::relations::heap::{u16_at, u32_at};
use crate::relations::map::{FileMap, MAP_BYTES_MAX};
use crate::relations::shared::{DATABASE, ROLES, databases, has_bootstrap_role};

const MAP_PATH: &str = "global/pg_filenode.map";
const VERSION_PATH: &str = "PG_VERSION";
/// What became of transactions. Each of these has one segment at least.
const STATUS_DIRECTORIES: [&str; 3] = ["pg_xact", "pg_multixact/offsets", "pg_multixact/members"];
/// At most this many faults are spelled out.
const FAULTS_NAMED: usize = 5;
/// At most this many pages of a catalog are read.
const PAGES_MAX: u32 = 1 << 17;
/// What the first page of a B-tree begins with, and where.
const BTREE_META: (usize, u32) = (24, 0x0005_3162);
/// The flags that a page may have.
const PAGE_FLAGS: u16 = 7;

/// What a file of the shared catalogs must hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Table,
    Index,
}
use Content::{Index, Table};

/// The shared catalogs that a login reads, and their indexes.
const READ_BY_LOGINS: [(u32, &str, Content); 16] = [
    (1213, "pg_tablespace", Table),
    (2697, "pg_tablespace_oid_index", Index),
    (2698, "pg_tablespace_spcname_index", Index),
    (ROLES, "pg_authid", Table),
    (2676, "pg_authid_rolname_index", Index),
    (2677, "pg_authid_oid_index", Index),
    (1261, "pg_auth_members", Table),
    (2694, "pg_auth_members_role_member_index", Index),
    (2695, "pg_auth_members_member_role_index", Index),
    (DATABASE, "pg_database", Table),
    (2671, "pg_database_datname_index", Index),
    (2672, "pg_database_oid_index", Index),
    (2964, "pg_db_role_setting", Table),
    (2965, "pg_db_role_setting_databaseid_rol_index", Index),
    (3592, "pg_shseclabel", Table),
    (3593, "pg_shseclabel_object_index", Index),
];

/// Refuses a directory whose first files no server can use. Returns its pg_control.
pub(super) fn check_first_files(data: &Path, major: u32) -> Result<Control, PostgresError> {
    let control = match Control::read(data) {
        Err(PostgresError::Control { what, .. }) if Control::is_damage(what) => {
            return Err(damaged(format!("{CONTROL_PATH} {what}")));
        }
        Err(PostgresError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Err(damaged(format!("{CONTROL_PATH} is missing")));
        }
        other => other?,
    };
    let version = read(data, VERSION_PATH, 64)?;
    let version = String::from_utf8_lossy(&version);
    if version.trim().parse() != Ok(major) {
        return Err(damaged(format!("{VERSION_PATH} does not say {major}")));
    }
    map(data)?;
    for directory in STATUS_DIRECTORIES {
        if !has_segment(&data.join(directory))? {
            return Err(damaged(format!("{directory} has lost its segments")));
        }
    }
    Ok(control)
}

/// Whether a directory has a segment that is not empty. A server that replays its log takes a
/// missing segment for zeros: then transactions that had been committed never were.
fn has_segment(directory: &Path) -> Result<bool, PostgresError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.doing("list", directory)?,
    };
    for entry in entries {
        let entry = entry.doing("list", directory)?;
        let metadata = entry.metadata().doing("examine", entry.path())?;
        if metadata.is_file() && metadata.len() > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The damage of the shared catalogs that explains why nobody can log in, if there is any. The
/// server must have recovered, so that its catalogs are in its files.
pub(super) fn of_logins(
    data: &Path,
    control: &Control,
    major: u32,
) -> Result<Option<PostgresError>, PostgresError> {
    let map = map(data)?;
    let mut faults = Vec::new();
    for (oid, name, content) in READ_BY_LOGINS {
        let Some(number) = map.get(oid) else { continue };
        let found = pages(&data.join(format!("global/{number}")), control, content);
        faults.extend(found.map(|what| format!("global/{number} ({name}) {what}")));
    }
    let file = |oid| map.get(oid).map_or("?".to_owned(), |at| at.to_string());
    if faults.is_empty() && !has_bootstrap_role(data, control, major) {
        let path = file(ROLES);
        let what = "has lost the role that initdb made";
        faults.push(format!("global/{path} (pg_authid) {what}"));
    }
    if faults.is_empty() && databases(data, control, major).is_empty() {
        let path = file(DATABASE);
        faults.push(format!("global/{path} (pg_database) names no database"));
    }
    let more = faults.len().saturating_sub(FAULTS_NAMED);
    faults.truncate(FAULTS_NAMED);
    if more > 0 {
        faults.push(format!("and {more} more"));
    }
    Ok((!faults.is_empty()).then(|| damaged(faults.join("; "))))
}

fn damaged(what: String) -> PostgresError {
    PostgresError::ClusterDamaged { what }
}

/// The map of the shared catalogs' files.
fn map(data: &Path) -> Result<FileMap, PostgresError> {
    let bytes = read(data, MAP_PATH, MAP_BYTES_MAX as u64 + 1)?;
    FileMap::parse(&bytes).map_err(|what| damaged(format!("{MAP_PATH} {what}")))
}

/// A file of the cluster, up to a limit.
fn read(data: &Path, path: &str, limit: u64) -> Result<Vec<u8>, PostgresError> {
    let file = match File::open(data.join(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(damaged(format!("{path} is missing")));
        }
        other => other.doing("open", data.join(path))?,
    };
    let mut bytes = Vec::new();
    let done = file.take(limit).read_to_end(&mut bytes);
    done.doing("read", data.join(path))?;
    Ok(bytes)
}

/// The first fault of a catalog's file.
fn pages(path: &Path, control: &Control, content: Content) -> Option<String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Some("is missing".into()),
        // The login has failed for the same reason, and says so.
        Err(_) => return None,
    };
    let mut page = vec![0; control.block_bytes as usize];
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let whole = u64::from(control.block_bytes);
    let count = u32::try_from(bytes / whole).unwrap_or(PAGES_MAX);
    if content == Index && count == 0 {
        return Some("is empty".into());
    }
    if !bytes.is_multiple_of(whole) {
        return Some("ends within a page".into());
    }
    (0..count.min(PAGES_MAX)).find_map(|block| {
        let at = u64::from(block) * whole;
        file.read_exact_at(&mut page, at).ok()?;
        let what = fault(&page, block, control, content)?;
        Some(format!("block {block}: {what}"))
    })
}

fn fault(page: &[u8], block: u32, control: &Control, content: Content) -> Option<&'static str> {
    let (meta_at, meta) = BTREE_META;
    let lacks_meta = || u32_at(page, meta_at) != Some(meta);
    if page.iter().all(|byte| *byte == 0) {
        // A table may have such a page: the server leaves one if it crashes while it adds one.
        return (content == Index && block == 0).then_some("is empty");
    }
    if control.checksums() == Checksums::On && !is_whole(page, block) {
        return Some("checksum mismatch");
    }
    let field = |at| u16_at(page, at).unwrap_or(u16::MAX);
    let [flags, lower, upper, special] = [field(10), field(12), field(14), field(16)];
    let in_order = lower <= upper && upper <= special && usize::from(special) <= page.len();
    if flags > PAGE_FLAGS || !in_order {
        return Some("it is no page");
    }
    (content == Index && block == 0 && lacks_meta()).then_some("it is no page of an index")
}
