//! Working with snapshots: a load, or a statement that rewrites a table, with so many of them.

use std::time::{Duration, Instant};

use windlass_lab::snapshots::{SnapshotExperiment, SnapshotSetting, Value, ValueKind};
use windlass_lab::to_f64;
use windlass_postgres::{OwnSession, PostgresError, Transaction};

use super::laboratory::Laboratory;
use super::making::of_making;
use super::measured::{Measured, bytes, named, of_kind, seconds, steps};

use crate::error::OperationError;

/// How long a statement works before a snapshot is made beside it.
const HEAD_START: Duration = Duration::from_millis(50);

/// A statement on a table that the load does not touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Nothing,
    CreateIndex,
    Cluster,
    Reindex,
    VacuumFull,
}

impl Statement {
    fn sql(self) -> &'static str {
        match self {
            Self::Nothing => "SELECT 1",
            Self::CreateIndex => "CREATE INDEX large_value ON large (value)",
            Self::Cluster => "CLUSTER large USING large_pkey",
            Self::Reindex => "REINDEX TABLE large",
            Self::VacuumFull => "VACUUM FULL large",
        }
    }

    pub(super) fn setting(self) -> SnapshotSetting {
        let label = match self {
            Self::Nothing => "no statement",
            Self::CreateIndex => "CREATE INDEX",
            Self::Cluster => "CLUSTER",
            Self::Reindex => "REINDEX",
            Self::VacuumFull => "VACUUM FULL",
        };
        named("statement", self as usize, label)
    }

    /// Runs it, and returns how long it took.
    fn run(self, session: &mut OwnSession) -> Result<f64, PostgresError> {
        let begun = Instant::now();
        session.run(self.sql())?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Takes back what the next run would find.
    fn undo(self, session: &mut OwnSession) -> Result<(), PostgresError> {
        match self {
            Self::CreateIndex => session.run("DROP INDEX large_value"),
            _ => Ok(()),
        }
    }
}

/// A load with so many snapshots: all transactions in a second, and how long each type takes.
pub(super) fn run(
    laboratory: &Laboratory<'_>,
    clients: usize,
    count: usize,
) -> Result<Vec<Measured>, OperationError> {
    make(laboratory, count)?;
    let load = laboratory.load(clients)?;
    // Hot pages are preserved first, which is another question.
    laboratory.pause_for(laboratory.request.seconds / 2.0)?;
    let (before, begun) = (load.counts(), Instant::now());
    laboratory.pause()?;
    let (after, took) = (load.counts(), begun.elapsed());
    load.stop()?;
    let done = after.since(&before);
    let of_type = |kind: Transaction| {
        let mean = done.mean_seconds(kind)?;
        Some((kind, mean))
    };
    let types = Transaction::ALL.into_iter().filter_map(of_type);
    if laboratory.request.experiment == SnapshotExperiment::Latency {
        let measured = |(kind, mean): (Transaction, f64)| Measured {
            case: kind as usize,
            values: vec![seconds("response time", mean)],
            ..Measured::default()
        };
        return Ok(types.map(measured).collect());
    }
    let rate = to_f64(done.count()) / took.as_secs_f64();
    let mut values = vec![of_kind("throughput", ValueKind::PerSecond, rate)];
    values.extend(types.map(|(kind, mean)| seconds(&format!("mean {}", kind.name()), mean)));
    values.extend(growth(laboratory, count)?);
    Ok(vec![Measured {
        values,
        ..Measured::default()
    }])
}

/// A statement, and a snapshot that is made while it works.
pub(super) fn beside(
    laboratory: &Laboratory<'_>,
    statement: Statement,
    clients: usize,
    makes: bool,
) -> Result<Vec<Measured>, OperationError> {
    let load = laboratory.load(clients)?;
    laboratory.pause_for(laboratory.request.seconds / 2.0)?;
    let mut session = laboratory.session()?;
    let mut measured = Measured::default();
    let (took, made) = std::thread::scope(|scope| {
        let working = scope.spawn(|| statement.run(&mut session));
        let made = makes.then(|| {
            std::thread::sleep(HEAD_START);
            laboratory.create("s1")
        });
        (working.join().expect("a statement does not panic"), made)
    });
    if statement != Statement::Nothing {
        measured.values.push(seconds("statement", took?));
    }
    if let Some(created) = made.transpose()? {
        measured.values.extend(of_making(&created));
        measured.steps = steps(&created);
    }
    load.stop()?;
    statement.undo(&mut session)?;
    Ok(vec![measured])
}

/// A rebuild with so many snapshots, and by how much these grow.
pub(super) fn rebuild(
    laboratory: &Laboratory<'_>,
    statement: Statement,
    count: usize,
) -> Result<Vec<Measured>, OperationError> {
    make(laboratory, count)?;
    let mut values = vec![seconds(
        "statement",
        statement.run(&mut laboratory.session()?)?,
    )];
    values.extend(growth(laboratory, count)?);
    Ok(vec![Measured {
        values,
        ..Measured::default()
    }])
}

fn make(laboratory: &Laboratory<'_>, count: usize) -> Result<(), OperationError> {
    for number in 1..=count {
        laboratory.create(&format!("s{number}"))?;
    }
    Ok(())
}

/// What the oldest snapshot has grown by, which is what all of them have together.
fn growth(laboratory: &Laboratory<'_>, count: usize) -> Result<Option<Value>, OperationError> {
    match count {
        0 => Ok(None),
        _ => Ok(Some(bytes("growth", laboratory.sizes("s1")?.0))),
    }
}
