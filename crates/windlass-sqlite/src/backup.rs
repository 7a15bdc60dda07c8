//! The backup of one database: which lock when, what is read under it, what is settled after.
//!
//!   WAL:       begin --> view --> copy, overlaid --> check --> end --> finish
//!   rollback:  begin, look, end --> copy --> (settle)* --> begin --> settle --> end --> finish
//!                                   no lock held here      ^--- the lock that is reported
//!
//! In rollback mode a reader's lock keeps writers from committing, so the file is first copied
//! without one. What is copied then may be torn, uncommitted or of different moments. Under the
//! lock every range that is not in the set as it now stands goes in again, as a newer layer, and
//! what a restore sees is the state under the lock. If nothing moved, there is nothing to settle.
//! A database that turns to WAL mode meanwhile is settled against its WAL view in the same way.
//!
//! Locking: see `session.rs`.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use windlass_engine::{BackupRun, EngineError, FileContent, FileSpec, Missing};
use windlass_media::{BackupType, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable};

use crate::database::{BackupOutcome, Database, read_header};
use crate::error::{IoContext, SqliteError};
use crate::extent::{Extent, cut_off};
use crate::facts::DatabaseFacts;
use crate::fingerprint::Fingerprint;
use crate::header::{DATABASE_HEADER_BYTES, DatabaseHeader};
use crate::hook::SourceHook;
use crate::lock;
use crate::pinned;
use crate::session::{Session, check_same_file, journal_header};
use crate::settle::{self, Target};
use crate::view::WalView;
use crate::wal::ReadAt;

/// The one file of a set.
const DATABASE_FILE: FileNo = FileNo(0);

/// Passes without a lock before the one with it, at most.
const FREE_PASSES_MAX: u8 = 3;

/// A pass that moved less than this leaves little enough to do under the lock, whatever the
/// buffers hold.
const FREE_PASS_BYTES_MIN: u64 = 64 << 20;

/// What was read, and what it was.
struct Copied {
    bytes: u64,
    facts: DatabaseFacts,
    lock_held: Duration,
    /// Read again while writers were locked out.
    lock_bytes: u64,
    /// More than one layer went in, so the engine's checksum of the first is not the file's.
    layered: bool,
}

struct Backup<'a> {
    database: &'a Database,
    session: Session,
    run: &'a mut BackupRun,
    /// The longest that the file has been so far.
    longest_bytes: u64,
    warnings: Vec<String>,
}

pub(crate) fn backup(
    database: &mut Database,
    mut run: BackupRun,
) -> Result<BackupOutcome, SqliteError> {
    let started = Timestamp::now();
    check_same_file(&database.path, &database.file)?;
    let mut warnings = database.warnings.clone();
    warnings.extend(hot_journal_warning(database));
    let session = Session::open(&database.path, &database.file)?;
    let mut backup = Backup {
        database,
        session,
        run: &mut run,
        longest_bytes: 0,
        warnings,
    };
    let copied = backup.copy();
    let Backup {
        session, warnings, ..
    } = backup;
    // Whatever came of the copy: before the run's threads are waited for, writers go on.
    let closed = session.close();
    let mut copied = copied.map_err(|error| explain(database, error))?;
    closed?;
    copied.facts.label.clone_from(&database.label);
    let table = file_table(database, &run, &copied)?;
    let facts = set_facts(database, &copied, started);
    let report = run.finish(table, facts)?;
    let Copied {
        facts,
        lock_held,
        lock_bytes,
        ..
    } = copied;
    Ok(BackupOutcome {
        report,
        facts,
        lock_held,
        lock_bytes,
        warnings,
    })
}

