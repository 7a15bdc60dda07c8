//! Method `hook`: the library in the server keeps each page before the server overwrites it.

use std::cell::{Cell, RefCell};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::{Cancel, Progress};
use windlass_postgres::{BackupRequest, Cluster};

use super::control::Control;
use super::create::{HookRequest, HookStart, create_with};
use super::error::HookError;
use super::libraries::Libraries;
use super::limits::HookLimits;
use super::record::CONTENT;
use crate::cluster;
use crate::error::{Doing, SnapshotError};
use crate::maker::{Made, Maker};
use crate::method::Method;
use crate::obstacle::Obstacle;
use crate::record::Survives;

/// A link takes about 25 microseconds, so these take a fifth of a second.
const LINKS_MAX: usize = 8000;
/// The same for a pause, which is taken because it is quick: under load these take 30 ms.
const PAUSE_LINKS_MAX: usize = 500;

/// Makes snapshots of a PostgreSQL cluster whose server has loaded the hook.
pub struct PostgresHook {
    cluster: Cluster,
    request: BackupRequest,
    start: HookStart,
    limits: HookLimits,
    durable: bool,
    links_max: usize,
    /// What the choice of the method has looked into.
    libraries: RefCell<Libraries>,
    /// Whether it has just found that the server writes through the hook.
    is_checked: Cell<bool>,
    home: Option<PathBuf>,
}

impl PostgresHook {
    /// Of this cluster.
    pub fn new(cluster: Cluster, request: BackupRequest, start: HookStart) -> Self {
        Self {
            cluster,
            request,
            start,
            limits: HookLimits::default(),
            durable: false,
            links_max: match start {
                HookStart::Pause => PAUSE_LINKS_MAX,
                HookStart::Checkpoint | HookStart::SpreadCheckpoint => LINKS_MAX,
            },
            libraries: RefCell::default(),
            is_checked: Cell::new(false),
            home: None,
        }
    }

    /// All snapshots of the cluster have an entry in this directory.
    #[must_use]
    pub fn among(mut self, home: &Path) -> Self {
        self.home = Some(home.to_owned());
        self
    }

    /// With these limits.
    #[must_use]
    pub fn limited(mut self, limits: HookLimits) -> Self {
        self.limits = limits;
        self
    }

    /// A snapshot of a cluster with more files has no links at first.
    #[must_use]
    pub fn links_max(mut self, links_max: usize) -> Self {
        self.links_max = links_max;
        self
    }

    /// Whether they outlive a power cut.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }
}

impl Maker for PostgresHook {
    fn method(&self) -> Method {
        Method::Hook
    }

    fn obstacle(&self, _into: &Path) -> Result<Option<Obstacle>, SnapshotError> {
        let data = &self.cluster.facts().data_directory;
        let mut libraries = self.libraries.borrow_mut();
        match Control::open(data).and_then(|control| control.check_libraries(&mut libraries)) {
            Ok(()) => {
                self.is_checked.set(true);
                Ok(None)
            }
            Err(error @ (HookError::Unseen { .. } | HookError::Blind { .. })) => {
                Ok(Some(Obstacle::Unseen {
                    said: error.to_string(),
                }))
            }
            Err(
                error @ (HookError::NotLoaded { .. }
                | HookError::Foreign { .. }
                | HookError::Version { .. }),
            ) => Ok(Some(Obstacle::NoHook {
                said: error.to_string(),
            })),
            Err(error) => Err(error.into()),
        }
    }

    fn make(
        &mut self,
        into: &Path,
        progress: &Arc<Progress>,
        cancel: &Cancel,
    ) -> Result<Made, SnapshotError> {
        let directory = into.join(CONTENT);
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.doing("make the directory", &directory)?;
        let request = HookRequest {
            directory: &directory,
            store: into.parent().unwrap_or(into),
            home: self.home.as_deref(),
            start: self.start,
            limits: self.limits,
            durable: self.durable,
            links_max: self.links_max,
            label: &self.request.label,
            progress,
        };
        let libraries = match self.is_checked.take() {
            true => None,
            false => Some(self.libraries.get_mut()),
        };
        let made = create_with(libraries, &mut self.cluster, &request, cancel)?;
        let found = &made.database;
        Ok(Made {
            files: None,
            as_of: made.as_of,
            lsn: Some(found.stop_lsn.to_string()),
            writers_stopped: Duration::from_secs_f64(made.writers_stopped_seconds),
            survives: match self.durable {
                true => Survives::PowerCut,
                false => Survives::Crash,
            },
            warnings: [made.orphans.warnings(), cluster::warnings(found)].concat(),
            facts: cluster::facts(&self.request, found)?,
        })
    }
}
