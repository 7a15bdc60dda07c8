//! What one device did in a run.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One device of a finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its location.
    pub name: String,
    /// Bytes written to it or read from it.
    pub bytes: u64,
    /// Transfers.
    pub operations: u64,
    /// Seconds during which it had work.
    pub busy_seconds: f64,
    /// Median latency of a transfer, in microseconds.
    pub latency_micros_p50: u64,
    /// 99th percentile, in microseconds.
    pub latency_micros_p99: u64,
    /// Slowest, in microseconds.
    pub latency_micros_max: u64,
}

impl DeviceReport {
    pub(crate) fn new(name: &str, bytes: u64, busy: f64, latency: &Histogram<u64>) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            operations: latency.len(),
            busy_seconds: busy,
            latency_micros_p50: latency.value_at_quantile(0.5),
            latency_micros_p99: latency.value_at_quantile(0.99),
            latency_micros_max: latency.max(),
        }
    }
}

/// Latencies of one device: from a microsecond to an hour, to two digits.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 2).expect("these bounds make a histogram")
}
