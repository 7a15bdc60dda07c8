//! `windlass lab sweep`: an experiment on a database that the user names.
//!
//!   cases, in shuffled rounds --> a child process each: `windlass backup|restore --json`
//!                             --> series (JSON), table and words (here), report (HTML)
//!
//! Invariants
//! - Every run is a process of its own that runs this same program. So its memory and CPU time are
//!   not mixed with others, and the sweep measures what users run.
//! - A sweep writes only stripes and restored files in scratch directories, which it removes, and
//!   the series and its report.

mod child;
mod databases;
mod device;
mod place;
mod show;

use std::path::PathBuf;
use std::time::Instant;

use windlass_engine::Cancel;
use windlass_lab::{Case, Chosen, Direction, Environment, Experiment, Inputs, Run, Series, rounds};

use crate::cli::{Global, Sweep};
use crate::exit::{Code, Failure};
use crate::output;
use crate::signals;
use child::Child;
use databases::Databases;
use place::Places;

/// The order of runs is shuffled, but it is the same each time.
const SEED: u64 = 20_261_121;

pub fn run(global: &Global, arguments: &Sweep) -> Result<Code, Failure> {
    if let Some(path) = &arguments.from {
        let series = Series::load(path)?;
        return show::show(global, &series, arguments.out.as_deref(), false);
    }
    let cancel = signals::cancel_on_signals()?;
    let experiment = arguments.experiment.unwrap_or(Experiment::Grid);
    let databases = &arguments.databases;
    let out = show::out_directory(arguments.out.clone());
    crate::outputs::outputs().check(&out)?;
    let series = match experiment {
        Experiment::Device => device::measure(global, arguments, databases, &cancel)?,
        _ => Sweeper::new(global, arguments, experiment, cancel)?.run()?,
    };
    show::show(global, &series, Some(&out), true)
}

/// One sweep under way.
struct Sweeper<'a> {
    global: &'a Global,
    experiment: Experiment,
    direction: Direction,
    repeat: usize,
    cases: Vec<Case>,
    databases: Databases,
    places: Places,
    child: Child<'a>,
    /// Sets that restores read: the setting each was made with, and its stripes.
    sets: Vec<(Case, Vec<PathBuf>)>,
}

impl<'a> Sweeper<'a> {
    fn new(
        global: &'a Global,
        arguments: &'a Sweep,
        experiment: Experiment,
        cancel: Cancel,
    ) -> Result<Self, Failure> {
        let databases = Databases::find(&arguments.databases)?;
        let codecs = arguments.compress.iter();
        let codecs = codecs
            .map(|text| crate::compression::Compression::parse(text).map(|it| it.to_string()));
        let chosen = Chosen {
            devices: arguments.devices.clone(),
            transfer_bytes: arguments.transfer_size.clone(),
            buffers: arguments.buffers.iter().map(|it| it.0).collect(),
            block_bytes: arguments.block_size.clone(),
            codecs: codecs.collect::<Result<_, _>>()?,
            set_ups: arguments.emulate.clone(),
            scale: arguments.scale,
            sources: databases.sources(),
        };
        let cases = chosen.cases(experiment, arguments.restore);
        let direction = match arguments.restore {
            true => Direction::Restore,
            false => Direction::Backup,
        };
        let keeps = arguments.restore || !experiment.is_to_nul();
        let largest = databases.largest();
        let stripes = match arguments.restore {
            true => sets(&cases).iter().map(|set| databases.of(set).bytes).sum(),
            false => largest,
        };
        let into = arguments.into.clone();
        let places = Places::new(
            &arguments.to,
            keeps,
            (arguments.restore, into),
            databases.owner,
        )?;
        places.check_space(stripes, largest)?;
        Ok(Self {
            global,
            experiment,
            direction,
            repeat: arguments.repeat.map_or(experiment.repeat(), usize::from),
            cases,
            databases,
            places,
            child: Child {
                arguments: &arguments.arguments,
                cancel,
            },
            sets: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Series, Failure> {
        let inputs = Inputs {
            experiment: self.experiment,
            direction: self.direction,
            kind: self.databases.kinds(),
            database_bytes: self.databases.largest(),
            to: self.places.names(),
            repeat: self.repeat,
            arguments: self.child.arguments.to_vec(),
        };
        let environment = Environment::of_machine(env!("CARGO_PKG_VERSION"));
        let at = show::now();
        let mut series = Series::new(at, inputs, environment, self.cases.clone());
        self.note(&format!(
            "{} settings, {} each, and one before that to warm up",
            self.cases.len(),
            output::count(self.repeat as u64, "run"),
        ));
        if self.direction == Direction::Restore {
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
                series.runs.push(Run {
                    case: *case,
                    round,
                    process_cpu_seconds,
                    report,
                });
                self.tell(&series, began);
            }
        }
        Ok(series)
    }

    /// Prints one line for each finished run.
    fn tell(&self, series: &Series, began: Instant) {
        let (done, all) = (series.runs.len(), self.cases.len() * self.repeat);
        let Some(last) = series.runs.last() else {
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "a guess")]
        let left = began.elapsed().as_secs_f64() * (all - done) as f64 / done as f64;
        self.note(&format!(
            "{done:>4} of {all}  {:>8.2} s  {}  (about {left:.0} s left)",
            last.report.seconds,
            self.cases[last.case].words(&series.axes()),
        ));
    }

    /// Runs a case. Returns the CPU time of its process, and its report.
    fn measure(&mut self, index: usize) -> Result<(f64, windlass_engine::RunReport), Failure> {
        let case = &self.cases[index];
        match self.direction {
            Direction::Backup => {
                let stripes = self.places.stripes("run", case.devices);
                let database = &self.databases.of(case).name;
                let found = self.child.back_up(database, case, &stripes);
                self.places.remove(&stripes)?;
                found
            }
            Direction::Restore => {
                let wanted = set_of(case);
                let set = self.sets.iter().find(|(made_with, _)| *made_with == wanted);
                let stripes = set.map_or(&[][..], |(_, stripes)| stripes);
                let into = self.places.restored();
                let found = self.child.restore(case, stripes, &into);
                self.places.remove(&[into])?;
                found
            }
        }
    }

    /// Makes the sets that restores read, without emulation.
    fn make_sets(&mut self) -> Result<(), Failure> {
        for (index, case) in sets(&self.cases).into_iter().enumerate() {
            let stripes = self.places.stripes(&format!("set{index}"), case.devices);
            self.note(&format!(
                "backing up to restore from: {}",
                case.words(&windlass_lab::Axis::ALL)
            ));
            let database = &self.databases.of(&case).name;
            self.child.back_up(database, &case, &stripes)?;
            self.sets.push((case, stripes));
        }
        Ok(())
    }

    fn note(&self, text: &str) {
        if !self.global.is_silent() {
            output::note(text);
        }
    }
}

/// The case that a restore's set is made with. What the restore chooses itself has its default.
fn set_of(case: &Case) -> Case {
    let axes = windlass_lab::Axes {
        devices: vec![case.devices],
        block_bytes: vec![case.block_bytes],
        codecs: vec![case.codec.clone()],
        sources: case.source.clone().into_iter().collect(),
        ..windlass_lab::Axes::default()
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
