//! The file table: every file, directory and symbolic link of the image.

use std::collections::HashSet;

use crate::error::{FormatError, Structure};
use crate::ids::FileNo;
use crate::limits::*;
use crate::wire::{Reader, put_string};

const STRUCTURE: Structure = Structure::FileTable;

/// What an entry of the file table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; `link_target` says where to.
    Symlink,
}

/// Properties of a file that a restore must respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FileFlags {
    /// A restore gives this file its own name only when all other files are durable (pg_control).
    pub last: bool,
    /// `crc32c` is known: the file's bytes have this CRC-32C.
    pub crc_known: bool,
}

/// One entry of the file table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Number that pieces refer to.
    pub file: FileNo,
    /// File, directory or link.
    pub kind: FileKind,
    /// Restore order and known checksum.
    pub flags: FileFlags,
    /// Permission bits (0777). The files of a database have no set-user-id, set-group-id or sticky
    /// bits, and a reader refuses a set that says otherwise. Use [`Self::permissions`] to show it.
    pub mode: u32,
    /// Length in bytes; zero for directories and links.
    pub bytes: u64,
    /// Modification time in nanoseconds since 1970 UTC.
    pub mtime_nanos: i64,
    /// CRC-32C of the content, when `flags.crc_known`.
    pub crc32c: u32,
    /// Path relative to the image's root, '/' between names; never empty.
    pub path: Vec<u8>,
    /// Where a symbolic link points; empty for the others.
    pub link_target: Vec<u8>,
}

impl FileEntry {
    /// The permission bits that count. A link has none of its own: Linux shows 0777 for every link,
    /// and a restore cannot set others, whatever the entry says.
    pub fn permissions(&self) -> u32 {
        match self.kind {
            FileKind::Symlink => 0o777,
            FileKind::File | FileKind::Directory => self.mode,
        }
    }

    /// The path for messages; bytes that are not UTF-8 are replaced.
    pub fn path_lossy(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// The file table of a set, in the order in which its writer listed the files. A directory comes
/// before what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FileTable(pub Vec<FileEntry>);

impl FileTable {
    /// The table's bytes.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let count = u32::try_from(self.0.len())
            .ok()
            .filter(|count| *count <= FILES_MAX);
        let count = count.ok_or(FormatError::Limit {
            structure: STRUCTURE,
            what: "file count",
            found: self.0.len() as u64,
            limit: u64::from(FILES_MAX),
        })?;
        let mut out = Vec::with_capacity(self.0.len() * 64);
        out.extend_from_slice(&count.to_le_bytes());
        for entry in &self.0 {
            check_path(entry.file, &entry.path)?;
            check_flags(entry)?;
            put_entry(&mut out, entry)?;
        }
        check_nested(&self.0)?;
        Ok(out)
    }

    /// Reads a table. It checks every path (see [`check_path`]), and refuses a path that occurs
    /// twice or leads through a regular file.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, STRUCTURE);
        let count = reader.u32()?;
        if count > FILES_MAX {
            return Err(reader.limit("file count", u64::from(count), u64::from(FILES_MAX)));
        }
        // An entry takes at least ENTRY_BYTES_MIN, so a count that cannot fit is refused here.
        if (count as usize).saturating_mul(ENTRY_BYTES_MIN) > reader.remaining() {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            entries.push(read_entry(&mut reader)?);
        }
        reader.end()?;
        check_unique(&entries)?;
        check_nested(&entries)?;
        Ok(Self(entries))
    }
}

/// Length of the shortest possible entry. Its path has one byte.
pub(crate) const ENTRY_BYTES_MIN: usize = 4 + 1 + 1 + 4 + 8 + 8 + 4 + 2 + 1 + 2;

