//! A restore of some databases, or of some tablespaces: the relations of the others become empty
//! files of their full length.
//!
//! A server needs all files to recover: it stops if its log names one that is not there. The first
//! change of a page after the start of a backup is logged with the whole page, so a page of zeros
//! is as good as the old one for replay. There is one exception: if neither checksums nor
//! wal_log_hints are on, the log tells that all rows of a page are visible, and does not have the
//! page. A server stops at a page of zeros then, so it is told to pass over such pages. Nobody can
//! use these relations, and their databases can only be dropped.
//!
//! Invariant: what initdb makes is always restored, and so are the catalogs that all databases
//! share.

use std::collections::{BTreeMap, HashMap, HashSet};

use windlass_media::{FileEntry, FileKind, FileNo, FileTable, crc32c_zeros_after};

use crate::error::PostgresError;
use crate::facts::{DatabaseFacts, Tablespace};
use crate::names::{Fork, RelationFile};

/// The first number that a server gives to what users make.
const FIRST_OF_USERS: u32 = 16_384;
/// Databases of initdb. Who makes one of them again, as pg_upgrade does before version 15, gives it
/// a number of users.
const OF_INITDB: [&str; 3] = ["postgres", "template0", "template1"];

/// Lines for the end of postgresql.auto.conf if hint bits are not logged.
const INVALID_PAGES: &str = "\n# Written by Windlass when it restored a part of this cluster: \
     replay finds pages that were left out.\nignore_invalid_pages = 'on'\n";

/// What is left out of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    databases: BTreeMap<u32, String>,
    tablespaces: BTreeMap<u32, String>,
}

impl LeftOut {
    /// Everything but these databases and tablespaces. An empty list leaves nothing out.
    pub fn all_but(
        (databases, only_databases): (&HashMap<u32, String>, &[String]),
        (tablespaces, only_tablespaces): (&[Tablespace], &[String]),
    ) -> Result<Self, PostgresError> {
        let databases = databases.iter().map(|(oid, name)| (*oid, name.clone()));
        let spaces = tablespaces.iter();
        let spaces = spaces.map(|space| (space.oid, space.name.clone()));
        let mut databases = rest(databases.collect(), only_databases, "database")?;
        databases.retain(|_, name| !OF_INITDB.contains(&name.as_str()));
        Ok(Self {
            databases,
            tablespaces: rest(spaces.collect(), only_tablespaces, "tablespace")?,
        })
    }

    /// The names of the databases that are left out.
    pub fn databases(&self) -> impl Iterator<Item = &str> {
        self.databases.values().map(String::as_str)
    }

    /// The names of the tablespaces that are left out.
    pub fn tablespaces(&self) -> impl Iterator<Item = &str> {
        self.tablespaces.values().map(String::as_str)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.databases.is_empty() && self.tablespaces.is_empty()
    }

    /// Whether the pages of a file are left out.
    fn has(&self, path: &[u8]) -> bool {
        let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u32>().ok();
        let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let (tablespace, database, name) = match parts.as_slice() {
            [b"base", database, name] => (None, number(database), name),
            [b"pg_tblspc", tablespace, _, database, name] => {
                (number(tablespace), number(database), name)
            }
            _ => return false,
        };
        let is_main = RelationFile::parse(name).is_some_and(|file| file.fork == Fork::Main);
        let has = |left: &BTreeMap<u32, String>, oid: Option<u32>| {
            oid.is_some_and(|oid| left.contains_key(&oid))
        };
        is_main && (has(&self.databases, database) || has(&self.tablespaces, tablespace))
    }

    /// Gives the files that are left out other numbers, so that nothing of the set goes into them.
    /// Returns the numbers that they have in the set.
    pub(super) fn take_out(&self, files: &mut FileTable) -> HashSet<FileNo> {
        let mut numbers = HashSet::new();
        let last = files.0.iter().map(|entry| entry.file.0).max();
        let mut next = last.unwrap_or_default();
        let left = files.0.iter_mut().filter(|entry| self.is_left_out(entry));
        for entry in left {
            next = next.saturating_add(1);
            numbers.insert(entry.file);
            entry.file = FileNo(next);
            entry.crc32c = !crc32c_zeros_after(u32::MAX, entry.bytes);
            entry.flags.crc_known = true;
        }
        numbers
    }

    fn is_left_out(&self, entry: &FileEntry) -> bool {
        entry.kind == FileKind::File && self.has(&entry.path)
    }

