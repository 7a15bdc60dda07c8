//! What would make a run faster, and by how much. Windlass checks advice before it gives it.
//!
//!   Measured --> question (storage as fast as it was in the run) --simulate--> the run again
//!                  | one thing changed                          --simulate--> the run as advised
//!
//! The run itself shows how fast storage and cores were. With these speeds the simulation must find
//! the run's own duration; if it does not, Windlass gives no advice. Then the simulation changes
//! one thing at a time. A change that saves less than a tenth of the whole run is not advised,
//! and nothing is for a run of less than a second.
//!
//! Invariants
//! - Nobody knows how well another codec would compress these data. A weaker codec is advised only
//!   if the run would be shorter even if that codec compressed nothing. A stronger codec is advised
//!   only if the run would take no longer with the ratio that was measured.
//! - What no setting can change (cores, storage) is advised only when no setting helps.

use windlass_engine::media::Codec;
use windlass_engine::{BufferRequest, PageClass, Resource};
use windlass_model::Model;

use crate::accuracy::PREDICTED_SECONDS_MIN;
use crate::numbers::to_f64;
use crate::plan::{Alternative, Direction, Prediction, Question};
use crate::speeds::{CodecSpeed, Speeds};

/// What advice needs to know about a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Backup or restore.
    pub direction: Direction,
    /// Bytes of the database.
    pub bytes: u64,
    /// Bytes of all stripes.
    pub stored_bytes: u64,
    /// Seconds in which data moved.
    pub seconds: f64,
    /// Seconds of the run's beginning and end, in which no data moved. No advice changes them.
    pub other_seconds: f64,
    /// The codec of all frames; `None` if the run changed the codec on the way.
    pub codec: Option<Codec>,
    /// Whether it took pages apart that a faster codec would leave as they are.
    pub apart: bool,
    /// Cores of the machine.
    pub cores: usize,
    /// Buffers and threads of the run.
    pub request: BufferRequest,
    /// The number of buffers, if the user chose it.
    pub buffers_asked: Option<usize>,
    /// Writes in flight to a device.
    pub write_depth: usize,
    /// Share of the time in which the database's storage was busy. A backup reads from it, a
    /// restore writes to it.
    pub database_busy: f64,
    /// For each stripe's device: its bytes, and the share of the time in which it was busy.
    pub devices: Vec<(u64, f64)>,
    /// Seconds on cores, over all cores.
    pub core_seconds: f64,
    /// The user's limit on reading from the source, in bytes per second.
    pub read_rate: Option<f64>,
    /// The user's limit on writing to the devices, in bytes per second.
    pub write_rate: Option<f64>,
    /// What bound the run, as in [`windlass_engine::Limit::stage`].
    pub limit: Resource,
    /// The limit's share of the blame.
    pub blame: f64,
}

impl Measured {
    /// Seconds of the whole run.
    fn whole(&self) -> f64 {
        self.seconds + self.other_seconds
    }
}

/// Something that would make a run faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Another codec.
    Codec(Codec),
    /// One more device, as fast as these, and independent of them.
    MoreDevices,
    /// This many buffers.
    Buffers(usize),
    /// No limit on what is read.
    NoReadRate,
    /// No limit on what is written to the devices.
    NoWriteRate,
    /// This many cores.
    Cores(usize),
    /// The database's storage twice as fast.
    FasterDatabase,
    /// The devices twice as fast.
    FasterDevices,
}

/// A piece of advice, and what it would bring.
#[derive(Clone, Debug, PartialEq)]
pub struct Advised {
    /// What to change.
    pub advice: Advice,
    /// Seconds in which data would move if the user followed it.
    pub seconds: f64,
    /// Share of the time that would be saved.
    pub saved: f64,
    /// What would bind the run if the user followed it, as in [`crate::PlanLimit::stage`].
    pub limit: Resource,
    /// The ratio that this prediction assumes, where it is not known: bytes of the database for
    /// each stored byte.
    pub ratio: Option<f64>,
}

