//! Watching a run for the controller: counters and the time become observations.
//!
//! A window ends when enough time has passed and enough was compressed. After a change, one window
//! is ignored, because the pool still holds what was made before the change.
//!
//! Locking: one mutex, which nobody waits for. A compressor that finds it taken goes on as before.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass_media::{Codec, fitted};

use super::{CodecChange, CodecRange, CodecUse, CompressionReport, Controller, Observation};
use crate::waits::{Cause, Stage};

/// The shortest window of an observation.
const WINDOW: Duration = Duration::from_millis(100);
/// How many changes are kept for the report.
const CHANGES_MAX: usize = 256;

/// The adaptive part of a run, shared by its compressors.
#[derive(Debug)]
pub(crate) struct Watch {
    began: Instant,
    range: CodecRange,
    rungs: Vec<Codec>,
    index: AtomicUsize,
    used: Vec<Used>,
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct Used {
    raw: AtomicU64,
    stored: AtomicU64,
}

/// What compressors have done up to a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    at: Duration,
    bytes: u64,
    held_up_nanos: u64,
    starved_nanos: u64,
}

#[derive(Debug)]
struct WatchState {
    controller: Controller,
    last: Counters,
    /// The next window is not observed.
    settling: bool,
    window_bytes: u64,
    threads: u32,
    changes: Vec<CodecChange>,
}

impl Watch {
    /// A window has at least `window_bytes` bytes of the database. `threads` is the number of
    /// compressors.
    pub(crate) fn new(range: CodecRange, start: Codec, window_bytes: u64, threads: usize) -> Self {
        let controller = Controller::new(&range, start);
        let rungs = controller.rungs().to_vec();
        Self {
            began: Instant::now(),
            range,
            index: AtomicUsize::new(controller.index()),
            used: rungs.iter().map(|_| Used::default()).collect(),
            rungs,
            state: Mutex::new(WatchState {
                controller,
                last: Counters::default(),
                settling: true,
                window_bytes,
                threads: fitted(threads.max(1)),
                changes: Vec::new(),
            }),
        }
    }

    /// Looks at the counters if it is time. Returns the rung to use now, and its codec.
    pub(crate) fn look(&self, stage: &Stage) -> (usize, Codec) {
        let now = Counters {
            at: self.began.elapsed(),
            bytes: stage.bytes(),
            held_up_nanos: stage.waited_nanos(Cause::FreeBuffer),
            starved_nanos: stage.waited_nanos(Cause::FullBuffer),
        };
        if let Ok(mut state) = self.state.try_lock() {
            state.see(now);
            self.index
                .store(state.controller.index(), Ordering::Relaxed);
        }
        let index = self.index.load(Ordering::Relaxed);
        (index, self.rungs[index])
    }

    /// Counts a frame.
    pub(crate) fn count(&self, rung: usize, raw_bytes: usize, stored_bytes: usize) {
        let used = &self.used[rung];
        used.raw.fetch_add(raw_bytes as u64, Ordering::Relaxed);
        used.stored
            .fetch_add(stored_bytes as u64, Ordering::Relaxed);
    }

    /// What was used, and the reasons.
    pub(crate) fn report(&self) -> CompressionReport {
        let used = self.rungs.iter().zip(&self.used);
        let mut used: Vec<_> = used
            .map(|(codec, used)| CodecUse {
                codec: *codec,
                raw_bytes: used.raw.load(Ordering::Relaxed),
                stored_bytes: used.stored.load(Ordering::Relaxed),
            })
            .filter(|used| used.raw_bytes > 0)
            .collect();
        used.sort_by_key(|used| std::cmp::Reverse(used.raw_bytes));
        let state = self.state.lock();
        let changes = state.map(|state| state.changes.clone()).unwrap_or_default();
        CompressionReport {
            range: self.range.to_string(),
            words: words(&used, &changes),
            used,
            changes,
        }
    }
}