impl Backup<'_> {
    fn copy(&mut self) -> Result<Copied, SqliteError> {
        match self.begin()? {
            Some((header, view)) => self.copy_wal(header, view),
            None => self.copy_rollback(),
        }
    }

    /// Pins a committed state; with its WAL view where there is one.
    fn begin(&mut self) -> Result<Option<(DatabaseHeader, WalView)>, SqliteError> {
        self.run
            .progress()
            .set_phase("waiting for the database lock");
        pinned::begin(&mut self.session, self.database, self.run.cancel())
    }

    /// WAL mode: everything under one read transaction, which keeps no writer waiting.
    fn copy_wal(&mut self, header: DatabaseHeader, view: WalView) -> Result<Copied, SqliteError> {
        let view = (header, view);
        let extent = Extent::of(self.database, Some(&view))?;
        let (_, mut view) = view;
        let overlay = view.take_overlay();
        let overlaid = overlay.is_some();
        let hook = SourceHook::overlaying(overlay);
        self.run.set_hook(hook.clone());
        self.copy_all(extent)?;
        let bytes = extent.bytes;
        let facts = self.facts(&hook, extent)?;
        view.check(overlaid)?;
        let lock_held = self.end()?;
        Ok(Copied {
            bytes,
            facts,
            lock_held,
            lock_bytes: 0,
            layered: false,
        })
    }

    /// Rollback mode: copy without a lock, settle the difference under it.
    fn copy_rollback(&mut self) -> Result<Copied, SqliteError> {
        let mut before = self.fingerprint()?;
        self.session.end()?;
        let bytes = self.file_bytes()?;
        let hook = SourceHook::hashing(bytes);
        self.run.set_hook(hook.clone());
        self.copy_all(self.unlocked_extent(bytes))?;
        let layer = self.settle_free(&mut before, &hook)?;
        // Under the lock nothing waits for what was read before.
        self.run.empty_buffers()?;

        let view = self.begin()?;
        if view.is_none() {
            let limit = self.database.lock_limit;
            self.run
                .begin_hurry(limit.and_then(|limit| Instant::now().checked_add(limit)));
        }
        let extent = Extent::of(self.database, view.as_ref())?;
        if view.is_none() && self.fingerprint()?.proves_unchanged_since(&before) {
            let facts = self.facts(&hook, extent)?;
            let lock_held = self.end()?;
            return Ok(Copied {
                bytes: extent.bytes,
                facts,
                lock_held,
                lock_bytes: 0,
                layered: layer > 1,
            });
        }
        self.settle_locked(view, extent, layer, &hook)
    }

    /// Settles without a lock for as long as much is moving, so that little is left to do under
    /// it; the next free layer. What a pass finds is the file as of a moment after `before`: when
    /// nobody writes from then on, nothing is left to do.
    fn settle_free(
        &mut self,
        before: &mut Fingerprint,
        hook: &SourceHook,
    ) -> Result<u8, SqliteError> {
        let mut layer = 1;
        while layer <= FREE_PASSES_MAX {
            let now = self.fingerprint()?;
            if now.proves_unchanged_since(before) {
                break;
            }
            self.run
                .progress()
                .set_phase("copying what changed meanwhile");
            *before = now;
            let extent = self.unlocked_extent(self.file_bytes()?);
            let moved = self.settle(extent, layer, hook)?;
            layer += 1;
            if moved < self.locked_bytes_max() {
                break;
            }
        }
        Ok(layer)
    }

    fn settle_locked(
        &mut self,
        view: Option<(DatabaseHeader, WalView)>,
        extent: Extent,
        layer: u8,
        hook: &SourceHook,
    ) -> Result<Copied, SqliteError> {
        self.run
            .progress()
            .set_phase("settling under the database lock");
        let mut checked = None;
        if let Some((_, mut view)) = view {
            self.warnings
                .push("The database changed to WAL mode during the backup.".to_owned());
            let overlay = view.take_overlay();
            checked = Some((view, overlay.is_some()));
            if let Some(overlay) = overlay {
                hook.set_overlay(overlay);
            }
        }
        self.settle(extent, layer, hook)?;
        let facts = self.facts(hook, extent)?;
        if let Some((view, overlaid)) = checked {
            view.check(overlaid)?;
        }
        let lock_held = self.end()?;
        let bytes = extent.bytes;
        Ok(Copied {
            bytes,
            facts,
            lock_held,
            lock_bytes: bytes,
            layered: true,
        })
    }

    /// The extent of a copy that is made without a lock: the file may shrink meanwhile, and what
    /// it is in the end is settled under the lock.
    fn unlocked_extent(&self, bytes: u64) -> Extent {
        Extent { bytes, in_file: 0 }
    }

    /// So little may be left to copy under the lock that no device has to be waited for.
    fn locked_bytes_max(&self) -> u64 {
        let plan = &self.run.options().plan;
        FREE_PASS_BYTES_MIN.min(plan.buffers as u64 * plan.transfer_bytes as u64)
    }

    /// Copies the whole file, and waits until it is read.
    fn copy_all(&mut self, extent: Extent) -> Result<(), SqliteError> {
        self.longest_bytes = extent.bytes;
        self.run.progress().set_total(extent.bytes);
        self.run.progress().set_phase("copying the database");
        self.run.push(file_spec(&self.database.file, extent))?;
        Ok(self.run.drain()?)
    }

    /// Puts every range that is not in the set as it now stands into `layer`; how many bytes.
    fn settle(&mut self, extent: Extent, layer: u8, hook: &SourceHook) -> Result<u64, SqliteError> {
        let Some(hashes) = hook.hashes() else {
            return Ok(0);
        };
        let changed_from = self.changed_from(extent.bytes)?;
        let pace = self.run.source_limit();
        let target = Target {
            file: &self.database.file,
            path: &self.database.path,
            overlay: hook.overlay(),
            extent,
            pace: pace.as_deref(),
            until: self.run.hurry_until(),
            unit_bytes: u64::from(self.run.frame_bytes()).max(hashes.range_bytes()),
            changed_from,
        };
        let spec = file_spec(&self.database.file, extent);
        let cancel = self.run.cancel().clone();
        let progress = Arc::clone(self.run.progress());
        let moved = settle::settle(&target, hashes, &cancel, |range| {
            // What is copied again is more to do.
            progress.set_total(progress.total() + range.bytes);
            Ok(self
                .run
                .push_range(&spec, range.offset, range.bytes, layer)?)
        })?;
        self.run.drain()?;
        Ok(moved)
    }

    /// Where the copy of a file that is `bytes` long now has to be made anew, whatever it holds. A
    /// frame that reaches beyond the end of a file that shrank is void as a whole, so what was
    /// copied of the last transfer goes in again.
    fn changed_from(&mut self, bytes: u64) -> Result<u64, SqliteError> {
        if bytes >= self.longest_bytes {
            self.longest_bytes = bytes;
            return Ok(u64::MAX);
        }
        if bytes == 0 {
            let path = self.database.path.clone();
            return Err(SqliteError::NotADatabase {
                path,
                what: "it was emptied meanwhile",
            });
        }
        let transfer_bytes = self.run.options().plan.transfer_bytes as u64;
        Ok(bytes.saturating_sub(transfer_bytes))
    }

    /// Ends the read transaction, sure that the path still names what was read.
    fn end(&mut self) -> Result<Duration, SqliteError> {
        check_same_file(&self.database.path, &self.database.file)?;
        let held = self.session.end();
        self.run.progress().set_phase("writing what was read");
        self.run.end_hurry();
        held
    }

    /// The facts of the pinned state, from its first page.
    fn facts(&self, hook: &SourceHook, extent: Extent) -> Result<DatabaseFacts, SqliteError> {
        let (path, bytes) = (&self.database.path, extent.bytes);
        let Some(header) = read_header(&self.database.file, path)? else {
            return Ok(DatabaseFacts::new(path, bytes, None));
        };
        let mut page = vec![0; header.page_bytes as usize];
        let found = self.database.file.read_full_at(&mut page, 0);
        let found = found.during("read", path)?;
        if found < page.len() {
            extent.check_read(path, found as u64)?;
        }
        if let Some(overlay) = hook.overlay() {
            overlay.apply(0, &mut page)?;
        }
        let header = DatabaseHeader::decode(&page[..DATABASE_HEADER_BYTES]).map_err(|what| {
            SqliteError::NotADatabase {
                path: path.clone(),
                what,
            }
        })?;
        Ok(DatabaseFacts::new(path, bytes, Some(&header)))
    }

    fn fingerprint(&self) -> Result<Fingerprint, SqliteError> {
        Fingerprint::take(&self.database.file, &self.database.path)
    }

    fn file_bytes(&self) -> Result<u64, SqliteError> {
        Ok(self
            .database
            .file
            .metadata()
            .during("inspect", &self.database.path)?
            .len())
    }
}

