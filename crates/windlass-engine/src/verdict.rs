//! The verdict: which stage or device bound a run, at what rate, and what would bind next.
//!
//! For every resource a run uses, its occupation is the share of the run's time in which it was
//! busy: the source while readers waited for it, the cores by the CPU time of all stages, each
//! device while it had a write in flight, a rate limit while someone waited for it. The resource
//! with the highest occupation bound the run. What the run's bytes would have taken on each of
//! the others alone gives the next limit.

use serde::Serialize;

use crate::report::{Activity, DeviceReport};
use crate::waits::Cause;

/// Below this occupation nothing was busy enough to be the limit: the buffers were too few.
const OCCUPIED_MIN: f64 = 0.55;

/// What bound a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// `source`, `compressor`, `reader`, `writer`, `device`, `target`, `rate_limit`, `buffers` or
    /// `database`.
    pub stage: &'static str,
    /// The device, when it is one.
    pub device: Option<String>,
    /// Bytes of the database per second at which the run went.
    pub rate: f64,
    /// Rate divided by what the resource could do alone; `None` when that is not known.
    pub share_of_probed: Option<f64>,
    /// What would have bound the run next.
    pub next: Option<NextLimit>,
}

/// The limit behind the limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NextLimit {
    /// As in [`Limit::stage`].
    pub stage: &'static str,
    /// Bytes of the database per second it could have given.
    pub rate: f64,
}

pub(crate) struct Verdict {
    pub(crate) limit: Limit,
    pub(crate) sentence: String,
}

/// One resource: how busy it was, and what it could give alone.
#[derive(Clone, Debug)]
struct Resource {
    stage: &'static str,
    device: Option<String>,
    occupation: f64,
    /// The sentence's words for it, after "bound by".
    words: String,
    /// What would help, as a clause.
    advice: String,
}

impl Resource {
    /// The rate at which this resource alone would have gone, given the run's rate.
    fn alone(&self, rate: f64) -> f64 {
        if self.occupation > 0.0 {
            rate / self.occupation
        } else {
            f64::INFINITY
        }
    }
}

impl Verdict {
    pub(crate) fn of_backup(activity: &Activity, devices: &[DeviceReport]) -> Self {
        let seconds = activity.data_seconds.max(1e-9);
        let mut resources = vec![source(activity, seconds), cores(activity, seconds)];
        resources.push(device(devices, seconds));
        resources.push(source_limit(activity, seconds));
        resources.push(device_limit(activity, seconds));
        resources.push(database(activity, seconds));
        Self::judge(
            resources,
            bytes_per(activity.reader.bytes, seconds),
            activity,
        )
    }

    pub(crate) fn of_restore(activity: &Activity, devices: &[DeviceReport]) -> Self {
        let seconds = activity.data_seconds.max(1e-9);
        let mut resources = vec![stripes_read(activity, devices, seconds)];
        resources.push(cores(activity, seconds));
        resources.push(target(activity, seconds));
        resources.push(source_limit(activity, seconds));
        Self::judge(
            resources,
            bytes_per(activity.compressor.bytes, seconds),
            activity,
        )
    }

    fn judge(mut resources: Vec<Resource>, rate: f64, activity: &Activity) -> Self {
        resources.sort_by(|a, b| b.occupation.total_cmp(&a.occupation));
        let first = resources[0].clone();
        let next = resources
            .get(1)
            .filter(|next| next.occupation > 0.0)
            .cloned();
        if first.occupation < OCCUPIED_MIN {
            return Self::buffers(&first, rate, activity);
        }
        let next_limit = next.as_ref().map(|next| NextLimit {
            stage: next.stage,
            rate: next.alone(rate),
        });
        let mut sentence = format!("bound by {} at {}", first.words, megabytes(rate));
        if let Some(next) = &next {
            sentence += &format!(
                "; next is {} at {}",
                next.words,
                megabytes(next.alone(rate))
            );
        }
        if !first.advice.is_empty() {
            sentence += &format!("; {}", first.advice);
        }
        let share_of_probed = (first.stage == "compressor").then_some(first.occupation.min(1.0));
        let (stage, device) = (first.stage, first.device);
        let limit = Limit {
            stage,
            device,
            rate,
            share_of_probed,
            next: next_limit,
        };
        Self { limit, sentence }
    }

    fn buffers(first: &Resource, rate: f64, activity: &Activity) -> Self {
        let next = Some(NextLimit {
            stage: first.stage,
            rate: first.alone(rate),
        });
        let limit = Limit {
            stage: "buffers",
            device: None,
            rate,
            share_of_probed: None,
            next,
        };
        let sentence = format!(
            "nothing was busy all the time: {} buffers of {} bytes did not keep {} going at {}; \
             try more --buffers, or a larger database to judge by",
            activity.plan.buffers,
            activity.plan.transfer_bytes,
            first.words,
            megabytes(rate),
        );
        Self { limit, sentence }
    }
}

fn source(activity: &Activity, seconds: f64) -> Resource {
    let reader = &activity.reader;
    let volumes = activity.plan.volumes;
    Resource {
        stage: "source",
        device: None,
        occupation: share(reader.waited(Cause::SourceRead), reader.threads, seconds),
        words: format!(
            "the source ({volumes} {})",
            if volumes == 1 { "volume" } else { "volumes" }
        ),
        advice: "more devices or another codec will not help, faster storage under the database \
                 would"
            .to_owned(),
    }
}

