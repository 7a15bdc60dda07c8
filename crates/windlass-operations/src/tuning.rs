//! The setting that makes backups of a database to these devices fastest, found by trials.
//!
//!   request --> database, devices --> predicted limit --> trials --> the setting to use
//!
//! Invariants
//! - A mistake in what was asked for is found before anything is created.
//! - A trial makes no set, and changes no configuration: what becomes of the setting is the
//!   caller's.

mod bench;
mod limit;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::Codec;
use windlass_engine::{Cancel, Outputs, PageClass};
use windlass_lab::{Settings, Tuned, state_directory};
use windlass_model::Emulation;
use windlass_postgres::Cluster;
use windlass_sqlite::Database;

use crate::backup::PageChoice;
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::devices::{self, DeviceName};
use crate::error::{DeviceError, OperationError};
use crate::notice::Notice;
use crate::sampled::{Layouts, cluster_files};
use crate::settings::Rates;
use crate::{outputs, privilege};

use bench::Bench;
use limit::Known;

/// What to tune, and within which bounds.
#[derive(Clone, Debug)]
pub struct TuneRequest {
    /// The database.
    pub database: String,
    /// Its name in the configuration.
    pub name: Option<String>,
    /// The devices that backups are to go to.
    pub to: Vec<String>,
    /// The codecs to choose from.
    pub codecs: Vec<Codec>,
    /// Whether the backups will take pages apart.
    pub pages: PageChoice,
    /// How long all trials together may take.
    pub budget: Duration,
    /// How much of the database all trials together may read.
    pub budget_bytes: u64,
    /// How much one trial reads; without it, what takes about half a second.
    pub trial_bytes: Option<u64>,
    /// Limits of speed.
    pub rates: Rates,
    /// The most bytes that buffers may take.
    pub memory_limit: Option<u64>,
    /// The number of cores that a backup may keep busy.
    pub cores_max: Option<f64>,
    /// The models that storage has to imitate.
    pub emulation: Emulation,
    /// The setting that backups have now; none if all of it is left to the defaults.
    pub present: Option<PresentSetting>,
    /// Whether to try every setting instead of searching.
    pub exhaustive: bool,
}

/// The setting that backups have now. What is not there has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresentSetting {
    /// The codec.
    pub codec: Option<Codec>,
    /// Buffers.
    pub buffers: Option<usize>,
    /// Bytes of one.
    pub transfer_bytes: Option<usize>,
    /// Readers for each volume.
    pub readers: Option<usize>,
    /// Compressors.
    pub threads: Option<usize>,
}

impl PresentSetting {
    fn over(&self, default: &Settings) -> Settings {
        Settings {
            codec: self.codec.unwrap_or(default.codec),
            buffers: self.buffers.unwrap_or(default.buffers),
            transfer_bytes: self.transfer_bytes.unwrap_or(default.transfer_bytes),
            readers: self.readers.unwrap_or(default.readers),
            threads: self.threads.unwrap_or(default.threads),
        }
    }
}

/// What a search found, and what was known before it.
#[derive(Debug)]
pub struct TuneOutcome {
    /// The trials, and the best of them.
    pub tuned: Tuned,
    /// Whether the first setting is the present one. Else it is the default.
    pub is_present: bool,
    /// Bytes of the database per second that no setting exceeds; none if nothing is known.
    pub limit: Option<f64>,
    /// How much one trial read.
    pub trial_bytes: u64,
    /// The database.
    pub database: DatabaseName,
    /// The devices.
    pub devices: Vec<DeviceName>,
}

impl TuneOutcome {
    /// The setting to use: the first one, unless the trials show that the best one is faster.
    pub fn advised(&self) -> &Settings {
        match self.tuned.difference.apart {
            true => &self.tuned.best.setting,
            false => &self.tuned.first.setting,
        }
    }

    /// Whether the setting to use is the present one.
    pub fn keeps_present(&self) -> bool {
        self.is_present && !self.tuned.difference.apart
    }
}

/// Looks for the fastest setting.
pub fn tune(
    caller: &Caller,
    request: &TuneRequest,
    cancel: &Cancel,
) -> Result<TuneOutcome, OperationError> {
    if request.to.is_empty() {
        return Err(DeviceError::NoneNamed.into());
    }
    let name = DatabaseName::resolve_named(&request.database, request.name.as_deref())?;
    let devices = devices::resolve(&request.to)?;
    if let Some(path) = devices.iter().find_map(DeviceName::in_bucket) {
        let text = path.to_string_lossy().into_owned();
        return Err(DeviceError::NotTuned { text }.into());
    }
    // The profiles belong to the user who probed, who need not be the database's owner.
    let state = state_directory();
    // Root sees what the owner of the database may not see.
    devices::check(&devices, &outputs::outputs())?;
    let tuned = privilege::as_user(caller.process, name.owner(), || {
        let tuned = TunedDatabase::find(&name)?;
        devices::check(&devices, &tuned.outputs)?;
        Ok::<_, OperationError>(tuned)
    })?;
    for path in devices::make_directories(&devices, name.owner())? {
        let is_expected = false;
        caller.tell(&Notice::MadeDirectory { path, is_expected });
    }
    let bench = Bench {
        caller,
        request,
        name: &name,
        devices: &devices,
        database: &tuned,
        cancel,
    };
    let found = privilege::as_user(caller.process, name.owner(), || {
        let (emulation, files) = (&request.emulation, &tuned.files);
        let known = Known::of(emulation, state.as_deref(), files, &devices)?;
        bench.tune(&known)
    })?;
    Ok(TuneOutcome {
        tuned: found.tuned,
        is_present: found.is_present,
        limit: found.limit.is_finite().then_some(found.limit),
        trial_bytes: found.trial_bytes,
        database: name,
        devices,
    })
}

/// Where the bytes of the database are, and what no output may be.
struct TunedDatabase {
    files: Vec<PathBuf>,
    layouts: Layouts,
    volumes: usize,
    outputs: Outputs,
}

impl TunedDatabase {
    fn find(name: &DatabaseName) -> Result<Self, OperationError> {
        match name {
            DatabaseName::Sqlite(path) => {
                let database = Database::open(path)?;
                Ok(Self {
                    files: vec![path.clone()],
                    layouts: Layouts::of_file(&database)?,
                    volumes: 1,
                    outputs: outputs::of_sqlite(path)?,
                })
            }
            DatabaseName::Postgres(conninfo) => {
                let cluster = Cluster::connect(conninfo)?;
                let root = cluster.facts().data_directory.clone();
                Ok(Self {
                    files: cluster_files(&root)?,
                    volumes: cluster.scan_volumes()?,
                    outputs: outputs::of_cluster(&root)?,
                    layouts: Layouts::Cluster(root, cluster.page_layouts()?),
                })
            }
        }
    }

    /// The class of the pages of a file.
    fn class(&self, path: &Path) -> Option<Arc<PageClass>> {
        self.layouts.class(path)
    }
}
