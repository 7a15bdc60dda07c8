//! What binds a simulated run: the busiest resource. If no resource was busy enough, it is what
//! helps most when it is relaxed.

use serde::Serialize;
use windlass_engine::{Resource, counted, show_rate};
use windlass_model::{Model, Usages};

use super::{Direction, Question};
use crate::numbers::to_f64;
use crate::simulate::{Job, Outcome, simulate};

/// A resource that is busy for at least this share of the time binds the run.
const BOUND_SHARE: f64 = 0.93;
/// A change must gain at least this share of the time, or the thing changed does not bind the run.
const GAIN_MIN: f64 = 0.02;

/// What binds a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanLimit {
    /// What binds it.
    pub stage: Resource,
    /// Which storage or machine binds.
    pub device: String,
    /// Which of its properties binds.
    pub what: String,
    /// Share of the time in which it was busy; zero if waiting binds the run.
    pub share: f64,
    /// Bytes of the database per second that this limit alone would allow, if that is known.
    pub rate: Option<f64>,
}

impl PlanLimit {
    fn busy(stage: Resource, device: &str, what: String, share: f64, rate: f64) -> Self {
        Self {
            stage,
            device: device.to_owned(),
            what,
            share,
            rate: (share > 0.0).then(|| rate / share),
        }
    }

    /// As a short sentence.
    pub fn words(&self) -> String {
        let rate = self
            .rate
            .map_or(String::new(), |rate| format!(", {}", show_rate(rate)));
        match self.device.as_str() {
            "" => format!("{}: {}{rate}", self.stage.words(), self.what),
            device => format!("{} {device}: {}{rate}", self.stage.words(), self.what),
        }
    }
}

/// What binds a run, and what would bind it next.
pub(super) fn find(
    question: &Question,
    job: &Job,
    outcome: &Outcome,
) -> (PlanLimit, Option<PlanLimit>) {
    let (_, to) = ends(question.direction);
    if outcome.initialise_seconds > 0.5 * outcome.seconds {
        let share = outcome.initialise_seconds / outcome.seconds;
        let rate = to_f64(question.used_bytes) / outcome.seconds;
        let what = "files being made at their full size".to_owned();
        return (
            PlanLimit::busy(to, &name(&job.targets), what, share, rate),
            None,
        );
    }
    let mut found = resources(question, job, outcome);
    found.sort_by(|one, other| other.share.total_cmp(&one.share));
    let mut found = found.into_iter().filter(|limit| limit.share > 0.01);
    match found.next() {
        Some(first) if first.share >= BOUND_SHARE => (first, found.next()),
        first => (waiting(question, job, outcome), first),
    }
}

/// Everything that can be busy, with how busy it was.
fn resources(question: &Question, job: &Job, outcome: &Outcome) -> Vec<PlanLimit> {
    let seconds = (outcome.seconds - outcome.initialise_seconds).max(1e-9);
    let rate = to_f64(question.used_bytes) / seconds;
    let (from, to) = ends(question.direction);
    let mut found = storage(from, &job.sources, &outcome.sources, (seconds, rate));
    found.extend(storage(to, &job.targets, &outcome.targets, (seconds, rate)));
    let machine = question
        .instance
        .as_ref()
        .map_or("", |instance| instance.name.as_str());
    for (usage, what) in [
        (outcome.instance.0, "bandwidth to block storage"),
        (outcome.instance.1, "network bandwidth"),
    ] {
        let share = usage.seconds() / seconds;
        found.push(PlanLimit::busy(
            Resource::Instance,
            machine,
            what.to_owned(),
            share,
            rate,
        ));
    }
    for (usage, what) in [
        (outcome.rates.0, "bytes per second from the source"),
        (outcome.rates.1, "bytes per second to the devices"),
    ] {
        let share = usage.seconds() / seconds;
        found.push(PlanLimit::busy(
            Resource::RateLimit,
            "",
            what.to_owned(),
            share,
            rate,
        ));
    }
    let threads = job.cores.min(job.buffers.compressors).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let share = outcome.cpu_seconds / (seconds * threads as f64);
    let what = counted(threads as u64, "core");
    found.push(PlanLimit::busy(Resource::Compressor, "", what, share, rate));
    found
}

/// The names of the two ends of the pipeline.
fn ends(direction: Direction) -> (Resource, Resource) {
    match direction {
        Direction::Backup => (Resource::Source, Resource::Device),
        Direction::Restore => (Resource::Device, Resource::Target),
    }
}

fn storage(
    stage: Resource,
    models: &[Model],
    usages: &[Usages],
    (seconds, rate): (f64, f64),
) -> Vec<PlanLimit> {
    let each = models.iter().zip(usages).flat_map(|(model, usage)| {
        let whole = usage.whole.seconds() / seconds;
        let stream = usage.stream.seconds() / seconds;
        let of = |what: String, share| PlanLimit::busy(stage, &model.name, what, share, rate);
        [
            of(usage.whole.mostly().to_owned(), whole),
            of(format!("{} of each stream", usage.stream.mostly()), stream),
        ]
    });
    each.collect()
}

/// Nothing was busy, so this finds what helps most when it is relaxed.
fn waiting(question: &Question, job: &Job, outcome: &Outcome) -> PlanLimit {
    let (from, to) = ends(question.direction);
    let mut buffers = job.clone();
    buffers.buffers.buffers *= 4;
    buffers.read_depth = (buffers.read_depth * 4).min(32);
    let mut source = job.clone();
    source.sources.iter_mut().for_each(quick);
    let mut target = job.clone();
    target.targets.iter_mut().for_each(quick);
    let mut threads = job.clone();
    threads.buffers.compressors *= 2;
    threads.cores *= 2;
    let candidates = [
        (Resource::Buffers, String::new(), "too few of them", buffers),
        (from, name(&job.sources), "latency", source),
        (to, name(&job.targets), "latency", target),
        (Resource::Compressor, String::new(), "cores", threads),
    ];
    let gains = candidates.map(|(stage, device, what, relaxed)| {
        let gain = 1.0 - simulate(&relaxed).seconds / outcome.seconds.max(1e-9);
        (gain, stage, device, what)
    });
    let best = gains
        .iter()
        .map(|found| found.0)
        .fold(f64::NEG_INFINITY, f64::max);
    // If more buffers would hide a latency, name the buffers: a user can change these.
    let least = |stage| {
        if stage == Resource::Buffers {
            0.5
        } else {
            0.95
        }
    };
    let first = gains
        .into_iter()
        .find(|found| found.0 >= best * least(found.1));
    match first {
        Some((gain, stage, device, what)) if gain >= GAIN_MIN => PlanLimit {
            stage,
            device,
            what: what.to_owned(),
            share: 0.0,
            rate: None,
        },
        // Everything binds a little: the two ends take turns.
        _ => PlanLimit {
            stage: Resource::Pipeline,
            device: String::new(),
            what: "its parts take turns".to_owned(),
            share: 0.0,
            rate: None,
        },
    }
}

fn name(models: &[Model]) -> String {
    models
        .first()
        .map_or(String::new(), |model| model.name.clone())
}

fn quick(model: &mut Model) {
    model.latency_seconds = 0.0;
}
