//! The verdict: which stage or device bound a run, at what rate, and what would bind next.
//!
//! The compressors stand in the middle of the pipeline, so their time says who held the run back.
//! A compressor is busy (the cores bind), or it has nothing to work on (what is before it binds),
//! or it has nowhere to put its output (what is behind it binds). Time without input is handed on
//! to the readers: were they waiting for the source, for a rate limit, for the database, busy
//! copying, or for a free buffer? Time without a buffer is handed on to the writers: were they
//! waiting for the device, for a rate limit, or idle themselves, in which case the buffers are too
//! few? The shares add up to one; the largest is the verdict.
//!
//! How busy each resource was, whoever was to blame, gives what it could have done alone: the
//! busiest of the others is the next limit. What would help is not decided here: the lab knows what
//! other settings would bring (`windlass_lab::advise`).

use serde::{Deserialize, Serialize};

use crate::activity::Activity;
use crate::report::DeviceReport;
use crate::resource::Resource;
use crate::units::{show_rate, show_size};
use crate::waits::{Cause, StageReport};

/// What bound a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// What bound it.
    pub stage: Resource,
    /// The device, if it is one.
    pub device: Option<String>,
    /// The rate of the run in bytes of the database per second.
    pub rate: f64,
    /// The rate divided by the rate of this resource alone; `None` when that is not known.
    pub share_of_probed: Option<f64>,
    /// What would have bound the run next.
    pub next: Option<NextLimit>,
    /// False when so few bytes moved that they all fitted into the buffers. Then the time went into
    /// beginning and ending, and says nothing about what the storage can do.
    pub conclusive: bool,
    /// All resources. The one that bound the run comes first.
    pub resources: Vec<ResourceUse>,
}

/// One resource in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// As in [`Limit::stage`].
    pub stage: Resource,
    /// Its share of the blame for the run's time; all shares add up to one.
    pub blame: f64,
    /// Share of the time in which it was busy; zero if that is not known.
    pub busy: f64,
}

/// The limit that would come next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NextLimit {
    /// As in [`Limit::stage`].
    pub stage: Resource,
    /// How many bytes of the database per second it could have given.
    pub rate: f64,
}

/// A resource that was busy for less than this share of the time is not named as the next limit.
/// Its top speed would be extrapolated from few operations, or from reads that the page cache
/// answered, to rates that no storage has.
const OCCUPATION_MIN: f64 = 0.1;

pub(crate) struct Verdict {
    pub(crate) limit: Limit,
    pub(crate) sentence: String,
}

/// One resource: its share of the blame, how busy it was, and the words for it.
#[derive(Clone, Debug)]
struct Suspect {
    stage: Resource,
    device: Option<String>,
    blame: f64,
    occupation: f64,
    /// The words for it in the sentence, after "bound by".
    words: String,
}

impl Suspect {
    fn usage(&self) -> ResourceUse {
        ResourceUse {
            stage: self.stage,
            blame: self.blame,
            busy: self.occupation.min(1.0),
        }
    }

    /// The rate of the run if only this resource had bound it, calculated from the actual rate.
    fn alone(&self, rate: f64) -> f64 {
        if self.occupation > 0.0 {
            rate / self.occupation.min(1.0)
        } else {
            f64::INFINITY
        }
    }
}

/// Who held the compressors back. The shares add up to one.
#[derive(Clone, Copy, Debug, Default)]
struct Blame {
    cores: f64,
    copying: f64,
    source: f64,
    source_limit: f64,
    database: f64,
    device: f64,
    device_limit: f64,
    buffers: f64,
}

impl Blame {
    /// `read` and `write` are the causes under which readers and writers wait for storage.
    /// `seconds` is the time in which data moved, and `sync` the time from then until everything
    /// was durable.
    fn of(activity: &Activity, read: Cause, write: Cause, (seconds, sync): (f64, f64)) -> Self {
        let seconds = seconds.max(1e-9);
        let (reader, compressor, writer) =
            (&activity.reader, &activity.compressor, &activity.writer);
        let part = |stage: &StageReport, time: f64| {
            (time / (to_f64(stage.threads.max(1)) * seconds)).clamp(0.0, 1.0)
        };
        let busy = part(compressor, compressor.busy_seconds);
        let blocked = part(compressor, compressor.waited(Cause::FreeBuffer)).min(1.0 - busy);
        let starved = 1.0 - busy - blocked;
        let waited = |cause| part(reader, reader.waited(cause));
        let (from_source, limited, full) = (
            waited(read),
            waited(Cause::RateLimit),
            waited(Cause::FreeBuffer),
        );
        let copying = part(reader, reader.busy_seconds);
        let known = (from_source + limited + full + copying).max(1e-9);
        // Threads also wait for jobs before and after the data moves, so only the time that has no
        // other cause counts. The part of it in which readers did not wait for jobs lies after
        // their end, while the remaining data is being written.
        let scale = starved / known.max(1.0);
        let left = starved * (1.0 - known).max(0.0);
        let jobs = (starved * waited(Cause::Jobs)).min(left);
        let behind = blocked + full * scale + (left - jobs);
        let waited = |cause| part(writer, writer.waited(cause));
        let (to_device, held) = (waited(write), waited(Cause::RateLimit));
        let idle = (1.0 - to_device - held).max(0.0);
        let whole = (to_device + held + idle).max(1e-9);
        // While the device makes durable what it has taken, nothing else is at work.
        let moving = seconds / (seconds + sync);
        Self {
            cores: moving * busy,
            copying: moving * copying * scale,
            source: moving * from_source * scale,
            source_limit: moving * limited * scale,
            database: moving * jobs,
            device: moving * behind * to_device / whole + (1.0 - moving),
            device_limit: moving * behind * held / whole,
            buffers: moving * behind * idle / whole,
        }
    }
}

