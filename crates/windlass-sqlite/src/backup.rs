//! The backup of one database: which lock it takes when, what it reads under that lock, and what it
//! settles afterwards.
//!
//!   WAL:       begin --> view --> copy, overlaid --> check --> end --> finish
//!                            \--> what changed since the base, if known --^
//!   rollback:  begin, look, end --> copy --> (settle)* --> begin --> settle --> end --> finish
//!                                   no lock held here      ^--- the lock that is reported
//!
//! In rollback mode a reader's lock keeps writers from committing. So the backup first copies the
//! file without a lock. That copy may be torn, or hold uncommitted pages, or pages of different
//! moments. Then the backup takes the lock and writes each range that differs from the set again,
//! as a newer layer. A restore takes the newest layer of each range, so it sees the state under the
//! lock. If nothing changed, there is nothing to settle.
//!
//! If the database changes to WAL mode meanwhile, the backup settles it against its WAL view in the
//! same way.
//!
//! Locking: see `session.rs`.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use windlass_engine::{BackupRun, EngineError, FileContent, FileSpec, Missing, PageClass};

use crate::database::{Database, check_same_file, read_header, replaced_or};
use crate::error::{IoContext, SqliteError};
use crate::facts::{DATABASE_FILE, DatabaseFacts};
use crate::fingerprint::Fingerprint;
use crate::header::{DATABASE_HEADER_BYTES, DatabaseHeader};
use crate::hook::{PageWork, SourceHook, layout_of};
use crate::outcome::{BackupOutcome, Copied, file_table, left_out, set_facts};
use crate::page_hashes::{PageHashes, SetHashes};
use crate::pinned;
use crate::reach::{Reach, cut_off};
use crate::restore::check_set;
use crate::session::Session;
use crate::settle::{self, Compared};
use crate::standing::{FileMark, Standing};
use crate::view::WalView;
use crate::wal::ReadAt;
use crate::warning::Warning;

/// At most this many passes without a lock come before the pass under the lock.
const FREE_PASSES_MAX: u8 = 3;

/// If a pass copied fewer bytes than this, and fewer than the buffers hold, little enough is left
/// to do under the lock.
const FREE_PASS_BYTES_MIN: u64 = 64 << 20;

/// The pages of a file that does not say how long its pages are.
const PAGE_BYTES_DEFAULT: usize = 4096;

struct Backup<'a> {
    database: &'a Database,
    session: Session,
    run: &'a mut BackupRun,
    /// The greatest length that the file has had so far.
    longest_bytes: u64,
    /// When the committed state was pinned that is read last.
    pinned: Timestamp,
    warnings: Vec<Warning>,
}

impl Database {
    /// Backs the database up. The set holds exactly one committed state, of a moment during the
    /// call.
    ///
    /// The process must have no other connection to the database during the call. If it closed such
    /// a connection, the kernel would drop the locks of this one, and the other way round.
    pub fn backup(&mut self, run: BackupRun) -> Result<BackupOutcome, SqliteError> {
        backup(self, run)
    }
}

