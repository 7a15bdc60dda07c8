//! What a snapshot's directory says: which snapshot of which server it is, and where each file is.
//!
//!   hook.json   the document      files   the file table      copied/N   small files, by number
//!
//! The document is written last. A directory without it is what a killed creation left.
//!
//!   record --> checksum of hook.json --> checksum of files --> checksum of each copied/N
//!
//! So nothing of another snapshot is taken for that of this one. The document ends with its own
//! checksum, for whoever has no record. Older versions of Windlass wrote none of these.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use windlass_engine::media::{FileEntry, FileNo, FileTable, crc32c, crc32c_zeros_after};
use windlass_engine::{durable, open_regular, read_regular_at_most};
use windlass_image::layout::hook::FileKey;
use windlass_postgres::DatabaseFacts;

use super::control::Control;
use super::durable::Durable;
use super::error::{HookError, HookIo};
use super::links::{Linked, Pin};
use super::moved::Moved;

/// The directory for the content, in the directory of the snapshot.
pub(crate) const CONTENT: &str = "hook";
const DOCUMENT: &str = "hook.json";
const TABLE: &str = "files";
const COPIED: &str = "copied";
const VERSION: u32 = 1;
const PRIVATE_MODE: u32 = 0o600;
/// Longest document or table: some millions of files.
const BYTES_MAX: u64 = 1 << 30;
/// The beginning of a document, with two paths.
const HEAD_BYTES: u64 = 64 << 10;
/// What comes after it. No text has this inside: a quote in a text has a backslash before it.
const HEAD_END: &[u8] = b",\"links\":";
/// What stands before and after the checksum of all before it, which is the document's last key.
const SUM: &[u8] = b",\"crc32c\":\"";
const SUM_END: &[u8] = b"\"}";
/// With its eight digits.
const SUM_BYTES: usize = SUM.len() + 8 + SUM_END.len();
/// Bytes that are summed up at a time.
const SUMMED_BYTES: usize = 64 << 10;

/// Where the bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    /// It has none, or is no file.
    Nothing,
    /// In the snapshot's directory.
    Copied,
    /// In the database's own file and in the store.
    Linked {
        /// Which directory of links.
        directory: usize,
        /// The link's name there.
        name: u32,
        /// The file.
        device: u32,
        /// The file.
        inode: u64,
    },
    /// The same, but without a link. The file has its own name, or one in a graveyard.
    Named {
        /// The file.
        device: u32,
        /// The file.
        inode: u64,
        /// When it was made, in nanoseconds.
        born: i64,
    },
}

impl Kept {
    pub(crate) fn linked(linked: &Linked) -> Self {
        let FileKey { device, inode } = linked.key;
        match linked.pin {
            Pin::Link { directory, name } => Self::Linked {
                directory,
                name,
                device,
                inode,
            },
            Pin::Name { born } => Self::Named {
                device,
                inode,
                born,
            },
        }
    }

    /// The database's own file that has the bytes.
    pub(crate) fn key(&self) -> Option<FileKey> {
        match *self {
            Self::Linked { device, inode, .. } | Self::Named { device, inode, .. } => {
                Some(FileKey { device, inode })
            }
            Self::Nothing | Self::Copied => None,
        }
    }
}

/// The document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    version: u32,
    /// The snapshot's number in the shared memory.
    pub(crate) number: u32,
    /// The data directory of the server.
    pub(crate) data: PathBuf,
    /// The system's start during which the snapshot was made. The shared memory ends with it.
    pub(crate) boot: String,
    /// The inode of the shared memory's file.
    pub(crate) control_inode: u64,
    /// Bytes of a page.
    pub(crate) page_bytes: u32,
    /// Distinguishes the snapshot from every other.
    pub(crate) identity: [u8; 32],
    /// The directories with the links to the database's files.
    pub(crate) links: Vec<PathBuf>,
    /// The graveyards for files that have no link.
    #[serde(default)]
    pub(crate) graves: Vec<PathBuf>,
    /// Where each file of the table is, in its order.
    pub(crate) kept: Vec<Kept>,
    /// What the files are.
    pub(crate) database: DatabaseFacts,
    /// How it is found after a power cut, if it is durable.
    #[serde(default)]
    pub(crate) durable: Option<Durable>,
    /// The checksum of the table. Older versions of Windlass wrote none.
    #[serde(default)]
    files_crc32c: Option<u32>,
}

