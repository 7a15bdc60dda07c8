//! The experiments: what each asks, what it measures, and what is compared.

use serde::{Deserialize, Serialize};

/// An experiment with snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotExperiment {
    /// How long does a snapshot take under load?
    Load,
    /// Where does that time go?
    Steps,
    /// How long do the first to the fifth take?
    Chain,
    /// What happens to the database while one is made?
    Timeline,
    /// What do snapshots cost in throughput?
    Throughput,
    /// What do they cost each type of transaction?
    Latency,
    /// How do building an index and making a snapshot get along?
    Index,
    /// What do snapshots cost a rebuild?
    Rebuild,
    /// As of which instant are the data?
    AsOf,
    /// How long does it take to go back?
    Revert,
    /// How does a snapshot grow?
    Growth,
}

/// A measure whose values are compared along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) measure: &'static str,
    pub(super) axis: &'static str,
}

/// The axes and measures, as they are shown.
pub(super) mod names {
    pub(crate) const CLIENTS: &str = "clients";
    pub(crate) const SNAPSHOTS: &str = "snapshots";
    pub(crate) const ORDINAL: &str = "snapshot";
    pub(crate) const PHASE: &str = "phase";
    pub(crate) const STATEMENT: &str = "statement";
    pub(crate) const MAKING: &str = "beside it";
    pub(crate) const START: &str = "begins with";
    pub(crate) const CHANGED: &str = "changed";
    pub(crate) const PATTERN: &str = "pattern";

    pub(crate) const CREATION: &str = "creation";
    pub(crate) const STOPPED: &str = "writers stopped";
    pub(crate) const OPENING: &str = "first open";
    pub(crate) const THROUGHPUT: &str = "throughput";
    pub(crate) const RESPONSE: &str = "response time";
    pub(crate) const STATEMENT_TOOK: &str = "statement";
    pub(crate) const GROWTH: &str = "growth";
    pub(crate) const CHANGED_BYTES: &str = "changed";
    pub(crate) const NEWEST: &str = "newest row after the beginning";
    pub(crate) const TOLD: &str = "stated instant after the beginning";
    pub(crate) const REVERT: &str = "revert";
    pub(crate) const DOWN: &str = "server stopped";
    pub(crate) const SIZE: &str = "size on disk";
}

use names::{
    CHANGED, CLIENTS, CREATION, GROWTH, MAKING, NEWEST, OPENING, ORDINAL, PATTERN, PHASE, RESPONSE,
    REVERT, SIZE, SNAPSHOTS, START, STATEMENT, STATEMENT_TOOK, STOPPED, THROUGHPUT,
};

impl SnapshotExperiment {
    /// Every experiment.
    pub const ALL: [Self; 11] = [
        Self::Load,
        Self::Steps,
        Self::Chain,
        Self::Timeline,
        Self::Throughput,
        Self::Latency,
        Self::Index,
        Self::Rebuild,
        Self::AsOf,
        Self::Revert,
        Self::Growth,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Steps => "steps",
            Self::Chain => "chain",
            Self::Timeline => "timeline",
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Index => "index",
            Self::Rebuild => "rebuild",
            Self::AsOf => "as-of",
            Self::Revert => "revert",
            Self::Growth => "growth",
        }
    }

    /// The question it answers.
    pub fn question(self) -> &'static str {
        match self {
            Self::Load => "How long does it take to make a snapshot under load?",
            Self::Steps => "Where does the time of making and first opening a snapshot go?",
            Self::Chain => "How long do the first to the fifth snapshot take?",
            Self::Timeline => "What happens to the database while a snapshot is made?",
            Self::Throughput => "How many transactions are done with 0, 1, 3 and 5 snapshots?",
            Self::Latency => "How long does each type of transaction take with snapshots?",
            Self::Index => "How do building an index and making a snapshot get along?",
            Self::Rebuild => "How long does a rebuild take with 0, 1 and 2 snapshots?",
            Self::AsOf => "As of which instant are the data of a snapshot?",
            Self::Revert => "How long does it take to go back, by the share that has changed?",
            Self::Growth => "How large does a snapshot become, by what is changed?",
        }
    }

    /// About how long its default settings take, in minutes.
    pub fn minutes(self) -> u32 {
        match self {
            Self::Load | Self::Steps => 4,
            Self::Chain | Self::Throughput | Self::Latency => 6,
            Self::Timeline | Self::AsOf | Self::Rebuild => 2,
            Self::Index | Self::Revert | Self::Growth => 3,
        }
    }

    /// What is compared, the most important one first.
    pub(super) fn compared(self) -> &'static [Compared] {
        const fn of(measure: &'static str, axis: &'static str) -> Compared {
            Compared { measure, axis }
        }
        const LOAD: [Compared; 2] = [of(CREATION, CLIENTS), of(STOPPED, CLIENTS)];
        const STEPS: [Compared; 2] = [of(CREATION, CLIENTS), of(OPENING, CLIENTS)];
        const CHAIN: [Compared; 1] = [of(CREATION, ORDINAL)];
        const TIMELINE: [Compared; 1] = [of(THROUGHPUT, PHASE)];
        const THROUGH: [Compared; 1] = [of(THROUGHPUT, SNAPSHOTS)];
        const LATENCY: [Compared; 1] = [of(RESPONSE, SNAPSHOTS)];
        const INDEX: [Compared; 2] = [of(STATEMENT_TOOK, MAKING), of(CREATION, STATEMENT)];
        const REBUILD: [Compared; 2] = [of(STATEMENT_TOOK, SNAPSHOTS), of(GROWTH, SNAPSHOTS)];
        const AS_OF: [Compared; 2] = [of(NEWEST, START), of(CREATION, START)];
        const BACK: [Compared; 2] = [of(REVERT, CHANGED), of(SIZE, CHANGED)];
        const GROWS: [Compared; 2] = [of(GROWTH, CHANGED), of(GROWTH, PATTERN)];
        match self {
            Self::Load => &LOAD,
            Self::Steps => &STEPS,
            Self::Chain => &CHAIN,
            Self::Timeline => &TIMELINE,
            Self::Throughput => &THROUGH,
            Self::Latency => &LATENCY,
            Self::Index => &INDEX,
            Self::Rebuild => &REBUILD,
            Self::AsOf => &AS_OF,
            Self::Revert => &BACK,
            Self::Growth => &GROWS,
        }
    }
}
