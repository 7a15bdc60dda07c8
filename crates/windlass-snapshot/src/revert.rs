//! Going back: a SQLite database becomes what one of its snapshots is, and can be brought back.
//!
//!   database --+                +--> undo.pending (pages that differ from the snapshot)
//!   snapshot --+--[compare]-----+
//!   undo.1 ----+                +--> transaction of SQLite (pages that differ from the target)
//!                                           |
//!                                     sync, COMMIT, undo.pending --> undo.2
//!
//! The target is the snapshot, or the snapshot with the pages of a kept state over it. In both
//! cases what is overwritten is kept as the difference to the snapshot, so an undo can be undone,
//! too.
//!
//! Invariants
//! - The database is changed by one transaction of SQLite and nothing else. Killed at any moment,
//!   it is as before or as after.
//! - What the transaction overwrites is durable before it is committed.
//! - Only pages that differ are written. The time limit of writers is SQLite's own lock.
//!
//! A clone shares the blocks that nobody has written to since. Windlass asks the file system for
//! them and does not read them, so the time follows what was changed and not the size.
//!
//! Locking: the place, then SQLite's exclusive lock; the snapshot is held.

mod writing;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_engine::media::FileNo;
use windlass_engine::{Cancel, METADATA_LIMIT_DEFAULT, OpenSet, Progress, durable};
use windlass_image::{Image, SetImage, SetImageOptions};
use windlass_postgres::Lack;
use windlass_sqlite::{DATABASE_HEADER_BYTES, Database, Overwrite, files_of, shape_of_state};

use crate::error::{Doing, SnapshotError};
use crate::image;
use crate::method::Method;
use crate::overwritten::{self, Settled, UndoNumber};
use crate::place::{Entry, Place};
use crate::snapshot::{Content, Snapshot};
use crate::states;
use crate::undo::{BY_REVERT, BY_UNDO, UndoReader, UndoRecord, UndoWriter};
use writing::Writing;

/// What a database goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// What the snapshot is.
    ToSnapshot,
    /// A state that a revert or an undo overwrote, and that is kept over this snapshot.
    ToState(UndoNumber),
}

impl Back {
    /// The word for it, as a record keeps it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ToSnapshot => BY_REVERT,
            Self::ToState(_) => BY_UNDO,
        }
    }

    /// The state that is brought back.
    pub(crate) fn state(self) -> Option<UndoNumber> {
        match self {
            Self::ToSnapshot => None,
            Self::ToState(number) => Some(number),
        }
    }
}

/// A database that went back.
#[derive(Clone, Debug, PartialEq)]
pub struct Reverted {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of the database now.
    pub page_count: u32,
    /// Pages that were written. With 0, the database was as it should be, and was not changed.
    pub written_count: u32,
    /// Pages that can be brought back.
    pub kept_count: u32,
    /// What names the state that can be brought back. `None` if nothing was overwritten.
    pub kept: Option<UndoNumber>,
    /// States that are kept no longer, because there are newer ones.
    pub gone: Vec<UndoNumber>,
    /// Pages that were read and compared. The others share their blocks with the snapshot.
    pub compared_count: u32,
    /// How long nobody else could write.
    pub locked: Duration,
    /// Whether a process had ended within a transaction, which SQLite rolled back before anything
    /// was read. No state that is kept has anything of it.
    pub rolled_back: bool,
    /// PostgreSQL: what the server that was started again has less of than before.
    pub lacks: Vec<Lack>,
}

impl Reverted {
    /// A database that was as it should be.
    pub(crate) fn nothing(page_bytes: u32) -> Self {
        Self {
            page_bytes,
            page_count: 0,
            written_count: 0,
            kept_count: 0,
            kept: None,
            gone: Vec::new(),
            compared_count: 0,
            locked: Duration::ZERO,
            rolled_back: false,
            lacks: Vec::new(),
        }
    }
}

/// What was decided about reverts of a SQLite database that were cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Whether SQLite first rolled back the transaction of a process that had ended within it.
    pub rolled_back: bool,
    /// What became of the revert. `None` if none was cut off that had begun to keep pages.
    pub settled: Option<Settled>,
}

