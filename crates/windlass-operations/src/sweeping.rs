//! An experiment on databases that the caller names: backups or restores under many settings.
//!
//!   cases, in shuffled rounds --> a process each, whose command the caller makes
//!                             --> series --> findings, files (series, report)
//!
//! Invariants
//! - Every run is a process of its own. So its memory and CPU time are not mixed with others, and
//!   the sweep measures what users run.
//! - A sweep writes only stripes and restored files in scratch directories, which it removes, and
//!   the series and its report.

mod databases;
mod device;
mod error;
pub(crate) mod kept;
mod place;
mod process;
mod step;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windlass_engine::{Cancel, RunReport};
use windlass_lab::{
    Axes, Case, Chosen, Direction, Environment, Experiment, Findings, Inputs, Series, SweptRun,
    findings, rounds,
};

use crate::caller::{Caller, ProcessUse};
use crate::error::OperationError;
use crate::notice::Notice;
use crate::outputs::outputs;

use databases::Databases;
use place::Places;
use process::Processes;

pub use error::{FailedRun, SweepError};
pub(crate) use place::{check_free, scratch};
pub use process::{CaseRun, RunCommand, SweptWork};
pub(crate) use process::{interrupt, lost, run_command};
pub use step::SweepStep;

/// The order of runs is shuffled, but it is the same each time.
const SEED: u64 = 20_261_121;

/// What to measure.
#[derive(Clone, Debug)]
pub struct SweepRequest {
    /// The experiment.
    pub experiment: Experiment,
    /// The databases, of one owner; for the experiment `device`, one directory.
    pub databases: Vec<String>,
    /// Where stripes go: directories, or `nul`. Without any, what the experiment has by default.
    pub to: Vec<String>,
    /// Whether backups or restores are measured.
    pub direction: Direction,
    /// Where restored files go; without it, beside the first stripe.
    pub into: Option<PathBuf>,
    /// The values that are compared. Its `sources` are found out.
    pub chosen: Chosen,
    /// Rounds; without it, what the experiment has by default.
    pub repeat: Option<usize>,
    /// How long one round of the experiment `device` may take.
    pub budget: Duration,
    /// The directory of the series and its report; without it, one in the state directory.
    pub out: Option<PathBuf>,
    /// What every run gets besides its case, in the caller's words. It is recorded.
    pub arguments: Vec<String>,
}

/// A finished sweep.
pub struct SweepOutcome {
    /// Every run.
    pub series: Series,
    /// What the runs show.
    pub findings: Findings,
    /// The files that were written.
    pub kept: Vec<PathBuf>,
}

/// Makes all runs of an experiment. `command` makes the command of each.
pub fn sweep(
    caller: &Caller,
    request: &SweepRequest,
    command: &RunCommand<'_>,
    cancel: &Cancel,
) -> Result<SweepOutcome, OperationError> {
    let out = kept::directory(request.out.clone());
    outputs().check(&out)?;
    let series = match request.experiment {
        Experiment::Device => device::measure(caller, request, cancel)?,
        _ => Sweeper::new(caller, request, Processes { command, cancel })?.run()?,
    };
    evaluated(series, Some(&out), true)
}

/// Evaluates a series that was kept. If `out` names a directory, it draws the report again there.
pub fn evaluate(series: &Path, out: Option<&Path>) -> Result<SweepOutcome, OperationError> {
    evaluated(Series::load(series)?, out, false)
}

fn evaluated(
    series: Series,
    out: Option<&Path>,
    keep: bool,
) -> Result<SweepOutcome, OperationError> {
    let findings = findings(&series);
    let kept = match out {
        Some(out) => kept::write(&series, out, keep)?,
        None => Vec::new(),
    };
    Ok(SweepOutcome {
        series,
        findings,
        kept,
    })
}

/// One sweep under way.
struct Sweeper<'a> {
    caller: &'a Caller,
    request: &'a SweepRequest,
    repeat: usize,
    cases: Vec<Case>,
    databases: Databases,
    places: Places,
    processes: Processes<'a>,
    /// Sets that restores read: the setting each was made with, and its stripes.
    sets: Vec<(Case, Vec<PathBuf>)>,
}

