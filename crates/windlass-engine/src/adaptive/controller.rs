//! The controller: which codec comes next, given what was observed with this one.
//!
//! It moves one step up or down at a time. It remembers for a while how fast each step was, so that
//! it does not go back to a slower one: between two steps, of which one is limited by the devices
//! and the other by the cores, it stays with the faster one.
//!
//! Invariants
//! - The same observations give the same codecs: there is no clock in here, and no chance.
//! - The codec is always one of the range.

use serde::{Deserialize, Serialize};
use windlass_media::Codec;

use super::CodecRange;

/// If compressors wait this share of their time for buffers, the devices hold them up.
const HELD_UP: f64 = 0.25;
/// If compressors work this share of their time, they hold the others up.
const BUSY: f64 = 0.85;
/// The run goes back to a rung only if that rung was faster by this factor.
const GAIN: f64 = 1.03;
/// A measured rate is believed for this many observations, because data and storage change.
const BELIEVED_FOR: u64 = 40;

/// What the compressors did for a while. The shares of their time add up to one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Bytes of the database per second.
    pub rate: f64,
    /// Share of their time in which they waited for a buffer, because what comes after them was
    /// slower.
    pub held_up: f64,
    /// Share of their time in which they had nothing to do, because what comes before them was
    /// slower.
    pub starved: f64,
}

/// A change of the codec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecChange {
    /// Seconds since the run began.
    pub at_seconds: f64,
    /// The codec before the change.
    pub from: Codec,
    /// The codec after the change.
    pub to: Codec,
    /// Share of their time in which compressors waited for a buffer.
    pub held_up: f64,
    /// Share of their time in which compressors had nothing to do.
    pub starved: f64,
    /// Bytes of the database per second before the change.
    pub rate: f64,
}

/// Chooses the codec.
#[derive(Clone, Debug)]
pub struct Controller {
    rungs: Vec<Codec>,
    at: usize,
    /// The rate of each rung, and the number of the observation that measured it.
    known: Vec<Option<(f64, u64)>>,
    observations: u64,
}

impl Controller {
    /// A controller that begins with `start`, or with the next stronger rung if the range does not
    /// have it.
    pub fn new(range: &CodecRange, start: Codec) -> Self {
        let rungs = range.rungs();
        let strong = |codec: &Codec| super::strength(*codec) >= super::strength(start);
        let at = rungs.iter().position(strong).unwrap_or(rungs.len() - 1);
        Self {
            known: vec![None; rungs.len()],
            rungs,
            at,
            observations: 0,
        }
    }

    /// The codecs to choose from.
    pub fn rungs(&self) -> &[Codec] {
        &self.rungs
    }

    /// The codec to use now, as an index into the rungs.
    pub fn index(&self) -> usize {
        self.at
    }

    /// The codec to use now.
    pub fn codec(&self) -> Codec {
        self.rungs[self.at]
    }

    /// Takes an observation that was made with the present codec. Returns true when the codec
    /// changes.
    pub fn observe(&mut self, seen: &Observation) -> bool {
        self.observations += 1;
        self.known[self.at] = Some((seen.rate, self.observations));
        let busy = 1.0 - seen.held_up - seen.starved;
        let next = if seen.held_up >= HELD_UP {
            self.at + 1
        } else if busy >= BUSY {
            self.at.wrapping_sub(1)
        } else {
            self.at
        };
        let changes = next != self.at && next < self.rungs.len() && self.may_be_faster(next, seen);
        if changes {
            self.at = next;
        }
        changes
    }

    fn may_be_faster(&self, rung: usize, seen: &Observation) -> bool {
        match self.known[rung] {
            Some((rate, when)) if self.observations - when <= BELIEVED_FOR => {
                rate > seen.rate * GAIN
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 100e6;

    fn seen(rate: f64, held_up: f64, starved: f64) -> Observation {
        Observation {
            rate,
            held_up,
            starved,
        }
    }

    fn controller() -> Controller {
        Controller::new(&CodecRange::default(), Codec::Zstd(1))
    }

    #[test]
    fn slow_devices_are_given_fewer_bytes_until_the_range_ends() {
        let mut controller = controller();
        let mut path = Vec::new();
        for step in 0..6 {
            controller.observe(&seen(RATE + f64::from(step), 0.6, 0.1));
            path.push(controller.codec());
        }
        assert_eq!(path, [3, 6, 9, 9, 9, 9].map(Codec::Zstd));
    }

    #[test]
    fn busy_cores_are_given_less_to_do_until_the_range_ends() {
        let mut controller = Controller::new(&CodecRange::default(), Codec::Zstd(6));
        let mut path = Vec::new();
        for step in 1..=5 {
            controller.observe(&seen(RATE * f64::from(step), 0.0, 0.02));
            path.push(controller.codec());
        }
        let (one, three) = (Codec::Zstd(1), Codec::Zstd(3));
        assert_eq!(path, [three, one, Codec::Lz4, Codec::Lz4, Codec::Lz4]);
    }

    #[test]
    fn a_slow_source_changes_nothing() {
        let mut controller = controller();
        assert!((0..50).all(|_| !controller.observe(&seen(RATE, 0.05, 0.7))));
        assert_eq!(controller.codec(), Codec::Zstd(1));
    }

    #[test]
    fn between_devices_and_cores_it_stays_with_the_faster_one() {
        let mut controller = controller();
        // With zstd:1 the devices hold the run at 100 MB/s. With zstd:3 the cores hold it at 80
        // MB/s.
        let world = |codec| match codec {
            Codec::Zstd(1) => seen(RATE, 0.4, 0.0),
            _ => seen(0.8 * RATE, 0.0, 0.0),
        };
        let path: Vec<_> = (0..20)
            .map(|_| {
                controller.observe(&world(controller.codec()));
                controller.codec()
            })
            .collect();
        assert_eq!(path[0], Codec::Zstd(3));
        assert!(path[1..].iter().all(|codec| *codec == Codec::Zstd(1)));
    }

    #[test]
    fn what_a_rung_gave_is_forgotten_after_a_while() {
        let mut controller = controller();
        controller.observe(&seen(RATE, 0.4, 0.0));
        controller.observe(&seen(0.8 * RATE, 0.0, 0.0));
        assert_eq!(controller.codec(), Codec::Zstd(1));
        let waited = (1..).find(|_| controller.observe(&seen(RATE, 0.4, 0.0)));
        assert_eq!(waited, Some(BELIEVED_FOR + 1));
        assert_eq!(controller.codec(), Codec::Zstd(3));
    }

    #[test]
    fn it_begins_within_its_range() {
        let range = CodecRange::new(Codec::Zstd(3), Codec::Zstd(6)).unwrap();
        assert_eq!(Controller::new(&range, Codec::Lz4).codec(), Codec::Zstd(3));
        assert_eq!(
            Controller::new(&range, Codec::Zstd(19)).codec(),
            Codec::Zstd(6)
        );
    }
}