/// The beginning of the document: which snapshot it is, and which memory that is in.
#[derive(PartialEq, Eq, Deserialize)]
struct Head {
    number: u32,
    boot: String,
    control_inode: u64,
    identity: [u8; 32],
}

impl Head {
    /// `None` if it is not there, or not as this version writes it.
    fn read(directory: &Path) -> Option<Self> {
        let file = open_regular(&directory.join(DOCUMENT)).ok()?;
        let mut bytes = Vec::new();
        file.take(HEAD_BYTES).read_to_end(&mut bytes).ok()?;
        let mut parts = bytes.windows(HEAD_END.len());
        let end = parts.position(|part| part == HEAD_END)?;
        bytes.truncate(end);
        bytes.push(b'}');
        serde_json::from_slice(&bytes).ok()
    }
}

impl Document {
    /// Whether the snapshot in a directory was made in this memory, during this start of the
    /// system. Only the beginning of the document is read, because all of it takes long for a large
    /// cluster.
    pub(crate) fn is_from(directory: &Path, (boot, control_inode): (&str, u64)) -> bool {
        let head = Head::read(directory);
        head.is_some_and(|head| head.boot == boot && head.control_inode == control_inode)
    }

    /// Whether the documents in two directories are of the same snapshot: one is a copy.
    pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
        let one = Head::read(one);
        one.is_some() && one == Head::read(other)
    }

    /// The document of a snapshot that was just made.
    pub(crate) fn new(
        number: u32,
        control_inode: u64,
        database: DatabaseFacts,
    ) -> Result<Self, HookError> {
        let boot = boot()?;
        let mut hasher = blake3::Hasher::new();
        for part in [
            database.system_identifier.as_bytes(),
            database.start_time.as_bytes(),
            boot.as_bytes(),
            &number.to_le_bytes(),
        ] {
            hasher.update(&part.len().to_le_bytes());
            hasher.update(part);
        }
        Ok(Self {
            version: VERSION,
            number,
            data: PathBuf::from(&database.data_directory),
            boot,
            control_inode,
            page_bytes: database.block_bytes,
            identity: *hasher.finalize().as_bytes(),
            links: Vec::new(),
            graves: Vec::new(),
            kept: Vec::new(),
            database,
            durable: None,
            files_crc32c: None,
        })
    }

    /// Writes the table, and then the document. The document is durable: after a power cut it says
    /// what is left to be removed.
    pub(crate) fn write(&mut self, directory: &Path, table: &FileTable) -> Result<(), HookError> {
        let fault = |what: String| HookError::Document {
            path: directory.into(),
            what,
        };
        let bytes = table.encode().map_err(|error| fault(error.to_string()))?;
        self.files_crc32c = Some(crc32c(&bytes));
        write(&directory.join(TABLE), &bytes)?;
        let mut bytes = serde_json::to_vec(&*self).map_err(|error| fault(error.to_string()))?;
        // One more key comes behind the last.
        bytes.pop();
        let digits = format!("{:08x}", crc32c(&bytes));
        for part in [SUM, digits.as_bytes(), SUM_END] {
            bytes.extend_from_slice(part);
        }
        let path = directory.join(DOCUMENT);
        durable::write(&path, &bytes, PRIVATE_MODE).doing("write", &path)
    }

    /// Reads the document; `None` if the directory has none.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, HookError> {
        Self::read_of(directory, None)
    }

    /// The same, if the record of the snapshot has this checksum of the document.
    pub(crate) fn read_of(
        directory: &Path,
        recorded: Option<u32>,
    ) -> Result<Option<Self>, HookError> {
        let path = directory.join(DOCUMENT);
        let damaged = |what: &str| HookError::damaged(&path, what);
        let bytes = match read(&path) {
            Err(HookError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return match recorded {
                    Some(_) => Err(damaged("it is not there")),
                    None => Ok(None),
                };
            }
            bytes => bytes?,
        };
        let sum = sum_at_end(&bytes);
        if sum.is_some_and(|sum| sum != crc32c(&bytes[..bytes.len() - SUM_BYTES])) {
            return Err(damaged("its checksum is wrong"));
        }
        if recorded.is_some() && sum != recorded {
            return Err(damaged("its checksum is not the one in the record"));
        }
        let found: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        let has_known = found.version == VERSION && found.page_bytes.is_power_of_two();
        match has_known {
            true => Ok(Some(found.led())),
            false => Err(HookError::Document {
                what: format!("it has version {}", found.version),
                path,
            }),
        }
    }

    /// The checksum at the end of the document in a directory, for the record.
    pub(crate) fn checksum(directory: &Path) -> Result<Option<u32>, HookError> {
        let path = directory.join(DOCUMENT);
        let file = File::open(&path).doing("open", &path)?;
        let bytes = file.metadata().doing("examine", &path)?.len();
        let mut end = [0; SUM_BYTES];
        let read = file.read_exact_at(&mut end, bytes.saturating_sub(SUM_BYTES as u64));
        read.doing("read", &path)?;
        Ok(sum_at_end(&end))
    }

    /// Removes the document from a directory if it is not to be believed: then it could name the
    /// number of another snapshot. True if it was not.
    pub(crate) fn disbelieve(directory: &Path, recorded: Option<u32>) -> Result<bool, HookError> {
        match Self::read_of(directory, recorded) {
            Err(error) if error.is_damage() || matches!(error, HookError::Document { .. }) => {}
            document => return document.map(|_| false),
        }
        forget_document(directory).map(|()| true)
    }

    /// With the paths of today, if the data directory has another name by now.
    fn led(mut self) -> Self {
        let kept = self.links.iter().chain(&self.graves);
        let moved = Moved::of(&self.data, kept, |control| self.is_of(control));
        let Some(moved) = moved else {
            return self;
        };
        for path in self.links.iter_mut().chain(&mut self.graves) {
            moved.lead(path);
        }
        self.data = moved.today().to_owned();
        self
    }

    /// Whether the snapshot is in this memory. That of a durable one may be a later one.
    fn is_of(&self, control: &Control) -> bool {
        match &self.durable {
            Some(durable) => durable.is_in(control.memory(), self.number),
            None => {
                let inode = control.inode().ok();
                inode == Some(self.control_inode) && boot().is_ok_and(|boot| boot == self.boot)
            }
        }
    }

    /// The first of some files, by its name in the data directory. `None` if the snapshot in this
    /// directory has none of them.
    pub(crate) fn name_of(
        &self,
        directory: &Path,
        wanted: &dyn Fn(FileKey) -> bool,
    ) -> Option<String> {
        let position = self
            .kept
            .iter()
            .position(|kept| kept.key().is_some_and(wanted))?;
        let table = self.table(directory).ok()?;
        table.0.get(position).map(FileEntry::path_lossy)
    }

    /// Whether a directory has a document.
    pub(crate) fn is_in(directory: &Path) -> bool {
        let found = directory.join(DOCUMENT).symlink_metadata();
        // What cannot be looked at now is not gone.
        !found.is_err_and(|error| durable::is_absent(&error))
    }

    /// Fails if the table in a directory is gone or empty.
    pub(crate) fn check_table(directory: &Path) -> Result<(), HookError> {
        let path = directory.join(TABLE);
        match path.metadata() {
            Ok(found) if found.len() > 0 => Ok(()),
            Ok(_) => Err(HookError::damaged(&path, "it is empty")),
            Err(error) if durable::is_absent(&error) => {
                Err(HookError::damaged(&path, "it is not there"))
            }
            Err(error) => Err(HookError::io("examine", &path, error)),
        }
    }

    /// Reads the table.
    pub(crate) fn table(&self, directory: &Path) -> Result<FileTable, HookError> {
        let path = directory.join(TABLE);
        let damaged = |what: &str| HookError::damaged(&path, what);
        let bytes = match read(&path) {
            Err(HookError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(damaged("it is not there"));
            }
            bytes => bytes?,
        };
        if self.files_crc32c.is_some_and(|sum| sum != crc32c(&bytes)) {
            return Err(damaged("its checksum is wrong"));
        }
        let table = FileTable::decode(&bytes);
        let table = table.map_err(|error| damaged(&error.to_string()))?;
        match table.0.len() == self.kept.len() {
            true => Ok(table),
            false => Err(damaged("it lists other files than the document")),
        }
    }
}

