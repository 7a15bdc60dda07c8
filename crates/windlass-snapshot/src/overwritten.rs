//! A state of a database that a revert or an undo overwrote, in the directory of the snapshot that
//! it is the difference to.
//!
//!   NAME/undo.3      of a SQLite database: its pages (undo.rs)
//!   NAME/before.3/   of a cluster: pages, log and more (cluster_back/kept.rs)
//!
//! Its number, which no other state of the database has, names it: `undo:3`. States do not need
//! each other, so each can go without the others. One without a number is of an older version of
//! Windlass, which kept one state for each snapshot; it counts as number 0.
//!
//! Invariants
//! - A state is complete before it has its name.
//! - A state that was brought back goes when the one that was overwritten for it is complete.

use std::fmt;
use std::path::{Path, PathBuf};

use windlass_engine::media::crc32c;
use windlass_engine::{durable, read_regular_at_most};
use windlass_postgres::Control;

use crate::error::{Doing, SnapshotError};
use crate::undo::{self, BY_UNDO, UndoRecord};
use crate::usage;

/// The file of a SQLite database's state.
const FILE: &str = "undo";
/// The directory of a cluster's state.
const DIRECTORY: &str = "before";
const PRIVATE_MODE: u32 = 0o600;
/// What stands in front of a number. The name of a snapshot has no colon.
const WORD: &str = "undo:";

/// What names a state: `undo:3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UndoNumber(pub u32);

impl UndoNumber {
    /// Takes a name. `None` if it is not that of a state.
    ///
    /// ```
    /// use windlass_snapshot::UndoNumber;
    ///
    /// assert_eq!(UndoNumber::parse("undo:3"), Some(UndoNumber(3)));
    /// assert_eq!(UndoNumber::parse("undo-3"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        text.strip_prefix(WORD)?.parse().ok().map(Self)
    }

    fn after(self, base: &str) -> String {
        match self.0 {
            0 => base.to_owned(),
            number => format!("{base}.{number}"),
        }
    }
}

impl fmt::Display for UndoNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{WORD}{}", self.0)
    }
}

/// What became of a revert, or of an undo, that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Whether it was an undo.
    pub is_undo: bool,
    /// Whether the database went back. If not, it is as it was before.
    pub is_finished: bool,
}

/// A state on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoState {
    number: UndoNumber,
    path: PathBuf,
}

impl UndoState {
    /// All states in the directory of a snapshot, complete or not, the oldest first.
    pub(crate) fn list(directory: &Path) -> Result<Vec<Self>, SnapshotError> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).doing("list", directory)? {
            let path = entry.doing("list", directory)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            found.extend(name.and_then(number_in).map(|number| Self { number, path }));
        }
        found.sort_by_key(|state| state.number);
        Ok(found)
    }

    /// What names it.
    pub fn number(&self) -> UndoNumber {
        self.number
    }

    /// What is known about it. `None` if it is not complete.
    pub(crate) fn record(&self) -> Result<Option<UndoRecord>, SnapshotError> {
        match self.path.is_dir() {
            true => UndoRecord::read(&self.path.join(undo::UNDO)),
            false => UndoRecord::read(&self.path),
        }
    }

    /// Fails if something of it is damaged besides its pages and its log, which take long to read.
    pub(crate) fn check(&self) -> Result<(), SnapshotError> {
        match self.record()? {
            Some(record) if self.path.is_dir() => self.check_of(&record),
            _ => Ok(()),
        }
    }

    /// The same of a cluster's state that had this record.
    fn check_of(&self, record: &UndoRecord) -> Result<(), SnapshotError> {
        match check_directory(&self.path, record) {
            // It was removed meanwhile, and its pages went first.
            Err(_) if matches!(self.record(), Ok(None)) => Ok(()),
            checked => checked,
        }
    }

    /// Bytes that it takes on disk.
    pub(crate) fn disk_bytes(&self) -> Result<u64, SnapshotError> {
        usage::disk_bytes_of(&self.path)
    }

    /// Removes it, durably.
    pub(crate) fn discard(&self) -> Result<(), SnapshotError> {
        discard(&self.path)
    }
}

/// Fails if the list of a cluster's files, or its pg_control, is not what was kept.
fn check_directory(directory: &Path, record: &UndoRecord) -> Result<(), SnapshotError> {
    let damaged = |path: &Path, what| SnapshotError::Damaged {
        path: path.to_owned(),
        what,
    };
    let read = |path: &Path| match read_regular_at_most(path, undo::LIST_BYTES_MAX) {
        Err(error) if durable::is_absent(&error) => Err(damaged(path, "it is not there")),
        bytes => bytes.doing("read", path),
    };
    let (list, control) = (directory.join(undo::LIST), directory.join(undo::CONTROL));
    if record.files_crc32c != Some(crc32c(&read(&list)?)) {
        return Err(damaged(&list, "it does not belong to the pages beside it"));
    }
    let parsed = Control::parse(read(&control)?);
    parsed.map(drop).map_err(|what| damaged(&control, what))
}