impl Verdict {
    pub(crate) fn of_backup(activity: &Activity, devices: &[DeviceReport]) -> Self {
        let seconds = activity.data_seconds.max(1e-9);
        // Devices sync in parallel, and each counts its own wait.
        let sync =
            activity.writer.waited(Cause::DeviceSync) / to_f64(activity.writer.threads.max(1));
        let blame = Blame::of(
            activity,
            Cause::SourceRead,
            Cause::DeviceWrite,
            (seconds, sync),
        );
        let resources = vec![
            source(activity, seconds, blame.source),
            cores(activity, seconds, blame),
            device(devices, seconds, blame.device),
            source_limit(activity, seconds, blame.source_limit, "the source"),
            device_limit(activity, seconds, blame.device_limit),
            database(blame.database),
            buffers(activity, blame.buffers),
        ];
        Self::judge(resources, activity, activity.reader.bytes)
    }

    pub(crate) fn of_restore(activity: &Activity, devices: &[DeviceReport]) -> Self {
        let seconds = activity.data_seconds.max(1e-9);
        let sync = activity.writer.waited(Cause::TargetSync);
        let blame = Blame::of(
            activity,
            Cause::DeviceRead,
            Cause::TargetWrite,
            (seconds - sync, sync),
        );
        // Besides waiting, a stripe's reader only reads the index.
        let resources = vec![
            stripes_read(activity, devices, seconds, blame.source + blame.database),
            cores(activity, seconds, blame),
            target(activity, seconds, blame.device + blame.device_limit),
            source_limit(activity, seconds, blame.source_limit, "reading the stripes"),
            buffers(activity, blame.buffers),
        ];
        Self::judge(resources, activity, activity.compressor.bytes)
    }

    fn judge(mut resources: Vec<Suspect>, activity: &Activity, bytes: u64) -> Self {
        let rate = bytes_per(bytes, activity.data_seconds.max(1e-9));
        resources.sort_by(|a, b| b.blame.total_cmp(&a.blame));
        let uses = resources.iter().map(Suspect::usage).collect();
        let first = resources.remove(0);
        let conclusive = !first.stage.is_storage() || bytes > activity.plan.buffer_bytes;
        let next = resources
            .into_iter()
            .filter(|next| conclusive && next.occupation >= OCCUPATION_MIN)
            .max_by(|a, b| a.occupation.total_cmp(&b.occupation));
        let sentence = match &next {
            _ if !conclusive => format!(
                "too little to say what binds: the buffers took all of {}",
                show_size(bytes)
            ),
            None => format!("bound by {} at {}", first.words, show_rate(rate)),
            Some(next) => format!(
                "bound by {} at {}; next limit: {} at {}",
                first.words,
                show_rate(rate),
                next.words,
                show_rate(next.alone(rate))
            ),
        };
        let on_cores = matches!(first.stage, Resource::Compressor | Resource::Reader);
        let share_of_probed = on_cores.then_some(first.occupation.min(1.0));
        let limit = Limit {
            stage: first.stage,
            device: first.device,
            rate,
            share_of_probed,
            next: next.map(|next| NextLimit {
                stage: next.stage,
                rate: next.alone(rate),
            }),
            conclusive,
            resources: uses,
        };
        Self { limit, sentence }
    }
}

fn source(activity: &Activity, seconds: f64, blame: f64) -> Suspect {
    let reader = &activity.reader;
    let volumes = activity.plan.volumes;
    Suspect {
        stage: Resource::Source,
        device: None,
        blame,
        occupation: share(reader.waited(Cause::SourceRead), reader.threads, seconds),
        words: format!(
            "the source ({volumes} {})",
            if volumes == 1 { "volume" } else { "volumes" }
        ),
    }
}

