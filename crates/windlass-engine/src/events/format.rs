//! The two formats of a file of events: JSON lines, and the trace format of Chrome and Perfetto.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};
use windlass_media::fitted;

use super::recorder::Event;
use crate::json::to_json;

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// One JSON object a line: what `windlass events` reads.
    JsonLines,
    /// For chrome://tracing and ui.perfetto.dev.
    Chrome,
}

/// What the file says about the run before it begins.
#[derive(Clone, Debug, Serialize)]
pub struct EventHeader {
    /// Program and version.
    pub tool: String,
    /// `backup`, `restore`, `verify`.
    pub command: String,
    /// The database or set that the run works on.
    pub subject: String,
    /// When it began, RFC 3339.
    pub started: String,
}

/// The version of the JSON lines. A reader refuses a newer one.
pub(super) const VERSION: u32 = 1;

/// The names of the stages, until the run says how it calls them.
const STAGES: [&str; 3] = ["reader", "compressor", "writer"];

/// Buffers and bytes at one moment.
pub(super) struct Sample {
    pub(super) at_nanos: u64,
    pub(super) buffers: Option<crate::buffer::Occupancy>,
    pub(super) device_bytes: Vec<u64>,
    pub(super) stage_bytes: Vec<u64>,
}

/// Turns events into text. Each method appends to `out`.
#[derive(Debug)]
pub(super) struct Formatter {
    format: EventFormat,
    stages: Vec<String>,
    devices: Vec<String>,
    ios: u64,
    last: Option<(u64, Vec<u64>)>,
}

impl Formatter {
    pub(super) fn new(format: EventFormat) -> Self {
        Self {
            format,
            stages: STAGES.map(str::to_owned).to_vec(),
            devices: Vec::new(),
            ios: 0,
            last: None,
        }
    }

