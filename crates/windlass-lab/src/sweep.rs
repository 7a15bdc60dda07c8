//! Sweeps: the same backup or restore under many settings, repeated, and the conclusions.
//!
//!   experiment --grids--> cases --order--> runs (the command makes them) --> series (kept as JSON)
//!                                                                              |
//!                                            statistics --> findings, table, report
//!
//! Invariants
//! - Every number of a report can be computed again from the series alone.
//! - A report never calls two settings different unless the difference is as large as `noise`
//!   requires.

mod axes;
mod environment;
mod experiment;
mod findings;
mod measure;
mod noise;
mod order;
mod published;
mod report;
mod series;
mod student;
mod table;
#[cfg(test)]
mod tests;

pub use axes::{Axes, Axis, Case, Chosen, Source, Storage};
pub use environment::Environment;
pub use experiment::Experiment;
pub use findings::{Findings, findings};
pub use measure::{Measure, median};
pub use noise::{Difference, Noise};
pub use order::rounds;
pub use report::report;
pub(crate) use report::write_findings;
pub use series::{Inputs, Series, SweptRun};
pub use table::{Titled, tables};
