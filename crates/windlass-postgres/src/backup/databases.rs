//! Databases that are dropped or moved while their files are copied.
//!
//! A database does not start without PG_VERSION and pg_filenode.map. If such a file vanishes, the
//! set is right only if its database no longer exists when the backup stops. The server removes the
//! files first and the row of pg_database afterwards. A backup that stopped in between would have a
//! row without files. So before it stops, the backup waits until each row has its files or is gone.
//! What is committed before the stop is in the set's log.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use windlass_engine::BackupRun;

use super::assembly::Assembly;
use crate::error::{PostgresError, SqlContext};
use crate::facts::ClusterFacts;
use crate::session::Session;
use crate::warning::Warning;

/// How long the backup waits for a database to be dropped. Dropping a large one takes a while.
const DROP_WAIT: Duration = Duration::from_secs(15);
const DROP_PAUSE: Duration = Duration::from_millis(50);
/// The tablespace whose databases are in `base`.
const DEFAULT_TABLESPACE: u32 = 1663;
const DATABASES: &str = "SELECT oid, dattablespace, datname::text, datconnlimit = -2 \
     FROM pg_database ORDER BY oid";

/// The databases of the cluster that is backed up.
pub(super) struct Databases {
    /// Those that had no files before the backup began.
    without_files: Vec<Database>,
    /// The latest name of each database that the server has had since.
    names: BTreeMap<u32, String>,
}

/// A row of pg_database.
struct Database {
    oid: u32,
    /// Its directory, below the data directory.
    directory: String,
    name: String,
    /// The server has begun to remove it; minor versions since 2023 record this. After a restore,
    /// as after a crash, one can only drop it.
    invalid: bool,
}

impl Databases {
    /// Finds the databases that have no files in the source itself. Call it before the backup
    /// starts.
    pub(super) fn before_backup(
        cluster: &ClusterFacts,
        session: &mut Session,
    ) -> Result<Self, PostgresError> {
        let mut without_files = databases(cluster, session)?;
        without_files.retain(|database| !database.version_file(cluster).exists());
        Ok(Self {
            without_files,
            names: BTreeMap::new(),
        })
    }

    /// The name of a database that there is now, or that there was at the start of a window.
    pub(super) fn name(
        &mut self,
        cluster: &ClusterFacts,
        session: &mut Session,
        oid: u32,
    ) -> Result<Option<String>, PostgresError> {
        drop(self.directories(cluster, session)?);
        Ok(self.names.get(&oid).cloned())
    }

    /// The directories of the databases that are there now, below the data directory.
    pub(super) fn directories(
        &mut self,
        cluster: &ClusterFacts,
        session: &mut Session,
    ) -> Result<Vec<Vec<u8>>, PostgresError> {
        let now = databases(cluster, session)?;
        let names = now.iter().map(|one| (one.oid, one.name.clone()));
        self.names.extend(names);
        let now = now.into_iter();
        Ok(now.map(|one| one.directory.into_bytes()).collect())
    }

    /// Warns about the databases that had no files before the backup, and have none at its end.
    /// Somebody may have been dropping one when the backup began, and another database may have got
    /// its number since. Call it when the backup has stopped.
    pub(super) fn warnings(
        &self,
        cluster: &ClusterFacts,
        session: &mut Session,
    ) -> Result<Vec<Warning>, PostgresError> {
        if self.without_files.is_empty() {
            return Ok(Vec::new());
        }
        let mut now = databases(cluster, session)?;
        now.retain(|database| self.is_known(database, cluster));
        Ok(now.iter().map(Database::warning).collect())
    }

    /// Whether a database had no files before the backup, and still has none.
    fn is_known(&self, database: &Database, cluster: &ClusterFacts) -> bool {
        let mut before = self.without_files.iter();
        before.any(|one| one.is(database)) && !database.version_file(cluster).exists()
    }

    /// Waits until no database is being dropped, and tells the assembly which directories belong to
    /// databases. Call it when all files are copied, before the backup stops. It ignores databases
    /// that had no files before the backup and have none now.
    pub(super) fn settle(
        &self,
        (cluster, session): (&ClusterFacts, &mut Session),
        run: &BackupRun,
        assembly: &mut Assembly,
    ) -> Result<(), PostgresError> {
        let begun = Instant::now();
        loop {
            let mut databases = databases(cluster, session)?;
            databases.retain(|database| !self.is_known(database, cluster));
            let is_lacking = |one: &&Database| !one.version_file(cluster).exists();
            let waiting = databases.iter().any(|one| is_lacking(&one));
            if !waiting || begun.elapsed() > DROP_WAIT {
                databases.retain(|database| !database.invalid);
                if let Some(database) = databases.iter().find(is_lacking) {
                    let path = database.version_file(cluster);
                    return Err(PostgresError::Vanished { path });
                }
                let directories = databases.into_iter().map(|database| database.directory);
                assembly.know_databases(directories.map(String::into_bytes).collect());
                return Ok(());
            }
            run.progress()
                .set_phase("waiting for a database to be dropped");
            run.cancel().check()?;
            std::thread::sleep(DROP_PAUSE);
        }
    }
}

/// The directories of the databases that are there now, below the data directory.
pub(super) fn directories(
    cluster: &ClusterFacts,
    session: &mut Session,
) -> Result<Vec<Vec<u8>>, PostgresError> {
    let now = databases(cluster, session)?.into_iter();
    Ok(now.map(|one| one.directory.into_bytes()).collect())
}

fn databases(
    cluster: &ClusterFacts,
    session: &mut Session,
) -> Result<Vec<Database>, PostgresError> {
    const DOING: &str = "list databases";
    let version = cluster.version_directory();
    let rows = session.rows(DOING, DATABASES)?;
    let database = |row: &postgres::Row| -> Result<Database, postgres::Error> {
        let (oid, tablespace): (u32, u32) = (row.try_get(0)?, row.try_get(1)?);
        let directory = match tablespace {
            DEFAULT_TABLESPACE => format!("base/{oid}"),
            other => format!("pg_tblspc/{other}/{version}/{oid}"),
        };
        Ok(Database {
            oid,
            directory,
            name: row.try_get(2)?,
            invalid: row.try_get(3)?,
        })
    };
    let databases: Result<Vec<_>, _> = rows.iter().map(database).collect();
    databases.doing(DOING)
}

impl Database {
    fn version_file(&self, cluster: &ClusterFacts) -> PathBuf {
        let directory = cluster.data_directory.join(&self.directory);
        directory.join("PG_VERSION")
    }

    fn is(&self, other: &Self) -> bool {
        self.directory == other.directory
    }

    /// The warning about a database that has no files.
    fn warning(&self) -> Warning {
        Warning::DatabaseWithoutFiles {
            database: self.name.clone(),
        }
    }
}
