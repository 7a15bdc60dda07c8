//! What a sweep found, in words, and what it could not tell from noise.

use serde::Serialize;
use windlass_engine::{Cause, Resource, StageName, show_rate, show_size};

use super::axes::Axis;
use super::experiment::Experiment;
use super::measure::{Measure, median};
use super::noise::{Difference, Noise};
use super::series::Series;
use super::{published, table};
use crate::plan::Direction;

/// Up to this number, settings are named one by one; if there are more, their number is given.
const NAMED_MAX: usize = 3;

/// The findings of a sweep, in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// What it found.
    pub found: Vec<String>,
    /// Differences that it could not tell from noise.
    pub unclear: Vec<String>,
    /// How it decides.
    pub method: Vec<String>,
}

/// Draws the findings from a series.
pub fn findings(series: &Series) -> Findings {
    if !series.probes.is_empty() {
        return probed(series);
    }
    let axes = series.axes();
    let ends = axes.iter().map(|axis| series.values(*axis).len() - 1);
    // Each case against the baseline and the fastest, and each axis. Two cases need only one.
    let comparisons = match series.cases.len() {
        0..=2 => 1,
        cases => 2 * (cases - 1) + ends.sum::<usize>(),
    };
    let view = Evaluated {
        series,
        axes,
        seconds: Noise::of(series, Measure::Seconds, comparisons),
        cpu: Noise::of(series, Measure::CpuSeconds, comparisons),
    };
    let mut findings = Findings::default();
    if series.inputs.experiment == Experiment::BufferDefaults {
        view.defaults(&mut findings);
    }
    for cases in view.groups() {
        view.fastest(&cases, &mut findings);
    }
    for axis in &view.axes {
        view.effect(*axis, &mut findings);
    }
    findings.found.extend(published::finding(series));
    view.waits(&mut findings);
    view.limits(&mut findings);
    view.memory(&mut findings);
    view.method(&mut findings);
    findings
}

/// The best point of each kind of path, and the combinations that reached its rate in some round.
fn probed(series: &Series) -> Findings {
    let mut findings = Findings::default();
    let paths = table::paths(series);
    let mut kinds: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
    kinds.dedup();
    for kind in kinds {
        let middle = |path: &&table::Path| median(path.rates.iter().copied());
        let these = || paths.iter().filter(|path| path.name == kind);
        let Some(best) = these().max_by(|one, other| middle(one).total_cmp(&middle(other))) else {
            continue;
        };
        let words =
            |path: &table::Path| format!("{} x {}", show_size(path.block_bytes), path.depth);
        let rate = show_rate;
        findings.found.push(format!(
            "{kind}: {} at best, with {} in flight",
            rate(middle(&best)),
            words(best)
        ));
        let lowest = best.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let reaches = |path: &&table::Path| path.rates.iter().any(|rate| *rate >= lowest);
        let equal: Vec<_> = these()
            .filter(reaches)
            .filter(|path| words(path) != words(best))
            .map(words)
            .collect();
        if !equal.is_empty() {
            findings.unclear.push(format!(
                "{kind}: {} is not told apart from {}",
                words(best),
                equal.join(", ")
            ));
        }
    }
    findings.method.push(format!(
        "{} rounds; a combination is told apart from the best when none of its rounds reached the \
         slowest round of the best",
        series.probes.len()
    ));
    findings
}

struct Evaluated<'a> {
    series: &'a Series,
    axes: Vec<Axis>,
    seconds: Noise,
    cpu: Noise,
}

