//! Emulation: real storage behaves like a model of slower storage.
//!
//!   reader, writer --I/O--> when would the model be done? --> the I/O itself, not before
//!
//! The database's storage is `source`, that of the stripes `target`, in a backup as in a restore.
//! The engine makes the I/Os and waits; this says for how long. So the real storage must be faster
//! than the model.
//!
//! Locking: a model's clock, then the machine's; neither is held while anybody sleeps.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_engine::media::fitted;
use windlass_engine::{Pace, PacedIo, Paces, Pacing};

use crate::error::ModelError;
use crate::model::{Instance, InstanceClock, Model, ModelClock, ModelIo};

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
    pub fn parse<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<Self, ModelError> {
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

    /// What a run takes as the pace of its storage. `None` if none is emulated.
    pub fn pacing(&self) -> Option<Arc<dyn Pacing>> {
        let emulates = self.source.is_some() || self.target.is_some();
        emulates.then(|| Arc::new(self.clone()) as Arc<dyn Pacing>)
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

fn fault(what: String) -> ModelError {
    ModelError::Emulation { what }
}

impl Pacing for Emulation {
    fn start(&self) -> Paces {
        let machine = self.instance.as_ref();
        let machine = machine.map(|instance| Arc::new(Mutex::new(InstanceClock::new(instance))));
        let began = Instant::now();
        let start = |model: &Option<Model>| {
            let clock = Mutex::new(ModelClock::new(model.as_ref()?));
            let machine = machine.clone();
            let pace = RealTime {
                began,
                clock,
                machine,
            };
            Some(Arc::new(pace) as Arc<dyn Pace>)
        };
        Paces {
            source: start(&self.source),
            target: start(&self.target),
        }
    }
}

/// The clock of one model in real time. All threads that use its storage share it.
#[derive(Debug)]
struct RealTime {
    began: Instant,
    clock: Mutex<ModelClock>,
    machine: Option<Arc<Mutex<InstanceClock>>>,
}

impl Pace for RealTime {
    fn done_at(&self, io: &PacedIo) -> Instant {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = self.machine.as_ref();
        let mut machine =
            machine.map(|machine| machine.lock().unwrap_or_else(PoisonError::into_inner));
        let now = fitted(self.began.elapsed().as_nanos());
        let io = ModelIo {
            stream: io.stream,
            file: io.file,
            offset: io.offset,
            bytes: io.bytes,
        };
        let done = clock.done_at(&io, now, machine.as_deref_mut());
        self.began + Duration::from_nanos(done)
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
