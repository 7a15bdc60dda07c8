//! The laboratory: a cluster like the user's, with tables, a load, and snapshots.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windlass_engine::Cancel;
use windlass_lab::snapshots::SnapshotInputs;
use windlass_postgres::{
    Cluster, Load, LoadTables, OwnCluster, OwnClusterRequest, OwnSession, Programs,
};
use windlass_snapshot::hook::HookStart;
use windlass_snapshot::{Method, hook};

use super::error::ExperimentError;
use super::request::{ExperimentRequest, clients_of};
use super::step::ExperimentStep;
use super::work::{CreatedReport, ListedReport, OpenReport, SnapshotWork, Works};

use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::privilege;
use crate::snapshots::find_library;
use crate::sweeping::{check_free, scratch};

/// The default directory. On most systems it is large and on a disk.
const DEFAULT: &str = "/var/tmp";
/// What one of scale may take with its snapshots and its log; then what every cluster may take.
const BYTES_OF_SCALE: u64 = 100 << 20;
const BYTES_OF_CLUSTER: u64 = 512 << 20;
/// Sessions beside those of the load.
const OTHER_SESSIONS: usize = 30;
/// How long a pause sleeps before it looks whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// What is known of the user's server.
struct Like {
    major: u32,
    checksums: bool,
    settings: Vec<(String, String)>,
}

/// A cluster of its own with all that an experiment does to it.
pub(super) struct Laboratory<'a> {
    pub(super) request: &'a ExperimentRequest,
    works: Works<'a>,
    pub(super) cluster: OwnCluster,
    pub(super) tables: LoadTables,
    conninfo: String,
    programs: Programs,
    settings: Vec<(String, String)>,
    cluster_bytes: u64,
}

impl<'a> Laboratory<'a> {
    /// Makes the cluster and fills it.
    pub(super) fn set_up(
        caller: &Caller,
        request: &'a ExperimentRequest,
        works: Works<'a>,
    ) -> Result<Self, OperationError> {
        let name = DatabaseName::resolve(&request.database)?;
        let DatabaseName::Postgres(conninfo) = &name else {
            return Err(ExperimentError::NotAServer.into());
        };
        let owner = name.owner();
        let like = privilege::as_user(caller.process, owner, || look(conninfo))?;
        let programs = Programs::find(like.major, request.programs.as_deref())?;
        let parent = request.into.clone().unwrap_or_else(|| DEFAULT.into());
        let directory = scratch("lab", caller.process, &parent, owner)?;
        let made = Self::make(caller, request, works, (&directory, owner), like, programs);
        // Only a cluster that was made has a guard, which removes the directory.
        made.inspect_err(|_| std::fs::remove_dir_all(&directory).unwrap_or_default())
    }

    fn make(
        caller: &Caller,
        request: &'a ExperimentRequest,
        works: Works<'a>,
        (directory, owner): (&Path, Option<(u32, u32)>),
        like: Like,
        programs: Programs,
    ) -> Result<Self, OperationError> {
        let bytes = BYTES_OF_CLUSTER + BYTES_OF_SCALE * u64::from(request.scale);
        check_free(directory, bytes)?;
        let mut settings = like.settings;
        let sessions = clients_of(request).last().copied().unwrap_or(0) + OTHER_SESSIONS;
        settings.push(("max_connections".to_owned(), sessions.to_string()));
        if request.method == Method::Hook {
            let library = find_library(request.library.as_deref())?;
            let library = library.display().to_string();
            settings.push(("shared_preload_libraries".to_owned(), library));
        }
        settings.extend(request.settings.iter().cloned());
        caller.tell(&Notice::Experimenting(ExperimentStep::MakesCluster {
            directory,
            version: programs.version(),
            scale: request.scale,
        }));
        let cluster = OwnCluster::start(OwnClusterRequest {
            directory: directory.to_owned(),
            programs: programs.clone(),
            run_as: owner.filter(|_| privilege::is_root()),
            checksums: like.checksums,
            settings: settings.clone(),
        })?;
        if request.method == Method::Hook {
            let memory = hook::memory_of(&cluster.data());
            cluster.goes_with_it(&memory.map_err(windlass_snapshot::SnapshotError::from)?)?;
        }
        let tables = LoadTables::of_scale(request.scale);
        let mut session = cluster.session()?;
        tables.fill(&mut session)?;
        let bytes = session.number("SELECT sum(pg_database_size(oid))::bigint FROM pg_database")?;
        Ok(Self {
            request,
            works,
            conninfo: cluster.conninfo(),
            cluster,
            tables,
            programs,
            settings,
            cluster_bytes: bytes.unsigned_abs(),
        })
    }

