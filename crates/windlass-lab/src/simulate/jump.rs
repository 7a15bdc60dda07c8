//! Runs the state to its end: step by step where something changes, in jumps where the same stretch
//! is repeated.

use std::cmp::Reverse;

use super::Job;
use super::state::Simulation;

/// Units of a stretch. A stretch is long compared with the pool, so what is in flight at its ends
/// hardly counts.
const STRETCH_UNITS: u64 = 2048;
/// Units before the first stretch: enough to fill the pool many times.
const WARM_UNITS: u64 = 512;

impl Simulation {
    /// Runs a job to its end.
    pub(super) fn run(&mut self, job: &Job) {
        let unit = job.buffers.transfer_bytes as u64;
        // A larger pool needs a longer stretch.
        let scale = 1 + job.buffers.buffers as u64 / 256;
        let (warm, stretch) = (WARM_UNITS * unit * scale, STRETCH_UNITS * unit * scale);
        self.start(job);
        loop {
            if !self.run_until(job, self.unread.saturating_sub(warm)) {
                return;
            }
            let then = self.clone();
            if !self.run_until(job, self.unread.saturating_sub(stretch)) {
                return;
            }
            let done = then.unread - self.unread;
            let left = self.unread.saturating_sub(warm) / done.max(1);
            let repeats = self.repeats(&then).min(left);
            if repeats > 0 {
                self.repeat(&then, repeats);
            }
        }
    }

    /// Steps until at most `unread` bytes are left to read; returns false at the end of the run.
    fn run_until(&mut self, job: &Job, unread: u64) -> bool {
        while self.unread > unread {
            if !self.step(job) {
                return false;
            }
        }
        if unread > 0 {
            return true;
        }
        while self.step(job) {}
        false
    }

    fn repeats(&self, then: &Self) -> u64 {
        let sources = self.sources.iter().zip(&then.sources);
        let clocks = sources.chain(self.targets.iter().zip(&then.targets));
        clocks
            .map(|(now, then)| now.repeats(then))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Repeats `times` more what happened since `then`.
    fn repeat(&mut self, then: &Self, times: u64) {
        let period = self.now - then.now;
        let sources = self.sources.iter_mut().zip(&then.sources);
        for (clock, before) in sources.chain(self.targets.iter_mut().zip(&then.targets)) {
            clock.repeat(before, times, period);
        }
        self.read_cap.repeat(&then.read_cap, times, period);
        self.write_cap.repeat(&then.write_cap, times, period);
        if let (Some(clock), Some(before)) = (&mut self.instance, &then.instance) {
            clock.repeat(before, times, period);
        }
        let events = self
            .events
            .drain()
            .map(|Reverse((at, sequence, event))| Reverse((at + times * period, sequence, event)));
        self.events = events.collect::<Vec<_>>().into();
        self.now += times * period;
        self.unread -= times * (then.unread - self.unread);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a simulation is not exact to 53 bits"
        )]
        let count = times as f64;
        for (sum, before) in [
            (&mut self.sums.read, then.sums.read),
            (&mut self.sums.written, then.sums.written),
            (&mut self.sums.worker_seconds, then.sums.worker_seconds),
            (
                &mut self.sums.buffer_wait_seconds,
                then.sums.buffer_wait_seconds,
            ),
        ] {
            *sum += count * (*sum - before);
        }
    }
}
