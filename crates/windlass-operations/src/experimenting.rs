//! Experiments with snapshots, on a cluster of the laboratory's own.
//!
//!   DATABASE --version, settings--> a cluster like it --> tables --> load
//!   experiment --units, in shuffled rounds--> snapshots, a process each --> series --> files
//!
//! The user's server is asked what it is and how it is set up, and nothing else: a snapshot is of a
//! whole cluster, a load slows others down, and a revert stops the server.
//!
//! Invariants
//! - Nothing is written to the user's server or beside it.
//! - The laboratory's cluster, its server and its snapshots go with this process, however it ends.
//! - Snapshots are made, opened, dropped and reverted by processes of their own, as users do it.

mod changing;
mod course;
mod error;
mod laboratory;
mod making;
mod measured;
mod request;
mod standing;
mod step;
mod unit;
mod work;

use std::path::{Path, PathBuf};
use std::time::Instant;

use windlass_engine::Cancel;
use windlass_lab::snapshots::{SnapshotCase, SnapshotRun, SnapshotSeries, findings, report};
use windlass_lab::{Environment, Findings, rounds};

use crate::caller::{Caller, ProcessUse};
use crate::error::OperationError;
use crate::notice::Notice;
use crate::outputs::outputs;
use crate::sweeping::SweepError;
use crate::sweeping::kept;

use laboratory::Laboratory;
use measured::Measured;
use unit::Unit;
use work::Works;

pub use error::ExperimentError;
pub use request::ExperimentRequest;
pub use step::ExperimentStep;
pub use work::{SnapshotCommand, SnapshotWork};

/// The order of runs is shuffled, but it is the same each time.
const SEED: u64 = 20_261_125;
/// Fewer seconds than this say nothing.
pub const SECONDS_MIN: f64 = 0.1;

/// A finished experiment.
pub struct ExperimentOutcome {
    /// Every run.
    pub series: SnapshotSeries,
    /// What the runs show.
    pub findings: Findings,
    /// The files that were written.
    pub kept: Vec<PathBuf>,
}

/// Makes all runs of an experiment. `command` makes the command of each process.
pub fn experiment(
    caller: &Caller,
    request: &ExperimentRequest,
    command: &SnapshotCommand<'_>,
    cancel: &Cancel,
) -> Result<ExperimentOutcome, OperationError> {
    if caller.process == ProcessUse::Shared {
        return Err(SweepError::SharedProcess.into());
    }
    let out = kept::directory(request.out.clone());
    outputs().check(&out)?;
    let works = Works { command, cancel };
    let laboratory = Laboratory::set_up(caller, request, works)?;
    let series = run(caller, request, laboratory)?;
    evaluated(series, Some(&out), true)
}

/// Evaluates a series that was kept. If `out` names a directory, it draws the report again there.
pub fn evaluate(series: &Path, out: Option<&Path>) -> Result<ExperimentOutcome, OperationError> {
    evaluated(SnapshotSeries::load(series)?, out, false)
}

fn evaluated(
    series: SnapshotSeries,
    out: Option<&Path>,
    keep: bool,
) -> Result<ExperimentOutcome, OperationError> {
    let findings = findings(&series);
    let stem = format!("snapshots-{}", series.inputs.experiment.name());
    let save = |path: &Path, outputs: &windlass_engine::Outputs| series.save(path, outputs);
    let save: Option<kept::Save<'_>> = if keep { Some(&save) } else { None };
    let kept = match out {
        Some(out) => kept::write_as(&stem, &series.at, out, save, &report(&series))?,
        None => Vec::new(),
    };
    Ok(ExperimentOutcome {
        series,
        findings,
        kept,
    })
}

/// Runs every unit in each round.
fn run(
    caller: &Caller,
    request: &ExperimentRequest,
    laboratory: Laboratory<'_>,
) -> Result<SnapshotSeries, OperationError> {
    let units = Unit::all(request);
    let mut cases: Vec<SnapshotCase> = Vec::new();
    let mut firsts = Vec::new();
    for unit in &units {
        firsts.push(cases.len());
        cases.extend(unit.cases(request));
    }
    let environment = Environment::of_machine(caller.version());
    let inputs = laboratory.inputs();
    let mut series = SnapshotSeries::new(kept::now(), inputs, environment, cases);
    let count = units.len() * request.repeat;
    caller.tell(&Notice::Experimenting(ExperimentStep::Begins {
        units: units.len(),
        repeat: request.repeat,
    }));
    let (begun, mut done) = (Instant::now(), 0);
    for (round, order) in rounds(units.len(), request.repeat, SEED).iter().enumerate() {
        for index in order {
            let measured = run_unit(&units[*index], &laboratory)?;
            laboratory.clear()?;
            for one in measured {
                series.runs.push(of_round(one, firsts[*index], round));
            }
            done += 1;
            #[expect(clippy::cast_precision_loss, reason = "a guess")]
            let left_seconds = begun.elapsed().as_secs_f64() * (count - done) as f64 / done as f64;
            caller.tell(&Notice::Experimenting(ExperimentStep::Ran {
                done,
                count,
                words: &units[*index].words(),
                left_seconds,
            }));
        }
    }
    Ok(series)
}

fn of_round(measured: Measured, first: usize, round: usize) -> SnapshotRun {
    SnapshotRun {
        case: first + measured.case,
        round,
        values: measured.values,
        steps: measured.steps,
        samples: measured.samples,
        making: measured.making,
    }
}

/// Runs a unit.
fn run_unit(unit: &Unit, laboratory: &Laboratory<'_>) -> Result<Vec<Measured>, OperationError> {
    match *unit {
        Unit::Making { clients, opens } => making::one(laboratory, clients, opens),
        Unit::Chain { clients } => making::chain(laboratory, clients),
        Unit::Course { clients } => course::run(laboratory, clients),
        Unit::Standing { clients, count } => standing::run(laboratory, clients, count),
        Unit::Beside {
            statement,
            clients,
            makes,
        } => standing::beside(laboratory, statement, clients, makes),
        Unit::Rebuild { statement, count } => standing::rebuild(laboratory, statement, count),
        Unit::AsOf { start } => making::as_of(laboratory, start),
        Unit::Revert { share } => changing::revert(laboratory, share),
        Unit::Growth { pattern, share } => changing::growth(laboratory, pattern, share),
    }
}
