//! `windlass lab sweep`: an experiment on a database that the user names.

mod run;
mod show;

use std::time::Duration;

use windlass_lab::{Chosen, Direction, Experiment};
use windlass_operations::sweeping::{CaseRun, SweepRequest, evaluate, sweep};

use crate::cli::{Global, Sweep};
use crate::compression::Compression;
use crate::exit::{Code, Failure};
use crate::{requests, signals};

pub(super) use run::own_command;
pub(super) use show::show_findings;

pub fn run(global: &Global, arguments: &Sweep) -> Result<Code, Failure> {
    if let Some(path) = &arguments.from {
        let outcome = evaluate(path, arguments.out.as_deref())?;
        show::show(global, &outcome);
        return Ok(Code::Done);
    }
    let cancel = signals::cancel_on_signals()?;
    let (caller, request) = (requests::quiet_caller(global), request(arguments)?);
    let command = |one: &CaseRun<'_>| run::command(one, &arguments.arguments);
    let outcome = sweep(&caller, &request, &command, &cancel)?;
    show::show(global, &outcome);
    Ok(Code::Done)
}

fn request(arguments: &Sweep) -> Result<SweepRequest, Failure> {
    let codecs = arguments.compress.iter();
    let codecs = codecs.map(|text| Compression::parse(text).map(|it| it.to_string()));
    Ok(SweepRequest {
        experiment: arguments.experiment.unwrap_or(Experiment::Grid),
        databases: arguments.databases.clone(),
        to: arguments.to.clone(),
        direction: match arguments.restore {
            true => Direction::Restore,
            false => Direction::Backup,
        },
        into: arguments.into.clone(),
        chosen: Chosen {
            devices: arguments.devices.clone(),
            transfer_bytes: arguments.transfer_size.clone(),
            buffers: arguments.buffers.iter().map(|it| it.0).collect(),
            block_bytes: arguments.block_size.clone(),
            codecs: codecs.collect::<Result<_, _>>()?,
            pages: arguments.pages.clone(),
            set_ups: arguments.emulate.clone(),
            scale: arguments.scale,
            sources: Vec::new(),
        },
        repeat: arguments.repeat.map(usize::from),
        budget: Duration::from_secs_f64(arguments.budget),
        out: arguments.out.clone(),
        arguments: arguments.arguments.clone(),
    })
}
