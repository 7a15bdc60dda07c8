//! What a probe measures: the rate at each point, and the knees beyond which more in flight does
//! not help.

use serde::{Deserialize, Serialize};

/// In what order blocks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Anywhere.
    Random,
}

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reading.
    Read,
    /// Writing.
    Write,
}

/// A combination, and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The order of blocks.
    pub pattern: Pattern,
    /// Reading or writing.
    pub operation: Operation,
    /// Whether the page cache was bypassed.
    pub direct: bool,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks in flight.
    pub depth: usize,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Blocks per second.
    pub operations_per_second: f64,
    /// Median time of a block, in microseconds.
    pub latency_micros_p50: f64,
    /// 99th percentile, in microseconds.
    pub latency_micros_p99: f64,
    /// How uneven the rate was: the rate in the fastest quarter of the time minus that in the
    /// slowest, as a share of the mean. `None` if a quarter has too few blocks to tell.
    #[serde(default)]
    pub spread: Option<f64>,
}

impl Point {
    /// Whether it has this pattern and operation.
    pub fn is(&self, pattern: Pattern, operation: Operation) -> bool {
        (self.pattern, self.operation) == (pattern, operation)
    }
}

/// The smallest number of bytes in flight that reaches the full rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The order of blocks.
    pub pattern: Pattern,
    /// Reading or writing.
    pub operation: Operation,
    /// Whether the page cache was bypassed.
    pub direct: bool,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks in flight.
    pub depth: usize,
    /// Bytes per second at this point.
    pub bytes_per_second: f64,
    /// The best rate of any combination.
    pub best_bytes_per_second: f64,
    /// How uneven the rate of the best combination was, as in [`Point`].
    #[serde(default)]
    pub spread: Option<f64>,
}
