//! tablespace_map: one line `<oid> <directory>` for each tablespace. Recovery makes the links in
//! pg_tblspc from it, so links and map must agree.

use std::collections::BTreeSet;

use windlass_media::{FileEntry, FileKind, FileTable};

use crate::error::PostgresError;

/// The file's name in the data directory.
pub(crate) const TABLESPACE_MAP_PATH: &str = "tablespace_map";
/// The oid of the tablespace whose databases lie in `base`.
pub(crate) const DEFAULT_TABLESPACE: u32 = 1663;
/// The oid of the tablespace of `global`.
pub(crate) const GLOBAL_TABLESPACE: u32 = 1664;
/// The directory that holds the links.
pub(crate) const TABLESPACE_LINKS: &str = "pg_tblspc/";

/// The oid in the path of a tablespace's link (`pg_tblspc/<oid>`); `None` for any other path.
pub(crate) fn oid_of_link(path: &[u8]) -> Option<u32> {
    let name = path.strip_prefix(TABLESPACE_LINKS.as_bytes())?;
    let digits = !name.is_empty() && name.iter().all(u8::is_ascii_digit);
    digits
        .then(|| std::str::from_utf8(name).ok()?.parse().ok())
        .flatten()
}

/// The oid of the tablespace whose link this is. No other link belongs into a set.
pub(crate) fn oid_of(link: &FileEntry) -> Result<u32, PostgresError> {
    oid_of_link(&link.path).ok_or_else(|| PostgresError::Set {
        what: format!(
            "its symbolic link {:?} is no tablespace's",
            link.path_lossy()
        ),
    })
}

/// Refuses a set with a link that is no tablespace's, whatever kind of database the set holds.
pub fn check_links(files: &FileTable) -> Result<(), PostgresError> {
    let mut links = files.0.iter().filter(|it| it.kind == FileKind::Symlink);
    links.try_for_each(|link| oid_of(link).map(drop))
}

/// The tablespaces that a map names.
pub(crate) fn oids_of_map(map: &[u8]) -> BTreeSet<u32> {
    let mut oids = BTreeSet::new();
    let (mut at_start, mut escaped, mut digits) = (true, false, String::new());
    for byte in map {
        match byte {
            b'0'..=b'9' if at_start => digits.push(char::from(*byte)),
            b'\n' if !escaped => {
                at_start = true;
                digits.clear();
            }
            _ => {
                if at_start {
                    oids.extend(digits.parse::<u32>());
                }
                at_start = false;
            }
        }
        escaped = !escaped && *byte == b'\\';
    }
    oids
}

/// The map of these tablespaces, in PostgreSQL's own form.
pub(crate) fn tablespace_map<'a>(spaces: impl Iterator<Item = (u32, &'a [u8])>) -> Vec<u8> {
    let mut map = Vec::new();
    for (oid, directory) in spaces {
        map.extend_from_slice(format!("{oid} ").as_bytes());
        for byte in directory {
            // Without a backslash, a line break in a directory's name would end the line.
            if matches!(byte, b'\n' | b'\r' | b'\\') {
                map.push(b'\\');
            }
            map.push(*byte);
        }
        map.push(b'\n');
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_one_escaped_line_a_tablespace() {
        let spaces = [(16_400, b"/srv/a b".as_slice()), (16_401, b"/srv/c\n\\")];
        assert_eq!(
            tablespace_map(spaces.into_iter()),
            b"16400 /srv/a b\n16401 /srv/c\\\n\\\\\n"
        );
    }

    #[test]
    fn the_numbers_of_a_map_are_those_it_was_made_of() {
        let spaces = [
            (16_400, b"/srv/1 2".as_slice()),
            (16_401, b"/srv/c\n99 /x\\"),
            (16_402, b"/\\\n7"),
        ];
        let map = tablespace_map(spaces.into_iter());
        assert_eq!(oids_of_map(&map), [16_400, 16_401, 16_402].into());
        assert!(oids_of_map(b"").is_empty());
    }

    #[test]
    fn only_numbers_in_pg_tblspc_are_tablespaces() {
        assert_eq!(oid_of_link(b"pg_tblspc/16400"), Some(16_400));
        for path in [
            "pg_tblspc/",
            "pg_tblspc/x",
            "pg_tblspc/1/2",
            "base/1",
            "pg_tblspc/99999999999",
        ] {
            assert_eq!(oid_of_link(path.as_bytes()), None, "{path}");
        }
    }
}