    /// How many bytes the files have that are left out.
    pub fn bytes(&self, files: &FileTable) -> u64 {
        let left = files.0.iter().filter(|entry| self.is_left_out(entry));
        left.map(|entry| entry.bytes).sum()
    }

    /// Settings that the restored server needs.
    pub(super) fn block(&self, facts: &DatabaseFacts) -> &'static str {
        match facts.hints_logged || facts.checksums.enabled || self.is_empty() {
            true => "",
            false => INVALID_PAGES,
        }
    }

    /// What the user does about it.
    pub(super) fn words(&self, facts: &DatabaseFacts) -> String {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let mut text = String::new();
        for name in self.databases() {
            let name = quoted(name);
            text.push_str(&format!(
                "Database {name} was left out, and is empty: DROP DATABASE {name};\n"
            ));
        }
        for name in self.tablespaces() {
            let name = quoted(name);
            text.push_str(&format!(
                "The tables and indexes in tablespace {name} were left out, and are empty: drop \
                 the tables, REINDEX the indexes of others.\n"
            ));
        }
        if !self.block(facts).is_empty() {
            text.push_str(
                "ignore_invalid_pages is on, because replay finds pages that were left out. Turn \
                 it off after the recovery with\n  ALTER SYSTEM RESET ignore_invalid_pages\nand a \
                 restart of the server.\n",
            );
        }
        text
    }
}

/// Those that are not wanted, unless nothing is asked for. Each wanted one must be there.
fn rest(
    there: BTreeMap<u32, String>,
    only: &[String],
    what: &'static str,
) -> Result<BTreeMap<u32, String>, PostgresError> {
    if only.is_empty() {
        return Ok(BTreeMap::new());
    }
    let known: BTreeMap<&String, u32> = there.iter().map(|(oid, name)| (name, *oid)).collect();
    if let Some(name) = only.iter().find(|name| !known.contains_key(name)) {
        let known = known
            .iter()
            .map(|(name, oid)| format!("{name} (oid {oid})"));
        return Err(PostgresError::NotInSet {
            what,
            name: name.clone(),
            there: known.collect::<Vec<_>>().join(", "),
        });
    }
    let is_left = |oid: u32, name: &String| oid >= FIRST_OF_USERS && !only.contains(name);
    let left = there.into_iter().filter(|(oid, name)| is_left(*oid, name));
    Ok(left.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left() -> LeftOut {
        let names = [
            (1, "template1"),
            (5, "postgres"),
            (16_400, "shop"),
            (16_500, "crm"),
        ];
        let names = names.map(|(oid, name)| (oid, name.to_owned()));
        let spaces = [Tablespace {
            oid: 16_600,
            name: "fast".into(),
            location: "/fast".into(),
        }];
        let only = ["shop".to_owned()];
        LeftOut::all_but((&names.into(), &only), (&spaces, &[])).unwrap()
    }

    #[test]
    fn tables_of_other_databases_are_left_out_and_nothing_else() {
        let left = left();
        assert_eq!(left.databases().collect::<Vec<_>>(), ["crm"]);
        for (path, is_left) in [
            ("base/16500/2619", true),
            ("base/16500/2619.1", true),
            ("pg_tblspc/16600/PG_15_202209061/16500/1234", true),
            ("base/16500/2619_vm", false),
            ("base/16500/PG_VERSION", false),
            ("base/16400/2619", false),
            ("base/5/2619", false),
            ("global/1262", false),
            ("pg_tblspc/16600/PG_15_202209061/16400/1234", false),
        ] {
            assert_eq!(left.has(path.as_bytes()), is_left, "{path}");
        }
    }

    #[test]
    fn databases_of_initdb_that_were_made_again_are_restored() {
        let names = [
            (16_384, "template1"),
            (16_385, "postgres"),
            (16_400, "shop"),
            (16_500, "crm"),
        ];
        let names: HashMap<u32, String> = names.map(|(oid, name)| (oid, name.to_owned())).into();
        let only = ["shop".to_owned()];
        let left = LeftOut::all_but((&names, &only), (&[], &[])).unwrap();
        assert_eq!(left.databases().collect::<Vec<_>>(), ["crm"]);
        assert!(!left.has(b"base/16384/2619"));
        assert!(left.has(b"base/16500/2619"));
    }

    #[test]
    fn a_name_that_is_not_there_is_refused() {
        let there: HashMap<u32, String> = [(16_400, "shop".to_owned())].into();
        let only = ["shopp".to_owned()];
        let error = LeftOut::all_but((&there, &only), (&[], &[])).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("no database \"shopp\"; it has shop (oid 16400)"),
            "{error}"
        );
    }
}
