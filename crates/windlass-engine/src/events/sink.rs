//! The thread that writes the file, and takes the samples.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Weak;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use serde_json::{Value, json};

use super::format::{EventFormat, EventHeader, Formatter, Sample};
use super::recorder::{End, Event, Message, Recorder};
use super::thin::{Fate, Thinner};
use crate::progress::{DeviceCounter, Progress};

/// How much text is kept before it is written.
const WRITE_BYTES: usize = 64 * 1024;
/// Text is written at least this often, so that a user can look at the file during the run.
const FLUSH: Duration = Duration::from_secs(1);
/// One part in this many of the file is reserved for what is always written: threads, notes of
/// thinning, the report.
const RESERVE_SHARE: u64 = 8;

/// The result of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSummary {
    /// Bytes of the file.
    pub bytes: u64,
    /// Events in it.
    pub written: u64,
    /// Events that were left out. Events in the file stand for them.
    pub thinned: u64,
    /// Events that were lost because the file's device was too slow. Nothing stands for them.
    pub lost: u64,
}

/// Writes one file.
pub(super) struct Sink {
    file: File,
    formatter: Formatter,
    thinner: Thinner,
    header: EventHeader,
    limit_bytes: u64,
    begun: bool,
    text: String,
    flushed: Instant,
    bytes: u64,
    written: u64,
    thinned: u64,
    /// After the first failure nothing more is written, but messages are still taken until the end.
    failed: Option<io::Error>,
}

impl Sink {
    pub(super) fn new(file: File, format: EventFormat, limit: u64, header: EventHeader) -> Self {
        Self {
            file,
            formatter: Formatter::new(format),
            thinner: Thinner::new(limit - limit / RESERVE_SHARE),
            header,
            limit_bytes: limit,
            begun: false,
            text: String::with_capacity(2 * WRITE_BYTES),
            flushed: Instant::now(),
            bytes: 0,
            written: 0,
            thinned: 0,
            failed: None,
        }
    }

    /// Writes until the run is over.
    pub(super) fn run(
        mut self,
        messages: &Receiver<Message>,
        recorder: &Recorder,
        progress: &Weak<Progress>,
    ) -> io::Result<EventSummary> {
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                self.sample(recorder, progress);
                let now = Instant::now();
                let pause = self.thinner.sample_nanos(recorder.nanos(now));
                next = now + Duration::from_nanos(pause);
            }
            let message = messages.recv_timeout(next.saturating_duration_since(Instant::now()));
            match message {
                Ok(Message::Begin(run)) => {
                    self.begin(&run);
                    // The first sample is taken now, while all buffers are free.
                    next = Instant::now();
                }
                Ok(Message::Thread {
                    thread,
                    name,
                    stage,
                }) => {
                    self.begin_at_least();
                    self.formatter.thread(&mut self.text, thread, &name, stage);
                }
                Ok(Message::Events { thread, events }) => self.events(recorder, thread, &events),
                Ok(Message::End(end)) => {
                    self.sample(recorder, progress);
                    return self.end(recorder, *end);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Only the owner of the recorder ends the run, and it is gone.
                Err(RecvTimeoutError::Disconnected) => return self.summary(recorder),
            }
            if self.text.len() >= WRITE_BYTES || self.flushed.elapsed() >= FLUSH {
                self.flush();
            }
        }
    }

    fn begin(&mut self, run: &Value) {
        if !std::mem::replace(&mut self.begun, true) {
            let (text, limit) = (&mut self.text, self.limit_bytes);
            self.formatter.begin(text, &self.header, limit, run);
        }
    }

    /// Begins the file if it has not begun: a run that fails early has no devices, but the file
    /// needs its header.
    fn begin_at_least(&mut self) {
        self.begin(&Value::Null);
    }

    fn events(&mut self, recorder: &Recorder, thread: u16, events: &[Event]) {
        for event in events {
            let size = self.bytes + self.text.len() as u64;
            if self.thinner.advance(size) {
                let (weight, long) = (self.thinner.weight(), self.thinner.long_nanos());
                let now = recorder.nanos(Instant::now());
                self.formatter.thin(&mut self.text, now, weight, long);
            }
            match self.thinner.judge(event) {
                Fate::Thinned => self.thinned += 1,
                Fate::Kept(weight) => {
                    self.written += 1;
                    self.formatter.event(&mut self.text, thread, event, weight);
                }
            }
        }
    }

    fn sample(&mut self, recorder: &Recorder, progress: &Weak<Progress>) {
        let Some(progress) = progress.upgrade().filter(|_| self.begun) else {
            return;
        };
        let Some(setup) = progress.setup() else {
            return;
        };
        let stages = [&progress.reader, &progress.compressor, &progress.writer];
        let sample = Sample {
            at_nanos: recorder.nanos(Instant::now()),
            buffers: progress.occupancy(),
            device_bytes: setup.devices.iter().map(DeviceCounter::bytes).collect(),
            stage_bytes: stages.iter().map(|stage| stage.bytes()).collect(),
        };
        self.formatter.sample(&mut self.text, &sample);
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        if self.failed.is_none() {
            self.bytes += self.text.len() as u64;
            self.failed = self.file.write_all(self.text.as_bytes()).err();
        }
        self.text.clear();
    }

    fn end(mut self, recorder: &Recorder, end: End) -> io::Result<EventSummary> {
        self.begin_at_least();
        let line = json!({
            "event": "end",
            "at_nanos": recorder.nanos(Instant::now()),
            "outcome": if end.error.is_some() { "failed" } else { "done" },
            "error": end.error,
            "written": self.written,
            "thinned": self.thinned,
            "lost": recorder.lost(),
            "stages": end.stages,
            "report": end.report,
        });
        self.formatter.end(&mut self.text, &line);
        self.flush();
        self.summary(recorder)
    }

    fn summary(self, recorder: &Recorder) -> io::Result<EventSummary> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(EventSummary {
                bytes: self.bytes,
                written: self.written,
                thinned: self.thinned,
                lost: recorder.lost(),
            }),
        }
    }
}
