//! Reads the names of roles and databases from the files of a stopped cluster, for a login before
//! the server can be asked for them.
//!
//! Every row on a page counts, also dead ones: if a name no longer exists, the server refuses it,
//! and the caller tries the next one.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(crate) use super::catalog::DATABASE;
use super::catalog::Layout;
use super::heap::tuples;
use super::map::{FileMap, MAP_BYTES_MAX};
use crate::control::Control;

/// pg_authid.
pub(crate) const ROLES: u32 = 1260;
/// The oid of the role that initdb makes, whatever its name is.
const BOOTSTRAP_ROLE: u32 = 10;
/// At most this many pages of a catalog are read. The rows of initdb come first.
const PAGES_MAX: u64 = 4096;
const NAMES_MAX: usize = 20;

/// The names that the role of initdb has or had.
pub(crate) fn bootstrap_roles(data: &Path, control: &Control, major: u32) -> Vec<String> {
    let rows = rows(data, control, (ROLES, major)).unwrap_or_default();
    let own = rows.into_iter().filter(|(oid, _)| *oid == BOOTSTRAP_ROLE);
    distinct(own.map(|(_, name)| name))
}

/// Whether the role of initdb is there. Nobody can drop it.
pub(crate) fn has_bootstrap_role(data: &Path, control: &Control, major: u32) -> bool {
    !bootstrap_roles(data, control, major).is_empty()
}

/// The names of databases.
pub(crate) fn databases(data: &Path, control: &Control, major: u32) -> Vec<String> {
    let rows = rows(data, control, (DATABASE, major)).unwrap_or_default();
    distinct(rows.into_iter().map(|(_, name)| name))
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(&name) && found.len() < NAMES_MAX {
            found.push(name);
        }
    }
    found
}

/// Oid and name of each row of a shared catalog; `None` if it cannot be read.
fn rows(
    data: &Path,
    control: &Control,
    (catalog, major): (u32, u32),
) -> Option<Vec<(u32, String)>> {
    let directory = data.join("global");
    let mut map = Vec::new();
    let file = File::open(directory.join("pg_filenode.map")).ok()?;
    file.take(MAP_BYTES_MAX as u64).read_to_end(&mut map).ok()?;
    let number = FileMap::parse(&map).ok()?.get(catalog)?;
    let file = File::open(directory.join(number.to_string())).ok()?;
    let layout = Layout::new(major, control.name_bytes as usize);
    let mut page = vec![0; control.block_bytes as usize];
    let mut found = Vec::new();
    for number in 0..PAGES_MAX {
        let offset = number * u64::from(control.block_bytes);
        if file.read_exact_at(&mut page, offset).is_err() {
            break;
        }
        found.extend(tuples(&page).filter_map(|tuple| layout.named(tuple.columns)));
    }
    Some(found)
}
