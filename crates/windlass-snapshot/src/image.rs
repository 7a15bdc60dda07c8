//! A snapshot whose files lie in its directory one by one, as an image.
//!
//!   files          the list: paths, kinds, modes, lengths
//!   data/NUMBER    the content of each regular file that has any
//!
//! The files have their numbers as names, so no path of the database has to be one of the
//! snapshot's directory. The list is checked against the checksum in the record. The content has no
//! checksum: it is the file system that keeps it, as it keeps the database.

use std::fs::{DirBuilder, File, Metadata};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use windlass_engine::media::{FileKind, FileNo, FileTable, crc32c};
use windlass_engine::{durable, open_regular, read_regular_at_most};
use windlass_image::DirectoryImage;

use crate::error::{Doing, SnapshotError};
use crate::record::Record;

/// What is wrong with a file.
pub(crate) const GONE: &str = "it is not there";
const CUT: &str = "it is shorter than it was";
const LIST: &str = "files";
const DATA: &str = "data";
/// A longer list is none. An entry takes about a hundred bytes.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// Makes the directory of the files.
pub(crate) fn make_data(directory: &Path) -> Result<PathBuf, SnapshotError> {
    let data = directory.join(DATA);
    let made = DirBuilder::new().mode(0o700).create(&data);
    made.doing("make the directory", &data)?;
    Ok(data)
}

/// Removes the directory of the files, with all of them.
pub(crate) fn remove_data(directory: &Path) -> Result<(), SnapshotError> {
    let data = directory.join(DATA);
    std::fs::remove_dir_all(&data).doing("remove", &data)
}

/// The file of this number.
pub(crate) fn file_in(directory: &Path, file: FileNo) -> PathBuf {
    directory.join(DATA).join(file.0.to_string())
}

/// Opens the content of this file, without waiting.
pub(crate) fn open_file(directory: &Path, file: FileNo) -> Result<File, SnapshotError> {
    let path = file_in(directory, file);
    look_at(&path)?;
    open_regular(&path).doing("open", &path)
}

/// Looks at the content of a file. Fails if it is gone, or if something else is in its place: a
/// pipe would wait for a writer for ever.
fn look_at(path: &Path) -> Result<Metadata, SnapshotError> {
    let damaged = |what| SnapshotError::Damaged {
        path: path.to_owned(),
        what,
    };
    let found = match path.symlink_metadata() {
        Err(error) if durable::is_absent(&error) => return Err(damaged(GONE)),
        found => found.doing("inspect", path)?,
    };
    match found.is_file() {
        true => Ok(found),
        false => Err(damaged("it is not a regular file")),
    }
}

/// Writes the list of files, durably. Returns its checksum.
pub(crate) fn write_list(directory: &Path, files: &FileTable) -> Result<u32, SnapshotError> {
    let path = directory.join(LIST);
    let bytes = files.encode().map_err(std::io::Error::other);
    let bytes = bytes.doing("encode", &path)?;
    durable::write(&path, &bytes, 0o600).doing("write", &path)?;
    Ok(crc32c(&bytes))
}

/// The list of files in this directory.
fn list(directory: &Path, record: &Record) -> Result<FileTable, SnapshotError> {
    let path = directory.join(LIST);
    let damaged = |what| SnapshotError::Damaged {
        path: path.clone(),
        what,
    };
    let bytes = match read_regular_at_most(&path, LIST_BYTES_MAX) {
        Err(error) if durable::is_absent(&error) => return Err(damaged(GONE)),
        bytes => bytes.doing("read", &path)?,
    };
    if Some(crc32c(&bytes)) != record.files_crc32c {
        return Err(damaged("its checksum is not the one in the record"));
    }
    FileTable::decode(&bytes).map_err(|_| damaged("it is no list of files"))
}

/// Fails if the content of a file is gone, shorter than it was, or something else.
pub(crate) fn check_there(directory: &Path, record: &Record) -> Result<(), SnapshotError> {
    let files = list(directory, record)?;
    let files = files.0.iter();
    for entry in files.filter(|entry| entry.kind == FileKind::File && entry.bytes > 0) {
        let path = file_in(directory, entry.file);
        if look_at(&path)?.len() < entry.bytes {
            return Err(SnapshotError::Damaged { path, what: CUT });
        }
    }
    Ok(())
}

/// The image of the snapshot in this directory.
pub(crate) fn open(directory: &Path, record: &Record) -> Result<DirectoryImage, SnapshotError> {
    let files = list(directory, record)?;
    let paths = files.0.iter().map(|entry| file_in(directory, entry.file));
    let paths = paths.collect();
    let identity = blake3::hash(record.id.as_bytes());
    Ok(DirectoryImage::of_files(files, paths, *identity.as_bytes()))
}