impl WatchState {
    fn see(&mut self, now: Counters) {
        let time = now.at.saturating_sub(self.last.at);
        let bytes = now.bytes.saturating_sub(self.last.bytes);
        if time < WINDOW || bytes < self.window_bytes {
            return;
        }
        let before = std::mem::replace(&mut self.last, now);
        if std::mem::take(&mut self.settling) {
            return;
        }
        let whole = time.as_secs_f64() * f64::from(self.threads);
        let held_up = share(before.held_up_nanos, now.held_up_nanos, whole);
        let seen = Observation {
            rate: to_f64(bytes) / time.as_secs_f64(),
            held_up,
            starved: share(before.starved_nanos, now.starved_nanos, whole).min(1.0 - held_up),
        };
        let from = self.controller.codec();
        if !self.controller.observe(&seen) {
            return;
        }
        self.settling = true;
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(CodecChange {
                at_seconds: now.at.as_secs_f64(),
                from,
                to: self.controller.codec(),
                held_up: seen.held_up,
                starved: seen.starved,
                rate: seen.rate,
            });
        }
    }
}

/// `zstd:6 for 83 % of the bytes, zstd:3 for 17 %; from zstd:3 to zstd:6 after 0.4 s, because ...`
fn words(used: &[CodecUse], changes: &[CodecChange]) -> String {
    let all: u64 = used.iter().map(|one| one.raw_bytes).sum();
    let part = |one: &CodecUse| {
        let percent = 100.0 * to_f64(one.raw_bytes) / to_f64(all.max(1));
        format!("{} for {percent:.0} %", one.codec)
    };
    let mut words = used.iter().map(part).collect::<Vec<_>>().join(", ");
    match changes.last() {
        Some(last) => {
            let why = if last.held_up > 1.0 - last.held_up - last.starved {
                "devices held the compressors up"
            } else {
                "cores held the run up"
            };
            let (to, at) = (last.to, last.at_seconds);
            let held = last.held_up * 100.0;
            words += &format!(
                "; {to} since {at:.1} s, because the {why} (waiting for buffers: {held:.0} %)"
            );
        }
        None if !words.is_empty() => {
            words += "; neither devices nor cores held the run up for long enough to change it";
        }
        None => {}
    }
    words
}

fn share(before: u64, now: u64, whole_seconds: f64) -> f64 {
    (to_f64(now.saturating_sub(before)) / 1e9 / whole_seconds).clamp(0.0, 1.0)
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(millis: u64, bytes: u64, held_up_millis: u64) -> Counters {
        Counters {
            at: Duration::from_millis(millis),
            bytes,
            held_up_nanos: held_up_millis * 1_000_000,
            starved_nanos: 0,
        }
    }

    fn state() -> WatchState {
        let watch = Watch::new(CodecRange::default(), Codec::Zstd(1), 1000, 2);
        watch.state.into_inner().unwrap()
    }

    #[test]
    fn a_window_is_long_enough_and_the_one_after_a_change_is_left_out() {
        let mut state = state();
        let codec = |state: &WatchState| state.controller.codec();
        // The first window fills the pool.
        state.see(counters(200, 2000, 390));
        state.see(counters(250, 9000, 480));
        state.see(counters(450, 9500, 780));
        assert_eq!(
            codec(&state),
            Codec::Zstd(3),
            "200 ms to 450 ms: 390 of 500 ms"
        );
        state.see(counters(600, 11_000, 1070));
        assert_eq!(codec(&state), Codec::Zstd(3), "left out");
        state.see(counters(800, 11_500, 1460));
        assert_eq!(codec(&state), Codec::Zstd(3), "too few bytes");
        state.see(counters(900, 13_000, 1600));
        assert_eq!(codec(&state), Codec::Zstd(6));
        let changes: Vec<_> = state.changes.iter().map(|change| change.to).collect();
        assert_eq!(changes, [Codec::Zstd(3), Codec::Zstd(6)]);
    }

    #[test]
    fn the_report_says_what_was_used_and_why() {
        let watch = Watch::new(CodecRange::default(), Codec::Zstd(1), 1000, 2);
        watch.count(1, 300, 100);
        watch.count(2, 700, 200);
        watch.state.lock().unwrap().see(counters(200, 2000, 0));
        watch.state.lock().unwrap().see(counters(400, 4000, 300));
        let report = watch.report();
        assert_eq!(report.range, "lz4..zstd:9");
        assert_eq!(
            report.words,
            "zstd:3 for 70 %, zstd:1 for 30 %; zstd:3 since 0.4 s, because the devices held the \
             compressors up (waiting for buffers: 75 %)"
        );
    }
}
