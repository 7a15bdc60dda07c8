//! The part of the recorder that runs in the pipeline's threads. Each thread has a buffer and hands
//! it over when it is full.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use windlass_media::fitted;

use crate::waits::{Cause, Io, Recording, StageReport, served_device};

/// How many events a thread keeps before it hands them over: some milliseconds to seconds of its
/// work.
const BATCH_EVENTS: usize = 256;
/// A thread also hands over its events when the first one is older than this.
const BATCH_NANOS: u64 = 1_000_000_000;
/// How many batches may wait to be written. That is 4 MiB, and some seconds of a run at many
/// gigabytes a second.
const BATCHES_WAITING_MAX: usize = 256;
/// Stands for no device.
const NONE: u16 = u16::MAX;

/// One wait or I/O.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    /// True for an I/O, from submission to completion. False for a wait of a thread.
    pub(super) io: bool,
    pub(super) cause: Cause,
    pub(super) stage: u8,
    device: u16,
    /// How many I/Os are in flight on the thread; for a wait, how many when it ended. Zero if the
    /// wait is not for an I/O.
    pub(super) depth: u32,
    /// Nanoseconds since the recorder began.
    pub(super) start_nanos: u64,
    pub(super) nanos: u64,
    pub(super) bytes: u64,
}

impl Event {
    pub(super) fn device(&self) -> Option<usize> {
        (self.device != NONE).then_some(usize::from(self.device))
    }
}

/// A message to the writing thread.
pub(super) enum Message {
    /// The run's threads start. The value describes its devices and buffers.
    Begin(Box<serde_json::Value>),
    /// A new thread, which will send events.
    Thread {
        thread: u16,
        name: String,
        stage: u8,
    },
    /// Events of a thread, in the order in which they ended.
    Events { thread: u16, events: Vec<Event> },
    /// The run is over.
    End(Box<End>),
}

/// How the run ended.
pub(super) struct End {
    pub(super) report: Option<serde_json::Value>,
    pub(super) error: Option<String>,
    pub(super) stages: Vec<StageReport>,
}

/// Takes events from all threads of a run.
#[derive(Debug)]
pub(super) struct Recorder {
    origin: Instant,
    messages: Sender<Message>,
    threads: AtomicU16,
    lost: AtomicU64,
}

impl Recorder {
    pub(super) fn new() -> (Arc<Self>, Receiver<Message>) {
        let (messages, received) = bounded(BATCHES_WAITING_MAX);
        let recorder = Self {
            origin: Instant::now(),
            messages,
            threads: AtomicU16::new(0),
            lost: AtomicU64::new(0),
        };
        (Arc::new(recorder), received)
    }

    /// Nanoseconds from the beginning of the file to `at`.
    pub(super) fn nanos(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.origin))
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until there is room in the queue. This is for messages that are rare and must not be
    /// lost.
    pub(super) fn send(&self, message: Message) {
        // The writing thread takes messages until the end, even if the file has failed.
        self.messages.send(message).unwrap_or_default();
    }

    fn offer(&self, thread: u16, events: Vec<Event>) {
        let count = events.len() as u64;
        if let Err(TrySendError::Full(_)) =
            self.messages.try_send(Message::Events { thread, events })
        {
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// What the stages of the run tell, for the recorder.
#[derive(Debug)]
pub(super) struct Listener(pub(super) Arc<Recorder>);

impl Recording for Listener {
    fn begin(&self, setting: serde_json::Value) {
        self.0.send(Message::Begin(Box::new(setting)));
    }

    fn waited(&self, stage: usize, cause: Cause, begin: Instant, time: Duration) {
        self.add(Event {
            io: false,
            cause,
            stage: number(stage),
            device: device(),
            depth: 0,
            start_nanos: self.0.nanos(begin),
            nanos: nanos(time),
            bytes: 0,
        });
    }

    /// If the thread waited for the I/O, that was its last wait. The number of bytes of that wait
    /// is now known, too.
    fn completed(&self, stage: usize, io: &Io) {
        let end = self.0.nanos(Instant::now());
        let depth = fitted(io.depth);
        let stage = number(stage);
        self.with_local(stage, |local| {
            let last = local.events.last_mut();
            if let Some(wait) = last.filter(|last| !last.io && last.cause == io.cause) {
                (wait.bytes, wait.depth) = (io.bytes, depth);
            }
        });
        self.add(Event {
            io: true,
            cause: io.cause,
            stage,
            device: device(),
            depth,
            start_nanos: end.saturating_sub(nanos(io.elapsed)),
            nanos: nanos(io.elapsed),
            bytes: io.bytes,
        });
    }

    fn thread_ends(&self) {
        flush_thread();
    }
}

impl Listener {
    fn add(&self, event: Event) {
        self.with_local(event.stage, |local| local.add(event));
    }

    fn with_local(&self, stage: u8, work: impl FnOnce(&mut Local)) {
        LOCAL.with_borrow_mut(|local| {
            // If the thread served another run before, its events of that run are handed over here.
            let own = local
                .take()
                .filter(|local| Arc::ptr_eq(&local.recorder, &self.0));
            work(local.insert(own.unwrap_or_else(|| Local::new(&self.0, stage))));
        });
    }
}

/// Events that a thread has recorded but not handed over.
struct Local {
    recorder: Arc<Recorder>,
    thread: u16,
    events: Vec<Event>,
}

impl Local {
    fn new(recorder: &Arc<Recorder>, stage: u8) -> Self {
        let recorder = Arc::clone(recorder);
        let thread = recorder.threads.fetch_add(1, Ordering::Relaxed);
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        recorder.send(Message::Thread {
            thread,
            name,
            stage,
        });
        Self {
            recorder,
            thread,
            events: Vec::with_capacity(BATCH_EVENTS),
        }
    }

    fn add(&mut self, event: Event) {
        // The batch is handed over before the event is added, so the last event stays here until
        // the next one.
        let end = |event: &Event| event.start_nanos + event.nanos;
        let old = self
            .events
            .first()
            .is_some_and(|first| end(&event) - end(first).min(end(&event)) > BATCH_NANOS);
        if self.events.len() >= BATCH_EVENTS || old {
            let next = Vec::with_capacity(BATCH_EVENTS);
            let events = std::mem::replace(&mut self.events, next);
            self.recorder.offer(self.thread, events);
        }
        self.events.push(event);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let (thread, events) = (self.thread, std::mem::take(&mut self.events));
        if !events.is_empty() {
            self.recorder.send(Message::Events { thread, events });
        }
    }
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// The device that the calling thread serves.
fn device() -> u16 {
    served_device().map_or(NONE, |device| fitted(device))
}

fn number(stage: usize) -> u8 {
    fitted(stage)
}

/// Hands over the events of the calling thread, because the thread or the run ends.
pub(super) fn flush_thread() {
    drop(LOCAL.take());
}

fn nanos(time: Duration) -> u64 {
    fitted(time.as_nanos())
}
