//! Log as it is received, in a place whose objects appear whole: a bucket.
//!
//!   sync       |part|part|part|      an object for what has come since the last one
//!   segment    |======segment======| one object for all of it; then the parts go
//!
//! Invariants
//! - What is durable stays so: parts go only when the object of the whole segment is there.
//! - An object that is there with the same name has the same bytes, or nothing is stored any more.

use std::path::{Path, PathBuf};

use windlass_engine::Reading;
use windlass_media::fitted;
use windlass_postgres::Lsn;

use super::GrowingLog;
use crate::content::{Compared, compare};
use crate::error::RepositoryError;
use crate::place::ObjectName;

/// Segments that are longer stay in parts: their bytes would have to be kept until they end.
const GATHERED_BYTES_MAX: u64 = 64 << 20;

/// The parts of a segment that are stored.
pub(super) struct Parts {
    /// Where the first one begins.
    start: Lsn,
    /// Their bytes.
    bytes: Vec<u8>,
    objects: Vec<PathBuf>,
}

impl Parts {
    pub(super) fn begin(start: Lsn) -> Self {
        Self {
            start,
            bytes: Vec::new(),
            objects: Vec::new(),
        }
    }
}

impl GrowingLog {
    /// Stores what has come since the last part.
    pub(super) fn put_part(&mut self) -> Result<(), RepositoryError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let start = Lsn(self.position.0 - pending.len() as u64);
        let path = self.put_object(start, &pending)?;
        self.durable = self.position;
        if let Some(parts) = &mut self.parts {
            parts.objects.push(path);
            if u64::from(self.segment_bytes) <= GATHERED_BYTES_MAX {
                parts.bytes.extend_from_slice(&pending);
            }
        }
        Ok(())
    }

    /// Ends a segment: puts one object in the place of its parts.
    pub(super) fn gather(&mut self) -> Result<(), RepositoryError> {
        let begun = Parts::begin(self.position);
        let Some(mut parts) = self.parts.replace(begun) else {
            return Ok(());
        };
        let is_kept = u64::from(self.segment_bytes) <= GATHERED_BYTES_MAX;
        if parts.objects.is_empty() || !is_kept {
            self.put_part()?;
            self.parts = Some(Parts::begin(self.position));
            return Ok(());
        }
        if parts.objects.len() == 1 && self.pending.is_empty() {
            return Ok(());
        }
        parts.bytes.append(&mut self.pending);
        let whole = self.put_object(parts.start, &parts.bytes)?;
        self.durable = self.position;
        for object in parts.objects.iter().filter(|one| **one != whole) {
            // A part that stays takes room and does no harm. Who may only write removes nothing.
            self.place.at().objects().remove(object).unwrap_or_default();
        }
        Ok(())
    }

    /// Stores bytes of the log as an object. Returns where it is.
    fn put_object(&self, start: Lsn, bytes: &[u8]) -> Result<PathBuf, RepositoryError> {
        let end = Lsn(start.0 + bytes.len() as u64);
        let path = self.place.object_path(self.timeline, start, end);
        let header = self.header(start);
        let mut object = self.place.begin_object(&path, &header, self.packing)?;
        object.append(bytes, bytes.len() as u64)?;
        if object.seal()?.is_none() {
            self.check_same((start, end), bytes, &path)?;
        }
        Ok(path)
    }

    /// Refuses to go on if the object that has a name holds something else.
    fn check_same(
        &self,
        (start, end): (Lsn, Lsn),
        bytes: &[u8],
        path: &Path,
    ) -> Result<(), RepositoryError> {
        let name = ObjectName {
            start,
            end: Some(end),
            path: path.to_owned(),
            bytes: None,
        };
        let there = (self.place).open_object(self.timeline, &name, Reading::Whole)?;
        let read = |at: Lsn, into: &mut [u8]| {
            let from = fitted::<usize, u64>(at.0 - start.0);
            into.copy_from_slice(&bytes[from..from + into.len()]);
            Ok(())
        };
        match compare(&there, (start, end), read)? {
            Compared::Same(to) if to == end => Ok(()),
            _ => Err(RepositoryError::Different {
                name: format!("{start} to {end}"),
                object: path.to_owned(),
            }),
        }
    }
}