/// Makes a database what its snapshot is, or what it was before that.
pub fn revert(
    place: &Place,
    snapshot: &Snapshot,
    back: Back,
    database: &Database,
    progress: &Arc<Progress>,
    cancel: &Cancel,
) -> Result<Reverted, SnapshotError> {
    let _alone = place.lock()?;
    let _hold = snapshot.hold()?;
    progress.set_phase("opening the snapshot");
    let image = image_of(snapshot)?;
    let base = State::open(image, snapshot)?;
    progress.set_phase("waiting for the database lock");
    let overwrite = database.begin_overwrite(base.page_bytes, cancel)?;
    let began = Instant::now();
    settle_all(place, &overwrite)?;
    let number = states::next_number(place)?;
    let open = |number| open_undo(number, snapshot, &base);
    let over = back.state().map(open).transpose()?;
    let clone = clone_of(snapshot)?;
    let shared = clone
        .as_ref()
        .and_then(|clone| overwrite.shared_with(clone));
    let mut writing = Writing::new((&base, over, shared), &overwrite, snapshot.path())?;
    progress.set_phase("comparing and writing pages");
    let (written, first) = match writing.run(cancel) {
        Ok(done) => done,
        Err(error) => {
            // The error to show is why the pages were not written.
            writing.undo.discard().unwrap_or_default();
            return Err(error);
        }
    };
    let mut reverted = Reverted {
        page_bytes: base.page_bytes,
        page_count: writing.target_pages,
        written_count: written,
        compared_count: writing.compared,
        rolled_back: overwrite.found_hot_journal(),
        ..Reverted::nothing(base.page_bytes)
    };
    if written == 0 {
        end_undo((snapshot, back), writing.undo, (overwrite, database))?;
        return Ok(reverted);
    }
    let record = UndoRecord {
        page_count: writing.now_pages,
        schema_cookie: overwrite.schema_cookie(&first),
        ..record_of((snapshot, number), back, base.page_bytes)
    };
    states::note_number(place, number)?;
    reverted.kept_count = writing.undo.complete(record.clone())?;
    progress.set_phase("committing");
    overwrite.commit(&first, reverted.page_count)?;
    reverted.locked = began.elapsed();
    reverted.gone = keep(place, snapshot, &record)?;
    reverted.kept = Some(number);
    Ok(reverted)
}

/// Ends what has nothing to write. The state that was to be brought back goes: somebody else did
/// that, perhaps a moment ago and without a sync.
fn end_undo(
    (snapshot, back): (&Snapshot, Back),
    undo: UndoWriter,
    (overwrite, database): (Overwrite, &Database),
) -> Result<(), SnapshotError> {
    undo.discard()?;
    drop(overwrite);
    if back.state().is_some() {
        sync_all(database.facts().path.as_ref())?;
    }
    overwritten::discard_brought_back(snapshot.path(), back.state())
}

/// Makes a database durable as it is. The process must have no lock of it, or would lose that.
fn sync_all(database: &Path) -> Result<(), SnapshotError> {
    for path in files_of(database).doing("find", database)?.iter().rev() {
        match File::open(path).and_then(|file| file.sync_all()) {
            Err(error) if durable::is_absent(&error) => {}
            synced => synced.doing("sync", path)?,
        }
    }
    durable::sync_parent(database).doing("sync the directory of", database)
}

/// Keeps what was overwritten. Returns the states that go for it.
fn keep(
    place: &Place,
    snapshot: &Snapshot,
    record: &UndoRecord,
) -> Result<Vec<UndoNumber>, SnapshotError> {
    overwritten::finish(snapshot.path(), record)?;
    // The database went back. What could not be removed, the next revert removes.
    Ok(states::trim(place).unwrap_or_default())
}

/// What is known of a state before its pages are.
pub(crate) fn record_of(
    (snapshot, number): (&Snapshot, UndoNumber),
    back: Back,
    page_bytes: u32,
) -> UndoRecord {
    UndoRecord {
        snapshot_id: snapshot.record().id.clone(),
        number: number.0,
        brings_back: back.state().map(|state| state.0),
        at: jiff::Timestamp::now().to_string(),
        by: back.word().to_owned(),
        page_bytes,
        page_count: 0,
        kept_count: 0,
        schema_cookie: 0,
        files_crc32c: None,
    }
}

/// Decides about what a killed revert left, if one did. The database is locked for that.
pub fn settle(
    place: &Place,
    database: &Database,
    cancel: &Cancel,
) -> Result<Decided, SnapshotError> {
    let found = left(place)?;
    if page_bytes_of(&found)?.is_none() {
        return Ok(Decided {
            settled: settle_begun(place, &found)?,
            rolled_back: false,
        });
    }
    // Whoever had the lock may be the one whose revert that was.
    let _alone = place.lock()?;
    let Some(page_bytes) = page_bytes_of(&left(place)?)? else {
        return Ok(Decided::default());
    };
    let overwrite = database.begin_overwrite(page_bytes, cancel)?;
    Ok(Decided {
        settled: settle_all(place, &overwrite)?,
        rolled_back: overwrite.found_hot_journal(),
    })
}

/// The directories of snapshots in which a revert has left something, or is at work.
fn left(place: &Place) -> Result<Vec<PathBuf>, SnapshotError> {
    let paths = place.list()?.into_iter().filter_map(|entry| match entry {
        Entry::Snapshot(snapshot) => Some(snapshot.path().to_owned()),
        _ => None,
    });
    Ok(paths
        .filter(|path| overwritten::has_pending(path))
        .collect())
}

