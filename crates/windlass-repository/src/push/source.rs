//! A segment in a file of a server, checked against its name.

use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use windlass_postgres::{Lsn, Segment, SegmentHead};

use crate::compress::Bytes;
use crate::error::{IoContext, RepositoryError};

/// A segment in a file of the server.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) segment: Segment,
    pub(crate) segment_bytes: u64,
    pub(crate) head: SegmentHead,
}

impl Source {
    /// Opens a segment, and checks that it is what its name says.
    pub(crate) fn open(path: &Path) -> Result<Self, RepositoryError> {
        let file = windlass_engine::open_regular(path).doing("open", path)?;
        let length = file.metadata().doing("examine", path)?.len();
        let refused = |what| RepositoryError::Segment {
            path: path.to_owned(),
            what,
        };
        let mut head = [0; SegmentHead::BYTES];
        if length < head.len() as u64 {
            return Err(refused("is shorter than the header of a segment"));
        }
        file.read_exact_at(&mut head, 0).doing("read", path)?;
        let head = SegmentHead::parse(&head).map_err(refused)?;
        let segment_bytes = u64::from(head.segment_bytes);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let segment = Segment::of_name(&name, segment_bytes)
            .ok_or_else(|| refused("has a name that no segment of its size has"))?;
        if length != segment_bytes {
            return Err(refused("is not as long as a segment"));
        }
        if head.start != segment.start(segment_bytes) {
            return Err(refused(
                "begins at another position of the log than its name says",
            ));
        }
        if head.timeline > segment.timeline {
            return Err(refused("begins on a newer timeline than its name says"));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            segment,
            segment_bytes,
            head,
        })
    }

    pub(crate) fn start(&self) -> Lsn {
        self.segment.start(self.segment_bytes)
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.start().0 + self.segment_bytes)
    }

    /// What tells this file from every other, and from itself after a change.
    pub(crate) fn metadata(&self) -> Result<Metadata, RepositoryError> {
        self.file.metadata().doing("examine", &self.path)
    }

    /// Its bytes from a position on.
    pub(crate) fn part_from(&self, from: Lsn) -> SourcePart<'_> {
        SourcePart { source: self, from }
    }

    pub(crate) fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), RepositoryError> {
        let read = self.file.read_exact_at(into, at.0 - self.start().0);
        read.doing("read", &self.path)
    }
}

/// The bytes of a segment from a position on.
pub(crate) struct SourcePart<'a> {
    source: &'a Source,
    from: Lsn,
}

impl Bytes for SourcePart<'_> {
    fn part<'a>(
        &'a self,
        at: u64,
        bytes: usize,
        memory: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], RepositoryError> {
        if memory.len() < bytes {
            *memory = vec![0; bytes];
        }
        let into = &mut memory[..bytes];
        self.source.read(Lsn(self.from.0 + at), into)?;
        Ok(into)
    }
}