fn cores(activity: &Activity, seconds: f64, blame: Blame) -> Suspect {
    let stages = [&activity.compressor, &activity.reader, &activity.writer];
    let cpu: f64 = stages.iter().map(|stage| stage.cpu_seconds).sum();
    let on_core = cpu / (seconds * to_f64(activity.cores as u64));
    let stage = if blame.copying > blame.cores {
        Resource::Reader
    } else {
        Resource::Compressor
    };
    let ready = share(
        activity.compressor.busy_seconds,
        activity.compressor.threads,
        seconds,
    );
    // These threads were ready but had no core, because other processes used it.
    let crowded = ready > 0.5 && ready > 1.5 * on_core;
    let with = if crowded {
        ", shared with other processes"
    } else {
        ""
    };
    // Most of that work is not the codec's.
    let apart = if activity.takes_apart {
        " with pages apart"
    } else {
        ""
    };
    let compressing = !["none", ""].contains(&activity.codec.as_str());
    let cores = activity.cores;
    let words = match stage {
        Resource::Reader => format!("the cores (copying from the page cache on {cores}{with})"),
        _ if compressing => format!("the cores ({}{apart} on {cores}{with})", activity.codec),
        _ => format!("the cores (checksums on {cores}{with})"),
    };
    Suspect {
        stage,
        device: None,
        blame: blame.cores + blame.copying,
        occupation: on_core,
        words,
    }
}

fn device(devices: &[DeviceReport], seconds: f64, blame: f64) -> Suspect {
    let most = devices
        .iter()
        .max_by(|a, b| a.busy_seconds.total_cmp(&b.busy_seconds));
    let idlest = devices
        .iter()
        .map(|device| device.busy_seconds)
        .fold(f64::INFINITY, f64::min);
    let (name, busy) = most.map_or(("", 0.0), |most| (most.name.as_str(), most.busy_seconds));
    let words = match devices.len() {
        0 | 1 => format!("the device {name}"),
        count => format!("the {count} devices (the busiest is {name})"),
    };
    // Frames go to any device that is free. So the devices hold the run back only when all of them
    // are busy.
    Suspect {
        stage: Resource::Device,
        device: Some(name.to_owned()),
        blame,
        occupation: if busy > 0.0 {
            idlest.min(busy) / seconds
        } else {
            0.0
        },
        words,
    }
}

/// `what` names what is read under the limit.
fn source_limit(activity: &Activity, seconds: f64, blame: f64, what: &str) -> Suspect {
    let reader = &activity.reader;
    let rate = activity
        .source_rate
        .map_or(String::new(), |rate| show_rate(to_f64(rate)));
    Suspect {
        stage: Resource::RateLimit,
        device: None,
        blame,
        occupation: share(reader.waited(Cause::RateLimit), reader.threads, seconds),
        words: format!("the rate limit of {rate} on {what}"),
    }
}

fn device_limit(activity: &Activity, seconds: f64, blame: f64) -> Suspect {
    let writer = &activity.writer;
    let rate = activity
        .device_rate
        .map_or(String::new(), |rate| show_rate(to_f64(rate)));
    Suspect {
        stage: Resource::DeviceRateLimit,
        device: None,
        blame,
        occupation: share(writer.waited(Cause::RateLimit), writer.threads, seconds),
        // The rate of the run counts bytes of the database. This one counts the bytes that are
        // stored of them.
        words: format!("the rate limit on the devices ({rate} of stored bytes)"),
    }
}

fn database(blame: f64) -> Suspect {
    Suspect {
        stage: Resource::Database,
        device: None,
        blame,
        occupation: 0.0,
        words: "waiting for the database (listing, checkpoint, log, changes)".to_owned(),
    }
}

fn buffers(activity: &Activity, blame: f64) -> Suspect {
    let (count, bytes) = (activity.buffers_peak, activity.plan.transfer_bytes);
    Suspect {
        stage: Resource::Buffers,
        device: None,
        blame,
        occupation: 0.0,
        words: format!("too few buffers ({count} of {})", show_size(bytes as u64)),
    }
}

fn stripes_read(
    activity: &Activity,
    devices: &[DeviceReport],
    seconds: f64,
    blame: f64,
) -> Suspect {
    let reader = &activity.reader;
    let most = devices
        .iter()
        .max_by(|a, b| a.busy_seconds.total_cmp(&b.busy_seconds));
    let name = most.map_or("", |most| most.name.as_str());
    Suspect {
        stage: Resource::Device,
        device: Some(name.to_owned()),
        blame,
        occupation: share(reader.waited(Cause::DeviceRead), reader.threads, seconds),
        words: format!("the device {name}"),
    }
}

fn target(activity: &Activity, seconds: f64, blame: f64) -> Suspect {
    let writer = &activity.writer;
    let waited = writer.waited(Cause::TargetWrite);
    Suspect {
        stage: Resource::Target,
        device: None,
        blame,
        occupation: share(waited, writer.threads, seconds)
            .max(writer.waited(Cause::TargetSync) / seconds),
        words: "the target".to_owned(),
    }
}

fn share(waited: f64, threads: u64, seconds: f64) -> f64 {
    waited / (to_f64(threads.max(1)) * seconds)
}

fn bytes_per(bytes: u64, seconds: f64) -> f64 {
    to_f64(bytes) / seconds
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
fn to_f64(value: u64) -> f64 {
    value as f64
}