/// Advice that saves a smaller share of the time is not given.
const SAVED_MIN: f64 = 0.1;
/// If the simulation is off by more than this share, it does not understand the run.
const OFF_MAX: f64 = 0.25;
/// If a limit has a smaller share of the blame, it is only one limit among several.
const BLAME_MIN: f64 = 0.6;
/// A resource that was busy for less than this share of the time gives no reliable estimate of its
/// top speed.
const BUSY_MIN: f64 = 0.02;
/// The resource that binds a run is taken to be busy for this share of the time, whatever was
/// measured.
const BUSY_OF_LIMIT: f64 = 0.95;
/// Compared with other codecs, a codec may be this much slower on these data than on the data it
/// was measured with.
const SLOWER_MAX: f64 = 0.75;
/// Two runs with the same settings differ by up to this share.
const NOISE: f64 = 0.02;
/// Codecs worth advising, the weakest first.
const CODECS: [Codec; 4] = [Codec::None, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(3)];

/// What would make a run faster; `None` if nothing known would. `known` says what the codecs do
/// with other data.
pub fn advise(run: &Measured, known: &Speeds) -> Option<Advised> {
    if run.bytes == 0 || run.stored_bytes == 0 || run.blame < BLAME_MIN {
        return None;
    }
    // As for a prediction: such a run is mostly its beginning and its end.
    if run.whole() < PREDICTED_SECONDS_MIN {
        return None;
    }
    let base = Case::of(run, known);
    let seconds = base.predict()?.seconds;
    if !(1.0 - OFF_MAX..1.0 + OFF_MAX).contains(&(seconds / run.seconds)) {
        return None;
    }
    let asked = Asked {
        run,
        known,
        base,
        seconds,
    };
    let advised = |candidates: Vec<Advice>| {
        let each = candidates.into_iter();
        each.filter_map(|advice| asked.about(advice))
            .collect::<Vec<_>>()
    };
    let settings = advised(asked.settings());
    let first = match run.limit {
        // The strongest of the weaker codecs that help: what it stores is kept for a long time.
        Resource::Compressor | Resource::Reader => settings.into_iter().next_back(),
        _ => fastest(settings),
    };
    first.or_else(|| fastest(advised(asked.machinery())))
}

fn fastest(advised: Vec<Advised>) -> Option<Advised> {
    let by_time = |one: &Advised, other: &Advised| one.seconds.total_cmp(&other.seconds);
    advised.into_iter().min_by(by_time)
}

/// A run to predict.
#[derive(Clone)]
struct Case {
    question: Question,
    alternative: Alternative,
}

impl Case {
    /// The run as it was. Storage gets the speed that it had while it was busy.
    fn of(run: &Measured, known: &Speeds) -> Self {
        let codec = run.codec.unwrap_or(Codec::Zstd(1));
        let busy = |end: Resource, share: f64| match run.limit == end {
            true => share.max(BUSY_OF_LIMIT),
            false => share,
        };
        let end = match run.direction {
            Direction::Backup => Resource::Source,
            Direction::Restore => Resource::Target,
        };
        let database = vec![storage(
            run.bytes,
            busy(end, run.database_busy),
            run.seconds,
        )];
        let device = |(bytes, share): &(u64, f64)| {
            storage(*bytes, busy(Resource::Device, *share), run.seconds)
        };
        let devices: Vec<_> = run.devices.iter().map(device).collect();
        let (sources, targets) = match run.direction {
            Direction::Backup => (database, devices),
            Direction::Restore => (devices, database),
        };
        let ratio = to_f64(run.bytes) / to_f64(run.stored_bytes);
        let speed = to_f64(run.bytes) / run.core_seconds.max(1e-9);
        let alternative = Alternative {
            files: run.devices.len(),
            codec,
            ratio,
        };
        let question = Question {
            direction: run.direction,
            used_bytes: run.bytes,
            file_bytes: run.bytes,
            sources,
            targets,
            instance: None,
            cores: run.cores,
            request: run.request.clone(),
            write_depth: run.write_depth,
            read_rate: run.read_rate,
            write_rate: run.write_rate,
            speeds: scaled(known, codec, speed),
        };
        Self {
            question,
            alternative,
        }
    }

