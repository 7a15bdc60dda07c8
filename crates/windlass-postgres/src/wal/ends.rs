//! The first and the last part of the log in a set, by which the log of one server is told from
//! that of another.

use windlass_media::fitted;

use super::source::{ImageSegments, LogSource};
use crate::cluster_files::ClusterFiles;
use crate::error::PostgresError;
use crate::facts::DatabaseFacts;
use crate::lsn::Lsn;

/// How much of each end of a set's log is enough to know it by. Two servers write other checkpoints
/// at other times.
const END_BYTES: u64 = 64 << 10;

/// The first and the last part of the log in a set, between its start and its end: where each part
/// begins, and its bytes.
pub fn log_ends(
    files: &dyn ClusterFiles,
    facts: &DatabaseFacts,
) -> Result<[(Lsn, Vec<u8>); 2], PostgresError> {
    let segment_bytes = u64::from(facts.wal_segment_bytes);
    let (start, stop) = (facts.start_lsn.0, facts.stop_lsn.0);
    let mut segments = ImageSegments::new(files, segment_bytes);
    let mut part = |segment: u64, from: u64, to: u64| {
        let mut bytes = vec![0; fitted::<usize, u64>(to.saturating_sub(from))];
        if !segments.read(segment, from % segment_bytes, &mut bytes)? {
            bytes.clear();
        }
        Ok::<_, PostgresError>((Lsn(from), bytes))
    };
    let first = start / segment_bytes;
    let first_end = first.saturating_add(1).saturating_mul(segment_bytes);
    let last = stop.saturating_sub(1) / segment_bytes;
    let last_begin = start.max(last * segment_bytes);
    Ok([
        part(
            first,
            start,
            stop.min(first_end).min(start.saturating_add(END_BYTES)),
        )?,
        part(last, last_begin.max(stop.saturating_sub(END_BYTES)), stop)?,
    ])
}
