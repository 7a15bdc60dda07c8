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
    /// which a base has bytes has none. It writes the lines twice, the first
    /// time only to learn their length. In a backup of many small files the manifest is the largest
    /// thing in memory. A buffer that grows, or is copied at the end, would need twice as much.
    pub(crate) fn bytes<'a>(
        &self,
        files: impl Iterator<Item = &'a FileEntry> + Clone,
    ) -> Arc<[u8]> {
        let mut length = 0;
        self.write(files.clone(), |piece| length += piece.len());
        let whole = length + last_line(&[0; 32]).len();
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, whole).collect();
        let all = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
        let (lines, last) = all.split_at_mut(length);
        let mut rest = &mut *lines;
        self.write(files, |piece| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(piece.len());
            head.copy_from_slice(piece.as_bytes());
            rest = tail;
        });
        last.copy_from_slice(last_line(&Sha256::digest(lines)).as_bytes());
        bytes
    }

    /// Passes the manifest without its last line to `put`, piece by piece.
    fn write<'a>(&self, files: impl Iterator<Item = &'a FileEntry>, mut put: impl FnMut(&str)) {
        put(&self.head());
        let (mut line, mut separator) = (String::new(), "\n");
        let mut times = Times::default();
        for entry in files.filter(|entry| is_listed(entry)) {
            line.clear();
            line.push_str(separator);
            put_file(&mut line, entry, &mut times);
            put(&line);
            separator = ",\n";
        }
        let ranges: Vec<String> = self.ranges.iter().map(range_line).collect();
        put(&format!(
            "\n],\n\"WAL-Ranges\": [\n{}\n],\n",
            ranges.join(",\n")
        ));
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

fn put_file(text: &mut String, entry: &FileEntry, times: &mut Times) {
    match std::str::from_utf8(&entry.path) {
        Ok(path) => {
            text.push_str("{ \"Path\": ");
            put_quoted(text, path);
        }
        Err(_) => {
            text.push_str("{ \"Encoded-Path\": \"");
            put_hex(text, &entry.path);
            text.push('"');
        }
    }
    let modified = times.text(entry.mtime_nanos);
    put(
        text,
        format_args!(
            ", \"Size\": {}, \"Last-Modified\": \"{modified}\"",
            entry.bytes
        ),
    );
    // Without a checksum it is as PostgreSQL writes it with --manifest-checksums=NONE.
    if entry.flags.crc_known {
        text.push_str(", \"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"");
        // PostgreSQL writes the CRC's bytes as they lie in memory. Our format is little-endian.
        put_hex(text, &entry.crc32c.to_le_bytes());
        text.push('"');
    }
    text.push_str(" }");
}

/// As JSON quotes it. Nearly all paths need no more than the quotes.
fn put_quoted(text: &mut String, path: &str) {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if path.bytes().all(is_plain) {
        text.push('"');
        text.push_str(path);
        text.push('"');
    } else {
        put(text, format_args!("{}", serde_json::Value::from(path)));
    }
}

fn range_line(range: &WalRange) -> String {
    format!(
        "{{ \"Timeline\": {}, \"Start-LSN\": \"{}\", \"End-LSN\": \"{}\" }}",
        range.timeline, range.start, range.end
    )
}

/// The times of files as text. Many files are of the same second, so the last text is kept.
#[derive(Default)]
struct Times {
    second: Option<i64>,
    text: String,
}

impl Times {
    fn text(&mut self, nanos: i64) -> &str {
        let second = nanos.div_euclid(1_000_000_000);
        if self.second != Some(second) {
            let time = jiff::Timestamp::from_second(second);
            let time = time.expect("the seconds of 64 bits of nanoseconds are within its range");
            self.text = time.strftime("%Y-%m-%d %H:%M:%S GMT").to_string();
            self.second = Some(second);
        }
        &self.text
    }
}

/// The last line, with the SHA-256 of all before.
fn last_line(checksum: &[u8]) -> String {
    let mut line = String::from("\"Manifest-Checksum\": \"");
    put_hex(&mut line, checksum);
    line.push_str("\"}\n");
    line
}

fn put_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
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
        let mut expected = String::new();
        put_hex(&mut expected, &Sha256::digest(&text.as_bytes()[..split]));
        assert_eq!(json["Manifest-Checksum"].as_str(), Some(expected.as_str()));
        assert_eq!(text.lines().last().unwrap(), &text[split..text.len() - 1]);
    }

    #[test]
    fn times_are_those_of_their_own_seconds() {
        let mut times = Times::default();
        let (first, next) = ("1970-01-01 00:00:01 GMT", "1970-01-01 00:00:02 GMT");
        assert_eq!(times.text(1_999_999_999), first);
        assert_eq!(times.text(1_000_000_000), first);
        assert_eq!(times.text(2_000_000_000), next);
        assert_eq!(times.text(1_000_000_001), first);
        assert_eq!(times.text(-1), "1969-12-31 23:59:59 GMT");
    }

    #[test]
    fn quotes_backslashes_and_control_characters_are_escaped() {
        for path in ["base/5/16384", "a\"b", "a\\b", "a\nb", "\u{7f}", "größe"] {
            let mut text = String::new();
            put_quoted(&mut text, path);
            assert_eq!(serde_json::from_str::<String>(&text).unwrap(), path);
            assert_eq!(text, serde_json::Value::from(path).to_string());
        }
    }
}
