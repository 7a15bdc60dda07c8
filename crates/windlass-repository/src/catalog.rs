//! The catalog of runs: what was run when, and how it ended, in one small SQLite database.
//!
//!   begin --> a row that says `running` --> end: the same row says how it ended
//!   sets of a place --> rows that the catalog lacks: what was lost is made again
//!
//! Invariants
//! - Nothing needs the catalog: no backup, no restore. Who writes it gets an error, and goes on.
//! - A run that ended is durable when `end` returns. A row that only says that a run began may be
//!   lost with a power cut, but not with the process.
//! - All files are open after the first write, because the process may become another user. So the
//!   catalog is in WAL mode, which opens no file at a commit.
//! - It has a limit: the newest [`DETAILED_MAX`] runs have their whole report, and it keeps
//!   [`RUNS_MAX`] runs.
//! - A catalog of a later version is not changed.

mod error;
mod open;
mod row;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

pub use error::CatalogError;
pub use row::{CatalogRun, RunState};

/// The file in the state directory.
pub const CATALOG_FILE: &str = "history.db";
/// So many of the newest runs have their whole report.
pub const DETAILED_MAX: i64 = 1_000;
/// So many runs are kept.
pub const RUNS_MAX: i64 = 50_000;

/// The catalog, open.
#[derive(Debug)]
pub struct Catalog {
    path: PathBuf,
    connection: Connection,
}

/// A catalog that was opened for writing.
#[derive(Debug)]
pub struct OpenedCatalog {
    /// The catalog.
    pub catalog: Catalog,
    /// The damaged one in whose place it is new.
    pub damaged: Option<PathBuf>,
}

impl Catalog {
    /// Opens the catalog of a state directory, and makes it if it is missing. A damaged one is
    /// moved aside.
    pub fn open(directory: &Path) -> Result<OpenedCatalog, CatalogError> {
        let (path, connection, damaged) = open::for_writing(directory)?;
        let catalog = Self { path, connection };
        Ok(OpenedCatalog { catalog, damaged })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes that a run began. Returns the number of its row.
    pub fn begin(&self, run: &CatalogRun) -> Result<i64, CatalogError> {
        self.set_durable(false)?;
        self.insert(run)
    }

    /// Writes how a run ended, in the row of its beginning if there is one, and thins old rows. It
    /// is durable when this returns.
    pub fn end(&mut self, row: Option<i64>, run: &CatalogRun) -> Result<(), CatalogError> {
        self.set_durable(true)?;
        let of = error::of(&self.path);
        let behavior = TransactionBehavior::Immediate;
        let write = |connection: &mut Connection| -> rusqlite::Result<()> {
            let transaction = connection.transaction_with_behavior(behavior)?;
            let is_there = match row {
                Some(row) => row::update(&transaction, row, run)? > 0,
                None => false,
            };
            if !is_there {
                row::insert(&transaction, run)?;
            }
            // Somebody may have found the new set before this run could say that it made it.
            let found = "delete from run where is_rebuilt and set_id = ?1";
            transaction.execute(found, [&run.set_id])?;
            thin(&transaction)?;
            transaction.commit()
        };
        write(&mut self.connection).map_err(of)
    }

    /// Adds runs whose sets the catalog does not know. Returns how many.
    pub fn add_sets(&mut self, runs: &[CatalogRun]) -> Result<usize, CatalogError> {
        self.set_durable(true)?;
        let of = error::of(&self.path);
        let behavior = TransactionBehavior::Immediate;
        let write = |connection: &mut Connection| -> rusqlite::Result<usize> {
            let transaction = connection.transaction_with_behavior(behavior)?;
            let mut added = 0;
            for run in runs {
                let known = "select 1 from run where set_id = ?1 and set_type is not null";
                let known = transaction
                    .query_row(known, [&run.set_id], |_| Ok(()))
                    .optional()?;
                if known.is_none() {
                    row::insert(&transaction, run)?;
                    added += 1;
                }
            }
            transaction.commit()?;
            Ok(added)
        };
        write(&mut self.connection).map_err(of)
    }

    /// The runs, the oldest beginning first. A run of which only the beginning is known, and whose
    /// process `is_running` does not know, was killed.
    pub fn runs(
        &self,
        is_running: impl Fn(&CatalogRun) -> bool,
    ) -> Result<Vec<CatalogRun>, CatalogError> {
        let of = error::of(&self.path);
        let mut runs = row::all(&self.connection).map_err(of)?;
        for run in &mut runs {
            if run.state == RunState::Running && !is_running(run) {
                run.state = RunState::Killed;
            }
        }
        Ok(runs)
    }

    /// The report of one run, as JSON; none if it was thinned.
    pub fn report(&self, row: i64) -> Result<Option<String>, CatalogError> {
        let query = "select report from run where id = ?1";
        let found = self
            .connection
            .query_row(query, [row], |row| row.get(0))
            .optional();
        Ok(found.map_err(error::of(&self.path))?.flatten())
    }

    /// Whether it was compared with the sets since it was made.
    pub fn is_complete(&self) -> Result<bool, CatalogError> {
        let query = "select value from meta where key = 'complete'";
        let found = self
            .connection
            .query_row(query, [], |row| row.get::<_, String>(0))
            .optional();
        Ok(found.map_err(error::of(&self.path))?.is_some())
    }

    /// Notes that it was.
    pub fn set_complete(&self) -> Result<(), CatalogError> {
        let statement = "insert or replace into meta values ('complete', '1')";
        let done = self.connection.execute(statement, []);
        done.map(drop).map_err(error::of(&self.path))
    }

    /// When it was made, in milliseconds since 1970.
    pub fn made_millis(&self) -> Result<i64, CatalogError> {
        let query = "select cast(value as integer) from meta where key = 'made'";
        let found = self.connection.query_row(query, [], |row| row.get(0));
        found.map_err(error::of(&self.path))
    }

    fn insert(&self, run: &CatalogRun) -> Result<i64, CatalogError> {
        row::insert(&self.connection, run).map_err(error::of(&self.path))
    }

    fn set_durable(&self, is_durable: bool) -> Result<(), CatalogError> {
        let mode = if is_durable { "full" } else { "normal" };
        let done = self.connection.pragma_update(None, "synchronous", mode);
        done.map_err(error::of(&self.path))
    }
}

/// Removes the reports of old runs, and very old runs.
fn thin(connection: &Connection) -> rusqlite::Result<()> {
    let newest = connection.query_row("select coalesce(max(id), 0) from run", [], |row| {
        row.get::<_, i64>(0)
    })?;
    connection.execute(
        "update run set report = null where id <= ?1 and report is not null",
        params![newest - DETAILED_MAX],
    )?;
    connection.execute("delete from run where id <= ?1", params![newest - RUNS_MAX])?;
    Ok(())
}