    /// Writes the beginning of the file. `run` is null if the run ended before it started its
    /// threads.
    pub(super) fn begin(
        &mut self,
        out: &mut String,
        header: &EventHeader,
        limit: u64,
        run: &Value,
    ) {
        let names = |list: &Value, key: &str| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.map(|item| if key.is_empty() { item } else { &item[key] })
                .map(|name| name.as_str().unwrap_or_default().to_owned())
                .collect()
        };
        if !run.is_null() {
            self.stages = names(&run["stages"], "");
            self.devices = names(&run["devices"], "name");
        }
        let mut line = json!({
            "event": "header", "format": "windlass-events", "version": VERSION,
            "limit_bytes": limit, "stages": self.stages, "devices": [],
        });
        add(&mut line, &to_json(header));
        add(&mut line, run);
        match self.format {
            EventFormat::JsonLines => push(out, &line),
            EventFormat::Chrome => {
                let name = format!("windlass {} {}", header.command, header.subject);
                let args = json!({"name": name, "header": line});
                let first = json!({"ph": "M", "pid": 1, "name": "process_name", "args": args});
                // Each line after the first begins with a comma, so the last line needs no special
                // treatment.
                *out += "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
                push(out, &first);
            }
        }
    }

    pub(super) fn thread(&self, out: &mut String, thread: u16, name: &str, stage: u8) {
        let stage = self.stage(stage);
        let name = if name.is_empty() { stage } else { name };
        match self.format {
            EventFormat::JsonLines => push(
                out,
                &json!({"event": "thread", "thread": thread, "name": name, "stage": stage}),
            ),
            EventFormat::Chrome => {
                let args = json!({"name": format!("{name} {thread}")});
                self.trace(
                    out,
                    &json!({"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": args}),
                );
            }
        }
    }

    pub(super) fn event(&mut self, out: &mut String, thread: u16, event: &Event, weight: u32) {
        match self.format {
            EventFormat::JsonLines => self.line(out, thread, event, weight),
            EventFormat::Chrome => self.spans(out, thread, event, weight),
        }
    }

    /// Built by hand, because this happens thousands of times a second, and every value is a number
    /// or a word.
    fn line(&self, out: &mut String, thread: u16, event: &Event, weight: u32) {
        let kind = if event.io { "io" } else { "wait" };
        let (cause, stage) = (event.cause.name(), self.stage(event.stage));
        append(
            out,
            format_args!(
                r#"{{"event":"{kind}","cause":"{cause}","stage":"{stage}","thread":{thread}"#
            ),
        );
        if let Some(device) = event.device() {
            append(out, format_args!(r#","device":{device}"#));
        }
        let (start, nanos) = (event.start_nanos, event.nanos);
        append(
            out,
            format_args!(r#","start_nanos":{start},"duration_nanos":{nanos}"#),
        );
        if event.depth > 0 {
            let (bytes, depth) = (event.bytes, event.depth);
            append(out, format_args!(r#","bytes":{bytes},"depth":{depth}"#));
        }
        if weight > 1 {
            append(out, format_args!(r#","weight":{weight}"#));
        }
        *out += "}\n";
    }

    /// A wait is a span of its thread. I/Os can overlap, so each is an asynchronous span of its
    /// own.
    fn spans(&mut self, out: &mut String, thread: u16, event: &Event, weight: u32) {
        let (name, category) = (event.cause.name(), self.stage(event.stage).to_owned());
        let device = event.device().and_then(|device| self.devices.get(device));
        let args = json!({"device": device, "bytes": event.bytes, "depth": event.depth,
            "weight": weight});
        let (start, end) = (event.start_nanos, event.start_nanos + event.nanos);
        if !event.io {
            let span = json!({"ph": "X", "pid": 1, "tid": thread, "name": name, "cat": category,
                "ts": micros(start), "dur": micros(event.nanos), "args": args});
            return self.trace(out, &span);
        }
        self.ios += 1;
        let id = self.ios;
        let category = format!("{category} io");
        let begin = json!({"ph": "b", "pid": 1, "tid": thread, "name": name, "cat": category,
            "id": id, "ts": micros(start), "args": args});
        let end = json!({"ph": "e", "pid": 1, "tid": thread, "name": name, "cat": category,
            "id": id, "ts": micros(end)});
        self.trace(out, &begin);
        self.trace(out, &end);
    }

    pub(super) fn sample(&mut self, out: &mut String, sample: &Sample) {
        match self.format {
            EventFormat::JsonLines => push(
                out,
                &json!({"event": "sample", "at_nanos": sample.at_nanos, "buffers": sample.buffers,
                    "device_bytes": sample.device_bytes, "stage_bytes": sample.stage_bytes}),
            ),
            EventFormat::Chrome => self.counters(out, sample),
        }
    }

    fn counters(&mut self, out: &mut String, sample: &Sample) {
        let at = micros(sample.at_nanos);
        if let Some(buffers) = sample.buffers {
            let counter =
                json!({"ph": "C", "pid": 1, "name": "buffers", "ts": at, "args": buffers});
            self.trace(out, &counter);
        }
        let (then, before) = self.last.take().unwrap_or_default();
        let nanos = sample.at_nanos.saturating_sub(then).max(1);
        for (index, bytes) in sample.device_bytes.iter().enumerate() {
            let since = bytes - before.get(index).copied().unwrap_or(0).min(*bytes);
            let rate = (u128::from(since) * 1_000_000_000 / u128::from(nanos)) >> 20;
            let name = self.devices.get(index).map_or("", String::as_str);
            let counter = json!({"ph": "C", "pid": 1, "name": format!("MiB/s {name}"), "ts": at,
                "args": {"MiB/s": fitted::<u64, _>(rate)}});
            self.trace(out, &counter);
        }
        self.last = Some((sample.at_nanos, sample.device_bytes.clone()));
    }

    /// Notes that short events are thinned out from here on, or more than before.
    pub(super) fn thin(&self, out: &mut String, at_nanos: u64, weight: u32, long_nanos: u64) {
        if self.format == EventFormat::JsonLines {
            push(
                out,
                &json!({"event": "thin", "at_nanos": at_nanos, "weight": weight,
                    "always_from_nanos": long_nanos}),
            );
        }
    }

    /// Writes the last line: how the run and the recording ended.
    pub(super) fn end(&self, out: &mut String, end: &Value) {
        match self.format {
            EventFormat::JsonLines => push(out, end),
            EventFormat::Chrome => {
                *out += "],\"otherData\":";
                *out += &end.to_string();
                *out += "}\n";
            }
        }
    }

    fn stage(&self, stage: u8) -> &str {
        let name = self.stages.get(usize::from(stage));
        name.map_or("", String::as_str)
    }

    fn trace(&self, out: &mut String, event: &Value) {
        out.push(',');
        push(out, event);
    }
}

fn push(out: &mut String, line: &Value) {
    *out += &line.to_string();
    out.push('\n');
}

fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into memory does not fail.
    out.write_fmt(text).unwrap_or_default();
}

fn add(line: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        line[key] = value.clone();
    }
}

/// Microseconds, as traces have them.
#[expect(
    clippy::cast_precision_loss,
    reason = "a span needs no nanosecond of a year"
)]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}
