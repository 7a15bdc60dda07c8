//! `windlass lab snapshots`: an experiment with snapshots, on a cluster of its own.

use std::io;
use std::process::Command;

use windlass_lab::snapshots::tables;
use windlass_operations::experimenting::{
    ExperimentOutcome, ExperimentRequest, SnapshotWork, evaluate, experiment,
};
use windlass_operations::snapshots::{HookStart, Method};

use crate::cli::{Global, LabSnapshots, SnapshotMethod};
use crate::command::sweep;
use crate::exit::{Code, Failure};
use crate::{output, requests, signals};

pub fn run(global: &Global, arguments: &LabSnapshots) -> Result<Code, Failure> {
    if let Some(path) = &arguments.from {
        show(global, &evaluate(path, arguments.out.as_deref())?);
        return Ok(Code::Done);
    }
    let request = request(arguments)?;
    let cancel = signals::cancel_on_signals()?;
    let caller = requests::quiet_caller(global);
    show(global, &experiment(&caller, &request, &command, &cancel)?);
    Ok(Code::Done)
}

fn request(arguments: &LabSnapshots) -> Result<ExperimentRequest, Failure> {
    let (Some(experiment), Some(database)) = (arguments.experiment, &arguments.database) else {
        return Err(Failure::usage(
            "an experiment needs a name and a server".to_owned(),
            "windlass lab snapshots --help lists the experiments.",
        ));
    };
    let mut clients = arguments.clients.clone();
    clients.sort_unstable();
    clients.dedup();
    Ok(ExperimentRequest {
        experiment,
        database: database.clone(),
        into: arguments.into.clone(),
        to: arguments.to.clone(),
        method: match arguments.method {
            SnapshotMethod::Auto | SnapshotMethod::Hook => Method::Hook,
            SnapshotMethod::Clone => Method::Clone,
            SnapshotMethod::Copy => Method::Copy,
        },
        library: arguments.library.clone(),
        programs: arguments.bindir.clone(),
        scale: arguments.scale,
        seconds: arguments.seconds,
        repeat: usize::from(arguments.repeat),
        clients,
        settings: arguments.settings.clone(),
        out: arguments.out.clone(),
    })
}

/// A piece of work as a command line of this program.
fn command(work: &SnapshotWork<'_>) -> io::Result<Command> {
    let mut command = sweep::own_command()?;
    match work {
        SnapshotWork::Create {
            database,
            name,
            method,
            start,
            to,
        } => {
            command.args(["snapshot", "create", database, name]);
            command.args(["--method", method.word()]);
            command.args(["--checkpoint", checkpoint(*start)]);
            to.map(|to| command.arg("--to").arg(to));
        }
        SnapshotWork::List { database } => {
            command.args(["snapshot", "list", database]);
        }
        SnapshotWork::Drop { database, name } => {
            command.args(["snapshot", "drop", database, name]);
        }
        SnapshotWork::Revert { database, name } => {
            let word = format!("{database}@{name}");
            command.args(["snapshot", "revert", &word, "--yes"]);
        }
        SnapshotWork::Open {
            database,
            name,
            programs,
        } => {
            let word = format!("{database}@{name}");
            command.args(["open", &word, "--bindir"]).arg(programs);
        }
    }
    command.args(["--json", "--config=/dev/null"]);
    Ok(command)
}

fn checkpoint(start: HookStart) -> &'static str {
    match start {
        HookStart::Checkpoint => "fast",
        HookStart::SpreadCheckpoint => "spread",
        HookStart::Pause => "none",
    }
}

fn show(global: &Global, outcome: &ExperimentOutcome) {
    let ExperimentOutcome {
        series,
        findings,
        kept,
    } = outcome;
    if global.json {
        let document = serde_json::json!({ "series": series, "findings": findings, "kept": kept });
        return output::line(&document.to_string());
    }
    sweep::show_findings(&tables(series), findings, kept);
}