fn backup(database: &Database, mut run: BackupRun) -> Result<BackupOutcome, SqliteError> {
    let started = Timestamp::now();
    check_same_file(&database.path, &database.file)?;
    let explained = |error| replaced_or(&database.path, &database.file, explain(database, error));
    let warnings = database.warnings.clone();
    let session = Session::open(&database.path, &database.file).map_err(explained)?;
    let mut backup = Backup {
        database,
        session,
        run: &mut run,
        longest_bytes: 0,
        pinned: started,
        warnings,
    };
    let copied = backup.copy();
    let Backup {
        session,
        pinned: as_of,
        mut warnings,
        ..
    } = backup;
    if session.found_hot_journal() {
        warnings.push(Warning::TransactionRolledBack);
    }
    // Close the session whether or not the copy succeeded, and before waiting for the run's
    // threads: writers can then go on.
    let closed = session.close();
    let mut copied = copied.map_err(explained)?;
    closed.map_err(explained)?;
    database.complete(&mut copied.facts);
    if let Some(hashes) = &copied.hashes {
        copied.facts.page_hashes = hashes.keep(&copied.facts, &mut run)?;
    }
    let table = file_table(database, &run, &copied)?;
    let facts = set_facts(database, &copied, started);
    check_set(&facts, &table)?;
    if let Some(chain) = &database.chain {
        run.build_on(
            chain
                .base
                .under((DATABASE_FILE, copied.bytes), left_out(&run)),
        );
    }
    let report = run.finish(table, facts)?;
    let Copied {
        facts,
        lock_held,
        lock_bytes,
        ..
    } = copied;
    Ok(BackupOutcome {
        report,
        as_of,
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

    /// Pins a committed state. In WAL mode it also returns the view of that state.
    fn begin(&mut self) -> Result<Option<(DatabaseHeader, WalView)>, SqliteError> {
        self.run
            .progress()
            .set_phase("waiting for the database lock");
        let begun = pinned::begin(&mut self.session, self.database, self.run.cancel());
        self.pinned = Timestamp::now();
        begun
    }

    /// WAL mode: reads everything under one read transaction, which keeps no writer waiting.
    fn copy_wal(&mut self, header: DatabaseHeader, view: WalView) -> Result<Copied, SqliteError> {
        let file = FileMark::take(&self.database.file, &self.database.path)?;
        let view = (header, view);
        let reach = Reach::of(self.database, Some(&view))?;
        let (header, mut view) = view;
        let point = view.point();
        let standing = Standing { point, file };
        let log_pages = view.take_log_pages();
        let has_log_pages = log_pages.is_some();
        let hook = SourceHook::with_log_pages(log_pages, self.work(Some(&header)));
        self.run.set_hook(hook.clone());
        let (hashes, is_by_log) = self.copy_since(&standing, &hook, (reach, header.page_bytes))?;
        let bytes = reach.bytes;
        let mut facts = self.facts(&hook, reach)?;
        facts.standing = Some(standing);
        facts.file_is_state = !has_log_pages;
        facts.changes_from = is_by_log.then(|| "log".to_owned());
        view.check(has_log_pages)?;
        let lock_held = self.end()?;
        Ok(Copied {
            bytes,
            facts,
            lock_held,
            lock_bytes: 0,
            layered: false,
            hashes,
        })
    }

    /// Copies what can differ from the base: everything, if nobody knows. Returns the hashes of the
    /// pages, and whether the log said what can.
    fn copy_since(
        &mut self,
        standing: &Standing,
        hook: &SourceHook,
        (reach, page_bytes): (Reach, u32),
    ) -> Result<(Option<SetHashes>, bool), SqliteError> {
        let mut parts = None;
        if let Some(chain) = &self.database.chain {
            let base = &chain.base;
            if base.is_at(standing, reach.bytes) {
                self.copy_parts(reach, Vec::new())?;
                return Ok((base.hashes().cloned().map(SetHashes::Base), true));
            }
            let log = hook.log_pages();
            parts = base.parts_since((standing, reach.bytes), log, page_bytes as usize)?;
        }
        let is_by_log = parts.is_some();
        match parts {
            Some(parts) => {
                hook.inherit_hashes();
                self.copy_parts(reach, parts)?;
            }
            None => self.copy_all(reach)?,
        }
        Ok((hook.page_hashes(), is_by_log))
    }

    /// What happens to the pages, which are as long as the header says.
    fn work(&self, header: Option<&DatabaseHeader>) -> PageWork {
        let chain = self.database.chain.as_ref();
        let page_bytes = header.map_or(PAGE_BYTES_DEFAULT, |header| header.page_bytes as usize);
        let before = chain.and_then(|chain| chain.base.hashes_of(page_bytes));
        let keeps_hashes = self.database.keeps_hashes;
        PageWork {
            class: self.class(header),
            hashes: keeps_hashes
                .then(|| PageHashes::begin(page_bytes, before))
                .flatten(),
            base: chain.map(|chain| (chain.base.clone(), page_bytes)),
        }
    }

    /// Rollback mode: copies without a lock, then settles the difference under the lock.
    fn copy_rollback(&mut self) -> Result<Copied, SqliteError> {
        let mut before = self.fingerprint()?;
        let header = read_header(&self.database.file, &self.database.path)?;
        self.session.end()?;
        let bytes = self.file_bytes()?;
        let hook = SourceHook::hashing(bytes, self.work(header.as_ref()));
        self.run.set_hook(hook.clone());
        self.copy_all(self.unlocked_reach(bytes))?;
        let layer = self.settle_free(&mut before, &hook)?;
        // Empty the buffers now, so that no work under the lock has to wait for what was read
        // before.
        self.run.empty_buffers()?;

        let view = self.begin()?;
        if view.is_none() {
            let limit = self.database.lock_limit;
            self.run
                .begin_hurry(limit.and_then(|limit| Instant::now().checked_add(limit)));
        }
        let reach = Reach::of(self.database, view.as_ref())?;
        if view.is_none() && self.fingerprint()?.proves_unchanged_since(&before) {
            let facts = self.facts(&hook, reach)?;
            let lock_held = self.end()?;
            return Ok(Copied {
                bytes: reach.bytes,
                facts,
                lock_held,
                lock_bytes: 0,
                layered: layer > 1,
                hashes: hook.page_hashes(),
            });
        }
        self.settle_locked(view, reach, layer, &hook)
    }

    /// Settles without a lock as long as much is changing, so that little is left to do under the
    /// lock. Returns the next free layer. Each pass reads the file after `before` was taken. So if
    /// nobody has written since `before`, nothing is left to do.
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
            let reach = self.unlocked_reach(self.file_bytes()?);
            let moved = self.settle(reach, layer, hook)?;
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
        reach: Reach,
        layer: u8,
        hook: &SourceHook,
    ) -> Result<Copied, SqliteError> {
        self.run
            .progress()
            .set_phase("settling under the database lock");
        let mut checked = None;
        if let Some((_, mut view)) = view {
            self.warnings.push(Warning::BecameWal);
            let log_pages = view.take_log_pages();
            checked = Some((view, log_pages.is_some()));
            if let Some(log_pages) = log_pages {
                hook.set_log_pages(log_pages);
            }
        }
        self.settle(reach, layer, hook)?;
        let facts = self.facts(hook, reach)?;
        if let Some((view, has_log_pages)) = checked {
            view.check(has_log_pages)?;
        }
        let lock_held = self.end()?;
        let bytes = reach.bytes;
        Ok(Copied {
            bytes,
            facts,
            lock_held,
            lock_bytes: bytes,
            layered: true,
            hashes: hook.page_hashes(),
        })
    }

    /// The one class of all pages, if the run takes pages apart. The pages of all tables are in one
    /// file, and each says itself what it is.
    fn class(&self, header: Option<&DatabaseHeader>) -> Option<Arc<PageClass>> {
        let header = header.filter(|_| self.run.takes_pages_apart());
        let layout = header.and_then(layout_of);
        layout.map(|layout| Arc::new(PageClass::new(layout)))
    }

    /// The reach of a copy without a lock. The file may shrink meanwhile, so no byte has to be in
    /// it: the pass under the lock settles what the file is in the end.
    fn unlocked_reach(&self, bytes: u64) -> Reach {
        Reach { bytes, in_file: 0 }
    }

    /// If no more than this is left to copy under the lock, the copy need not wait for any device.
    fn locked_bytes_max(&self) -> u64 {
        let plan = &self.run.options().plan;
        FREE_PASS_BYTES_MIN.min(plan.buffers as u64 * plan.transfer_bytes as u64)
    }

    /// Copies the whole file, and returns when all of it has been read.
    fn copy_all(&mut self, reach: Reach) -> Result<(), SqliteError> {
        self.longest_bytes = reach.bytes;
        self.run.progress().set_total(reach.bytes);
        self.run.progress().set_phase("copying the database");
        self.run.push(file_spec(&self.database.file, reach))?;
        Ok(self.run.drain()?)
    }

    /// Copies some parts: the base has the rest.
    fn copy_parts(&mut self, reach: Reach, parts: Vec<Range<u64>>) -> Result<(), SqliteError> {
        let bytes = parts.iter().map(|part| part.end - part.start).sum();
        self.run.progress().set_total(bytes);
        self.run.progress().set_phase("copying what changed");
        let spec = file_spec(&self.database.file, reach);
        self.run.push_parts(spec, parts)?;
        Ok(self.run.drain()?)
    }

    /// Writes every range that differs from the set into `layer`. Returns how many bytes that was.
    fn settle(&mut self, reach: Reach, layer: u8, hook: &SourceHook) -> Result<u64, SqliteError> {
        let Some(hashes) = hook.hashes() else {
            return Ok(0);
        };
        let changed_from = self.changed_from(reach.bytes)?;
        let pace = self.run.source_limit();
        let compared = Compared {
            file: &self.database.file,
            path: &self.database.path,
            log_pages: hook.log_pages(),
            reach,
            pace: pace.as_deref(),
            until: self.run.hurry_until(),
            unit_bytes: u64::from(self.run.frame_bytes()).max(hashes.range_bytes()),
            changed_from,
        };
        let spec = file_spec(&self.database.file, reach);
        let cancel = self.run.cancel().clone();
        let progress = Arc::clone(self.run.progress());
        let moved = settle::settle(&compared, hashes, &cancel, |range| {
            // A range that is copied again is additional work.
            progress.set_total(progress.total() + range.bytes);
            Ok(self
                .run
                .push_range(&spec, range.offset, range.bytes, layer)?)
        })?;
        self.run.drain()?;
        Ok(moved)
    }

    /// The offset from which everything must be copied again, whatever it holds. `bytes` is the
    /// length of the file now. If the file shrank, a frame that reaches beyond its new end is void
    /// as a whole. So the backup copies the last transfer before the new end again.
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

    /// Ends the read transaction, after checking that the path still names the file that was read.
    fn end(&mut self) -> Result<Duration, SqliteError> {
        check_same_file(&self.database.path, &self.database.file)?;
        let held = self.session.end();
        self.run.progress().set_phase("writing what was read");
        self.run.end_hurry();
        held
    }

    /// The facts of the pinned state, from its first page.
    fn facts(&self, hook: &SourceHook, reach: Reach) -> Result<DatabaseFacts, SqliteError> {
        let (path, bytes) = (&self.database.path, reach.bytes);
        let Some(header) = read_header(&self.database.file, path)? else {
            return Ok(DatabaseFacts::new(path, bytes, None));
        };
        let mut page = vec![0; header.page_bytes as usize];
        let found = self.database.file.read_full_at(&mut page, 0);
        let found = found.during("read", path)?;
        if found < page.len() {
            reach.check_read(path, found as u64)?;
        }
        if let Some(log_pages) = hook.log_pages() {
            log_pages.apply(0, &mut page)?;
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

/// Gives the error in SQLite's terms, because the engine knows only files and time limits.
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

fn file_spec(file: &Arc<File>, reach: Reach) -> FileSpec {
    let content = FileContent::Open(Arc::clone(file));
    FileSpec {
        file: DATABASE_FILE,
        content,
        bytes: reach.bytes,
        needed_bytes: reach.in_file,
        missing: Missing::Fail,
    }
}
