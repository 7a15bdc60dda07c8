//! Making snapshots under load: how long it takes, where that time goes, and as of when the data
//! are.

use windlass_lab::snapshots::{StepTook, TookOf, Value, ValueKind};
use windlass_postgres::{Load, OwnSession};
use windlass_snapshot::hook::HookStart;

use super::error::ExperimentError;
use super::laboratory::Laboratory;
use super::measured::{Measured, of_kind, seconds, steps};

use super::work::{CreatedReport, OpenReport, StepReport};
use crate::error::OperationError;

/// The length of a chain.
pub(super) const CHAIN: usize = 5;
/// Sessions that insert the time.
const INSERTERS: usize = 4;

/// One snapshot under a load.
pub(super) fn one(
    laboratory: &Laboratory<'_>,
    clients: usize,
    opens: bool,
) -> Result<Vec<Measured>, OperationError> {
    let load = laboratory.load(clients)?;
    laboratory.pause()?;
    let done = load.counts();
    let created = laboratory.create("s1")?;
    load.check()?;
    let mut measured = Measured {
        values: of_making(&created),
        steps: steps(&created),
        ..Measured::default()
    };
    let done = windlass_lab::to_f64(done.count()) / laboratory.request.seconds;
    measured
        .values
        .push(of_kind("throughput before it", ValueKind::PerSecond, done));
    if opens {
        let opening = laboratory.while_open("s1", |opened| Ok(of_opening(opened)))?;
        let all = opening.iter().map(|step| step.seconds).sum();
        measured.values.push(seconds("first open", all));
        measured.steps.extend(opening);
    }
    load.stop()?;
    Ok(vec![measured])
}

/// The first to the fifth under one load.
pub(super) fn chain(
    laboratory: &Laboratory<'_>,
    clients: usize,
) -> Result<Vec<Measured>, OperationError> {
    let load = laboratory.load(clients)?;
    let mut measured = Vec::new();
    for case in 0..CHAIN {
        laboratory.pause()?;
        let created = laboratory.create(&format!("s{}", case + 1))?;
        load.check()?;
        measured.push(Measured {
            case,
            values: of_making(&created),
            steps: steps(&created),
            ..Measured::default()
        });
    }
    load.stop()?;
    Ok(measured)
}

/// A snapshot while sessions insert the time: the newest row that it has says as of when it is.
pub(super) fn as_of(
    laboratory: &Laboratory<'_>,
    start: HookStart,
) -> Result<Vec<Measured>, OperationError> {
    let load = Load::start_instants(&laboratory.cluster, INSERTERS)?;
    laboratory.pause()?;
    let created = laboratory.create_with("s1", start)?;
    // Rows that come after it must not be in it.
    laboratory.pause_for(laboratory.request.seconds.min(1.0))?;
    load.stop()?;
    let newest = laboratory.while_open("s1", |opened| {
        let mut session = OwnSession::with(&opened.conninfo)?;
        let sql = "SELECT (extract(epoch FROM max(at)) * 1e6)::bigint FROM instant";
        Ok(session.number(sql)?)
    })?;
    let (begun, stated) = (micros_of(&created.created)?, micros_of(&created.as_of)?);
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a run")]
    let after = |micros: i64| (micros - begun) as f64 / 1e6;
    let mut values = vec![
        seconds("newest row after the beginning", after(newest)),
        seconds("stated instant after the beginning", after(stated)),
    ];
    values.extend(of_making(&created));
    Ok(vec![Measured {
        values,
        steps: steps(&created),
        ..Measured::default()
    }])
}

fn micros_of(time: &str) -> Result<i64, OperationError> {
    let parsed: Result<jiff::Timestamp, _> = time.parse();
    let no_time = |_| ExperimentError::NoTime {
        said: time.to_owned(),
    };
    Ok(parsed.map_err(no_time)?.as_microsecond())
}

pub(super) fn of_making(created: &CreatedReport) -> Vec<Value> {
    vec![
        seconds("creation", created.seconds),
        seconds("writers stopped", created.writers_stopped_seconds),
    ]
}

/// The steps of opening a snapshot.
fn of_opening(opened: &OpenReport) -> Vec<StepTook> {
    let steps = opened.steps.iter();
    let step = |step: &StepReport| StepTook {
        name: step.name.clone(),
        seconds: step.seconds,
        of: TookOf::Opening,
    };
    steps.map(step).collect()
}