/// Refuses a path that could leave the directory it is restored into: a path that is absolute,
/// empty or too long, contains a NUL byte, or has an empty, `.` or `..` component.
pub fn check_path(file: FileNo, path: &[u8]) -> Result<(), FormatError> {
    let fault = |what| {
        let path = String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
        Err(FormatError::Path { file, path, what })
    };
    if path.is_empty() {
        return fault("is empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return fault("is longer than 4096 bytes");
    }
    if path.contains(&0) {
        return fault("has a NUL byte");
    }
    if path.first() == Some(&b'/') {
        return fault("is absolute");
    }
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" => return fault("has an empty component"),
            b"." | b".." => return fault("has a component that is '.' or '..'"),
            name if name.len() > COMPONENT_BYTES_MAX => {
                return fault("has a component longer than 255 bytes");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses flags of files on what is no file, and a checksum that is said to be unknown. Otherwise
/// some readers would act on them, and others would not.
fn check_flags(entry: &FileEntry) -> Result<(), FormatError> {
    let FileFlags { last, crc_known } = entry.flags;
    if entry.kind != FileKind::File && (last || crc_known) {
        return Err(path_fault(entry, "is no file and has a flag of files"));
    }
    match crc_known || entry.crc32c == 0 {
        true => Ok(()),
        false => Err(path_fault(
            entry,
            "has a checksum that is said to be unknown",
        )),
    }
}

fn check_unique(entries: &[FileEntry]) -> Result<(), FormatError> {
    let mut numbers = HashSet::with_capacity(entries.len());
    if entries.iter().any(|entry| !numbers.insert(entry.file)) {
        let what = "a file number occurs twice";
        return Err(FormatError::Invalid {
            structure: STRUCTURE,
            what,
        });
    }
    drop(numbers);
    let mut paths = HashSet::with_capacity(entries.len());
    match entries.iter().find(|it| !paths.insert(it.path.as_slice())) {
        Some(entry) => Err(path_fault(entry, "occurs twice")),
        None => Ok(()),
    }
}

/// Refuses a path that leads through a regular file. No directory can be made there.
fn check_nested(entries: &[FileEntry]) -> Result<(), FormatError> {
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by(|one, other| Iterator::cmp(ordered(&one.path), ordered(&other.path)));
    let is_below = |above: &FileEntry, entry: &FileEntry| {
        let rest = entry.path.strip_prefix(above.path.as_slice());
        above.kind == FileKind::File && rest.is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    match sorted.windows(2).find(|pair| is_below(pair[0], pair[1])) {
        Some(pair) => Err(path_fault(pair[1], "leads through a regular file")),
        None => Ok(()),
    }
}

/// A path's bytes in an order in which whatever is below a path comes directly after it.
fn ordered(path: &[u8]) -> impl Iterator<Item = u8> {
    let before_all = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    path.iter().map(before_all)
}

fn path_fault(entry: &FileEntry, what: &'static str) -> FormatError {
    let (file, path) = (entry.file, entry.path_lossy());
    FormatError::Path { file, path, what }
}

fn put_entry(out: &mut Vec<u8>, entry: &FileEntry) -> Result<(), FormatError> {
    out.extend_from_slice(&entry.file.0.to_le_bytes());
    out.push(match entry.kind {
        FileKind::File => 0,
        FileKind::Directory => 1,
        FileKind::Symlink => 2,
    });
    out.push(u8::from(entry.flags.last) | u8::from(entry.flags.crc_known) << 1);
    out.extend_from_slice(&entry.mode.to_le_bytes());
    out.extend_from_slice(&entry.bytes.to_le_bytes());
    out.extend_from_slice(&entry.mtime_nanos.to_le_bytes());
    out.extend_from_slice(&entry.crc32c.to_le_bytes());
    put_string(out, &entry.path)?;
    put_string(out, &entry.link_target)
}

fn read_entry(reader: &mut Reader<'_>) -> Result<FileEntry, FormatError> {
    let file = FileNo(reader.u32()?);
    let kind = match reader.u8()? {
        0 => FileKind::File,
        1 => FileKind::Directory,
        2 => FileKind::Symlink,
        _ => return Err(reader.invalid("an entry is neither file, directory nor link")),
    };
    let bits = reader.u8()?;
    if bits & !3 != 0 {
        return Err(FormatError::Feature {
            structure: STRUCTURE,
            found: u32::from(bits),
        });
    }
    let flags = FileFlags {
        last: bits & 1 != 0,
        crc_known: bits & 2 != 0,
    };
    let mode = reader.u32()?;
    if mode & !0o777 != 0 {
        return Err(reader.invalid("a mode has bits beyond 0777"));
    }
    let (bytes, mtime_nanos, crc32c) = (reader.u64()?, reader.i64()?, reader.u32()?);
    if bytes > FILE_BYTES_MAX || (bytes > 0 && kind != FileKind::File) {
        return Err(reader.limit("file size", bytes, FILE_BYTES_MAX));
    }
    let path = reader.string("path length", PATH_BYTES_MAX)?.to_vec();
    let link_target = reader.string("link length", PATH_BYTES_MAX)?.to_vec();
    check_path(file, &path)?;
    if link_target.is_empty() == (kind == FileKind::Symlink) || link_target.contains(&0) {
        return Err(reader.invalid("a link has no target, or what is no link has one"));
    }
    let entry = FileEntry {
        file,
        kind,
        flags,
        mode,
        bytes,
        mtime_nanos,
        crc32c,
        path,
        link_target,
    };
    check_flags(&entry)?;
    Ok(entry)
}
