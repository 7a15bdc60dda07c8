//! The settings that the laboratory checks itself, and what can be wrong with their values. Those
//! of a run are [`windlass_engine::Setting`]. Neither has the name of an option.

use std::fmt;

use windlass_engine::show_size;

/// A setting of an experiment, a search or a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LabSetting {
    /// How large the file is that a probe writes and reads.
    ScratchSize,
    /// The database that is sampled.
    Database,
    /// How much data a plan is for.
    UsedSize,
    /// The memory and the cores that a search may use.
    Bounds,
}

impl fmt::Display for LabSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ScratchSize => "size of the scratch file",
            Self::Database => "database",
            Self::UsedSize => "size of the data",
            Self::Bounds => "limits of memory and cores",
        })
    }
}

/// What is wrong with the value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabFault {
    /// So little says nothing about the storage.
    #[error(
        "{} is less than {}, which tells nothing",
        show_size(*asked_bytes), show_size(*least_bytes)
    )]
    TooSmall {
        /// What was asked for.
        asked_bytes: u64,
        /// The smallest size.
        least_bytes: u64,
    },
    /// The database has no bytes.
    #[error("there is nothing in it to take a sample of")]
    NothingToSample,
    /// The database of the plan has no bytes.
    #[error("there is nothing to plan for")]
    NothingToPlan,
    /// Every run needs more than is allowed.
    #[error("no setting takes as little")]
    NothingFits,
}
