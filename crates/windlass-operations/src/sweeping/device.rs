//! The experiment `device`: the probe, in rounds.

use std::path::Path;

use windlass_engine::Cancel;
use windlass_lab::{Direction, Environment, Experiment, Inputs, ProbeRequest, Series, probe};

use super::{SweepError, SweepRequest, SweepStep, kept};
use crate::caller::Caller;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::outputs::outputs;

/// Bytes of the scratch file.
const SCRATCH_BYTES: u64 = 1 << 30;

pub(super) fn measure(
    caller: &Caller,
    request: &SweepRequest,
    cancel: &Cancel,
) -> Result<Series, OperationError> {
    let [path] = request.databases.as_slice() else {
        return Err(SweepError::NotOneDirectory.into());
    };
    let path = Path::new(path);
    if !path.is_dir() {
        let path = path.to_owned();
        return Err(SweepError::NoDirectory { path }.into());
    }
    // Its scratch file is an output: it never lies in a data directory.
    outputs().check(path)?;
    let repeat = request.repeat.unwrap_or(Experiment::Device.repeat());
    let (at, budget) = (kept::now(), request.budget);
    let inputs = Inputs {
        experiment: Experiment::Device,
        direction: Direction::Backup,
        kind: "directory".to_owned(),
        database_bytes: 0,
        to: vec![path.display().to_string()],
        repeat,
        arguments: Vec::new(),
    };
    let environment = Environment::of_machine(caller.version());
    let mut series = Series::new(at.clone(), inputs, environment, Vec::new());
    for round in 1..=repeat {
        let count = repeat;
        caller.tell(&Notice::Sweeping(SweepStep::Round {
            round,
            count,
            budget,
        }));
        let request = ProbeRequest {
            budget,
            scratch_bytes: SCRATCH_BYTES,
            at: at.clone(),
        };
        let profile = probe(path, &request, cancel, &mut |_, _, _| {})?;
        series.probes.push(profile);
    }
    Ok(series)
}
