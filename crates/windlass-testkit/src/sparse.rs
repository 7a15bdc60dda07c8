//! SQLite databases of any size that take little disk space: most of their pages are free and were
//! never written.
//!
//!   page 1, tables | group of free pages | group | ... | lock-byte page | group | ... | last group
//!                    ^ its first page, the trunk, lists the others, which are a hole
//!
//! SQLite takes new pages from the first trunk of its list. Here that is the last group, so a
//! program that writes to the database later writes at its far end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a fixture that cannot be made ends its test"
)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};

/// The byte that SQLite locks. Its page holds nothing.
const LOCK_BYTE: u64 = 1 << 30;
/// The offset of the header's fields: the size in pages, the first trunk, the number of free pages.
const FREE_FIELDS: u64 = 28;
/// The bytes that are compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Makes a database `bytes` long by adding free pages that are holes. The database must be closed,
/// in rollback mode or with an empty log, without free pages, and without `auto_vacuum`.
pub fn grow(path: &Path, bytes: u64) {
    let file = File::options().read(true).write(true).open(path);
    let file = file.expect("open the database");
    let mut header = [0; 100];
    file.read_exact_at(&mut header, 0).expect("read its header");
    let field = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
    assert!(
        (field(32), field(52)) == (0, 0),
        "free pages or auto_vacuum"
    );
    let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        bytes => u64::from(bytes),
    };
    let pages = u32::try_from(bytes / page_bytes).expect("SQLite counts pages in 32 bits");
    let lock_page = u32::try_from(LOCK_BYTE / page_bytes).unwrap() + 1;
    file.set_len(u64::from(pages) * page_bytes).expect("grow");
    let (mut next_trunk, mut free) = (0, 0);
    for group in groups(field(28) + 1, pages, lock_page, page_bytes) {
        let trunk = group.start;
        let leaves: Vec<u32> = (group.start + 1..group.end).collect();
        free += group.end - group.start;
        let count = u32::try_from(leaves.len()).unwrap();
        let words = [next_trunk, count].into_iter().chain(leaves);
        let content: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
        let offset = u64::from(trunk - 1) * page_bytes;
        file.write_all_at(&content, offset).expect("write a trunk");
        next_trunk = trunk;
    }
    let fields: Vec<u8> = [pages, next_trunk, free]
        .into_iter()
        .flat_map(u32::to_be_bytes)
        .collect();
    file.write_all_at(&fields, FREE_FIELDS)
        .expect("write the header");
}

/// Divides the pages from `first` to `last`, without the locked one, into groups that one trunk can
/// list. A group has a third of the pages that would fit, so that trunks are all over the file.
fn groups(first: u32, last: u32, lock_page: u32, page_bytes: u64) -> Vec<std::ops::Range<u32>> {
    let most = u32::try_from(page_bytes / 4 - 8).unwrap() / 3;
    let parts = [
        first..lock_page.min(last + 1),
        first.max(lock_page + 1)..last + 1,
    ];
    let mut groups = Vec::new();
    for mut part in parts {
        while part.start < part.end {
            let end = part.end.min(part.start.saturating_add(most));
            groups.push(part.start..end);
            part.start = end;
        }
    }
    groups
}

/// The first difference of two files, if there is one. What is a hole in both is not read.
pub fn first_difference(one: &Path, other: &Path) -> io::Result<Option<u64>> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    let bytes = one.metadata()?.len();
    if other.metadata()?.len() != bytes {
        return Ok(Some(bytes.min(other.metadata()?.len())));
    }
    let mut offset = 0;
    let (mut left, mut right) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let data = |offset| {
        let both = [next_data(&one, offset)?, next_data(&other, offset)?];
        Ok::<_, io::Error>(both.into_iter().flatten().min())
    };
    while let Some(data) = data(offset)? {
        let length =
            usize::try_from(bytes - data).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        one.read_exact_at(&mut left[..length], data)?;
        other.read_exact_at(&mut right[..length], data)?;
        let differs = left[..length].iter().zip(&right[..length]);
        if let Some(at) = differs.into_iter().position(|(a, b)| a != b) {
            return Ok(Some(data + at as u64));
        }
        offset = data + length as u64;
    }
    Ok(None)
}

/// Where data begins at or after an offset; `None` when only a hole is left.
fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;
    use std::os::unix::fs::MetadataExt;

    fn database(dir: &Path, page_bytes: u32) -> std::path::PathBuf {
        let path = dir.join(format!("{page_bytes}.db"));
        let connection = Connection::open(&path).unwrap();
        let make = format!(
            "PRAGMA page_size = {page_bytes}; CREATE TABLE t (a, b);
             INSERT INTO t VALUES (1, 'near');"
        );
        connection.execute_batch(&make).unwrap();
        path
    }

    #[test]
    fn a_grown_database_is_sound_and_is_written_to_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        for page_bytes in [4096, 65536] {
            let path = database(dir.path(), page_bytes);
            let bytes = LOCK_BYTE + (200 << 20);
            grow(&path, bytes);
            let connection = Connection::open(&path).unwrap();
            let far = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) \
                INSERT INTO t SELECT i, randomblob(100000) FROM n";
            connection.execute_batch(far).unwrap();
            let sound: String = connection
                .query_row("PRAGMA integrity_check", [], |row| row.get(0))
                .unwrap();
            assert_eq!(sound, "ok");
            let metadata = path.metadata().unwrap();
            assert_eq!(metadata.len(), bytes);
            assert!(metadata.blocks() * 512 < 8 << 20, "{}", metadata.blocks());
            let end = bytes - u64::from(page_bytes / 4) * u64::from(page_bytes);
            let file = File::open(&path).unwrap();
            assert!(
                next_data(&file, end.max(LOCK_BYTE + 65536))
                    .unwrap()
                    .is_some()
            );
        }
    }

    #[test]
    fn the_first_byte_that_differs_is_found_in_holes_and_in_data() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("one"), dir.path().join("other")];
        for path in &paths {
            let file = File::create(path).unwrap();
            file.set_len(1 << 32).unwrap();
            file.write_all_at(b"data", 1 << 31).unwrap();
        }
        let difference = || first_difference(&paths[0], &paths[1]).unwrap();
        assert_eq!(difference(), None);
        let other = File::options().write(true).open(&paths[1]).unwrap();
        other.write_all_at(b"x", (1 << 31) + 2).unwrap();
        assert_eq!(difference(), Some((1 << 31) + 2));
        other.write_all_at(b"y", 77).unwrap();
        assert_eq!(difference(), Some(77));
        other.set_len(5).unwrap();
        assert_eq!(difference(), Some(5));
    }
}