    fn predict(&self) -> Option<Prediction> {
        self.question.predict(&self.alternative).ok()
    }

    /// The number of buffers that readers can have.
    fn inputs(&self) -> f64 {
        let job = self.question.job(&self.alternative);
        job.map_or(0.0, |job| {
            let rest = job.buffers.buffers.saturating_sub(job.outputs);
            to_f64(if job.outputs == 0 {
                rest
            } else {
                rest.div_ceil(2)
            } as u64)
        })
    }
}

/// Storage that moved these bytes in this share of the time.
fn storage(bytes: u64, busy: f64, seconds: f64) -> Model {
    let mut model = Model::unlimited("as measured");
    if busy >= BUSY_MIN {
        model.whole.bytes_per_second = Some(to_f64(bytes) / (seconds * busy.min(1.0)));
    }
    model
}

/// What all codecs do with these data, estimated from what one of them did.
fn scaled(known: &Speeds, codec: Codec, measured: f64) -> Speeds {
    let there = known.of(codec);
    let times = |known: f64, of: f64| measured * known / of;
    let speed = |codec: Codec| {
        let one = known.of(codec);
        CodecSpeed {
            codec: codec.to_string(),
            compress_bytes_per_second: times(
                one.compress_bytes_per_second,
                there.compress_bytes_per_second,
            ),
            decompress_bytes_per_second: times(
                one.decompress_bytes_per_second,
                there.decompress_bytes_per_second,
            ),
            ratio: one.ratio,
        }
    };
    let mut codecs: Vec<_> = CODECS.into_iter().map(speed).collect();
    codecs.retain(|one| one.codec != codec.to_string());
    codecs.push(speed(codec));
    Speeds {
        origin: "the run".to_owned(),
        codecs,
    }
}

/// A run, and what is needed to look for advice for it.
struct Asked<'a> {
    run: &'a Measured,
    known: &'a Speeds,
    base: Case,
    /// The predicted duration of the run as it was.
    seconds: f64,
}