/// The error in SQLite's terms, where the engine could only speak of files and time.
fn explain(database: &Database, error: SqliteError) -> SqliteError {
    let path = database.path.clone();
    match error {
        SqliteError::Engine(EngineError::SourceShort {
            found_bytes,
            needed_bytes,
            ..
        }) => cut_off(&path, found_bytes, needed_bytes),
        SqliteError::Engine(EngineError::HurryEnded) => SqliteError::LockLimit {
            path,
            limit: database.lock_limit.unwrap_or_default(),
        },
        SqliteError::Engine(EngineError::Source(source)) => match source.downcast() {
            Ok(error) => *error,
            Err(source) => EngineError::Source(source).into(),
        },
        other => other,
    }
}

fn file_spec(file: &Arc<File>, extent: Extent) -> FileSpec {
    let content = FileContent::Open(Arc::clone(file));
    FileSpec {
        file: DATABASE_FILE,
        content,
        bytes: extent.bytes,
        needed_bytes: extent.in_file,
        missing: Missing::Fail,
    }
}

/// A journal beside a database that nobody is writing to is a transaction that never ended. Its
/// header holds a random number, so the same header before and after the look at the lock is that
/// of one journal, which was there while nobody was writing.
fn hot_journal_warning(database: &Database) -> Option<String> {
    let before = journal_header(&database.path)?;
    let idle = !lock::is_reserved(&database.file).ok()?;
    let hot = idle && journal_header(&database.path)? == before;
    hot.then(|| {
        "A transaction that had not ended when its process did was rolled back, as SQLite does \
         on every opening."
            .to_owned()
    })
}

