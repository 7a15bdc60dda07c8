//! What the log of a backup would do to files during replay, and whether the set is right for that.
//!
//! When the log says that the server copied a database's directory, replay copies it again. The
//! server logs this for `ALTER DATABASE ... SET TABLESPACE`, for `CREATE DATABASE ... STRATEGY
//! file_copy`, and on 14 for every `CREATE DATABASE`. Replay takes the source of the copy as it
//! then is in the restored cluster. The backup read that source at another moment, or not at all.
//! So the copy is wrong unless the source stood still.
//!
//! An unlogged relation gets its `_init` fork at the end of its first build, which may take hours.
//! A listing before that moment has its main fork as one of an ordinary relation. At the end of
//! recovery the server makes the main fork out of the `_init`, and does not start if it is there.
//!
//! Replay also makes a tablespace again at the very path where the source has it. That path may
//! belong to a live cluster.
//!
//! Invariants
//! - The survey reads the whole log that goes into the set, also behind the stop position, because
//!   recovery replays everything that is there.
//! - In doubt, the survey says that the set is not right.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_media::FileKind;

use super::log::{FoundSegment, LogRange};
use crate::error::{IoContext, PostgresError};
use crate::facts::ClusterFacts;
use crate::listing::{Attributes, Listing, Moment};
use crate::lsn::Lsn;
use crate::tablespace::DEFAULT_TABLESPACE;
use crate::wal::effects::{DatabaseDirectory, Effect, MANAGERS, next_effect};
use crate::wal::records::Records;
use crate::wal::source::SegmentFiles;
use crate::windows::WindowCause;

/// What the log of a window says.
pub(super) struct Survey {
    /// The first reason for another window.
    pub(super) cause: Option<WindowCause>,
    /// Behind this position there are only zeros, because the server ended its last segment there.
    pub(super) switched: Option<Lsn>,
}

/// Reads the log of a window that began at `began` and listed these files.
pub(super) fn survey(
    cluster: &ClusterFacts,
    listing: &Listing,
    range: LogRange,
    segments: &[FoundSegment],
    began: Moment,
) -> Result<Survey, PostgresError> {
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
    let mut unlogged = Unlogged {
        cluster,
        listing,
        positions: None,
        wrong: None,
    };
    while let Some((record, effect)) = next_effect(&mut records)? {
        match effect {
            // Without a path the tablespace is made in place, below pg_tblspc.
            Effect::TablespaceCreated { tablespace, path } if !path.is_empty() => {
                created.get_or_insert(WindowCause::TablespaceCreated {
                    tablespace,
                    location: String::from_utf8_lossy(&path).into_owned(),
                    lsn: record.start,
                });
            }
            Effect::UnloggedCreated {
                directory,
                relation,
            } => unlogged.note((directory, relation), record.start),
            effect => copies.note(&effect, record.start)?,
        }
    }
    if let Some(end) = records.end().filter(|end| end.at < range.stop) {
        return Err(PostgresError::WalRecord {
            at: end.at,
            what: end.what,
        });
    }
    let switched = records.switched();
    let latest = copies.wrong.into_iter().max_by_key(|(_, (lsn, _))| *lsn);
    let copied = latest.map(|(to, (lsn, from))| WindowCause::DatabaseCopied {
        database: to.database,
        name: None,
        template: Some(from.database),
        lsn,
    });
    Ok(Survey {
        cause: copied.or(created).or(unlogged.wrong),
        switched,
    })
}

/// Tablespaces that the map names and the set does not hold. Recovery would make links to where
/// they were in the source.
pub(super) fn unlisted(map: &BTreeSet<u32>, listed: &BTreeSet<u32>) -> Option<WindowCause> {
    let tablespace = map.difference(listed).next()?;
    Some(WindowCause::TablespaceDropped {
        tablespace: *tablespace,
    })
}

/// The directories that replay copies, and which of these copies would be wrong.
struct Copies<'a> {
    cluster: &'a ClusterFacts,
    began: Moment,
    /// The wrong copies, each with the log position that says so and with its source. The set does
    /// not hold the source as it was then.
    wrong: BTreeMap<DatabaseDirectory, (Lsn, DatabaseDirectory)>,
    /// For each directory, whether it has stood still since before the window began.
    still: HashMap<DatabaseDirectory, bool>,
}

/// The unlogged relations that were listed as ordinary ones.
struct Unlogged<'a> {
    cluster: &'a ClusterFacts,
    listing: &'a Listing,
    /// The listing by path; made when it is first needed.
    positions: Option<Vec<u32>>,
    /// The last of them.
    wrong: Option<WindowCause>,
}

impl Unlogged<'_> {
    fn note(&mut self, (directory, relation): (DatabaseDirectory, u32), lsn: Lsn) {
        let main = format!("{}/{relation}", below(self.cluster, directory));
        let positions = self.positions.get_or_insert_with(|| self.listing.by_path());
        let is_listed = |path: &str| self.listing.find(positions, path.as_bytes()).is_some();
        if is_listed(&main) && !is_listed(&format!("{main}_init")) {
            self.wrong = Some(WindowCause::UnloggedCreated { file: main, lsn });
        }
    }
}

/// A database's directory, relative to the data directory.
fn below(cluster: &ClusterFacts, directory: DatabaseDirectory) -> String {
    let DatabaseDirectory {
        database,
        tablespace,
    } = directory;
    if tablespace == DEFAULT_TABLESPACE {
        return format!("base/{database}");
    }
    format!(
        "pg_tblspc/{tablespace}/{}/{database}",
        cluster.version_directory()
    )
}

impl Copies<'_> {
    fn note(&mut self, effect: &Effect, lsn: Lsn) -> Result<(), PostgresError> {
        if let Effect::DatabaseCopied { to, from } = effect
            && (self.wrong.contains_key(from) || !self.stood_still(*from)?)
        {
            self.wrong.insert(*to, (lsn, *from));
        }
        // Replay deletes the directory again, so a wrong copy in it does not matter.
        if let Effect::DatabaseDropped(directories) = effect {
            for directory in directories {
                self.wrong.remove(directory);
            }
        }
        Ok(())
    }

    /// True if nobody has written to a database's directory since before the window began. Then the
    /// set holds it as it was at every moment of the window.
    fn stood_still(&mut self, directory: DatabaseDirectory) -> Result<bool, PostgresError> {
        if let Some(known) = self.still.get(&directory) {
            return Ok(*known);
        }
        let path = self.path(directory);
        // A file system may leave entries out of a list, so the directory is read twice.
        let is_older = || is_older(&path, self.began).doing("examine", &path);
        let answer = is_older()? && is_older()?;
        self.still.insert(directory, answer);
        Ok(answer)
    }

    fn path(&self, directory: DatabaseDirectory) -> PathBuf {
        let root = &self.cluster.data_directory;
        root.join(below(self.cluster, directory))
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
    // Check the directory last, so that an entry made or removed meanwhile is noticed.
    older(std::fs::metadata(directory))
}
