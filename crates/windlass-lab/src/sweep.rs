//! Sweeps: the same backup or restore under many settings, repeated, and what can be said of it.
//!
//!   experiment --grids--> cases --order--> runs (the command makes them) --> series (kept as JSON)
//!                                                                              |
//!                                            statistics --> findings, table, report
//!
//! Invariants
//! - Every number of a report can be computed again from the series alone.
//! - Two settings are never called different on less than `noise` asks for.

mod axes;
mod environment;
mod experiment;
mod findings;
mod measure;
mod noise;
mod order;
mod series;
mod student;
#[cfg(test)]
mod tests;

pub use axes::{Axes, Axis, Case, Chosen, SetUp};
pub use environment::Environment;
pub use experiment::Experiment;
pub use findings::{Findings, findings};
pub use measure::{Measure, median};
pub use noise::{Difference, Noise};
pub use order::rounds;
pub use series::{DeviceRun, Inputs, Run, RunRecord, Series, StageRun, WaitRun};