fn cores(activity: &Activity, seconds: f64) -> Resource {
    let stages = [&activity.compressor, &activity.reader, &activity.writer];
    let cpu: f64 = stages.iter().map(|stage| stage.cpu_seconds).sum();
    let most = stages
        .into_iter()
        .max_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
    let most = most.map_or("compressor", |stage| stage.name);
    // One thread per stage cannot use more cores than there are threads.
    let cores = activity.cores.min(
        usize::try_from(activity.compressor.threads)
            .unwrap_or(1)
            .max(1),
    );
    let compressing = activity.codec != "none" && most == "compressor";
    let words = match most {
        "compressor" if compressing => format!("{} on {cores} cores", activity.codec),
        "compressor" => format!("checksums on {cores} cores"),
        "reader" => format!("copying from the page cache on {cores} cores"),
        _ => format!("the writers' copying on {cores} cores"),
    };
    let advice = match activity.codec.as_str() {
        _ if !compressing => "more stripes will not help, more cores would",
        "lz4" => "more stripes will not help, --compress none would if the devices keep up",
        _ => "more stripes will not help, --compress lz4 would",
    };
    let on_core = cpu / (seconds * to_f64(cores as u64));
    // Threads that were ready but had no core: other processes had it. The stage still bound us.
    let compressor = &activity.compressor;
    let ready = share(compressor.busy_seconds, compressor.threads, seconds);
    let crowded = ready > 1.5 * on_core && ready > OCCUPIED_MIN;
    let words = if crowded {
        words + ", shared with other processes,"
    } else {
        words
    };
    Resource {
        stage: most,
        device: None,
        occupation: on_core.max(ready),
        words,
        advice: advice.to_owned(),
    }
}

fn device(devices: &[DeviceReport], seconds: f64) -> Resource {
    let most = devices
        .iter()
        .max_by(|a, b| a.busy_seconds.total_cmp(&b.busy_seconds));
    let idlest = devices
        .iter()
        .map(|device| device.busy_seconds)
        .fold(f64::INFINITY, f64::min);
    let (name, busy) = most.map_or(("", 0.0), |most| (most.name.as_str(), most.busy_seconds));
    let words = match devices.len() {
        0 | 1 => format!("device {name}"),
        count => format!("{count} devices, {name} the busiest"),
    };
    // Frames go to whoever is free: only when all devices are busy do they hold the run back.
    Resource {
        stage: "device",
        device: Some(name.to_owned()),
        occupation: if busy > 0.0 {
            idlest.min(busy) / seconds
        } else {
            0.0
        },
        words,
        advice: "another device (--to) or a stronger codec would help".to_owned(),
    }
}

fn source_limit(activity: &Activity, seconds: f64) -> Resource {
    let reader = &activity.reader;
    let rate = activity
        .source_rate
        .map_or(String::new(), |rate| megabytes(to_f64(rate)));
    Resource {
        stage: "rate_limit",
        device: None,
        occupation: share(reader.waited(Cause::RateLimit), reader.threads, seconds),
        words: format!("the limit of {rate} on the source"),
        advice: "a higher --max-rate would help".to_owned(),
    }
}

fn device_limit(activity: &Activity, seconds: f64) -> Resource {
    let writer = &activity.writer;
    let rate = activity
        .device_rate
        .map_or(String::new(), |rate| megabytes(to_f64(rate)));
    Resource {
        stage: "device_rate_limit",
        device: None,
        occupation: share(writer.waited(Cause::RateLimit), writer.threads, seconds),
        words: format!("the limit of {rate} on the devices"),
        advice: "a higher --max-device-rate would help".to_owned(),
    }
}

fn database(activity: &Activity, seconds: f64) -> Resource {
    let reader = &activity.reader;
    // Before the first job and after the last one readers wait too, outside of `seconds`.
    let idle = reader.waited(Cause::Jobs) - before(activity);
    Resource {
        stage: "database",
        device: None,
        occupation: share(idle.max(0.0), reader.threads, seconds).min(0.99) * 0.9,
        words: "waiting for the database (listing, checkpoint, log)".to_owned(),
        advice: "the data itself took little time".to_owned(),
    }
}

/// Reader time before data began to move: threads start before the database is ready.
fn before(activity: &Activity) -> f64 {
    let reader = &activity.reader;
    let waits: f64 = reader.waits.iter().map(|wait| wait.seconds).sum();
    let life = reader.busy_seconds + waits;
    (life - activity.data_seconds * to_f64(reader.threads)).max(0.0)
}

fn stripes_read(activity: &Activity, devices: &[DeviceReport], seconds: f64) -> Resource {
    let reader = &activity.reader;
    let most = devices
        .iter()
        .max_by(|a, b| a.busy_seconds.total_cmp(&b.busy_seconds));
    let name = most.map_or("", |most| most.name.as_str());
    Resource {
        stage: "device",
        device: Some(name.to_owned()),
        occupation: share(reader.waited(Cause::DeviceRead), reader.threads, seconds),
        words: format!("reading {name}"),
        advice: "stripes on more devices would help".to_owned(),
    }
}

fn target(activity: &Activity, seconds: f64) -> Resource {
    let writer = &activity.writer;
    let waited = writer.waited(Cause::TargetWrite);
    Resource {
        stage: "target",
        device: None,
        occupation: share(waited, writer.threads, seconds)
            .max(writer.waited(Cause::TargetSync) / seconds),
        words: "the target's storage".to_owned(),
        advice: "faster storage under the restored files would help".to_owned(),
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

/// Bytes per second for people: MB/s, or GB/s from one on.
pub fn megabytes(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{:.2} GB/s", rate / 1e9),
        rate if rate >= 1e7 => format!("{:.0} MB/s", rate / 1e6),
        rate => format!("{:.1} MB/s", rate / 1e6),
    }
}
