//! How many buffers a run has: it begins with the default number, takes more while that makes it
//! faster, and gives them back when it does not.
//!
//!   bytes and waits of the devices --GrowthWatch--> Seen --Growth--> Pool::resize
//!
//! Nobody should need `tune` for the device at hand. A disk that answers late needs many transfers
//! in flight, and each needs a buffer; a disk that answers at once needs few, and more would only
//! take memory. Which one it is shows when the run has more of them: so it tries.
//!
//! `Growth` decides and has no clock; `watch` makes observations from counters and the time.
//!
//! Invariants
//! - A run never has fewer buffers than it began with, and never more than its pool allows.
//! - More buffers stay only if the run moved more bytes per second with them.

mod watch;

pub(crate) use watch::GrowthWatch;

/// More in flight may help if the threads at a device waited for it in this share of their time.
const WAITING: f64 = 0.5;
/// It does not help any more if they waited in less than this share.
const IDLE: f64 = 0.2;
/// How much faster a run must be for its new buffers to stay.
const GAIN: f64 = 1.05;
/// After so many observations in which they had nothing to wait for, half of the buffers go back.
const IDLE_MAX: u32 = 8;
/// After a trial that gained nothing, the next one comes after so many observations, and each time
/// after twice as many.
const PATIENCE: u32 = 8;
const PATIENCE_MAX: u32 = 512;

/// What a run did in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    /// Bytes per second.
    pub(crate) rate: f64,
    /// Share of their time in which threads waited for a device, of the stage that waited more.
    pub(crate) waiting: f64,
}

/// Chooses the number of buffers.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    least: usize,
    most: usize,
    now: usize,
    /// The number before the last change, and the rate that the run had with it, until the change
    /// is judged.
    trial: Option<(usize, f64)>,
    idle: u32,
    /// Observations until the next trial.
    rest: u32,
    patience: u32,
}

impl Growth {
    pub(crate) fn new(least: usize, most: usize) -> Self {
        Self {
            least,
            most,
            now: least,
            trial: None,
            idle: 0,
            rest: 0,
            patience: PATIENCE,
        }
    }

    /// Takes an observation that was made with the present number. Returns the number from now on.
    pub(crate) fn observe(&mut self, seen: &Seen) -> usize {
        if let Some((before, rate)) = self.trial.take() {
            if seen.rate < rate * GAIN {
                self.now = before;
                self.rest = self.patience;
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
                return self.now;
            }
            self.patience = PATIENCE;
        }
        self.rest = self.rest.saturating_sub(1);
        self.idle = if seen.waiting < IDLE {
            self.idle + 1
        } else {
            0
        };
        if seen.waiting >= WAITING && self.rest == 0 && self.now < self.most {
            self.trial = Some((self.now, seen.rate));
            self.now = (self.now * 2).min(self.most);
        } else if self.idle >= IDLE_MAX && self.now > self.least {
            self.idle = 0;
            self.now = (self.now / 2).max(self.least);
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that gives each transfer in flight 10 MB/s, up to 200 MB/s.
    fn late(buffers: usize) -> Seen {
        #[expect(clippy::cast_precision_loss, reason = "a few buffers")]
        let rate = (buffers as f64 * 10e6).min(200e6);
        Seen {
            rate,
            waiting: 0.95,
        }
    }

    fn path(growth: &mut Growth, count: usize, world: impl Fn(usize) -> Seen) -> Vec<usize> {
        let step = |_| {
            let seen = world(growth.now);
            growth.observe(&seen)
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn a_late_device_gets_more_until_they_gain_nothing() {
        let mut growth = Growth::new(7, 42);
        assert_eq!(path(&mut growth, 5, late), [14, 28, 42, 28, 28]);
        // Now and then it tries again, in longer and longer intervals, because devices change.
        let later = path(&mut growth, 1000, late);
        let tries = later.iter().filter(|buffers| **buffers == 42).count();
        assert!((3..=8).contains(&tries), "{tries} tries");
        assert!(later.iter().all(|buffers| [28, 42].contains(buffers)));
    }

    #[test]
    fn a_device_that_is_at_its_limit_keeps_few() {
        let mut growth = Growth::new(7, 42);
        let limit = |_| Seen {
            rate: 100e6,
            waiting: 0.9,
        };
        assert_eq!(path(&mut growth, 3, limit), [14, 7, 7]);
    }

    #[test]
    fn cores_that_are_the_limit_get_no_buffers_and_take_them_back() {
        let mut growth = Growth::new(7, 42);
        let busy = |_| Seen {
            rate: 100e6,
            waiting: 0.05,
        };
        assert!(path(&mut growth, 50, busy).iter().all(|now| *now == 7));
        path(&mut growth, 4, late);
        assert_eq!(growth.now, 28);
        let back = path(&mut growth, 16, busy);
        assert_eq!(back.last(), Some(&7));
        assert!(back.contains(&14));
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut growth = Growth::new(7, 10);
        assert_eq!(path(&mut growth, 2, late), [10, 10]);
        let mut fixed = Growth::new(7, 7);
        assert_eq!(path(&mut fixed, 3, late), [7, 7, 7]);
    }
}
