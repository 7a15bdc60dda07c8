//! Experiments with snapshots: what they cost, how they grow, how fast a database goes back; and
//! the conclusions.
//!
//!   experiment --units--> runs on a cluster of the laboratory's own --> series (kept as JSON)
//!                                                                          |
//!      the noise of `sweep` --> findings, beside those of the article --> tables, report
//!
//! `crate::sweep` is the same for backups. The order of runs and the judgement of noise are its.
//!
//! Invariants
//! - Every number of a report can be computed again from the series alone.
//! - Nothing is called different unless the difference is as large as the noise requires.
//! - The article's findings are words and shapes. Its numbers are of other machines, and are never
//!   compared with ours.

mod article;
mod compared;
mod experiment;
mod figures;
mod findings;
mod growth;
mod report;
mod series;
mod table;
#[cfg(test)]
mod tests;

pub use experiment::SnapshotExperiment;
pub use findings::findings;
pub use growth::{GrowthLook, GrowthModel};
pub use report::report;
pub use series::{
    Sample, SnapshotCase, SnapshotInputs, SnapshotRun, SnapshotSeries, SnapshotSetting, StepTook,
    TookOf, Value, ValueKind,
};
pub use table::tables;