/// The checksum at the end of a document; `None` if it ends as those of older versions.
fn sum_at_end(bytes: &[u8]) -> Option<u32> {
    let end: &[u8] = bytes.last_chunk::<SUM_BYTES>()?;
    let digits = end.strip_prefix(SUM)?.strip_suffix(SUM_END)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Notes the checksum of each copy in the table, unless it is known.
pub(crate) fn sum_copies(
    directory: &Path,
    table: &mut FileTable,
    kept: &[Kept],
) -> Result<(), HookError> {
    for (entry, kept) in table.0.iter_mut().zip(kept) {
        if *kept == Kept::Copied && !entry.flags.crc_known {
            let path = copied(directory, entry.file);
            let summed = File::open(&path).and_then(|file| sum_of(&file));
            entry.crc32c = summed.doing("read", &path)?.0;
            entry.flags.crc_known = true;
        }
    }
    Ok(())
}

/// The checksum of a file, and its length.
pub(crate) fn sum_of(file: &File) -> std::io::Result<(u32, u64)> {
    let mut buffer = vec![0; SUMMED_BYTES];
    let (mut sum, mut at) = (0_u32, 0_u64);
    loop {
        let count = match file.read_at(&mut buffer, at) {
            Ok(0) => return Ok((sum, at)),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        sum = crc32c_zeros_after(sum, count as u64) ^ crc32c(&buffer[..count]);
        at += count as u64;
    }
}

/// Fails if there is a document that this user may not read. One that nobody can read goes.
pub(crate) fn check_readable(directory: &Path) -> Result<(), HookError> {
    let path = directory.join(DOCUMENT);
    match open_regular(&path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(HookError::io("open", &path, error))
        }
        _ => Ok(()),
    }
}

/// Removes the document, durably. What is left belongs to no server.
pub(crate) fn forget_document(directory: &Path) -> Result<(), HookError> {
    let path = directory.join(DOCUMENT);
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(&path),
        _ => std::fs::remove_file(&path),
    };
    match durable::if_there(removed).doing("remove", &path)? {
        Some(()) => durable::sync_parent(&path).doing("sync the directory of", &path),
        None => Ok(()),
    }
}

