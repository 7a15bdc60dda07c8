//! What a stage tells about its waits and I/Os while they happen, in the threads where they do.
//!
//! This is the lower side of every recorder: the pipeline calls it and knows none of them.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cause::Cause;

/// One I/O that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Io {
    /// The cause under which a wait for it counts.
    pub(crate) cause: Cause,
    pub(crate) bytes: u64,
    /// From submission to completion.
    pub(crate) elapsed: Duration,
    /// How many I/Os were in flight on its thread, including this one.
    pub(crate) depth: usize,
}

/// Takes note of what the threads of a run do. Nobody may wait in it for long.
pub(crate) trait Recording: Debug + Send + Sync {
    /// The run's threads start. `setting` describes its stages, devices and buffers.
    fn begin(&self, setting: serde_json::Value);
    /// A wait of the calling thread has ended.
    fn waited(&self, stage: usize, cause: Cause, begin: Instant, time: Duration);
    /// An I/O of the calling thread has completed.
    fn completed(&self, stage: usize, io: &Io);
    /// The calling thread ends. What it has not handed over yet, it hands over now, and not after
    /// it is gone, because nobody waits for that.
    fn thread_ends(&self);
}

/// Tells a recorder what one stage does.
#[derive(Debug)]
pub(crate) struct Tap {
    recording: Arc<dyn Recording>,
    stage: usize,
}

impl Tap {
    pub(crate) fn new(recording: &Arc<dyn Recording>, stage: usize) -> Self {
        let recording = Arc::clone(recording);
        Self { recording, stage }
    }

    pub(crate) fn waited(&self, cause: Cause, begin: Instant, time: Duration) {
        self.recording.waited(self.stage, cause, begin, time);
    }

    pub(crate) fn completed(&self, io: &Io) {
        self.recording.completed(self.stage, io);
    }

    pub(crate) fn thread_ends(&self) {
        self.recording.thread_ends();
    }
}

thread_local! {
    static DEVICE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// From here on, everything that the calling thread does is for this device.
pub(crate) fn serve_device(device: usize) {
    DEVICE.set(Some(device));
}

/// The device that the calling thread serves.
pub(crate) fn served_device() -> Option<usize> {
    DEVICE.get()
}
