//! What the stages of a run have done, as the verdict needs it.

use crate::options::BufferPlan;
use crate::progress::Progress;
use crate::resource::StageName;
use crate::waits::{Stage, StageReport};

/// The measurements from which a verdict is made.
pub(crate) struct Activity {
    pub(crate) plan: BufferPlan,
    pub(crate) reader: StageReport,
    pub(crate) compressor: StageReport,
    pub(crate) writer: StageReport,
    pub(crate) data_seconds: f64,
    /// The most buffers that the run had.
    pub(crate) buffers_peak: usize,
    pub(crate) codec: String,
    /// Whether some of the pages were taken apart.
    pub(crate) takes_apart: bool,
    pub(crate) source_rate: Option<u64>,
    pub(crate) device_rate: Option<u64>,
    pub(crate) cores: usize,
}

impl Activity {
    pub(crate) fn new(progress: &Progress, plan: &BufferPlan, data_seconds: f64) -> Self {
        let report = |stage: &Stage, name| stage.report(name);
        Self {
            plan: plan.clone(),
            reader: report(&progress.reader, StageName::Reader),
            compressor: report(&progress.compressor, StageName::Compressor),
            writer: report(&progress.writer, StageName::Writer),
            data_seconds,
            buffers_peak: plan.buffers,
            codec: String::new(),
            takes_apart: false,
            source_rate: None,
            device_rate: None,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    pub(crate) fn stages(&self) -> Vec<StageReport> {
        vec![
            self.reader.clone(),
            self.compressor.clone(),
            self.writer.clone(),
        ]
    }
}
