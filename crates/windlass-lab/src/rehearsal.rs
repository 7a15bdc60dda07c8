//! Rehearsals: real backups and restores on emulated storage, compared with the plan's predictions.
//!
//!   set-up --> question --simulate--> predicted
//!          \-> BackupRun, restore ---> measured     both are given the same buffers and threads
//!
//! They show how far the simulation can be trusted. Emulated storage takes nearly all of the time,
//! so the machine hardly matters. A rehearsal compares the real pipeline with its simulation.
//!
//! Invariants
//! - Everything is written below the given directory, and the owner of that directory removes it.

mod corpus;
mod setups;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use windlass_engine::media::{
    BackupType, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable, SetId,
};
use windlass_engine::{
    BackupOptions, BackupRun, BufferPlan, BufferRequest, Cancel, Device, DirectoryTarget,
    FileContent, FileDevice, FileDeviceOptions, FileSpec, METADATA_LIMIT_DEFAULT, Missing, OpenSet,
    Progress, Resource, RestoreOptions, RunReport, TargetLayout, default_buffer_count, restore,
};
use windlass_model::Model;

use crate::error::LabError;
use crate::plan::{Alternative, Direction, Question};
use crate::speeds::Speeds;

pub use corpus::Corpus;
pub use setups::{SETUPS, SetUp};

/// One run: its prediction and its measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rehearsal {
    /// The name of the set-up.
    pub setup: String,
    /// Backup or restore.
    pub direction: Direction,
    /// The duration that the plan predicted.
    pub predicted_seconds: f64,
    /// The duration that was measured.
    pub measured_seconds: f64,
    /// What the plan named.
    pub predicted_limit: Resource,
    /// What the verdict named.
    pub measured_limit: Resource,
}

impl Rehearsal {
    /// The error of the prediction as a share of what was measured. If it is below zero, the plan
    /// promised too much.
    pub fn error(&self) -> f64 {
        self.predicted_seconds / self.measured_seconds.max(1e-9) - 1.0
    }
}

/// Makes a backup of the corpus on a set-up, then restores it, all below `place`.
pub fn rehearse(
    setup: &SetUp,
    corpus: &Corpus,
    place: &Path,
    speeds: &Speeds,
    cancel: &Cancel,
) -> Result<[Rehearsal; 2], LabError> {
    let stage = Rehearsing {
        setup,
        corpus,
        place,
        speeds,
        cancel,
    };
    let (predicted, buffers) = stage.predict(Direction::Backup)?;
    let report = stage.back_up(buffers)?;
    let backup = stage.compare(Direction::Backup, predicted, &report);
    let (predicted, buffers) = stage.predict(Direction::Restore)?;
    let report = stage.bring_back(buffers)?;
    let restored = stage.compare(Direction::Restore, predicted, &report);
    Ok([backup, restored])
}

/// What the plan says.
struct Predicted {
    seconds: f64,
    limit: Resource,
}

struct Rehearsing<'a> {
    setup: &'a SetUp,
    corpus: &'a Corpus,
    place: &'a Path,
    speeds: &'a Speeds,
    cancel: &'a Cancel,
}

