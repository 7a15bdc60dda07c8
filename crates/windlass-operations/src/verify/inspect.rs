//! Opens a set, and lets the database's own tools check every relation.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use windlass_engine::{Cancel, Progress};
use windlass_mount::{MountError, apart};

use super::outcome::{Findings, Inspected};
use crate::caller::Caller;
use crate::error::OperationError;
use crate::notice::{Notice, Observer};
use crate::opened::{OpenSettings, Opened, ToOpen};
use crate::places::LocatedSet;

/// Opens a set and checks what is in it.
pub(super) fn inspect(
    caller: &Caller,
    found: &LocatedSet,
    settings: &OpenSettings,
    cancel: &Cancel,
) -> Result<Inspected, OperationError> {
    let set = Arc::new(found.open_plain()?);
    opened(
        caller,
        &ToOpen::set(&set, settings.cache_bytes)?,
        settings,
        cancel,
    )
}

/// Opens an image and checks what is in it.
pub(super) fn opened(
    caller: &Caller,
    what: &ToOpen,
    settings: &OpenSettings,
    cancel: &Cancel,
) -> Result<Inspected, OperationError> {
    let (inspected, ()) = inspect_and_ask(caller, what, settings, cancel, |_| Ok(()))?;
    Ok(inspected)
}

/// Opens an image, asks something, and checks what is in it.
pub(crate) fn inspect_and_ask<T>(
    caller: &Caller,
    what: &ToOpen,
    settings: &OpenSettings,
    cancel: &Cancel,
    ask: impl FnOnce(&Opened) -> Result<T, OperationError>,
) -> Result<(Inspected, T), OperationError> {
    let begun = Instant::now();
    let settings = OpenSettings {
        name: None,
        writable: what.kind() == Some(windlass_postgres::KIND),
        ..settings.clone()
    };
    let observer: Arc<dyn Observer> = Arc::new(WithoutFull(Arc::clone(&caller.observer)));
    let mut opened = Opened::open(&observer, what, &settings, cancel)?;
    let answers = match ask(&opened) {
        Ok(answers) => answers,
        Err(error) => return Err(opened.explained(error)),
    };
    let findings = match &opened {
        Opened::Postgres { server, view } => {
            let jobs = std::thread::available_parallelism().map_or(2, usize::from);
            let inspect = || windlass_postgres::inspect(server, view.at(), jobs, cancel);
            let found = read_apart(view.at(), inspect)?;
            found.map(Findings::Postgres).map_err(OperationError::from)
        }
        Opened::Sqlite { database, .. } => {
            let found = read_apart(database, || windlass_sqlite::inspect(database))?;
            found.map(Findings::Sqlite).map_err(OperationError::from)
        }
    };
    // If damage ended the server, its end says more than the session that broke with it. So does
    // a scratch directory that is full.
    let findings = match findings {
        Ok(findings) => findings,
        Err(error) => return Err(opened.explained(error)),
    };
    let inspected = Inspected {
        findings,
        set_is_damaged: opened.close()?,
        seconds: begun.elapsed().as_secs_f64(),
    };
    Ok((inspected, answers))
}

/// Asks an opened database something. Columns are separated by `|`, rows by line breaks.
pub(crate) fn ask(
    opened: &Opened,
    name: Option<&str>,
    sql: &str,
) -> Result<String, OperationError> {
    match opened {
        Opened::Postgres { server, .. } => Ok(windlass_postgres::ask(server, name, sql)?),
        Opened::Sqlite { database, .. } => {
            let answer = read_apart(database, || windlass_sqlite::ask(database, sql))?;
            Ok(answer?)
        }
    }
}

/// Waits until the database answers.
pub(crate) fn first_answer(opened: &Opened) -> Result<(), OperationError> {
    let question = match opened {
        Opened::Postgres { .. } => "select count(*) from pg_class",
        Opened::Sqlite { .. } => "select count(*) from sqlite_schema",
    };
    ask(opened, None, question).map(drop)
}

/// Passes on what happens, except that the scratch directory is full. The failure of the whole
/// inspection says that, and says it once.
struct WithoutFull(Arc<dyn Observer>);

impl Observer for WithoutFull {
    fn notice(&self, notice: &Notice<'_>) {
        if !matches!(notice, Notice::OfMount(error) if error.is_full()) {
            self.0.notice(notice);
        }
    }

    fn watch(&self, progress: &Arc<Progress>) -> Option<Box<dyn Any>> {
        self.0.watch(progress)
    }

    fn is_degraded(&self) -> bool {
        self.0.is_degraded()
    }
}

/// Reads our own mount. Otherwise a process that is killed could wait for itself for ever.
fn read_apart<T: Send>(at: &Path, read: impl FnOnce() -> T + Send) -> Result<T, OperationError> {
    let failed = |source| MountError::Serve {
        at: at.to_owned(),
        source,
    };
    Ok(apart(read).map_err(failed)?)
}