    pub(super) fn inputs(&self) -> SnapshotInputs {
        let request = self.request;
        let into = request.into.clone().unwrap_or_else(|| DEFAULT.into());
        SnapshotInputs {
            experiment: request.experiment,
            server: self.programs.version().to_owned(),
            method: request.method.to_string(),
            scale: request.scale,
            cluster_bytes: self.cluster_bytes,
            seconds: request.seconds,
            repeat: request.repeat,
            into: into.display().to_string(),
            settings: self.settings.clone(),
        }
    }

    /// The flag to stop.
    pub(super) fn cancel(&self) -> &Cancel {
        self.works.cancel
    }

    pub(super) fn session(&self) -> Result<OwnSession, OperationError> {
        Ok(self.cluster.session()?)
    }

    /// A load of so many sessions.
    pub(super) fn load(&self, clients: usize) -> Result<Load, OperationError> {
        Ok(Load::start(&self.cluster, self.tables, clients)?)
    }

    /// Waits as long as a load is to run.
    pub(super) fn pause(&self) -> Result<(), OperationError> {
        self.pause_for(self.request.seconds)
    }

    pub(super) fn pause_for(&self, seconds: f64) -> Result<(), OperationError> {
        let end = Instant::now() + Duration::from_secs_f64(seconds.max(0.0));
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.works.cancel.check()?;
            std::thread::sleep(left.min(LOOK));
        }
        Ok(())
    }

    /// Makes a snapshot.
    pub(super) fn create(&self, name: &str) -> Result<CreatedReport, OperationError> {
        self.create_with(name, HookStart::Checkpoint)
    }

    pub(super) fn create_with(
        &self,
        name: &str,
        start: HookStart,
    ) -> Result<CreatedReport, OperationError> {
        self.works.create(&SnapshotWork::Create {
            database: &self.conninfo,
            name,
            method: self.request.method,
            start,
            to: self.request.to.as_deref(),
        })
    }

    /// Opens a snapshot while `look` runs.
    pub(super) fn while_open<T>(
        &self,
        name: &str,
        look: impl FnOnce(&OpenReport) -> Result<T, OperationError>,
    ) -> Result<T, OperationError> {
        let work = SnapshotWork::Open {
            database: &self.conninfo,
            name,
            programs: self.programs.directory(),
        };
        self.works.while_open(&work, look)
    }

    /// Goes back to a snapshot. The server runs again afterwards. Returns the seconds of all of it,
    /// and those without a server.
    pub(super) fn revert(&self, name: &str) -> Result<(f64, f64), OperationError> {
        let report = self.works.revert(&self.conninfo, name)?;
        // A service manager would have to start a server of its own, but this one is none's.
        self.cluster.start_server()?;
        Ok((report.seconds, report.writers_stopped_seconds))
    }

    /// What a snapshot has grown by and what it takes on the disk, after all that was changed has
    /// been written.
    pub(super) fn sizes(&self, name: &str) -> Result<(u64, u64), OperationError> {
        self.session()?.run("CHECKPOINT")?;
        let listed = self.works.list(&self.conninfo)?.snapshots;
        let found = listed.into_iter().find(|one| one.name == name);
        let no_size = || ExperimentError::NoSize {
            name: name.to_owned(),
        };
        let ListedReport {
            disk_bytes,
            grown_bytes,
            ..
        } = found.ok_or_else(no_size)?;
        let disk = disk_bytes.ok_or_else(no_size)?;
        Ok((grown_bytes.unwrap_or(disk), disk))
    }

    /// Drops all snapshots, and removes what the load has added.
    pub(super) fn clear(&self) -> Result<(), OperationError> {
        for one in self.works.list(&self.conninfo)?.snapshots {
            self.works.drop(&self.conninfo, &one.name)?;
        }
        Ok(self.tables.reset(&mut self.session()?)?)
    }
}

/// Asks the user's server what a cluster like it is.
fn look(conninfo: &str) -> Result<Like, OperationError> {
    let mut cluster = Cluster::connect(conninfo)?;
    Ok(Like {
        major: cluster.facts().major(),
        checksums: cluster.facts().data_checksums,
        settings: cluster.settings_of_speed()?,
    })
}

/// The directories whose devices an experiment writes to.
pub(super) fn places(laboratory: &Laboratory<'_>) -> Vec<PathBuf> {
    let to = laboratory.request.to.clone();
    std::iter::once(laboratory.cluster.data())
        .chain(to)
        .collect()
}