fn number_in(name: &str) -> Option<UndoNumber> {
    [FILE, DIRECTORY].into_iter().find_map(|base| {
        let rest = name.strip_prefix(base)?;
        let number = match rest.strip_prefix('.') {
            None => UndoNumber(0),
            Some(digits) => UndoNumber(digits.parse().ok()?),
        };
        (number.after(base) == name).then_some(number)
    })
}

/// The file of a SQLite database's state.
pub(crate) fn file_of(directory: &Path, number: UndoNumber) -> PathBuf {
    directory.join(number.after(FILE))
}

/// The directory of a cluster's state.
pub(crate) fn directory_of(directory: &Path, number: UndoNumber) -> PathBuf {
    directory.join(number.after(DIRECTORY))
}

/// Removes a state, durably, or what is left of one. Without its pages it counts for nothing, so
/// they go first.
pub(crate) fn discard(path: &Path) -> Result<(), SnapshotError> {
    let removed = match path.is_dir() {
        true => {
            undo::remove(path)?;
            std::fs::remove_dir_all(path)
        }
        false => std::fs::remove_file(path),
    };
    match durable::if_there(removed).doing("remove", path)? {
        Some(()) => durable::sync_parent(path).doing("sync the directory of", path),
        None => Ok(()),
    }
}

/// Removes the state of a snapshot that was brought back, if one was: the database is that, or was
/// it a moment ago.
pub(crate) fn discard_brought_back(
    directory: &Path,
    brought_back: Option<UndoNumber>,
) -> Result<(), SnapshotError> {
    let Some(number) = brought_back else {
        return Ok(());
    };
    let states = UndoState::list(directory)?.into_iter();
    let mut gone = states.filter(|state| state.number == number);
    gone.try_for_each(|state| state.discard())
}

/// Notes whether what begins now is an undo of a SQLite database. It comes before there is a
/// pending state, because the record of that comes last.
pub(crate) fn note_undo(directory: &Path, is_undo: bool) -> Result<(), SnapshotError> {
    let path = directory.join(undo::PENDING_BY_UNDO);
    match is_undo {
        true => durable::write(&path, b"", PRIVATE_MODE).doing("write", &path),
        // What an earlier one left.
        false => discard(&path),
    }
}

/// Whether a revert of a SQLite database has left a state that is pending, or is at work.
pub(crate) fn has_pending(directory: &Path) -> bool {
    directory.join(undo::PENDING).symlink_metadata().is_ok()
}

/// The record of a pending state of a SQLite database. One that is not complete has none.
pub(crate) fn pending(directory: &Path) -> Result<Option<UndoRecord>, SnapshotError> {
    match UndoRecord::read(&directory.join(undo::PENDING)) {
        Err(SnapshotError::Damaged { .. }) => Ok(None),
        record => record,
    }
}

/// Decides what becomes of the pending state of a SQLite database whose revert was cut off:
/// `is_committed` knows by the schema cookie whether its transaction was committed. `None` if
/// nothing is there that came so far.
pub(crate) fn settle(
    directory: &Path,
    is_committed: impl Fn(u32) -> bool,
) -> Result<Option<Settled>, SnapshotError> {
    let pending = directory.join(undo::PENDING);
    let record = match UndoRecord::read(&pending) {
        Err(SnapshotError::Damaged { .. }) => return settle_begun(directory),
        record => record?,
    };
    let Some(record) = record else {
        return Ok(None);
    };
    let is_finished = is_committed(record.schema_cookie);
    match is_finished {
        true => finish(directory, &record)?,
        false => discard_pending(directory)?,
    }
    Ok(Some(Settled {
        is_undo: record.by == BY_UNDO,
        is_finished,
    }))
}

/// Takes away a pending state of a SQLite database that is not complete. It was complete before the
/// commit began, so such a one was never needed. `None` if there is none. The place must be locked.
pub(crate) fn settle_begun(directory: &Path) -> Result<Option<Settled>, SnapshotError> {
    match UndoRecord::read(&directory.join(undo::PENDING)) {
        Err(SnapshotError::Damaged { .. }) => {
            let is_undo = directory.join(undo::PENDING_BY_UNDO).exists();
            discard_pending(directory)?;
            Ok(Some(Settled {
                is_undo,
                is_finished: false,
            }))
        }
        record => record.map(|_| None),
    }
}

/// Removes the pending state of a SQLite database, with the note about it.
fn discard_pending(directory: &Path) -> Result<(), SnapshotError> {
    discard(&directory.join(undo::PENDING))?;
    undo::forget_note(directory);
    Ok(())
}

