//! File names in a data directory: which ones belong to relations, and which ones a backup leaves
//! out.
//!
//! PostgreSQL's own lists are in src/backend/backup/basebackup.c. If this file skips more, the
//! entry says why.

/// Directories below the root that are backed up empty: their content belongs to the running server
/// only.
const EMPTIED_DIRECTORIES: [&[u8]; 7] = [
    b"pg_dynshmem",
    b"pg_notify",
    b"pg_replslot",
    b"pg_serial",
    b"pg_snapshots",
    b"pg_stat_tmp",
    b"pg_subtrans",
];

/// Files below the root that must not appear in a restored cluster. The labels and signals are left
/// over from an earlier restore: a stale backup_label would start recovery at the wrong place.
const SKIPPED_ROOT_FILES: [&[u8]; 11] = [
    b"postmaster.pid",
    b"postmaster.opts",
    b"postgresql.auto.conf.tmp",
    b"current_logfiles.tmp",
    b"backup_label",
    b"backup_label.old",
    b"tablespace_map",
    b"tablespace_map.old",
    b"backup_manifest",
    b"recovery.signal",
    b"standby.signal",
];

/// Prefixes of names that are skipped at any depth: spill files of sorts and hashes, and the
/// relation cache with its temporary copies (`pg_internal.init.<pid>`), which the server rebuilds.
const SKIPPED_PREFIXES: [&[u8]; 2] = [b"pgsql_tmp", b"pg_internal.init"];

/// One of a relation's forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fork {
    /// The content.
    Main,
    /// The free space map: which pages have room.
    FreeSpace,
    /// The visibility map: which pages every transaction can see.
    Visibility,
    /// The empty content with which an unlogged relation starts after a crash.
    Init,
}

/// What the name of a relation file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelationFile {
    /// The relation's file number (relfilenode).
    pub(crate) number: u32,
    pub(crate) fork: Fork,
    /// Which segment of the fork; segment 0 has no suffix in its name.
    pub(crate) segment: u32,
    /// One session made it for itself; the server removes it when that session ends.
    pub(crate) temporary: bool,
}

/// True for a directory below the root whose content is skipped.
pub(crate) fn is_emptied_directory(name: &[u8]) -> bool {
    EMPTIED_DIRECTORIES.contains(&name)
}

/// True for a file below the root that is skipped.
pub(crate) fn is_skipped_root_file(name: &[u8]) -> bool {
    SKIPPED_ROOT_FILES.contains(&name)
}

/// True for a name that is skipped wherever it stands.
pub fn is_skipped_anywhere(name: &[u8]) -> bool {
    SKIPPED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// True for a directory, relative to the root, whose numbered files belong to relations.
pub(crate) fn is_relation_directory(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    let is_number = |part: Option<&[u8]>| part.is_some_and(|part| number(part).is_some());
    let found = match parts.next() {
        Some(b"global") => true,
        Some(b"base") => is_number(parts.next()),
        Some(b"pg_tblspc") => {
            let tablespace = is_number(parts.next());
            let version = parts.next().is_some_and(|part| part.starts_with(b"PG_"));
            tablespace && version && is_number(parts.next())
        }
        _ => false,
    };
    found && parts.next().is_none()
}

impl RelationFile {
    /// Parses `[t<backend>_]<number>[_fsm|_vm|_init][.<segment>]`.
    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        let (temporary, rest) = match name.strip_prefix(b"t") {
            Some(rest) => (
                true,
                split_at_byte(rest, b'_')
                    .filter(|(id, _)| number(id).is_some())?
                    .1,
            ),
            None => (false, name),
        };
        let (rest, segment) = match split_at_byte(rest, b'.') {
            Some((rest, segment)) => (rest, number(segment).filter(|segment| *segment > 0)?),
            None => (rest, 0),
        };
        let (digits, fork) = match split_at_byte(rest, b'_') {
            Some((digits, b"fsm")) => (digits, Fork::FreeSpace),
            Some((digits, b"vm")) => (digits, Fork::Visibility),
            Some((digits, b"init")) => (digits, Fork::Init),
            Some(_) => return None,
            None => (rest, Fork::Main),
        };
        Some(Self {
            number: number(digits)?,
            fork,
            segment,
            temporary,
        })
    }
}

