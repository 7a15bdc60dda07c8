//! A mount of files of zeros: what the kernel lets through when there is nothing to decode.
//!
//!   cargo run --release -p windlass-mount --example nothing_to_decode -- \
//!       DIRECTORY FILES BYTES [direct]
//!
//! Serves FILES files of BYTES bytes, named 1, 2, ..., until it is unmounted; past the kernel's
//! page cache with `direct`. `scripts/bench mount` reads them as it reads a set: the difference is
//! what fetching and decoding costs.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileFlags, FileKind, FileNo, FileTable};
use windlass_image::{Image, ImageError};
use windlass_mount::{Mount, MountOptions};

const USAGE: &str = "usage: nothing_to_decode DIRECTORY FILES BYTES [direct]";

struct Zeros(FileTable);

impl Image for Zeros {
    fn files(&self) -> &FileTable {
        &self.0
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        let entry = self.0.0.iter().find(|entry| entry.file == file);
        let bytes = entry.ok_or(ImageError::NoFile { file })?.bytes;
        let left = usize::try_from(bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(into.len());
        into[..count].fill(0);
        Ok(count)
    }
}

fn zeros(number: u32, bytes: u64) -> FileEntry {
    FileEntry {
        file: FileNo(number),
        kind: FileKind::File,
        flags: FileFlags::default(),
        mode: 0o644,
        bytes,
        mtime_nanos: 0,
        crc32c: 0,
        path: number.to_string().into_bytes(),
        link_target: Vec::new(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let at = PathBuf::from(arguments.next().ok_or(USAGE)?);
    let files: u32 = arguments.next().ok_or(USAGE)?.parse()?;
    let bytes: u64 = arguments.next().ok_or(USAGE)?.parse()?;
    let options = MountOptions {
        direct_io: arguments.next().is_some_and(|word| word == "direct"),
        ..MountOptions::default()
    };
    let table = FileTable((1..=files).map(|number| zeros(number, bytes)).collect());
    Mount::image(Arc::new(Zeros(table)), &at, &options)?.wait()?;
    Ok(())
}