/// Gives the pending state of a SQLite database its name, durably.
pub(crate) fn finish(directory: &Path, record: &UndoRecord) -> Result<(), SnapshotError> {
    discard_brought_back(directory, record.brings_back.map(UndoNumber))?;
    let (from, to) = (
        directory.join(undo::PENDING),
        file_of(directory, UndoNumber(record.number)),
    );
    durable::rename(&from, &to).doing("rename", &from)?;
    undo::forget_note(directory);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::undo::UndoWriter;
    use crate::undo::tests::written;

    #[test]
    fn a_state_is_known_by_its_name_and_nothing_else_is_one() {
        for (name, number) in [
            ("undo", 0),
            ("before", 0),
            ("undo.1", 1),
            ("before.4294967295", u32::MAX),
        ] {
            assert_eq!(number_in(name), Some(UndoNumber(number)), "{name}");
        }
        for name in [
            "undo.0",
            "undo.01",
            "undo.",
            "undo.pending",
            undo::PENDING_BY_UNDO,
            "before.pending",
            "undone",
            "record",
            "before.4294967296",
            "undo.+1",
        ] {
            assert_eq!(number_in(name), None, "{name}");
        }
        assert_eq!(UndoNumber(3).to_string(), "undo:3");
    }

    #[test]
    fn what_was_cut_off_counts_only_if_its_transaction_was_committed() {
        let place = tempfile::tempdir().unwrap();
        let settled = |committed: bool| {
            let settled = settle(place.path(), |cookie| cookie == 7 && committed).unwrap();
            assert!(!place.path().join(undo::PENDING).exists());
            assert!(settled.is_none_or(|settled| !settled.is_undo));
            let count = UndoState::list(place.path()).unwrap().len();
            (settled.map(|settled| settled.is_finished), count)
        };
        written(place.path());
        assert_eq!(settled(false), (Some(false), 0));
        UndoWriter::create(place.path()).unwrap();
        assert_eq!(settled(true), (Some(false), 0));
        written(place.path());
        assert_eq!(settled(true), (Some(true), 1));
        assert_eq!(settled(false), (None, 1));
    }

    /// Its record would come last.
    #[test]
    fn an_undo_that_was_cut_off_is_known_as_one_whatever_it_had_kept() {
        let place = tempfile::tempdir().unwrap();
        for is_undo in [true, false] {
            // An earlier one was killed when it had ended.
            note_undo(place.path(), true).unwrap();
            assert_eq!(settle_begun(place.path()).unwrap(), None);
            note_undo(place.path(), is_undo).unwrap();
            UndoWriter::create(place.path()).unwrap();
            assert!(has_pending(place.path()));
            let settled = Settled {
                is_undo,
                is_finished: false,
            };
            assert_eq!(settle_begun(place.path()).unwrap(), Some(settled));
            assert!(!has_pending(place.path()));
            assert!(!place.path().join(undo::PENDING_BY_UNDO).exists());
        }
        written(place.path());
        assert_eq!(settle_begun(place.path()).unwrap(), None, "it is complete");
        assert!(has_pending(place.path()));
    }

    /// Whoever typed it again must not undo once more.
    #[test]
    fn an_undo_whose_transaction_was_committed_is_known_as_one() {
        let place = tempfile::tempdir().unwrap();
        let record = UndoRecord {
            by: BY_UNDO.to_owned(),
            ..undo::tests::record()
        };
        let writer = UndoWriter::create(place.path()).unwrap();
        writer.complete(record).unwrap();
        let settled = Settled {
            is_undo: true,
            is_finished: true,
        };
        assert_eq!(settle(place.path(), |_| true).unwrap(), Some(settled));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn the_list_and_pg_control_of_a_clusters_state_are_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let directory = directory_of(place.path(), UndoNumber(1));
        std::fs::create_dir(&directory).unwrap();
        let writer = UndoWriter::create(&directory).unwrap();
        let record = UndoRecord {
            files_crc32c: Some(crc32c(b"files")),
            ..undo::tests::record()
        };
        writer.complete(record).unwrap();
        undo::finish(&directory).unwrap();
        let states = UndoState::list(place.path()).unwrap();
        let named = || match states[0].check().unwrap_err() {
            SnapshotError::Damaged { path, .. } => path,
            other => panic!("{other}"),
        };
        assert_eq!(named(), directory.join(undo::LIST), "it is not there");
        std::fs::write(directory.join(undo::LIST), "files").unwrap();
        assert_eq!(named(), directory.join(undo::CONTROL), "it is not there");
        std::fs::write(directory.join(undo::CONTROL), "cut").unwrap();
        assert_eq!(named(), directory.join(undo::CONTROL), "it is cut");
        std::fs::write(directory.join(undo::LIST), "fil").unwrap();
        assert_eq!(named(), directory.join(undo::LIST), "it is cut");
    }

    /// A revert removes the oldest state while somebody lists them.
    #[test]
    fn a_state_that_goes_while_it_is_looked_at_is_not_damaged() {
        let place = tempfile::tempdir().unwrap();
        let directory = directory_of(place.path(), UndoNumber(1));
        std::fs::create_dir(&directory).unwrap();
        let writer = UndoWriter::create(&directory).unwrap();
        writer.complete(undo::tests::record()).unwrap();
        undo::finish(&directory).unwrap();
        let states = UndoState::list(place.path()).unwrap();
        let record = states[0].record().unwrap().unwrap();
        assert!(states[0].check_of(&record).is_err(), "it has no list");
        undo::remove(&directory).unwrap();
        states[0].check_of(&record).unwrap();
        states[0].discard().unwrap();
        states[0].check_of(&record).unwrap();
    }
}