/// True for a relation's file, which consists of pages. Data with its own CRC-32C behind it can
/// change although the checksum over both stays the same. In a page this hides nothing, because a
/// page that changes gets another LSN.
pub fn is_relation_file(path: &[u8]) -> bool {
    let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
        return false;
    };
    is_relation_directory(&path[..slash]) && RelationFile::parse(&path[slash + 1..]).is_some()
}

/// True for a path that only one side has, because a backup leaves it out or adds it. Such files of
/// a live data directory and of a set cannot be compared. This includes the log, which is history
/// and not state.
pub fn is_beside_the_data(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    let first = parts.next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let below = parts.next().is_some();
    let relation = RelationFile::parse(name);
    first == b"pg_wal"
        || (below && is_emptied_directory(first))
        || (!below && is_skipped_root_file(first))
        || is_skipped_anywhere(name)
        || (below && relation.is_some_and(|relation| relation.temporary))
}

fn split_at_byte(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..position], &bytes[position + 1..]))
}

/// A decimal number as PostgreSQL writes it: no sign, no leading zero.
fn number(digits: &[u8]) -> Option<u32> {
    let plain = digits.iter().all(u8::is_ascii_digit) && digits.first().is_some_and(|d| *d != b'0');
    (plain || digits == b"0")
        .then(|| std::str::from_utf8(digits).ok()?.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> Option<(u32, Fork, u32, bool)> {
        let file = RelationFile::parse(name.as_bytes())?;
        Some((file.number, file.fork, file.segment, file.temporary))
    }

    #[test]
    fn relation_file_names_are_taken_apart() {
        assert_eq!(parsed("1259"), Some((1259, Fork::Main, 0, false)));
        assert_eq!(parsed("1259_fsm"), Some((1259, Fork::FreeSpace, 0, false)));
        assert_eq!(
            parsed("16384_vm.3"),
            Some((16384, Fork::Visibility, 3, false))
        );
        assert_eq!(parsed("16384.12"), Some((16384, Fork::Main, 12, false)));
        assert_eq!(parsed("16384_init"), Some((16384, Fork::Init, 0, false)));
        assert_eq!(parsed("t3_16384"), Some((16384, Fork::Main, 0, true)));
        assert_eq!(
            parsed("t12_16384_fsm.1"),
            Some((16384, Fork::FreeSpace, 1, true))
        );
        assert_eq!(parsed("4294967295"), Some((u32::MAX, Fork::Main, 0, false)));
    }

    #[test]
    fn other_names_are_not_relations() {
        for name in [
            "",
            "PG_VERSION",
            "pg_filenode.map",
            "pg_control",
            "12a",
            "_fsm",
            "12_",
            "12_foo",
            "12.",
            "12.0",
            "12.x",
            "t_12",
            "t3",
            "t3_",
            "tx_12",
            "4294967296",
            "12_fsm_vm",
            "0012",
        ] {
            assert_eq!(parsed(name), None, "{name:?}");
        }
    }

    #[test]
    fn relations_live_in_three_places() {
        for path in ["global", "base/5", "pg_tblspc/16400/PG_15_202209061/5"] {
            assert!(is_relation_directory(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "base",
            "base/5/x",
            "base/x",
            "pg_xact",
            "pg_tblspc/16400",
            "log",
        ] {
            assert!(!is_relation_directory(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn temporaries_of_any_spelling_are_skipped() {
        for name in [
            "pgsql_tmp",
            "pgsql_tmp123.0",
            "pg_internal.init",
            "pg_internal.init.4711",
        ] {
            assert!(is_skipped_anywhere(name.as_bytes()), "{name}");
        }
        assert!(!is_skipped_anywhere(b"pg_internal"));
        assert!(is_skipped_root_file(b"tablespace_map") && is_emptied_directory(b"pg_notify"));
    }
}