impl Evaluated<'_> {
    fn what(&self) -> &'static str {
        match self.series.inputs.direction {
            Direction::Backup => "backup",
            Direction::Restore => "restore",
        }
    }

    /// The cases that compete: those with the same database and the same storage.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
        for (index, case) in self.series.cases.iter().enumerate() {
            let given = case.words(&Axis::GIVEN);
            match groups.iter_mut().find(|(name, _)| *name == given) {
                Some((_, cases)) => cases.push(index),
                None => groups.push((given, vec![index])),
            }
        }
        groups.into_iter().map(|(_, cases)| cases).collect()
    }

    fn words(&self, case: usize) -> String {
        let axes: Vec<_> = self
            .axes
            .iter()
            .copied()
            .filter(|axis| !Axis::GIVEN.contains(axis))
            .collect();
        self.series.cases[case].words(&axes)
    }

    /// The database and the storage of a case, if the cases differ in these: `gp2, r5.8xlarge: `.
    fn given(&self, case: usize) -> String {
        let mut axes = Axis::GIVEN.to_vec();
        axes.retain(|axis| self.axes.contains(axis));
        match self.series.cases[case].words(&axes).as_str() {
            "" => String::new(),
            words => format!("{words}: "),
        }
    }

    /// Which case is fastest, by how much, and which ones are equally good.
    fn fastest(&self, cases: &[usize], findings: &mut Findings) {
        let by_seconds = |one: &&usize, other: &&usize| {
            self.seconds
                .mean(**one)
                .total_cmp(&self.seconds.mean(**other))
        };
        let Some(best) = cases.iter().min_by(by_seconds).copied() else {
            return;
        };
        if cases.len() < 2 {
            return;
        }
        let baseline = Some(self.series.baseline()).filter(|case| cases.contains(case));
        let baseline = baseline.unwrap_or(cases[0]);
        let on = self.given(best);
        let (from, to) = (self.seconds.mean(baseline), self.seconds.mean(best));
        let difference = self.seconds.compare(baseline, best);
        if best == baseline || !difference.apart {
            findings.unclear.push(format!(
                "{on}no setting is faster than {} ({from:.2} s) by more than noise",
                self.words(baseline)
            ));
            return;
        }
        findings.found.push(format!(
            "{on}a {} takes {from:.2} s with {} and {to:.2} s with {}: {:.2} times as fast",
            self.what(),
            self.words(baseline),
            self.words(best),
            from / to
        ));
        self.as_good(cases, best, &on, findings);
    }

    fn as_good(&self, cases: &[usize], best: usize, on: &str, findings: &mut Findings) {
        let equal = |case: &usize| *case != best && !self.seconds.compare(best, *case).apart;
        let equal: Vec<_> = cases.iter().copied().filter(equal).collect();
        if equal.is_empty() {
            return;
        }
        let words = match equal.len() {
            few if few <= NAMED_MAX => {
                let words: Vec<_> = equal.iter().map(|case| self.words(*case)).collect();
                words.join("; ")
            }
            many => format!("{many} of {} others", cases.len() - 1),
        };
        let memory = |case: &usize| {
            let runs = self.series.runs_of(*case);
            median(runs.map(|run| Measure::PeakMemory.of(run)))
        };
        let least = equal
            .iter()
            .chain([&best])
            .min_by(|one, other| memory(one).total_cmp(&memory(other)));
        let least = least.filter(|case| **case != best);
        let frugal = least.map_or(String::new(), |case| {
            format!(". Of these {} takes the least memory", self.words(*case))
        });
        findings.unclear.push(format!(
            "{on}the fastest, {}, is not told apart from {words}{frugal}",
            self.words(best)
        ));
    }

    /// Pairs of cases that differ on this axis only: one has the value `from`, the other `to`.
    fn pairs(&self, axis: Axis, from: &str, to: &str) -> Vec<(usize, usize)> {
        let cases = &self.series.cases;
        let mut pairs = Vec::new();
        for (first, one) in cases
            .iter()
            .enumerate()
            .filter(|(_, case)| case.label(axis) == from)
        {
            let other = cases
                .iter()
                .position(|other| other.label(axis) == to && other.agrees_but(one, axis));
            pairs.extend(other.map(|second| (first, second)));
        }
        pairs
    }

    /// The effect of one axis while everything else is equal.
    fn effect(&self, axis: Axis, findings: &mut Findings) {
        let values = self.series.given(axis);
        let Some(from) = values.first() else { return };
        // Comparing both ends of a number axis shows what more does; names are compared one by one.
        let to = if axis.is_number() {
            &values[values.len() - 1..]
        } else {
            &values[1..]
        };
        for to in to {
            let pairs = self.pairs(axis, from, to);
            if pairs.is_empty() {
                continue;
            }
            let heading = format!("{} {from} to {to}", axis.name());
            let both = [
                ("duration", self.seconds.compare_all(&pairs)),
                ("CPU time", self.cpu.compare_all(&pairs)),
            ];
            let say = |apart: bool| {
                let these = both.iter().filter(|(_, it)| it.apart == apart);
                these
                    .map(|(name, it)| format!("{name} {}", change(it)))
                    .collect::<Vec<_>>()
            };
            let more = match pairs.len() {
                1 => String::new(),
                many => format!(" (mean of {many} pairs)"),
            };
            for (apart, list) in [(true, &mut findings.found), (false, &mut findings.unclear)] {
                let words = say(apart);
                if !words.is_empty() {
                    list.push(format!("{heading}: {}{more}", words.join(", ")));
                }
            }
        }
    }

    /// How waiting for buffers changes with the number of buffers. If that was not varied, where
    /// the first case waits most.
    fn waits(&self, findings: &mut Findings) {
        let free = |case: usize| {
            let runs = self.series.runs_of(case);
            let waits: Vec<_> = runs
                .map(|run| {
                    let [one, other] = [StageName::Reader, StageName::Compressor]
                        .map(|stage| run.report.waited(stage, Cause::FreeBuffer));
                    (one.0 + other.0, one.1 + other.1)
                })
                .collect();
            #[expect(clippy::cast_precision_loss, reason = "counts for people")]
            let count = median(waits.iter().map(|(_, count)| *count as f64));
            (median(waits.iter().map(|(seconds, _)| *seconds)), count)
        };
        let values = self.series.given(Axis::Buffers);
        let (Some(from), Some(to)) = (values.first(), values.last()) else {
            return;
        };
        if let Some((first, last)) = self
            .pairs(Axis::Buffers, from, to)
            .first()
            .filter(|_| from != to)
        {
            let ((seconds, count), (seconds_last, count_last)) = (free(*first), free(*last));
            findings.found.push(format!(
                "waiting for a free buffer, over all threads: {seconds:.2} s in {count:.0} waits \
                 with {from} buffers, {seconds_last:.2} s in {count_last:.0} with {to}"
            ));
        }
    }

    /// What bound the runs.
    fn limits(&self, findings: &mut Findings) {
        let mut counts: Vec<(Resource, usize)> = Vec::new();
        for run in &self.series.runs {
            let stage = run.report.limit.stage;
            match counts.iter_mut().find(|(name, _)| *name == stage) {
                Some((_, count)) => *count += 1,
                None => counts.push((stage, 1)),
            }
        }
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let words: Vec<_> = counts
            .iter()
            .map(|(name, count)| format!("{name} in {count}"))
            .collect();
        if !words.is_empty() {
            let runs = self.series.runs.len();
            findings
                .found
                .push(format!("what bound {runs} runs: {}", words.join(", ")));
        }
    }

    fn memory(&self, findings: &mut Findings) {
        let peaks = self
            .series
            .runs
            .iter()
            .map(|run| run.report.peak_memory_bytes);
        let (Some(least), Some(most)) = (peaks.clone().min(), peaks.max()) else {
            return;
        };
        findings.found.push(format!(
            "peak memory of a process: {} to {}",
            show_size(least),
            show_size(most)
        ));
    }

    fn defaults(&self, findings: &mut Findings) {
        let cases = self.series.cases.iter().enumerate();
        let counts = cases.filter_map(|(index, case)| {
            let run = self.series.runs_of(index).next()?;
            Some(format!(
                "{} for {}",
                run.report.buffers,
                case.words(&[Axis::Devices])
            ))
        });
        let counts = counts.collect::<Vec<_>>().join(", ");
        findings.found.push(format!("default buffers: {counts}"));
    }

    fn method(&self, findings: &mut Findings) {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        if self.seconds.freedom == 0 {
            findings.method.push(
                "one run of each setting: nothing is told apart from noise; repeat the runs"
                    .to_owned(),
            );
            return;
        }
        findings.method.push(format!(
            "noise: durations of one setting spread by {}, CPU times by {} (standard deviation, {} \
             degrees of freedom); rounds drifted by {}",
            percent(self.seconds.spread),
            percent(self.cpu.spread),
            self.seconds.freedom,
            percent(self.seconds.drift)
        ));
        findings.method.push(
            "two settings are told apart when the ratio of their geometric means exceeds what \
             Student's t allows that spread (5 % for all comparisons together), and no run of the \
             one lies among those of the other; rounds, in each of which every setting runs once \
             in shuffled order, are taken out first"
                .to_owned(),
        );
    }
}

/// `-12 %`, or the smallest change that would have been noticed.
fn change(difference: &Difference) -> String {
    let percent = (difference.ratio - 1.0) * 100.0;
    match difference.apart {
        true => format!("{percent:+.1} %"),
        false if difference.needed.is_finite() => {
            let needed = (difference.needed - 1.0) * 100.0;
            format!("{percent:+.1} % (noise: {needed:.1} %)")
        }
        false => format!("{percent:+.1} % (noise: not known)"),
    }
}
