//! Which numbers of a run are compared.

use super::series::SweptRun;
use crate::accuracy::quantile;

/// A number of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Wall time, in seconds.
    Seconds,
    /// CPU time of the process, in seconds.
    CpuSeconds,
    /// Bytes of the database per second while data moved.
    Rate,
    /// Bytes written.
    BytesWritten,
    /// The peak memory of the process, in bytes.
    PeakMemory,
}

impl Measure {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "duration",
            Self::CpuSeconds => "CPU time",
            Self::Rate => "rate",
            Self::BytesWritten => "bytes written",
            Self::PeakMemory => "peak memory",
        }
    }

    /// Its value.
    #[expect(clippy::cast_precision_loss, reason = "sizes for people and ratios")]
    pub fn of(self, run: &SweptRun) -> f64 {
        let report = &run.report;
        match self {
            Self::Seconds => report.seconds,
            Self::CpuSeconds => run.process_cpu_seconds,
            Self::Rate => report.limit.rate,
            Self::BytesWritten => report.bytes_written as f64,
            Self::PeakMemory => report.peak_memory_bytes as f64,
        }
    }
}

/// The median of some numbers; zero if there are none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&numbers.into_iter().collect::<Vec<_>>(), 0.5)
}
