//! Emulation: real storage behaves like a model of slower storage.
//!
//!   reader, writer --I/O--> emulator: when would the model be done? --> the I/O itself, not before
//!
//! The database's storage is `source`, that of the stripes `target`, in a backup as in a restore.
//! The I/Os are real, one at a time for each thread. Each is delayed until the model would be done
//! with it. So the real storage must be faster than the model.
//!
//! Locking: an emulator's clock, then the machine's; neither is held while anybody sleeps.

mod device;
mod target;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::model::{Instance, InstanceClock, Model, ModelClock, ModelIo};

pub(crate) use device::emulated;
pub(crate) use target::EmulatedTarget;

/// Longest sleep between two looks at the cancel flag.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// How much faster or slower than the real storage a model may be made.
const SCALES: std::ops::RangeInclusive<f64> = 0.0001..=1000.0;

/// Which storage behaves like which model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Emulation {
    /// What the database lies on.
    pub source: Option<Model>,
    /// What the stripes lie on.
    pub target: Option<Model>,
    /// The machine. The storage of both counts against its caps.
    pub instance: Option<Instance>,
}

impl Emulation {
    /// Reads `source=MODEL`, `target=MODEL`, `instance=NAME` and `scale=FACTOR`. The factor makes
    /// all of these that many times as fast, so that a small database takes as long as a large one
    /// would.
    pub fn parse<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<Self, EngineError> {
        let mut emulation = Self::default();
        let mut scale = 1.0;
        for item in items {
            match item.split_once('=') {
                Some(("source", model)) => emulation.source = Some(Model::parse(model)?),
                Some(("target", model)) => emulation.target = Some(Model::parse(model)?),
                Some(("instance", name)) => {
                    let instance = Instance::named(name);
                    let known = || Instance::names().collect::<Vec<_>>().join(", ");
                    let what = || format!("no instance {name:?} is known, but {}", known());
                    emulation.instance = Some(instance.ok_or_else(|| fault(what()))?);
                }
                Some(("scale", factor)) => {
                    let factor = factor.parse().ok().filter(|it| SCALES.contains(it));
                    let what = || format!("{item:?} is no factor from 0.0001 to 1000");
                    scale = factor.ok_or_else(|| fault(what()))?;
                }
                _ => {
                    let what = format!(
                        "{item:?} is none of source=MODEL, target=MODEL, instance=NAME, \
                         scale=FACTOR"
                    );
                    return Err(fault(what));
                }
            }
        }
        Ok(emulation.scaled(scale))
    }

    fn scaled(mut self, factor: f64) -> Self {
        if let Some(model) = &mut self.source {
            model.scale(factor);
        }
        if let Some(model) = &mut self.target {
            model.scale(factor);
        }
        if let Some(instance) = &mut self.instance {
            instance.scale(factor);
        }
        self
    }
}

fn fault(what: String) -> EngineError {
    EngineError::Option {
        option: "--emulate",
        what,
    }
}

/// The emulators of one run.
#[derive(Debug, Default)]
pub(crate) struct Emulators {
    pub(crate) source: Option<Arc<Emulator>>,
    pub(crate) target: Option<Arc<Emulator>>,
}

impl Emulators {
    /// Starts the clocks of a run.
    pub(crate) fn start(emulation: &Emulation, cancel: &Cancel) -> Self {
        let machine = emulation.instance.as_ref();
        let machine = machine.map(|instance| Arc::new(Mutex::new(InstanceClock::new(instance))));
        let began = Instant::now();
        let start = |model: &Option<Model>| {
            let clock = Mutex::new(ModelClock::new(model.as_ref()?));
            Some(Arc::new(Emulator {
                began,
                clock,
                machine: machine.clone(),
                cancel: cancel.clone(),
            }))
        };
        Self {
            source: start(&emulation.source),
            target: start(&emulation.target),
        }
    }
}

/// The clock of one model in real time. All threads that use its storage share it.
#[derive(Debug)]
pub(crate) struct Emulator {
    began: Instant,
    clock: Mutex<ModelClock>,
    machine: Option<Arc<Mutex<InstanceClock>>>,
    cancel: Cancel,
}

impl Emulator {
    /// When the model finishes an I/O that arrives now.
    pub(crate) fn done_at(&self, io: &ModelIo) -> Instant {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = self.machine.as_ref();
        let mut machine =
            machine.map(|machine| machine.lock().unwrap_or_else(PoisonError::into_inner));
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let done = clock.done_at(io, now, machine.as_deref_mut());
        self.began + Duration::from_nanos(done)
    }

    /// Sleeps until `end`, or until the run is cancelled. The caller checks the cancel flag
    /// afterwards.
    pub(crate) fn wait_until(&self, end: Instant) {
        while !self.cancel.is_cancelled() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(SLEEP_MAX));
        }
    }

    /// Waits as long as the model takes for an I/O that arrives now.
    pub(crate) fn pass(&self, io: &ModelIo) {
        self.wait_until(self.done_at(io));
    }
}

/// An emulator as one stream sees it.
#[derive(Clone, Debug)]
pub(crate) struct EmulatedStream {
    pub(crate) emulator: Arc<Emulator>,
    pub(crate) stream: usize,
}

impl EmulatedStream {
    /// When the model finishes an I/O of this stream that arrives now.
    pub(crate) fn done_at(&self, file: usize, offset: u64, bytes: usize) -> Instant {
        self.emulator.done_at(&ModelIo {
            stream: self.stream,
            file,
            offset,
            bytes: bytes as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_and_others_are_refused() {
        let items = ["source=gp2:1TB", "target=s3:4x90MB/s", "instance=r5.large"];
        let emulation = Emulation::parse(items).unwrap();
        assert_eq!(emulation.source.unwrap().name, "gp2:1TB");
        assert_eq!(emulation.target.unwrap().name, "s3:4x90MB/s");
        assert_eq!(emulation.instance.unwrap().cores, 2);
        let bad = [
            "gp2:1TB",
            "source=tape",
            "instance=abacus",
            "device=hdd",
            "scale=0",
        ];
        for bad in bad {
            assert!(Emulation::parse([bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_scale_changes_every_rate_and_no_latency() {
        let items = [
            "scale=0.1",
            "source=st1:1TiB",
            "target=s3:4x90MB/s",
            "instance=r5.large",
        ];
        let scaled = Emulation::parse(items).unwrap();
        let plain = Emulation::parse(items[1..].iter().copied()).unwrap();
        let near = |one: f64, other: f64| assert!((one / other - 0.1).abs() < 1e-9, "{one}");
        let (source, was) = (scaled.source.unwrap(), plain.source.unwrap());
        near(source.sustained(1), was.sustained(1));
        let (burst, had) = (source.whole.burst.unwrap(), was.whole.burst.unwrap());
        near(burst.operations_per_second, had.operations_per_second);
        near(burst.credits, had.credits);
        assert_eq!(source.latency_seconds, was.latency_seconds);
        near(
            scaled.target.unwrap().sustained(2),
            plain.target.unwrap().sustained(2),
        );
        let (machine, had) = (scaled.instance.unwrap(), plain.instance.unwrap());
        near(
            machine.network_bytes_per_second,
            had.network_bytes_per_second,
        );
        assert_eq!(machine.cores, had.cores);
    }
}
