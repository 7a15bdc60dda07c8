//! backup_manifest: PostgreSQL's own list of a backup's files, for `pg_verifybackup`.
//!
//! The set holds it as a file, so that PostgreSQL's tools can verify what a restore writes. Version
//! 1 is for 14 to 16; version 2 (17 and newer) adds the system identifier. PostgreSQL's manual
//! describes the format in "Backup Manifest Format".
//!
//! Invariants
//! - The manifest does not list files in pg_wal: `pg_verifybackup` uses the WAL ranges instead.
//! - The manifest lists every other file of the set, and no file that the set does not hold.

use std::fmt::Write;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use windlass_media::{FileEntry, FileKind};

use crate::wal::WalRange;

/// The file's name in the data directory.
pub const MANIFEST_PATH: &str = "backup_manifest";
/// First major version whose manifests name the system identifier.
const SECOND_FORMAT_SINCE: u32 = 17;

/// What a manifest says in addition to its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manifest<'a> {
    pub(crate) major: u32,
    pub(crate) system_identifier: u64,
    pub(crate) ranges: &'a [WalRange],
}

impl Manifest<'_> {
    /// Makes the manifest of `files`, each with its CRC if that is known. A file of
    /// which a base has bytes has none. It writes the manifest twice, the first
    /// time only to learn its length. In a backup of many small files the manifest is the largest
    /// thing in memory. A buffer that grows, or is copied at the end, would need twice as much.
    pub(crate) fn bytes<'a>(
        &self,
        files: impl Iterator<Item = &'a FileEntry> + Clone,
    ) -> Arc<[u8]> {
        let mut length = 0;
        self.write(files.clone(), |piece| length += piece.len());
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
        let mut rest = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
        self.write(files, |piece| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(piece.len());
            head.copy_from_slice(piece);
            rest = tail;
        });
        bytes
    }

    /// Passes the manifest to `put`, piece by piece.
    fn write<'a>(&self, files: impl Iterator<Item = &'a FileEntry>, mut put: impl FnMut(&[u8])) {
        let mut hash = Sha256::new();
        let mut hashed = |piece: &str| {
            hash.update(piece);
            put(piece.as_bytes());
        };
        hashed(&self.head());
        let (mut line, mut separator) = (String::new(), "\n");
        for entry in files.filter(|entry| is_listed(entry)) {
            line.clear();
            line.push_str(separator);
            put_file(&mut line, entry);
            hashed(&line);
            separator = ",\n";
        }
        let ranges: Vec<String> = self.ranges.iter().map(range_line).collect();
        hashed(&format!(
            "\n],\n\"WAL-Ranges\": [\n{}\n],\n",
            ranges.join(",\n")
        ));
        let checksum = hex(&hash.finalize());
        put(format!("\"Manifest-Checksum\": \"{checksum}\"}}\n").as_bytes());
    }

    fn head(&self) -> String {
        if self.major < SECOND_FORMAT_SINCE {
            return "{ \"PostgreSQL-Backup-Manifest-Version\": 1,\n\"Files\": [".into();
        }
        format!(
            "{{ \"PostgreSQL-Backup-Manifest-Version\": 2,\n\
             \"System-Identifier\": {},\n\"Files\": [",
            self.system_identifier
        )
    }
}

fn is_listed(entry: &FileEntry) -> bool {
    entry.kind == FileKind::File
        && !entry.path.starts_with(b"pg_wal/")
        && entry.path != MANIFEST_PATH.as_bytes()
}

fn put_file(text: &mut String, entry: &FileEntry) {
    match std::str::from_utf8(&entry.path) {
        Ok(path) => put(
            text,
            format_args!("{{ \"Path\": {}, ", serde_json::Value::from(path)),
        ),
        Err(_) => put(
            text,
            format_args!("{{ \"Encoded-Path\": \"{}\", ", hex(&entry.path)),
        ),
    }
    put(text, format_args!("\"Size\": {}, ", entry.bytes));
    put(
        text,
        format_args!("\"Last-Modified\": \"{}\", ", modified(entry.mtime_nanos)),
    );
    if !entry.flags.crc_known {
        // As PostgreSQL writes it with --manifest-checksums=NONE.
        text.truncate(text.len() - 2);
        text.push_str(" }");
        return;
    }
    // PostgreSQL writes the CRC's bytes as they lie in memory. Our format is little-endian.
    let checksum = hex(&entry.crc32c.to_le_bytes());
    put(
        text,
        format_args!("\"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"{checksum}\" }}"),
    );
}

fn range_line(range: &WalRange) -> String {
    format!(
        "{{ \"Timeline\": {}, \"Start-LSN\": \"{}\", \"End-LSN\": \"{}\" }}",
        range.timeline, range.start, range.end
    )
}

fn modified(nanos: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(nanos));
    let time = time.expect("64 bits of nanoseconds are within its range");
    time.strftime("%Y-%m-%d %H:%M:%S GMT").to_string()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    bytes
        .iter()
        .for_each(|byte| put(&mut text, format_args!("{byte:02x}")));
    text
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsn::{Lsn, Timeline};
    use windlass_media::{FileFlags, FileNo, crc32c};

    fn file(path: &[u8], kind: FileKind) -> FileEntry {
        FileEntry {
            file: FileNo(0),
            kind,
            flags: FileFlags {
                last: false,
                crc_known: true,
            },
            mode: 0o600,
            bytes: 9,
            mtime_nanos: 1_700_000_000_500_000_000,
            crc32c: crc32c(b"123456789"),
            path: path.to_vec(),
            link_target: Vec::new(),
        }
    }

    fn written(major: u32) -> String {
        let files = [
            file(b"base", FileKind::Directory),
            file(b"base/a\"b", FileKind::File),
            file(b"x\xff", FileKind::File),
            file(b"pg_wal/000000010000000000000002", FileKind::File),
            file(b"backup_manifest", FileKind::File),
        ];
        let range = WalRange {
            timeline: Timeline(3),
            start: Lsn(0x200_0028),
            end: Lsn(0x200_0100),
        };
        let manifest = Manifest {
            major,
            system_identifier: 7_000,
            ranges: &[range],
        };
        String::from_utf8(manifest.bytes(files.iter()).to_vec()).unwrap()
    }

    #[test]
    fn a_manifest_lists_files_escaped_and_ranges() {
        let text = written(15);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["PostgreSQL-Backup-Manifest-Version"], 1);
        assert_eq!(json["Files"].as_array().unwrap().len(), 2);
        assert_eq!(json["Files"][0]["Path"], "base/a\"b");
        assert_eq!(json["Files"][0]["Last-Modified"], "2023-11-14 22:13:20 GMT");
        assert_eq!(
            json["Files"][0]["Checksum"], "839206e3",
            "CRC-32C e3069283, low byte first"
        );
        assert_eq!(json["Files"][1]["Encoded-Path"], "78ff");
        assert_eq!(json["WAL-Ranges"][0]["Start-LSN"], "0/2000028");
        assert!(json.get("System-Identifier").is_none());
    }

    #[test]
    fn the_last_line_is_the_sha256_of_all_before() {
        let text = written(17);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["System-Identifier"], 7_000);
        let split = text.rfind("\"Manifest-Checksum\"").unwrap();
        let expected = hex(&Sha256::digest(&text.as_bytes()[..split]));
        assert_eq!(json["Manifest-Checksum"].as_str(), Some(expected.as_str()));
        assert_eq!(text.lines().last().unwrap(), &text[split..text.len() - 1]);
    }
}
