//! A measure along an axis: which cases differ only in their place on it, and whether the runs tell
//! them apart.

use super::experiment::Compared;
use super::series::{SnapshotSeries, ValueKind};
use crate::sweep::{Difference, Noise, median};

/// Cases that differ only in their place on one axis, by their places.
pub(super) struct Group {
    /// What they have in common, in words; may be empty.
    pub(super) common: String,
    /// The cases.
    pub(super) cases: Vec<usize>,
}

/// A measure along an axis, with its noise.
pub(super) struct Evaluated<'a> {
    pub(super) series: &'a SnapshotSeries,
    pub(super) what: Compared,
    pub(super) kind: ValueKind,
    pub(super) groups: Vec<Group>,
    pub(super) noise: Noise,
}

impl<'a> Evaluated<'a> {
    /// The evaluation, if the measure was taken along this axis. Values of zero are left out: a
    /// ratio to nothing says nothing.
    pub(super) fn of(series: &'a SnapshotSeries, what: Compared) -> Option<Self> {
        let kind = series.kind_of(what.measure)?;
        let groups = groups(series, what);
        let others = groups.iter().map(|group| group.cases.len() - 1);
        let comparisons: usize = others.sum();
        let values = series.runs.iter().filter_map(|run| {
            let value = run.value(what.measure)?.value;
            (value > 0.0).then_some((run.case, run.round, value))
        });
        let noise = Noise::of_values(values, series.cases.len(), comparisons);
        (comparisons > 0).then_some(Self {
            series,
            what,
            kind,
            groups,
            noise,
        })
    }

    /// All that the experiment compares.
    pub(super) fn all(series: &'a SnapshotSeries) -> Vec<Self> {
        let compared = series.inputs.experiment.compared().iter();
        compared
            .filter_map(|what| Self::of(series, *what))
            .collect()
    }

    /// The middle value of a case.
    pub(super) fn middle(&self, case: usize) -> f64 {
        median(self.series.values_of(case, self.what.measure))
    }

    /// The place of a case on the axis, in words.
    pub(super) fn label(&self, case: usize) -> &str {
        let setting = self.series.cases[case].on(self.what.axis);
        setting.map_or("", |setting| &setting.label)
    }

    /// Compares two cases.
    pub(super) fn compare(&self, first: usize, second: usize) -> Difference {
        self.noise.compare(first, second)
    }
}

/// Groups of at least two cases in which the measure was taken and was not zero.
fn groups(series: &SnapshotSeries, what: Compared) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, case) in series.cases.iter().enumerate() {
        let values = series.values_of(index, what.measure);
        if values.is_empty() || median(values) <= 0.0 || case.on(what.axis).is_none() {
            continue;
        }
        let common = case.words(Some(what.axis));
        match groups.iter_mut().find(|group| group.common == common) {
            Some(group) => group.cases.push(index),
            None => groups.push(Group {
                common,
                cases: vec![index],
            }),
        }
    }
    let place = |case: &usize| series.cases[*case].on(what.axis).map_or(0.0, |it| it.place);
    for group in &mut groups {
        group
            .cases
            .sort_by(|one, other| place(one).total_cmp(&place(other)));
    }
    groups.retain(|group| group.cases.len() > 1);
    groups
}
