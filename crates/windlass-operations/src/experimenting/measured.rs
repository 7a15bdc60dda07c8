//! What a unit measures, and its numbers and settings as they are recorded.

use windlass_lab::snapshots::{Sample, SnapshotSetting, StepTook, TookOf, Value, ValueKind};

use super::work::{CreatedReport, StepReport};

/// A run of one case of a unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// Index among the cases of the unit.
    pub(super) case: usize,
    pub(super) values: Vec<Value>,
    pub(super) steps: Vec<StepTook>,
    pub(super) samples: Vec<Sample>,
    pub(super) making: Option<(f64, f64)>,
}

/// A place on an axis of names or of counts.
pub(super) fn named(axis: &str, place: usize, label: &str) -> SnapshotSetting {
    SnapshotSetting {
        axis: axis.to_owned(),
        place: windlass_lab::to_f64(place as u64),
        label: label.to_owned(),
    }
}

/// A number in seconds.
pub(super) fn seconds(name: &str, value: f64) -> Value {
    of_kind(name, ValueKind::Seconds, value)
}

/// A number of bytes.
pub(super) fn bytes(name: &str, value: u64) -> Value {
    of_kind(name, ValueKind::Bytes, windlass_lab::to_f64(value))
}

pub(super) fn of_kind(name: &str, kind: ValueKind, value: f64) -> Value {
    Value {
        name: name.to_owned(),
        kind,
        value,
    }
}

/// The steps of making a snapshot.
pub(super) fn steps(created: &CreatedReport) -> Vec<StepTook> {
    let step = |one: &StepReport| StepTook {
        name: one.name.clone(),
        seconds: one.seconds,
        of: TookOf::Making,
    };
    created.steps.iter().map(step).collect()
}
