//! How much memory the sections of a footer need once they are decoded, known before any of it is
//! allocated.
//!
//! The length on the stripe says little about that. A list of numbers in a JSON document needs
//! thirty times its length, and an entry of the file table with the shortest path seven times. So a
//! reader's limit applies to the decoded size. Each figure is an upper bound and includes the
//! overhead of the allocator and of growing lists.

use crate::error::{FormatError, Structure};
use crate::files::ENTRY_BYTES_MIN;
use crate::footer::{
    DIRECTORY_ENTRY_BYTES, IndexDirectoryEntry, KIND_BASE, KIND_DIRECTORY, KIND_FACTS, KIND_FILES,
    KIND_SPANS,
};

/// Memory for one file: its entry, its two strings, and what checks that names and numbers are
/// unique. The same amount again is for a caller that keeps a record of each file.
const FILE_BYTES: u64 = 320;
/// The list of files in the base: itself, what checks that its numbers are unique, and the ways
/// from file to file that a reader of a chain keeps.
const BASE_FACTOR: u64 = 12;
/// The spans of index blocks: those of each block, and all of them in order, which a reader of
/// upper layers keeps. A block without spans takes one byte of the section and 16 in memory.
const SPANS_FACTOR: u64 = 16;
/// A value in a list that has just doubled its capacity.
const VALUE_BYTES: u64 = 2 * 32;
/// A key and its value in a map whose nodes are only half full.
const MEMBER_BYTES: u64 = 2 * (24 + 32) + 32;

/// Checks that the sections and what will be made of them fit the limit together, before anything
/// is made of them.
pub(crate) fn check(raws: &[(u32, Vec<u8>)], metadata_limit: u64) -> Result<(), FormatError> {
    let mut found = 0u64;
    for (kind, raw) in raws {
        let decoded = match *kind {
            KIND_DIRECTORY => of_directory(raw.len() / DIRECTORY_ENTRY_BYTES),
            KIND_FILES => of_files(raw),
            KIND_FACTS => of_facts(raw),
            KIND_BASE => BASE_FACTOR * raw.len() as u64,
            KIND_SPANS => SPANS_FACTOR * raw.len() as u64,
            _ => raw.len() as u64,
        };
        found = found
            .saturating_add(decoded)
            .saturating_add(raw.len() as u64);
    }
    if found <= metadata_limit {
        return Ok(());
    }
    Err(FormatError::Limit {
        structure: Structure::Footer,
        what: "metadata in memory",
        found,
        limit: metadata_limit,
    })
}

/// The file table.
fn of_files(raw: &[u8]) -> u64 {
    let stated = raw
        .first_chunk()
        .map_or(0, |count| u32::from_le_bytes(*count));
    let possible = (raw.len() / ENTRY_BYTES_MIN) as u64;
    raw.len() as u64 + FILE_BYTES * u64::from(stated).min(possible)
}

/// The index directory. Its list may be half empty.
fn of_directory(entries: usize) -> u64 {
    2 * (entries * size_of::<IndexDirectoryEntry>()) as u64
}

/// The facts. A string is at most as long as its text. Each value needs a mark before it (`[`, `{`,
/// `,` or `:`), and the marks are counted.
fn of_facts(raw: &[u8]) -> u64 {
    let (mut bytes, mut in_string, mut hidden) = (raw.len() as u64, false, false);
    for byte in raw {
        if hidden {
            hidden = false;
            continue;
        }
        match (byte, in_string) {
            (b'\\', true) => hidden = true,
            (b'"', _) => in_string = !in_string,
            (b':', false) => bytes += MEMBER_BYTES,
            (b'[' | b'{' | b',', false) => bytes += VALUE_BYTES,
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_members_are_counted_and_strings_are_not() {
        let more = |text: &str| of_facts(text.as_bytes()) - text.len() as u64;
        assert_eq!(more("[0,0,0]"), 3 * VALUE_BYTES);
        assert_eq!(more(r#"{"a":1}"#), VALUE_BYTES + MEMBER_BYTES);
        assert_eq!(more(r#""[,,:\",,""#), 0);
        assert_eq!(more(r#"["\\",0]"#), 2 * VALUE_BYTES);
    }

    #[test]
    fn a_table_is_no_larger_than_its_bytes_allow() {
        let mut raw = u32::MAX.to_le_bytes().to_vec();
        raw.resize(4 + 10 * ENTRY_BYTES_MIN, 0);
        assert_eq!(of_files(&raw), raw.len() as u64 + 10 * FILE_BYTES);
        assert_eq!(of_files(&[]), 0);
    }
}
