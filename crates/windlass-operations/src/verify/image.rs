//! Verifies a snapshot that is an image of files: reads all of it and, if asked to, lets the
//! database's own tools check what is in it. Its files have no checksums, so what is found without
//! these tools is only what the system itself refuses to read, and damage of pages that the hook
//! has kept: each of these has a checksum.

use std::time::Instant;

use windlass_engine::Cancel;
use windlass_engine::media::{FileKind, fitted};
use windlass_image::Image;
use windlass_snapshot::Method;

use super::Job;
use super::inspect;
use super::outcome::VerifiedImage;
use crate::error::OperationError;
use crate::snapshots::SnapshotImage;

/// How much is read at a time.
const READ_BYTES: usize = 1 << 20;

pub(super) fn verify(
    job: &Job<'_>,
    snapshot: &SnapshotImage,
) -> Result<VerifiedImage, OperationError> {
    let begun = Instant::now();
    let bytes = match job.request.quick {
        true => 0,
        false => read_all(&**snapshot.image(), job.cancel)?,
    };
    let opened = job.request.open.as_ref().map(|settings| {
        let what = snapshot.to_open()?;
        inspect::opened(job.caller, &what, settings, job.cancel)
    });
    Ok(VerifiedImage {
        title: snapshot.title(),
        has_kept_pages: snapshot.snapshot().record().method == Method::Hook,
        bytes,
        seconds: begun.elapsed().as_secs_f64(),
        opened: opened.transpose()?,
    })
}

/// Reads every byte of every file. Returns how many.
fn read_all(image: &dyn Image, cancel: &Cancel) -> Result<u64, OperationError> {
    let mut buffer = vec![0; READ_BYTES];
    let mut total = 0;
    let files = image.files().0.iter();
    for entry in files.filter(|entry| entry.kind == FileKind::File) {
        image.check_layers(entry.file)?;
        let mut offset = 0;
        while offset < entry.bytes {
            cancel.check()?;
            let length: usize = fitted((entry.bytes - offset).min(READ_BYTES as u64));
            let found = image.read(entry.file, offset, &mut buffer[..length])?;
            if found == 0 {
                break;
            }
            offset += found as u64;
        }
        total += offset;
    }
    Ok(total)
}
