//! What the log of a backup would do to files when it is replayed, and whether the set is right
//! for that.
//!
//! Replay copies a database's directory again where the log says that the server copied it
//! (`ALTER DATABASE ... SET TABLESPACE`, `CREATE DATABASE ... STRATEGY file_copy`; every
//! `CREATE DATABASE` on 14). It takes the source as it then is in the restored cluster. The backup
//! read the source at another moment, or not at all, so the copy is wrong unless the source stood
//! still. Replay makes a tablespace again at the very path where the source has it, which may be
//! that of a live cluster.
//!
//! Invariants
//! - The whole log that goes into the set is looked at, not only as far as the stop position:
//!   recovery goes on to the end of what is there.
//! - In doubt the answer is that the set is not right.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_media::FileKind;

use super::log::{FoundSegment, LogRange};
use crate::error::{IoContext, PostgresError};
use crate::facts::{ClusterFacts, WindowCause};
use crate::listing::{Attributes, Moment};
use crate::lsn::Lsn;
use crate::tablespace::DEFAULT_TABLESPACE;
use crate::wal::effects::{DatabaseDirectory, Effect, MANAGERS, next_effect};
use crate::wal::records::Records;
use crate::wal::source::SegmentFiles;

/// Reads the log of a window that began at `began`; the first record that asks for another window.
pub(super) fn survey(
    cluster: &ClusterFacts,
    range: LogRange,
    segments: &[FoundSegment],
    began: Moment,
) -> Result<Option<WindowCause>, PostgresError> {
    let mut files = SegmentFiles::new(
        segments
            .iter()
            .map(|found| (found.number(), found.path.clone())),
    );
    let segment_bytes = u64::from(cluster.wal_segment_bytes);
    let mut records = Records::open(&mut files, segment_bytes, range.start, &MANAGERS)?;
    let mut copies = Copies {
        cluster,
        began,
        wrong: BTreeMap::new(),
        still: HashMap::new(),
    };
    let mut created = None;
    while let Some((record, effect)) = next_effect(&mut records)? {
        match effect {
            // Without a path it is made in place, below pg_tblspc.
            Effect::TablespaceCreated { tablespace, path } if !path.is_empty() => {
                created.get_or_insert(WindowCause::TablespaceCreated {
                    tablespace,
                    location: String::from_utf8_lossy(&path).into_owned(),
                    lsn: record.start,
                });
            }
            effect => copies.note(&effect, record.start)?,
        }
    }
    if let Some(end) = records.end().filter(|end| end.at < range.stop) {
        return Err(PostgresError::WalRecord {
            at: end.at,
            what: end.what,
        });
    }
    let latest = copies.wrong.into_iter().max_by_key(|(_, lsn)| *lsn);
    let copied = latest.map(|(to, lsn)| WindowCause::DatabaseCopied {
        database: to.database,
        lsn,
    });
    Ok(copied.or(created))
}

/// Tablespaces that the map names and the set does not hold: recovery would link to where they
/// were in the source.
pub(super) fn unlisted(map: &BTreeSet<u32>, listed: &BTreeSet<u32>) -> Option<WindowCause> {
    let tablespace = map.difference(listed).next()?;
    Some(WindowCause::TablespaceDropped {
        tablespace: *tablespace,
    })
}

/// The directories that replay copies, and which of the copies would be wrong.
struct Copies<'a> {
    cluster: &'a ClusterFacts,
    began: Moment,
    /// Copies of a source that the set does not hold as it then was, and where the log says so.
    wrong: BTreeMap<DatabaseDirectory, Lsn>,
    /// Whether a directory stood still since before the window began.
    still: HashMap<DatabaseDirectory, bool>,
}

impl Copies<'_> {
    fn note(&mut self, effect: &Effect, lsn: Lsn) -> Result<(), PostgresError> {
        if let Effect::DatabaseCopied { to, from } = effect
            && (self.wrong.contains_key(from) || !self.stood_still(*from)?)
        {
            self.wrong.insert(*to, lsn);
        }
        // Whatever replay made of it is gone again.
        if let Effect::DatabaseDropped(directories) = effect {
            for directory in directories {
                self.wrong.remove(directory);
            }
        }
        Ok(())
    }

    /// True when nothing in a database's directory was written since before the window began:
    /// the set then holds it as it was at every moment of the window.
    fn stood_still(&mut self, directory: DatabaseDirectory) -> Result<bool, PostgresError> {
        if let Some(known) = self.still.get(&directory) {
            return Ok(*known);
        }
        let path = self.path(directory);
        let answer = is_older(&path, self.began).doing("examine", &path)?;
        self.still.insert(directory, answer);
        Ok(answer)
    }

    fn path(&self, directory: DatabaseDirectory) -> PathBuf {
        let root = &self.cluster.data_directory;
        let database = directory.database.to_string();
        if directory.tablespace == DEFAULT_TABLESPACE {
            return root.join("base").join(database);
        }
        let tablespace = directory.tablespace.to_string();
        let version = self.cluster.version_directory();
        let links = root.join("pg_tblspc").join(tablespace);
        links.join(version).join(database)
    }
}

/// True when a directory and all its entries were last changed well before `moment`.
fn is_older(directory: &Path, moment: Moment) -> io::Result<bool> {
    let older = |metadata: io::Result<std::fs::Metadata>| match metadata {
        Ok(metadata) => {
            let attributes = Attributes::of(&metadata, FileKind::File);
            Ok(attributes.is_older_than(moment) && metadata.nlink() > 0)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    for entry in entries {
        if !older(entry?.metadata())? {
            return Ok(false);
        }
    }
    // Last, so that an entry made or removed meanwhile is noticed.
    older(std::fs::metadata(directory))
}
