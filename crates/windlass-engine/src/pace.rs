//! Pace: storage that is as slow as something else, such as a model of a volume.
//!
//! The I/Os are real, one at a time for each thread. Each is made when its pace says that it is
//! done, and not before. Who sets the pace, the engine does not know.

mod device;
mod target;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::Cancel;

pub(crate) use device::paced;
pub(crate) use target::PacedTarget;

/// Longest sleep between two looks at the cancel flag.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// An I/O whose pace is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedIo {
    /// The stream that makes it: a reader, or a stripe.
    pub stream: usize,
    /// The file. It shows which I/Os are sequential.
    pub file: usize,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// How fast one storage is. All threads that use it share it.
pub trait Pace: Debug + Send + Sync {
    /// When an I/O that arrives now is done.
    fn done_at(&self, io: &PacedIo) -> Instant;
}

/// The paces of one run. `None` means as fast as it is.
#[derive(Clone, Debug, Default)]
pub struct Paces {
    /// What the database lies on.
    pub source: Option<Arc<dyn Pace>>,
    /// What the stripes lie on.
    pub target: Option<Arc<dyn Pace>>,
}

/// Sets the pace of runs.
pub trait Pacing: Debug + Send + Sync {
    /// A run starts now.
    fn start(&self) -> Paces;
}

/// A storage in use, as one run sees it.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    pace: Arc<dyn Pace>,
    cancel: Cancel,
}

impl Paced {
    /// The storages of the source and of the stripes.
    pub(crate) fn start(
        pacing: Option<&Arc<dyn Pacing>>,
        cancel: &Cancel,
    ) -> (Option<Self>, Option<Self>) {
        let paces = pacing.map_or_else(Paces::default, |pacing| pacing.start());
        let paced = |pace: Arc<dyn Pace>| Self {
            pace,
            cancel: cancel.clone(),
        };
        (paces.source.map(paced), paces.target.map(paced))
    }

    /// The storage as one stream sees it.
    pub(crate) fn stream(&self, stream: usize) -> PacedStream {
        let paced = self.clone();
        PacedStream { paced, stream }
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
}

/// A storage as one stream sees it.
#[derive(Clone, Debug)]
pub(crate) struct PacedStream {
    pub(crate) paced: Paced,
    pub(crate) stream: usize,
}

impl PacedStream {
    /// When an I/O of this stream that arrives now is done.
    pub(crate) fn done_at(&self, file: usize, offset: u64, bytes: usize) -> Instant {
        self.paced.pace.done_at(&PacedIo {
            stream: self.stream,
            file,
            offset,
            bytes: bytes as u64,
        })
    }

    /// Waits as long as an I/O that arrives now takes.
    pub(crate) fn pass(&self, file: usize, offset: u64, bytes: usize) {
        self.paced.wait_until(self.done_at(file, offset, bytes));
    }
}
