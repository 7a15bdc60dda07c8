//! Sources of a log's segments: files of a directory, or files of a set.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use windlass_media::{FileNo, FileTable};

use crate::cluster_files::ClusterFiles;
use crate::error::{IoContext, PostgresError};

/// The segments of a log by their numbers, on the timeline that recovery would choose.
pub trait LogSource {
    /// Fills `into` from a segment. Returns false if that segment does not exist.
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> Result<bool, PostgresError>;
}

/// Segments that are files on this machine.
#[derive(Debug, Default)]
pub struct SegmentFiles {
    paths: BTreeMap<u64, PathBuf>,
    opened: Option<(u64, File)>,
}

impl SegmentFiles {
    /// Takes segments, with older timelines first. A newer one repeats what the older one holds, so
    /// it wins.
    pub fn new(segments: impl IntoIterator<Item = (u64, PathBuf)>) -> Self {
        Self {
            paths: segments.into_iter().collect(),
            opened: None,
        }
    }
}

impl LogSource for SegmentFiles {
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> Result<bool, PostgresError> {
        let Some(path) = self.paths.get(&segment) else {
            return Ok(false);
        };
        let file = match self.opened.take() {
            Some((number, file)) if number == segment => file,
            _ => File::open(path).doing("open", path)?,
        };
        file.read_exact_at(into, offset).doing("read", path)?;
        self.opened = Some((segment, file));
        Ok(true)
    }
}

/// Segments that are files of a cluster's image, such as a set.
pub(crate) struct ImageSegments<'a> {
    files: &'a dyn ClusterFiles,
    segments: BTreeMap<u64, (u32, FileNo)>,
}

impl<'a> ImageSegments<'a> {
    /// Finds the segments among the image's files.
    pub(crate) fn new(files: &'a dyn ClusterFiles, segment_bytes: u64) -> Self {
        let mut segments = BTreeMap::new();
        for (timeline, number, file) in segment_entries(files.files(), segment_bytes) {
            let newest = segments.entry(number).or_insert((timeline, file));
            if newest.0 < timeline {
                *newest = (timeline, file);
            }
        }
        Self { files, segments }
    }
}

impl LogSource for ImageSegments<'_> {
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> Result<bool, PostgresError> {
        let Some((_, file)) = self.segments.get(&segment) else {
            return Ok(false);
        };
        let read = self.files.read(*file, offset, into);
        let count = read.map_err(|source| PostgresError::Set {
            what: format!("its log cannot be read: {source}"),
        })?;
        Ok(count == into.len())
    }
}

/// Timeline, number and file of every segment in pg_wal.
fn segment_entries(
    table: &FileTable,
    segment_bytes: u64,
) -> impl Iterator<Item = (u32, u64, FileNo)> {
    table.0.iter().filter_map(move |entry| {
        let name = entry.path.strip_prefix(b"pg_wal/")?;
        let (timeline, number) = segment_of_name(name, segment_bytes)?;
        Some((timeline, number, entry.file))
    })
}

/// Timeline and number of the segment that a file's name means.
pub(super) fn segment_of_name(name: &[u8], segment_bytes: u64) -> Option<(u32, u64)> {
    let name = std::str::from_utf8(name).ok()?;
    if name.len() != 24 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let word = |at: usize| u32::from_str_radix(&name[at..at + 8], 16).ok();
    let (timeline, id, within) = (word(0)?, word(8)?, word(16)?);
    let per_id = 0x1_0000_0000 / segment_bytes.max(1);
    Some((timeline, u64::from(id) * per_id + u64::from(within)))
}
