//! Small documents beside the stripes of a set: holds, marks, and new envelopes of its key. Each is
//! one object. Unlike everything else in a bucket, a document may be written again.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use object_store::PutPayload;
use windlass_engine::media::saturated;
use windlass_engine::{Beside, Lies, ReadAt};

use crate::error::ObjectError;
use crate::location::{Location, is_in_bucket};
use crate::storage::{Buckets, missing, nanos};

/// Longest document that is read.
const BYTES_MAX: u64 = 1 << 20;

/// Whether a location is, by its name, that of a document.
pub(crate) fn is_document(location: &Path) -> bool {
    is_in_bucket(location) && Beside::of(location).is_some()
}

/// A document, or another object, that was read whole.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) location: PathBuf,
    pub(crate) length: u64,
    /// Empty if it is longer than documents are.
    pub(crate) bytes: Bytes,
}

impl Buckets {
    pub(crate) fn look_at_document(&self, location: &Path) -> Result<Lies, ObjectError> {
        let at = Location::parse(location)?;
        let bucket = self.bucket(&at)?;
        let found = bucket.wait(bucket.head(&at.key))?;
        let meta = found.ok_or_else(|| missing(&at))?;
        Ok(Lies::File {
            bytes: meta.size,
            modified_nanos: nanos(&meta),
        })
    }

    pub(crate) fn open_document(&self, location: &Path) -> Result<Document, ObjectError> {
        let at = Location::parse(location)?;
        let bucket = self.bucket(&at)?;
        let got = bucket.wait(bucket.get(&at.key, BYTES_MAX))?;
        let got = got.ok_or_else(|| missing(&at))?;
        Ok(Document {
            location: location.to_owned(),
            length: got.meta.size,
            bytes: got.bytes,
        })
    }

    pub(crate) fn write_document(
        &self,
        location: &Path,
        content: &[u8],
    ) -> Result<(), ObjectError> {
        let at = Location::parse(location)?;
        let bucket = self.bucket(&at)?;
        let payload = PutPayload::from(content.to_vec());
        bucket.wait(bucket.put(&at.key, payload))
    }

    pub(crate) fn remove_document(&self, location: &Path) -> Result<(), ObjectError> {
        let at = Location::parse(location)?;
        let bucket = self.bucket(&at)?;
        bucket.wait(bucket.delete(&at.key))
    }
}

impl ReadAt for Document {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let from: usize = saturated(offset);
        let rest = self.bytes.get(from..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn name(&self) -> Option<PathBuf> {
        Some(self.location.clone())
    }
}
