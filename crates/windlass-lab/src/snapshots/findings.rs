//! What an experiment found, in words, beside what the article found.

use windlass_engine::show_bytes;

use super::article::{MOSTLY_RECOVERY, beside, without_claim};
use super::compared::{Evaluated, Group};
use super::experiment::{SnapshotExperiment, names};
use super::series::{SnapshotSeries, StepTook, TookOf};
use crate::sweep::{Findings, median};

/// What was found, what noise hides, and how this was told. The article's findings come last among
/// what was found.
pub fn findings(series: &SnapshotSeries) -> Findings {
    let evaluated = Evaluated::all(series);
    let mut findings = Findings::default();
    for one in &evaluated {
        for group in &one.groups {
            compare(one, group, &mut findings);
        }
    }
    findings.found.extend(own(series));
    let article = beside(&evaluated, series.inputs.experiment);
    let article = article
        .into_iter()
        .map(|words| format!("the article found: {words}"));
    findings.found.extend(article);
    let without = without_claim(series.inputs.experiment);
    findings.found.extend(without.map(str::to_owned));
    findings.method = method(&evaluated);
    findings
}

/// The first place of a group against its last one.
fn compare(one: &Evaluated<'_>, group: &Group, findings: &mut Findings) {
    let (first, last) = (group.cases[0], group.cases[group.cases.len() - 1]);
    let difference = one.compare(first, last);
    let common = match group.common.as_str() {
        "" => String::new(),
        common => format!("{common}: "),
    };
    let shown = |case: usize| {
        let value = one.kind.show(one.middle(case));
        format!("{value} ({})", one.label(case))
    };
    let by = format!("{:+.1} %", (difference.ratio - 1.0) * 100.0);
    let words = format!(
        "{common}{} {by}: {} and {}",
        one.what.measure,
        shown(first),
        shown(last)
    );
    if difference.apart {
        findings.found.push(words);
    } else if difference.needed.is_finite() {
        let needed = (difference.needed - 1.0) * 100.0;
        findings
            .unclear
            .push(format!("{words}; {needed:.1} % were needed"));
    } else {
        findings
            .unclear
            .push(format!("{words}; one round cannot tell"));
    }
}

/// What an experiment finds that no comparison says.
fn own(series: &SnapshotSeries) -> Vec<String> {
    match series.inputs.experiment {
        SnapshotExperiment::Steps => steps(series),
        SnapshotExperiment::AsOf => instants(series),
        SnapshotExperiment::Revert => proportion(series),
        SnapshotExperiment::Growth => per_byte(series),
        _ => Vec::new(),
    }
}

/// The middle seconds of each step over the runs of a case, in the order in which they came.
pub(super) fn middle_steps(series: &SnapshotSeries, case: usize) -> Vec<StepTook> {
    let mut seen: Vec<StepTook> = Vec::new();
    for step in series.runs_of(case).flat_map(|run| &run.steps) {
        if !seen
            .iter()
            .any(|one| one.name == step.name && one.of == step.of)
        {
            seen.push(step.clone());
        }
    }
    for one in &mut seen {
        let runs = series.runs_of(case).map(|run| {
            let same = run.steps.iter();
            let same = same.filter(|step| step.name == one.name && step.of == one.of);
            same.map(|step| step.seconds).sum::<f64>()
        });
        one.seconds = median(runs);
    }
    seen
}

/// The steps that are recovery, as a server logs it. PostgreSQL has no analysis and no undo.
const RECOVERY: [&str; 2] = ["redo", "checkpoint after the redo"];

/// Whether recovery takes most of the time of making and opening, as the article found.
fn recovery(series: &SnapshotSeries) -> Option<String> {
    let mut shares = Vec::new();
    for case in 0..series.cases.len() {
        let steps = middle_steps(series, case);
        let all: f64 = steps.iter().map(|step| step.seconds).sum();
        let recovery = steps.iter().filter(|step| step.of == TookOf::Opening);
        let mut recovery = recovery
            .filter(|step| RECOVERY.contains(&step.name.as_str()))
            .peekable();
        if recovery.peek().is_some() && all > 0.0 {
            let seconds: f64 = recovery.map(|step| step.seconds).sum();
            shares.push((case, seconds / all));
        }
    }
    let seen = match shares.iter().filter(|(_, share)| *share > 0.5).count() {
        _ if shares.is_empty() => return None,
        0 => "not here",
        mostly if mostly == shares.len() => "here too",
        _ => "here with some loads",
    };
    let words = shares.iter().map(|(case, share)| {
        let case = series.cases[*case].words(None);
        format!("{case}: {:.0} %", share * 100.0)
    });
    let words: Vec<_> = words.collect();
    Some(format!(
        "the article found: {MOSTLY_RECOVERY}; {seen}: {}",
        words.join(", ")
    ))
}