/// Where the copy of a small file is.
pub(crate) fn copied(directory: &Path, file: FileNo) -> PathBuf {
    directory.join(COPIED).join(file.0.to_string())
}

/// Makes the directory of the copies.
pub(crate) fn make_copied(directory: &Path) -> Result<(), HookError> {
    let path = directory.join(COPIED);
    std::fs::create_dir(&path).doing("create", &path)
}

/// Writes a file that must not exist.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), HookError> {
    let mut file = File::create_new(path).doing("create", path)?;
    file.write_all(bytes).doing("write", path)
}

fn read(path: &Path) -> Result<Vec<u8>, HookError> {
    let bytes = read_regular_at_most(path, BYTES_MAX);
    bytes.map_err(|error| match is_damage(&error) {
        true => HookError::damaged(path, error.to_string()),
        false => HookError::io("read", path, error),
    })
}

/// Whether the system cannot read what is there, however often it is asked.
pub(crate) fn is_damage(error: &std::io::Error) -> bool {
    let is_other = matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::InvalidData
    );
    let errno = Errno::from_io_error(error);
    let errnos = [
        Errno::IO,
        Errno::BADMSG,
        Errno::ISDIR,
        Errno::NOTDIR,
        Errno::LOOP,
        Errno::NXIO,
    ];
    is_other || errno.is_some_and(|errno| errnos.contains(&errno))
}

/// Names the system's start.
pub(crate) fn boot() -> Result<String, HookError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).doing("read", path)?;
    Ok(text.trim().to_owned())
}
