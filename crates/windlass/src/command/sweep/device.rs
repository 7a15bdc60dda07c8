//! `windlass lab sweep device`: the probe, in rounds.

use std::path::Path;
use std::time::Duration;

use windlass_engine::Cancel;
use windlass_lab::{Direction, Environment, Experiment, Inputs, ProbeRequest, Series, probe};

use crate::cli::{Global, Sweep};
use crate::exit::Failure;
use crate::output;
use crate::outputs::outputs;

/// Bytes of the scratch file.
const SCRATCH_BYTES: u64 = 1 << 30;

pub fn measure(
    global: &Global,
    arguments: &Sweep,
    paths: &[String],
    cancel: &Cancel,
) -> Result<Series, Failure> {
    let [path] = paths else {
        let message = "the experiment `device` takes one directory";
        return Err(Failure::usage(
            message,
            "Name one; sweep others by themselves.",
        ));
    };
    let path = Path::new(path);
    if !path.is_dir() {
        let message = format!("{} is no directory", path.display());
        return Err(Failure::usage(
            message,
            "The experiment `device` takes a directory.",
        ));
    }
    // Its scratch file is an output: it never lies in a data directory.
    outputs().check(path)?;
    let repeat = arguments
        .repeat
        .map_or(Experiment::Device.repeat(), usize::from);
    let at = super::show::now();
    let inputs = Inputs {
        experiment: Experiment::Device,
        direction: Direction::Backup,
        kind: "directory".to_owned(),
        database_bytes: 0,
        to: vec![path.display().to_string()],
        repeat,
        arguments: Vec::new(),
    };
    let environment = Environment::of_machine(env!("CARGO_PKG_VERSION"));
    let mut series = Series::new(at.clone(), inputs, environment, Vec::new());
    for round in 1..=repeat {
        if !global.is_silent() {
            output::note(&format!(
                "round {round} of {repeat}: {:.0} s",
                arguments.budget
            ));
        }
        let request = ProbeRequest {
            budget: Duration::from_secs_f64(arguments.budget),
            scratch_bytes: SCRATCH_BYTES,
            at: at.clone(),
        };
        series
            .probes
            .push(probe(path, &request, cancel, &mut |_, _, _| {})?);
    }
    Ok(series)
}