impl Rehearsing<'_> {
    fn predict(&self, direction: Direction) -> Result<(Predicted, BufferPlan), LabError> {
        let question = self.question(direction)?;
        let codec = self.setup.codec;
        let alternative = Alternative {
            files: self.setup.files,
            codec,
            ratio: self.speeds.of(codec).ratio,
        };
        let found = question.predict(&alternative)?;
        let predicted = Predicted {
            seconds: found.seconds,
            limit: found.limit.stage,
        };
        Ok((predicted, question.job(&alternative)?.buffers))
    }

    fn question(&self, direction: Direction) -> Result<Question, LabError> {
        let emulation = self.setup.emulation()?;
        let or_unlimited = |model: Option<Model>| {
            vec![model.unwrap_or_else(|| Model::unlimited("this machine's storage"))]
        };
        let ends = (
            or_unlimited(emulation.source),
            or_unlimited(emulation.target),
        );
        let (sources, targets) = match direction {
            Direction::Backup => ends,
            Direction::Restore => (ends.1, ends.0),
        };
        let default = default_buffer_count(self.setup.files, 1);
        Ok(Question {
            direction,
            used_bytes: self.corpus.bytes,
            file_bytes: self.corpus.bytes,
            sources,
            targets,
            instance: emulation.instance,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            request: BufferRequest {
                // A number that does not change: the prediction is compared with this one.
                buffers: Some(self.setup.buffers.unwrap_or(default)),
                readers: self.setup.readers,
                ..BufferRequest::default()
            },
            write_depth: FileDeviceOptions::default().depth,
            read_rate: None,
            write_rate: None,
            speeds: self.speeds.clone(),
        })
    }

    fn compare(&self, direction: Direction, predicted: Predicted, report: &RunReport) -> Rehearsal {
        Rehearsal {
            setup: self.setup.name.to_owned(),
            direction,
            predicted_seconds: predicted.seconds,
            measured_seconds: report.seconds,
            predicted_limit: predicted.limit,
            measured_limit: report.limit.stage,
        }
    }

    fn stripes(&self) -> Vec<PathBuf> {
        let stripe = |index| self.place.join(format!("{index}.windlass"));
        (0..self.setup.files).map(stripe).collect()
    }

    fn back_up(&self, plan: BufferPlan) -> Result<RunReport, LabError> {
        let options = FileDeviceOptions {
            alignment: plan.alignment,
            overwrite: true,
            ..FileDeviceOptions::default()
        };
        let create = |path: PathBuf| {
            Ok::<_, LabError>(Box::new(FileDevice::create(&path, options)?) as Box<dyn Device>)
        };
        let devices = self.stripes().into_iter().map(create);
        let devices = devices.collect::<Result<Vec<_>, _>>()?;
        let options = BackupOptions {
            plan,
            codec: self.setup.codec,
            range: None,
            source_rate: None,
            device_rate: None,
            ring: true,
            pacing: self.setup.emulation()?.pacing(),
            page_frames: false,
            frame_proof: true,
            encryption: None,
            parities: 0,
        };
        let (progress, cancel) = (Arc::<Progress>::default(), self.cancel.clone());
        let set = new_set();
        let mut run = BackupRun::start(set, 0, options, devices, progress, cancel)?;
        let mut files = Vec::new();
        for (file, path) in (0..).map(FileNo).zip(&self.corpus.files) {
            let bytes = self.corpus.bytes / self.corpus.files.len() as u64;
            let content = FileContent::Path(path.clone());
            run.push(FileSpec {
                file,
                content,
                bytes,
                needed_bytes: bytes,
                missing: Missing::Fail,
            })?;
            files.push(entry(file, bytes));
        }
        run.drain()?;
        Ok(run.finish(FileTable(files), facts())?)
    }

    fn bring_back(&self, plan: BufferPlan) -> Result<RunReport, LabError> {
        let set = OpenSet::open(&self.stripes(), METADATA_LIMIT_DEFAULT)?;
        let root = self.place.join("restored");
        let layout = TargetLayout {
            root: root.clone(),
            files: set.description().files.clone(),
            ..TargetLayout::default()
        };
        let target = DirectoryTarget::create(layout)?;
        let options = RestoreOptions {
            plan,
            device_rate: None,
            ring: true,
            pacing: self.setup.emulation()?.pacing(),
        };
        let options = options.fit(&set)?;
        let report = restore(&set, &target, &options, &Arc::default(), self.cancel)?;
        std::fs::remove_dir_all(&root).map_err(LabError::io("remove", &root))?;
        Ok(report)
    }
}

fn entry(file: FileNo, bytes: u64) -> FileEntry {
    FileEntry {
        file,
        kind: FileKind::File,
        flags: FileFlags::default(),
        mode: 0o600,
        bytes,
        mtime_nanos: 0,
        crc32c: 0,
        path: file.0.to_string().into_bytes(),
        link_target: vec![],
    }
}

fn facts() -> Facts {
    Facts {
        tool: "windlass lab".to_owned(),
        backup_type: BackupType::Full,
        started: String::new(),
        finished: String::new(),
        options: serde_json::json!({}),
        database: serde_json::json!({ "kind": "rehearsal" }),
        parents: vec![],
    }
}

/// The next run overwrites the set, so the id only has to differ from the last one.
fn new_set() -> SetId {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    SetId(now.map_or(0, |now| now.as_nanos()).to_le_bytes())
}