impl Asked<'_> {
    /// What a user can set.
    fn settings(&self) -> Vec<Advice> {
        let backs_up = self.run.direction == Direction::Backup;
        match self.run.limit {
            Resource::Compressor | Resource::Reader if backs_up => {
                self.codecs(|one, other| one < other)
            }
            Resource::Device if backs_up => {
                let mut advice = self.codecs(|one, other| one > other);
                advice.push(Advice::MoreDevices);
                advice
            }
            Resource::RateLimit => vec![Advice::NoReadRate],
            Resource::DeviceRateLimit => vec![Advice::NoWriteRate],
            Resource::Buffers => {
                let buffers = self.run.request.buffers;
                buffers
                    .map(|count| Advice::Buffers(2 * count))
                    .into_iter()
                    .collect()
            }
            _ => vec![],
        }
    }

    /// What only another machine can change.
    fn machinery(&self) -> Vec<Advice> {
        match self.run.limit {
            Resource::Compressor | Resource::Reader => vec![Advice::Cores(2 * self.run.cores)],
            Resource::Source | Resource::Target => vec![Advice::FasterDatabase],
            Resource::Device => vec![Advice::FasterDevices],
            _ => vec![],
        }
    }

    /// The codecs on one side of the run's own codec.
    fn codecs(&self, side: fn(usize, usize) -> bool) -> Vec<Advice> {
        let strength = |codec: Codec| match codec {
            Codec::Zstd(level) if level > 3 => Some(CODECS.len()),
            codec => CODECS.iter().position(|one| *one == codec),
        };
        let Some(there) = self.run.codec.and_then(strength) else {
            return vec![];
        };
        let wanted = |codec: &Codec| strength(*codec).is_some_and(|one| side(one, there));
        CODECS
            .into_iter()
            .filter(wanted)
            .map(Advice::Codec)
            .collect()
    }

    /// What a piece of advice would bring; `None` if it saves too little, or may make the run
    /// slower.
    fn about(&self, advice: Advice) -> Option<Advised> {
        let mut case = self.base.clone();
        let question = &mut case.question;
        let mut ratio = None;
        match advice {
            Advice::Codec(codec) => {
                ratio = Some(self.expected_ratio(codec));
                case.alternative.codec = codec;
                case.alternative.ratio = self.expected_ratio(codec);
                if !self.is_safe(codec) {
                    return None;
                }
            }
            Advice::MoreDevices => {
                question.targets.extend(question.targets.first().cloned());
                question.request.buffers = self.run.buffers_asked;
                case.alternative.files += 1;
            }
            Advice::Buffers(count) => question.request.buffers = Some(count),
            Advice::NoReadRate => question.read_rate = None,
            Advice::NoWriteRate => question.write_rate = None,
            Advice::Cores(count) => {
                question.cores = count;
                question.request.compressors = Some(count);
            }
            Advice::FasterDatabase => doubled(match self.run.direction {
                Direction::Backup => &mut question.sources,
                Direction::Restore => &mut question.targets,
            }),
            Advice::FasterDevices => doubled(match self.run.direction {
                Direction::Backup => &mut question.targets,
                Direction::Restore => &mut question.sources,
            }),
        }
        let found = case.predict()?;
        let saved = 1.0 - found.seconds / self.seconds;
        // The user waits for the whole run, and its duration is what two runs differ in.
        let saved_of_whole = saved * self.run.seconds / self.run.whole();
        (saved_of_whole >= SAVED_MIN).then(|| Advised {
            advice,
            seconds: self.run.seconds * (1.0 - saved),
            saved,
            limit: found.limit.stage,
            ratio: ratio.filter(|_| advice != Advice::Codec(Codec::None)),
        })
    }

    /// The ratio expected of another codec, if the two codecs differ on these data as they do on
    /// other data. What pages gain that were taken apart is lost with a codec that leaves them.
    fn expected_ratio(&self, codec: Codec) -> f64 {
        let ratio = |codec| self.known.of(codec).ratio;
        let there = ratio(self.base.alternative.codec);
        let alike = self.base.alternative.ratio * ratio(codec) / there;
        let expected = match codec {
            Codec::None => 1.0,
            codec if self.run.apart && !PageClass::is_worth_it_with(codec) => {
                alike.min(ratio(codec))
            }
            _ => alike,
        };
        expected.max(1.0)
    }

    /// Whether a weaker codec still makes the run faster, or a stronger one makes it no slower,
    /// when the codec does as badly with these data as it may.
    fn is_safe(&self, codec: Codec) -> bool {
        let mut case = self.base.clone();
        case.alternative.codec = codec;
        let (known, there) = (
            self.known.of(codec),
            self.known.of(self.base.alternative.codec),
        );
        let weaker = known.compress_bytes_per_second > there.compress_bytes_per_second;
        if weaker {
            case.alternative.ratio = 1.0;
        } else {
            self.read_with_fewer(&mut case);
        }
        for speed in &mut case.question.speeds.codecs {
            if speed.codec == codec.to_string() {
                speed.compress_bytes_per_second *= SLOWER_MAX;
            }
        }
        let least = if weaker { SAVED_MIN / 2.0 } else { -NOISE };
        let longest = self.seconds * (1.0 - least);
        case.predict().is_some_and(|found| found.seconds <= longest)
    }
}

impl Asked<'_> {
    /// A codec that compresses keeps buffers for its outputs, so readers have fewer. If latency is
    /// what slows the source down, the source becomes slower in proportion.
    fn read_with_fewer(&self, case: &mut Case) {
        let share = case.inputs() / self.base.inputs().max(1.0);
        if share >= 1.0 {
            return;
        }
        let most = to_f64(self.run.bytes) / (self.run.seconds * BUSY_MIN);
        for source in &mut case.question.sources {
            let rate = &mut source.whole.bytes_per_second;
            *rate = Some(rate.unwrap_or(most) * share);
        }
    }
}

/// Makes all of this storage twice as fast.
fn doubled(models: &mut [Model]) {
    for model in models {
        let rate = &mut model.whole.bytes_per_second;
        *rate = rate.map(|rate| 2.0 * rate);
    }
}

#[cfg(test)]
mod tests;