/// The longest step of making and opening, for each load.
fn steps(series: &SnapshotSeries) -> Vec<String> {
    let words = |case: usize| {
        let steps = middle_steps(series, case);
        let all: f64 = steps.iter().map(|step| step.seconds).sum();
        let longest = steps
            .iter()
            .max_by(|one, other| one.seconds.total_cmp(&other.seconds))?;
        let opening = steps.iter().filter(|step| step.of == TookOf::Opening);
        let opening: f64 = opening.map(|step| step.seconds).sum();
        Some(format!(
            "{}: the longest step is \"{}\", {:.0} % of {:.2} s; opening takes {:.0} %",
            series.cases[case].words(None),
            longest.name,
            100.0 * longest.seconds / all.max(1e-9),
            all,
            100.0 * opening / all.max(1e-9),
        ))
    };
    let longest = (0..series.cases.len()).filter_map(words);
    longest.chain(recovery(series)).collect()
}

/// In which step the newest row was committed that the snapshot has.
fn instants(series: &SnapshotSeries) -> Vec<String> {
    let mut found = Vec::new();
    for (case, of) in series.cases.iter().enumerate() {
        let newest = median(series.values_of(case, names::NEWEST));
        let told = median(series.values_of(case, names::TOLD));
        let mut end = 0.0;
        let steps = middle_steps(series, case);
        let making = steps.iter().filter(|step| step.of == TookOf::Making);
        let within = making.clone().find(|step| {
            end += step.seconds;
            newest <= end
        });
        let all: f64 = making.map(|step| step.seconds).sum();
        let step = match within {
            Some(step) => format!("in the step \"{}\"", step.name),
            None => "after its last step".to_owned(),
        };
        found.push(format!(
            "{}: the newest row was committed {newest:.3} s after the beginning, {step} of \
             {all:.3} s; the snapshot says {told:.3} s",
            of.words(None)
        ));
    }
    found.push(
        "the article found: the data are as of the start of recovery's analysis, and neither of \
         the command nor of its end; here they are as of the instant that the snapshot states"
            .to_owned(),
    );
    found
}

/// How far the time to go back follows the size.
fn proportion(series: &SnapshotSeries) -> Vec<String> {
    let at = |case: usize| {
        let of = |name| median(series.values_of(case, name));
        (of(names::SIZE), of(names::REVERT), of(names::DOWN))
    };
    let cases: Vec<_> = (0..series.cases.len()).map(at).collect();
    let (Some(first), Some(last)) = (cases.first(), cases.last()) else {
        return Vec::new();
    };
    let (bytes, seconds) = (last.0 - first.0, last.1 - first.1);
    if bytes <= 0.0 || seconds <= 0.0 {
        return vec!["the time to go back does not follow the size in these runs".to_owned()];
    }
    vec![format!(
        "going back takes {:.2} s at {}, and 1 s more for each {} more; the server is down for \
         {:.2} s to {:.2} s of that",
        first.1,
        show_bytes(first.0),
        show_bytes(bytes / seconds),
        first.2.min(last.2),
        first.2.max(last.2),
    )]
}

/// Bytes of growth for a byte of changed pages.
fn per_byte(series: &SnapshotSeries) -> Vec<String> {
    let ratio = |case: usize| {
        let of = |name| median(series.values_of(case, name));
        (of(names::CHANGED_BYTES) > 0.0).then(|| of(names::GROWTH) / of(names::CHANGED_BYTES))
    };
    let ratios: Vec<f64> = (0..series.cases.len()).filter_map(ratio).collect();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    match ratios.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "a snapshot grew by {low:.2} to {high:.2} bytes for each byte of changed pages"
        )],
    }
}

fn method(evaluated: &[Evaluated<'_>]) -> Vec<String> {
    let spread = |one: &Evaluated<'_>| {
        format!(
            "{}: runs of one setting spread by {:.1} % (rounds: {}; drift between them: {:.0} %)",
            one.what.measure,
            one.noise.spread * 100.0,
            one.noise.rounds,
            one.noise.drift * 100.0
        )
    };
    let mut method: Vec<_> = evaluated.iter().map(spread).collect();
    let comparisons: usize = evaluated.iter().map(|one| one.groups.len()).sum();
    method.push(format!(
        "comparisons: {comparisons}; two settings are told apart as in a sweep: by Student's t at \
         5 % for all of them, and if no run of the one lies among the runs of the other"
    ));
    method
}
