//! Checks whether a database is sound: PostgreSQL's own amcheck checks every relation of an opened
//! server, and Windlass reads every page of every file.
//!
//!   databases --> relations --verify_heapam, bt_index_check--> faults by relation
//!   catalogs ---> missing ----files that do not exist---------> faults by relation
//!   files ------> pages ------checksums, read errors, gaps----> faults by relation
//!                  +--------structure--lost pages-------------> faults by relation
//!
//! amcheck checks the content of tables and B-trees: it finds impossible rows, and rows that an
//! index lacks. It does not check other kinds of indexes, the free space and visibility maps, or
//! databases that nobody can connect to. Windlass at least reads their pages and checks the
//! checksums. It also looks for pages that are lost: those that other pages need or point to.
//!
//! Invariants
//! - What could not be checked is named, and never reported as sound.

mod found;
mod kinds;
mod missing;
pub(crate) mod pages;
mod relations;
mod structure;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use postgres::{Client, SimpleQueryMessage, SimpleQueryRow};
use windlass_engine::Cancel;

use crate::error::{IoContext, PostgresError, SqlContext};
use crate::open::Server;
pub use found::{Inspection, RelationFault};
use relations::Relation;

/// What a fault is in if no relation of its database can be checked.
const UNUSABLE: &str = "the whole database";

/// Asks an opened server something, in this database or in one that always exists. Columns are
/// separated by `|` and rows by line breaks; nulls are empty.
pub fn ask(server: &Server, database: Option<&str>, sql: &str) -> Result<String, PostgresError> {
    let connection = server.connection();
    let database = database.unwrap_or(&connection.database);
    let mut session = relations::session(connection, database)?;
    // Whoever asks names tables as the database's own users do.
    session
        .batch_execute("RESET ALL")
        .doing("ask the database")?;
    let messages = session.simple_query(sql).doing("ask the database")?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = |row: &SimpleQueryRow| {
        let values = (0..row.len()).map(|index| row.get(index).unwrap_or_default());
        values.collect::<Vec<_>>().join("|")
    };
    Ok(rows.map(row).collect::<Vec<_>>().join("\n"))
}

/// Checks every database of an opened server. The server must be writable, because Windlass may
/// have to install amcheck. `data` is the server's data directory. `jobs` sessions and readers work
/// at once.
pub fn inspect(
    server: &Server,
    data: &Path,
    jobs: usize,
    cancel: &Cancel,
) -> Result<Inspection, PostgresError> {
    inspect_all(server, data, jobs, cancel).map_err(PostgresError::of_opened)
}

fn inspect_all(
    server: &Server,
    data: &Path,
    jobs: usize,
    cancel: &Cancel,
) -> Result<Inspection, PostgresError> {
    let mut found = Inspection::default();
    let mut databases = Vec::new();
    for database in &relations::databases(server.connection())? {
        let Some((session, checks)) = prepare(server, database, &mut found)? else {
            continue;
        };
        databases.push(database.clone());
        let session = std::sync::Mutex::new(Some(session));
        let results = in_parallel(&checks, jobs, cancel, || {
            let first = session.lock().map_or(None, |mut session| session.take());
            let mut session = match first {
                Some(session) => session,
                None => relations::session(server.connection(), database)?,
            };
            Ok(move |relation: &Relation| relations::check(&mut session, database, relation))
        })?;
        found.databases += 1;
        for (relation, result) in checks.iter().zip(results) {
            let count = if relation.is_index {
                &mut found.indexes
            } else {
                &mut found.tables
            };
            *count += 1;
            found.faults.extend(result.faults);
            found.unchecked.extend(result.unchecked);
        }
    }
    // Make the server write what it still holds in memory to the files, which are read next.
    let mut session = relations::session(server.connection(), &server.connection().database)?;
    session
        .batch_execute("CHECKPOINT")
        .doing("write a checkpoint")?;
    drop(session);
    missing::find(server.connection(), &databases, data, &mut found)?;
    pages::read_all(
        server.connection(),
        &databases,
        data,
        jobs,
        cancel,
        &mut found,
    )?;
    found.faults.sort();
    found.faults.dedup();
    Ok(found)
}

/// Prepares the checks of a database. If nobody can use the database, that is a fault.
fn prepare(
    server: &Server,
    database: &str,
    found: &mut Inspection,
) -> Result<Option<(Client, Vec<Relation>)>, PostgresError> {
    let prepared = relations::prepare(server.connection(), database);
    match prepared.map_err(PostgresError::of_opened) {
        Err(error) if error.is_damage() => {
            found.faults.push(RelationFault {
                database: database.to_owned(),
                relation: UNUSABLE.to_owned(),
                what: error.words(),
            });
            Ok(None)
        }
        prepared => prepared.map(Some),
    }
}

/// Runs `work` on all items, `jobs` at a time, and returns the results in the items' order. Each
/// thread first makes its worker. The first error ends all of them.
fn in_parallel<T: Sync, R: Send, W: FnMut(&T) -> Result<R, PostgresError>>(
    items: &[T],
    jobs: usize,
    cancel: &Cancel,
    worker: impl Fn() -> Result<W, PostgresError> + Sync,
) -> Result<Vec<R>, PostgresError> {
    let next = AtomicUsize::new(0);
    let failed = std::sync::atomic::AtomicBool::new(false);
    let thread = || -> Result<Vec<(usize, R)>, PostgresError> {
        let mut work = worker()?;
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            cancel.check()?;
            done.push((index, work(item)?));
        }
        Ok(done)
    };
    let thread = || thread().inspect_err(|_| failed.store(true, Ordering::Relaxed));
    let mut results = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            match std::thread::Builder::new().spawn_scoped(scope, thread) {
                Ok(started) => threads.push(started),
                Err(error) if threads.is_empty() => {
                    return Err(error).doing("start a thread for", "the opened server");
                }
                // The threads that there are do all of the work.
                Err(_) => break,
            }
        }
        let joined = threads.into_iter().map(|thread| {
            let panicked = |panic| std::panic::resume_unwind(panic);
            thread.join().unwrap_or_else(panicked)
        });
        joined.collect::<Result<Vec<_>, _>>()
    })?
    .into_iter()
    .flatten()
    .collect::<Vec<_>>();
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