/// The size of the pages that are kept in one of these, if one is complete.
fn page_bytes_of(left: &[PathBuf]) -> Result<Option<u32>, SnapshotError> {
    let mut paths = left.iter();
    let first = paths.find_map(|path| overwritten::pending(path).transpose());
    Ok(first.transpose()?.map(|record| record.page_bytes))
}

/// Takes away what reverts left that were cut off before they had kept everything: they have
/// changed nothing. Says what became of one of them.
fn settle_begun(place: &Place, left: &[PathBuf]) -> Result<Option<Settled>, SnapshotError> {
    if left.is_empty() {
        return Ok(None);
    }
    // One that is at work has the lock, and leaves nothing like that.
    let _alone = place.lock()?;
    let mut last = None;
    for directory in left {
        last = overwritten::settle_begun(directory)?.or(last);
    }
    Ok(last)
}

/// Decides about everything that killed reverts left. Says what became of one of them: of one that
/// was committed, if there is one.
fn settle_all(place: &Place, overwrite: &Overwrite) -> Result<Option<Settled>, SnapshotError> {
    let mut last: Option<Settled> = None;
    for entry in place.list()? {
        if let Entry::Snapshot(snapshot) = entry {
            let is_committed = |cookie| overwrite.is_committed(cookie);
            let settled = overwritten::settle(snapshot.path(), is_committed)?;
            if last.is_none_or(|last| !last.is_finished) {
                last = settled.or(last);
            }
        }
    }
    Ok(last)
}

fn open_undo(
    number: UndoNumber,
    snapshot: &Snapshot,
    base: &State,
) -> Result<UndoReader, SnapshotError> {
    let none = || SnapshotError::NoState {
        name: number.to_string(),
        known: Vec::new(),
    };
    let file = overwritten::file_of(snapshot.path(), number);
    let undo = UndoReader::open(&file)?.ok_or_else(none)?;
    let record = undo.record();
    let fits = record.snapshot_id == snapshot.record().id && record.page_bytes == base.page_bytes;
    match fits {
        true => Ok(undo),
        false => Err(none()),
    }
}

/// The image of a snapshot, whatever its method.
pub(crate) fn image_of(snapshot: &Snapshot) -> Result<Arc<dyn Image>, SnapshotError> {
    match snapshot.content()? {
        Content::Files(image) => Ok(image),
        Content::Set(stripes) => {
            let set = OpenSet::open(&stripes, METADATA_LIMIT_DEFAULT)?;
            let image = SetImage::open(Arc::new(set), &SetImageOptions::default())?;
            Ok(Arc::new(image))
        }
    }
}

/// The clone of the database file, if the snapshot is one.
pub(crate) fn clone_of(snapshot: &Snapshot) -> Result<Option<File>, SnapshotError> {
    if snapshot.record().method != Method::Clone {
        return Ok(None);
    }
    image::open_file(snapshot.path(), FileNo(0)).map(Some)
}

/// Why nothing can go back to what a snapshot has, which is so long.
fn not_a_state(snapshot: &Snapshot, bytes: u64) -> SnapshotError {
    if bytes == 0 {
        let name = snapshot.record().name.clone();
        return SnapshotError::EmptySnapshot { name };
    }
    SnapshotError::Damaged {
        path: match snapshot.record().method {
            Method::Clone => image::file_in(snapshot.path(), FileNo(0)),
            Method::Copy | Method::Hook => snapshot.path().to_owned(),
        },
        what: "it does not begin like a SQLite database",
    }
}

/// The state of a snapshot.
pub(crate) struct State {
    image: Arc<dyn Image>,
    page_bytes: u32,
    page_count: u32,
}

impl State {
    pub(crate) fn open(image: Arc<dyn Image>, snapshot: &Snapshot) -> Result<Self, SnapshotError> {
        windlass_sqlite::check_set(&snapshot.record().facts, image.files())?;
        let bytes = image.files().0.first().map_or(0, |entry| entry.bytes);
        let mut header = [0; DATABASE_HEADER_BYTES];
        let found = image.read(FileNo(0), 0, &mut header)?;
        let shape = shape_of_state(&header[..found], bytes);
        let (page_bytes, page_count) = shape.ok_or_else(|| not_a_state(snapshot, bytes))?;
        Ok(Self {
            image,
            page_bytes,
            page_count,
        })
    }

    pub(crate) fn image(&self) -> &dyn Image {
        self.image.as_ref()
    }

    pub(crate) fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    pub(crate) fn page_count(&self) -> u32 {
        self.page_count
    }

    /// The permissions of the database's file.
    pub(crate) fn mode(&self) -> Option<u32> {
        let file = self.image.files().0.first();
        file.map(|entry| entry.mode & 0o777)
    }

    /// Reads pages, as many as there are. Pages behind the end are zeros.
    fn read(&self, first: u32, into: &mut [u8]) -> Result<(), SnapshotError> {
        let offset = u64::from(first - 1) * u64::from(self.page_bytes);
        let found = self.image.read(FileNo(0), offset, into)?;
        into[found..].fill(0);
        Ok(())
    }
}