fn file_table(
    database: &Database,
    run: &BackupRun,
    copied: &Copied,
) -> Result<FileTable, SqliteError> {
    let metadata = database.file.metadata().during("inspect", &database.path)?;
    let outcome = run.outcome(DATABASE_FILE).filter(|_| !copied.layered);
    let name = database.path.file_name().unwrap_or_default();
    Ok(FileTable(vec![FileEntry {
        file: DATABASE_FILE,
        kind: FileKind::File,
        flags: FileFlags {
            last: true,
            crc_known: outcome.is_some(),
        },
        mode: metadata.mode() & 0o777,
        bytes: copied.bytes,
        mtime_nanos: metadata
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(metadata.mtime_nsec()),
        crc32c: outcome.map_or(0, |outcome| outcome.crc32c),
        path: name.as_bytes().to_vec(),
        link_target: Vec::new(),
    }]))
}

fn set_facts(database: &Database, copied: &Copied, started: Timestamp) -> Facts {
    Facts {
        tool: concat!("windlass ", env!("CARGO_PKG_VERSION")).to_owned(),
        backup_type: BackupType::Full,
        started: started.to_string(),
        finished: Timestamp::now().to_string(),
        options: database.options.clone(),
        database: copied.facts.to_json(),
        parents: Vec::new(),
    }
}
