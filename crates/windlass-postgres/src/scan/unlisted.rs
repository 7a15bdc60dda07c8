//! Looks for files that must be there and that no list named, although every directory was read
//! twice: a file system may leave them out each time.
//!
//!   what the server knows, the catalogs, the neighbours of listed segments
//!     --> not listed? --> look the name up --> there? --> read the list again
//!                                                           |--> names it: it is new, list it
//!                                                           +--> does not: error
//!
//! A name that is looked up takes another way through a file system than a list. So both together
//! show what either hides. If a file is not there, the server removed it, and the log says so.
//!
//! On a standby the catalogs on disk may be older than the start of the backup. There, only the
//! lists show relations that are newer.

use std::collections::{BTreeMap, HashMap};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use windlass_engine::durable;

use super::{Scanner, catalogs, joined};
use crate::error::{IoContext, PostgresError};
use crate::names::{Fork, RelationFile};
use crate::relations::files::CatalogForm;

/// What every cluster has, directories before what they hold.
const EVERY_CLUSTER: [&str; 15] = [
    "PG_VERSION",
    "base",
    "global",
    "global/pg_filenode.map",
    "pg_commit_ts",
    "pg_hba.conf",
    "pg_ident.conf",
    "pg_multixact",
    "pg_multixact/members",
    "pg_multixact/offsets",
    "pg_tblspc",
    "pg_twophase",
    "pg_xact",
    "postgresql.auto.conf",
    "postgresql.conf",
];
/// Directories of numbered files without a gap.
const NUMBERED: [&[u8]; 4] = [
    b"pg_xact",
    b"pg_multixact/members",
    b"pg_multixact/offsets",
    b"pg_commit_ts",
];
/// What every directory of a database has, if its catalogs are there.
const EVERY_DATABASE: [&str; 2] = ["PG_VERSION", "pg_filenode.map"];

/// Files that are there, by their directory and name.
type Found = BTreeMap<Vec<u8>, HashMap<Vec<u8>, Metadata>>;

impl Scanner<'_> {
    /// Fails if a file is there that no list names. Lists files that a list names by now.
    pub(super) fn look_for_unlisted(&mut self) -> Result<(), PostgresError> {
        let Some(form) = self.rules.catalogs else {
            return Ok(());
        };
        let every = EVERY_CLUSTER.map(|path| path.as_bytes().to_vec());
        self.look_for(every.to_vec())?;
        self.look_for(self.rules.expected.clone())?;
        self.look_for(self.named_by_catalogs(&form)?)?;
        // A segment that is found may have a neighbour that no list names either.
        loop {
            let before = self.listing.len();
            self.look_for(self.neighbours(&form))?;
            if self.listing.len() == before {
                return Ok(());
            }
        }
    }

    fn look_for(&mut self, paths: Vec<Vec<u8>>) -> Result<(), PostgresError> {
        let listed = self.listing.by_path();
        let mut found = Found::new();
        for path in paths {
            if self.listing.find(&listed, &path).is_some() {
                continue;
            }
            let full = self.path_of(&path);
            let looked_up = durable::if_there(std::fs::symlink_metadata(&full));
            if let Some(metadata) = looked_up.doing("examine", &full)? {
                let (directory, name) = split(&path);
                let names = found.entry(directory.to_vec()).or_default();
                names.insert(name.to_vec(), metadata);
            }
        }
        for (directory, names) in found {
            self.read_for(&directory, names)?;
        }
        self.walk_pending()?;
        self.read_again()
    }

    /// Reads a directory again for files that are there.
    fn read_for(
        &mut self,
        directory: &[u8],
        mut names: HashMap<Vec<u8>, Metadata>,
    ) -> Result<(), PostgresError> {
        let place = self.path_of(directory);
        let entries = durable::if_there(std::fs::read_dir(&place)).doing("list", &place)?;
        for entry in entries.into_iter().flatten() {
            let entry = entry.doing("list", &place)?;
            let name = entry.file_name();
            if names.remove(name.as_bytes()).is_some() {
                self.list_entry(directory, name.as_bytes(), || entry.metadata())?;
                self.later.insert(joined(directory, name.as_bytes()));
            }
        }
        for (name, before) in names {
            let path = self.path_of(&joined(directory, &name));
            let now =
                durable::if_there(std::fs::symlink_metadata(&path)).doing("examine", &path)?;
            if now.is_some_and(|now| now.ino() == before.ino()) {
                return Err(PostgresError::Unlisted { path });
            }
        }
        Ok(())
    }

    /// The files that the catalogs of the listed databases name and that are not listed.
    fn named_by_catalogs(&self, form: &CatalogForm) -> Result<Vec<Vec<u8>>, PostgresError> {
        let listed = self.listing.by_path();
        let mut missing = Vec::new();
        let mut name = |path: String| {
            if self.listing.find(&listed, path.as_bytes()).is_none() {
                missing.push(path.into_bytes());
            }
        };
        let version = String::from_utf8_lossy(&self.rules.version_directory);
        for directory in self.listed.iter().map(super::again::Listed::path) {
            let text = String::from_utf8_lossy(directory);
            if !crate::names::is_relation_directory(directory) {
                continue;
            }
            for every in EVERY_DATABASE.iter().filter(|_| text != "global") {
                name(format!("{text}/{every}"));
            }
            let read = catalogs::name_files(&self.rules.root, &text, &version, form, &mut name);
            read.doing("read the catalogs of", self.path_of(directory))?;
        }
        Ok(missing)
    }

    /// The segments next to those that are listed, where one must follow another.
    fn neighbours(&self, form: &CatalogForm) -> Vec<Vec<u8>> {
        let full = u64::from(form.segment_pages) * u64::from(form.page_bytes);
        let mut found = Vec::new();
        for entry in self.listing.entries() {
            let path = self.listing.path(entry);
            let (directory, name) = split(path);
            if entry.segment.is_some() {
                found.extend(
                    RelationFile::parse(name)
                        .into_iter()
                        .flat_map(|file| next_to(file, entry.bytes >= full))
                        .map(|name| joined(directory, name.as_bytes())),
                );
            } else if NUMBERED.contains(&directory) {
                let names = numbers_next_to(name).into_iter().flatten();
                found.extend(names.map(|name| joined(directory, name.as_bytes())));
            }
        }
        found
    }
}

/// The segment before this one and, if this one is full, the one behind it.
fn next_to(file: RelationFile, full: bool) -> impl Iterator<Item = String> {
    let before = file.segment.checked_sub(1);
    let behind = file.segment.checked_add(1).filter(|_| full);
    let fork = match file.fork {
        Fork::Main => "",
        Fork::FreeSpace => "_fsm",
        Fork::Visibility => "_vm",
        Fork::Init => "_init",
    };
    let name = move |segment| match segment {
        0 => format!("{}{fork}", file.number),
        _ => format!("{}{fork}.{segment}", file.number),
    };
    before.into_iter().chain(behind).map(name)
}

/// The names with the numbers before and behind this one, in as many digits.
fn numbers_next_to(name: &[u8]) -> Option<[String; 2]> {
    let text = std::str::from_utf8(name).ok()?;
    let number = u64::from_str_radix(text, 16).ok()?;
    let digits = text.len();
    let other = |number: u64| format!("{number:0digits$X}");
    Some([other(number.wrapping_sub(1)), other(number.wrapping_add(1))])
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}
