//! What all threads of one run share: pool, counters, the first error, the flag to stop.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::buffer::{Buffer, Pool, Role, read_depth};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::growth::GrowthWatch;
use crate::options::DEVICE_DEPTH;
use crate::progress::Progress;
use crate::resource::StageName;
use crate::waits::Cause;

/// Longest wait between two looks at the flags.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Shared by the threads of a run.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pool: Arc<Pool>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) cancel: Cancel,
    /// Pools besides that one: nobody may wait for their buffers when the run has stopped.
    others: Vec<Arc<Pool>>,
    growth: Option<GrowthWatch>,
    stop: AtomicBool,
    first_error: Mutex<Option<EngineError>>,
    pending: Mutex<u64>,
    settled: Condvar,
}

impl Shared {
    pub(crate) fn new(pool: Arc<Pool>, progress: Arc<Progress>, cancel: Cancel) -> Self {
        let setup = progress.setup();
        let growth = setup.and_then(|setup| GrowthWatch::new(setup, &pool));
        Self {
            pool,
            progress,
            cancel,
            others: Vec::new(),
            growth,
            stop: AtomicBool::new(false),
            first_error: Mutex::new(None),
            pending: Mutex::new(0),
            settled: Condvar::new(),
        }
    }

    /// Says of more pools that they are closed when the run stops.
    pub(crate) fn close_also(&mut self, pools: &[Arc<Pool>]) {
        self.others.extend_from_slice(pools);
    }

    /// Returns an error once the run has to stop.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        self.cancel.check()?;
        if self.stop.load(Ordering::Acquire) {
            Err(EngineError::Stopped)
        } else {
            Ok(())
        }
    }

    /// Gives the run more buffers, or fewer, if it is time to. Threads that wait for devices ask
    /// after each I/O.
    pub(crate) fn grow(&self) {
        if let Some(growth) = &self.growth {
            growth.look(&self.progress, &self.pool);
        }
    }

    /// How many reads each of so many streams may have in flight now.
    pub(crate) fn read_depth(&self, streams: usize) -> usize {
        read_depth(self.pool.inputs_max(), streams)
    }

    /// How many writes to a device that takes `depth` may be in flight now: at the beginning the
    /// number for which the default buffers are made, and more as there are more buffers.
    pub(crate) fn write_depth(&self, depth: usize) -> usize {
        match &self.growth {
            None => depth,
            Some(growth) => {
                let grown = DEVICE_DEPTH * self.pool.count() / growth.least();
                depth.min(grown.max(DEVICE_DEPTH))
            }
        }
    }

    /// Stops the run. The first error that has a cause of its own is kept.
    pub(crate) fn fail(&self, error: EngineError) {
        let mut first = self
            .first_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if matches!(*first, None | Some(EngineError::Stopped)) {
            *first = Some(error);
        }
        drop(first);
        self.stop.store(true, Ordering::Release);
        self.pool.close();
        self.others.iter().for_each(|pool| pool.close());
        self.settled.notify_all();
    }

    /// The error that stopped the run, if one did.
    pub(crate) fn take_error(&self) -> Option<EngineError> {
        self.first_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// A buffer to compress or decompress into. The wait for it counts for the compressors.
    pub(crate) fn output(&self) -> Result<Buffer, EngineError> {
        let (pool, stage) = (&self.pool, &self.progress.compressor);
        let free = pool.try_take(Role::Output);
        let free = free.or_else(|| stage.wait(Cause::FreeBuffer, || pool.take(Role::Output)));
        free.ok_or(EngineError::Stopped)
    }

    /// Hands over what a compressor or decompressor has made. What holds no buffer may find the
    /// queue full; that wait counts for them.
    pub(crate) fn hand_on<T>(&self, queue: &Sender<T>, made: T) -> Result<(), EngineError> {
        let stage = &self.progress.compressor;
        match stage.hand(Cause::FreeBuffer, queue, made) {
            true => Ok(()),
            false => Err(EngineError::Stopped),
        }
    }

    /// Counts one more unit that is under way.
    pub(crate) fn begin_unit(&self) {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Notes that a unit was read, passed the hook and was taken over by a compressor.
    pub(crate) fn end_unit(&self) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        *pending -= 1;
        if *pending == 0 {
            self.settled.notify_all();
        }
    }

    /// Waits until no unit is under way, but not longer than `until`.
    pub(crate) fn settle(&self, until: Option<Instant>) -> Result<(), EngineError> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        while *pending > 0 {
            self.check()?;
            let left = time_left(until)?;
            let waited = self.settled.wait_timeout(pending, left.min(LOOK));
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.check()
    }

    /// Runs the body of a thread. An error or a panic stops the run.
    pub(crate) fn guard<T>(&self, body: impl FnOnce() -> Result<T, EngineError>) -> Option<T> {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        match result {
            Ok(Ok(value)) => Some(value),
            Ok(Err(error)) => {
                self.fail(error);
                None
            }
            Err(panic) => {
                self.fail(panicked(&*panic));
                None
            }
        }
    }

    /// Waits for a thread to end. If it panicked, the run has failed.
    pub(crate) fn joined<T>(&self, ended: std::thread::Result<T>) -> Option<T> {
        ended.map_err(|panic| self.fail(panicked(&*panic))).ok()
    }
}

/// The error for a thread that panicked.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> EngineError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    EngineError::ThreadPanicked {
        message: text.unwrap_or("it said nothing").to_owned(),
    }
}

/// How much time is left until `until`. It is an error when that has passed.
pub(crate) fn time_left(until: Option<Instant>) -> Result<Duration, EngineError> {
    let left = until.map_or(Duration::MAX, |until| {
        until.saturating_duration_since(Instant::now())
    });
    if left.is_zero() {
        return Err(EngineError::HurryEnded);
    }
    Ok(left)
}

/// Starts a thread of a stage.
pub(crate) fn spawn<T: Send + 'static>(
    stage: StageName,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, EngineError> {
    let thread = std::thread::Builder::new()
        .name(stage.name().to_owned())
        .spawn(body);
    thread.map_err(|source| EngineError::Thread { stage, source })
}