impl<'a> Sweeper<'a> {
    fn new(
        caller: &'a Caller,
        request: &'a SweepRequest,
        processes: Processes<'a>,
    ) -> Result<Self, OperationError> {
        // The kernel adds up the CPU time of all children. None of them may be of others.
        if caller.process == ProcessUse::Shared {
            return Err(SweepError::SharedProcess.into());
        }
        let (experiment, restores) = (request.experiment, request.direction == Direction::Restore);
        let databases = Databases::find(caller.process, &request.databases)?;
        let chosen = Chosen {
            sources: databases.sources(),
            ..request.chosen.clone()
        };
        let cases = chosen.cases(experiment, restores);
        let keeps = restores || !experiment.is_to_nul();
        let largest = databases.largest();
        let stripes = match restores {
            true => sets(&cases).iter().map(|set| databases.of(set).bytes).sum(),
            false => largest,
        };
        let into = request.into.clone();
        let places = Places::new(
            caller,
            (&request.to, keeps),
            (restores, into),
            databases.owner,
        )?;
        places.check_room(stripes, largest)?;
        Ok(Self {
            caller,
            request,
            repeat: request.repeat.unwrap_or(experiment.repeat()),
            cases,
            databases,
            places,
            processes,
            sets: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Series, OperationError> {
        let inputs = Inputs {
            experiment: self.request.experiment,
            direction: self.request.direction,
            kind: self.databases.kinds(),
            database_bytes: self.databases.largest(),
            to: self.places.names(),
            repeat: self.repeat,
            arguments: self.request.arguments.clone(),
        };
        let environment = Environment::of_machine(self.caller.version());
        let mut series = Series::new(kept::now(), inputs, environment, self.cases.clone());
        self.tell(SweepStep::Begins {
            cases: self.cases.len(),
            repeat: self.repeat,
        });
        if self.request.direction == Direction::Restore {
            self.make_sets()?;
        }
        let order = rounds(self.cases.len(), self.repeat, SEED);
        // One run before the others fills the caches. Otherwise only the first setting would find
        // them cold.
        self.measure(order[0][0])?;
        let began = Instant::now();
        for (round, cases) in order.iter().enumerate() {
            for case in cases {
                let (process_cpu_seconds, report) = self.measure(*case)?;
                series.runs.push(SweptRun {
                    case: *case,
                    round,
                    process_cpu_seconds,
                    report,
                });
                self.tell_run(&series, began);
            }
        }
        Ok(series)
    }

    fn tell_run(&self, series: &Series, began: Instant) {
        let (done, count) = (series.runs.len(), self.cases.len() * self.repeat);
        let Some(run) = series.runs.last() else {
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "a guess")]
        let left_seconds = began.elapsed().as_secs_f64() * (count - done) as f64 / done as f64;
        self.tell(SweepStep::Ran {
            done,
            count,
            run,
            case: &self.cases[run.case],
            axes: &series.axes(),
            left_seconds,
        });
    }

    fn tell(&self, step: SweepStep<'_>) {
        self.caller.tell(&Notice::Sweeping(step));
    }

    /// Runs a case. Returns the CPU time of its process, and its report.
    fn measure(&mut self, index: usize) -> Result<(f64, RunReport), OperationError> {
        let case = &self.cases[index];
        match self.request.direction {
            Direction::Backup => {
                let to = &self.places.stripes("run", case.devices);
                let database = &self.databases.of(case).name;
                let work = SweptWork::Backup { database, to };
                let found = self.processes.run(&CaseRun { case, work });
                self.places.remove(to)?;
                found
            }
            Direction::Restore => {
                let wanted = set_of(case);
                let set = self.sets.iter().find(|(made_with, _)| *made_with == wanted);
                let stripes = set.map_or(&[][..], |(_, stripes)| stripes);
                let into = self.places.restored();
                let work = SweptWork::Restore {
                    stripes,
                    into: &into,
                };
                let found = self.processes.run(&CaseRun { case, work });
                self.places.remove(&[into])?;
                found
            }
        }
    }

    /// Makes the sets that restores read, without emulation.
    fn make_sets(&mut self) -> Result<(), OperationError> {
        for (index, case) in sets(&self.cases).into_iter().enumerate() {
            let stripes = self.places.stripes(&format!("set{index}"), case.devices);
            self.tell(SweepStep::MakesSet(&case));
            let work = SweptWork::Backup {
                database: &self.databases.of(&case).name,
                to: &stripes,
            };
            self.processes.run(&CaseRun { case: &case, work })?;
            self.sets.push((case, stripes));
        }
        Ok(())
    }
}

/// The case that a restore's set is made with. What the restore chooses itself has its default.
fn set_of(case: &Case) -> Case {
    let axes = Axes {
        devices: vec![case.devices],
        block_bytes: vec![case.block_bytes],
        codecs: vec![case.codec.clone()],
        pages: case.pages.clone().into_iter().collect(),
        sources: case.source.clone().into_iter().collect(),
        ..Axes::default()
    };
    axes.cases().remove(0)
}

/// The sets that these cases restore, without duplicates.
fn sets(cases: &[Case]) -> Vec<Case> {
    let mut sets: Vec<Case> = Vec::new();
    for set in cases.iter().map(set_of) {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}
