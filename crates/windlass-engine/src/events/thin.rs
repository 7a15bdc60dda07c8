//! Which events to keep, so that the file of a run of unknown length stays below its limit.
//!
//! The first half of the file has all events. In half of the rest, one event in four is kept, then
//! one in sixteen, and so on. Each part is half as long as the one before and covers twice the
//! time, so the file never fills up. The kept events are chosen at random, and each has a weight:
//! the number of events it stands for. So sums and counts stay right except for noise.
//!
//! All long events are kept, because people look for them and there cannot be many. What counts as
//! long also grows fourfold each time, so that a run in which all waits are long stays below the
//! limit.

use super::recorder::Event;

/// Length of a long event when the thinning begins: 10 ms.
const LONG_NANOS: u64 = 10_000_000;
/// In each part of the file, a short event stands for this many times more events than in the part
/// before.
const STEP: u32 = 4;
/// How many times the thinning grows. At the end, one short event in 4^15 is kept.
const PARTS_MAX: u32 = 15;
/// First interval of the samples of buffers and bytes. It is short, so that even a short run shows
/// its course.
const SAMPLE_NANOS: u64 = 10_000_000;
/// Later, the interval is the run's time so far divided by this. The longer a run is, the less one
/// sample shows.
const SAMPLES_SO_FAR: u64 = 200;

/// What happens to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The event is written, and stands for this many events.
    Kept(u32),
    /// The event is left out, and another one stands for it.
    Thinned,
}

/// Decides which events are written.
#[derive(Debug)]
pub(super) struct Thinner {
    limit_bytes: u64,
    part: u32,
    random: u64,
}

impl Thinner {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            part: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Goes on to the next part of the file if this one is full. Returns true if it did.
    pub(super) fn advance(&mut self, written_bytes: u64) -> bool {
        let left = self.limit_bytes >> (self.part + 1);
        let full = written_bytes > self.limit_bytes - left && self.part < PARTS_MAX;
        self.part += u32::from(full);
        full
    }

    /// How many events a short event in the file stands for.
    pub(super) fn weight(&self) -> u32 {
        STEP.pow(self.part)
    }

    /// Every event of at least this length is kept.
    pub(super) fn long_nanos(&self) -> u64 {
        match self.part {
            0 => 0,
            part => LONG_NANOS * u64::from(STEP).pow(part - 1),
        }
    }

    /// The interval to the next sample, at this time after the beginning.
    pub(super) fn sample_nanos(&self, now_nanos: u64) -> u64 {
        let least = SAMPLE_NANOS.saturating_mul(u64::from(self.weight()));
        least.max(now_nanos / SAMPLES_SO_FAR)
    }

    pub(super) fn judge(&mut self, event: &Event) -> Fate {
        let weight = self.weight();
        if weight == 1 || event.nanos >= self.long_nanos() {
            return Fate::Kept(1);
        }
        if self.draw().is_multiple_of(u64::from(weight)) {
            Fate::Kept(weight)
        } else {
            Fate::Thinned
        }
    }

    /// xorshift64*, upper half. That is good enough for a draw, and the same in every run.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}
