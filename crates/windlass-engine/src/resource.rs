//! What can bind a run, and the stages of a run: one type for verdicts, reports, plans and advice.
//!
//! A report names them with the words of [`Resource::name`] and [`StageName::name`], and whoever
//! reads a report gets the same values back. The names never change.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What can bind a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resource {
    /// The storage of the database that is backed up.
    Source,
    /// The cores, as compressors use them.
    Compressor,
    /// The cores, as readers use them.
    Reader,
    /// The storage of the stripes.
    Device,
    /// The storage of the database that is restored.
    Target,
    /// The limit on what is read: from the source of a backup, or from stripes.
    RateLimit,
    /// The limit on what is written to the devices.
    DeviceRateLimit,
    /// Too few buffers.
    Buffers,
    /// The database, for which a backup waits.
    Database,
    /// The bandwidth of the machine. Only a plan knows it.
    Instance,
    /// Nothing in particular. Only a plan says so.
    Pipeline,
}

impl Resource {
    /// Every resource that can bind a real run.
    pub const OF_RUNS: [Self; 9] = [
        Self::Source,
        Self::Compressor,
        Self::Reader,
        Self::Device,
        Self::Target,
        Self::RateLimit,
        Self::DeviceRateLimit,
        Self::Buffers,
        Self::Database,
    ];

    /// The name in reports, metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Compressor => "compressor",
            Self::Reader => "reader",
            Self::Device => "device",
            Self::Target => "target",
            Self::RateLimit => "rate_limit",
            Self::DeviceRateLimit => "device_rate_limit",
            Self::Buffers => "buffers",
            Self::Database => "database",
            Self::Instance => "instance",
            Self::Pipeline => "pipeline",
        }
    }

    /// The words for people. Progress, verdict, plan and manual use the same ones.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Source => "the source",
            Self::Device => "the devices",
            Self::Target => "the target",
            Self::Compressor | Self::Reader => "the cores",
            Self::RateLimit => "the rate limit",
            Self::DeviceRateLimit => "the rate limit on the devices",
            Self::Buffers => "too few buffers",
            Self::Database => "waiting for the database",
            Self::Instance => "the machine's bandwidth",
            Self::Pipeline => "no single part",
        }
    }

    /// True for storage. Its first and last transfers say little about it.
    pub const fn is_storage(self) -> bool {
        matches!(self, Self::Source | Self::Device | Self::Target)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StageName {
    /// Fills buffers.
    Reader,
    /// Turns buffers into frames.
    Compressor,
    /// Turns frames into buffers.
    Decompressor,
    /// Empties buffers.
    Writer,
}

impl StageName {
    /// The name in reports, metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Compressor => "compressor",
            Self::Decompressor => "decompressor",
            Self::Writer => "writer",
        }
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_a_report_is_read_back_as_the_same_value() {
        for resource in Resource::OF_RUNS {
            let text = serde_json::to_string(&resource).unwrap();
            assert_eq!(text, format!("\"{resource}\""));
            assert_eq!(serde_json::from_str::<Resource>(&text).unwrap(), resource);
        }
        let stages = [
            StageName::Reader,
            StageName::Compressor,
            StageName::Decompressor,
            StageName::Writer,
        ];
        for stage in stages {
            let text = serde_json::to_string(&stage).unwrap();
            assert_eq!(text, format!("\"{stage}\""));
            assert_eq!(serde_json::from_str::<StageName>(&text).unwrap(), stage);
        }
    }
}
