//! Reading a file of events, line by line.

use std::io::{BufRead, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use windlass_engine::Cause;

use crate::error::LabError;

/// The version of the format that this program reads.
const VERSION: u64 = 1;
/// The error for a file of another kind, for example a trace or a picture.
const FOREIGN: &str = "this is not a file of events in JSON lines";

/// The content of a file.
#[derive(Debug, Default)]
pub struct EventFile {
    /// Its first line.
    pub header: HeaderLine,
    /// Waits and I/Os.
    pub events: Vec<EventLine>,
    /// Buffers and bytes over time.
    pub samples: Vec<SampleLine>,
    /// Its last line; `None` when the file was cut off.
    pub end: Option<EndLine>,
}

/// The first line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HeaderLine {
    format: String,
    version: u64,
    /// Program and version.
    pub tool: String,
    /// `backup`, `restore`, `verify`.
    pub command: String,
    /// What it worked on.
    pub subject: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The stages' names.
    pub stages: Vec<String>,
    /// The devices, by number.
    pub devices: Vec<DeviceLine>,
}

/// A device of the first line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceLine {
    /// The device's location.
    pub name: String,
    /// `stripe`, `source`, `target`.
    pub role: String,
}

/// A wait or an I/O.
#[derive(Clone, Debug)]
pub struct EventLine {
    /// An I/O, from submission to completion; otherwise a wait.
    pub io: bool,
    /// What was waited for, or what the I/O did.
    pub cause: Cause,
    /// The stage's number in the header.
    pub stage: usize,
    /// The device's number in the header.
    pub device: Option<usize>,
    /// How long it took.
    pub nanos: u64,
    /// Bytes of an I/O, or of what was waited for.
    pub bytes: u64,
    /// I/Os in flight on its thread.
    pub depth: u64,
    /// How many events this one stands for.
    pub weight: u64,
}

/// Buffers and bytes at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SampleLine {
    /// Nanoseconds since the recording began.
    pub at_nanos: u64,
    /// `free`, `inputs`, `outputs`.
    pub buffers: Option<Buffers>,
    /// Bytes of each device since the beginning.
    pub device_bytes: Vec<u64>,
    /// Bytes of each stage since the beginning.
    pub stage_bytes: Vec<u64>,
}

/// Who has the buffers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Buffers {
    /// Nobody.
    pub free: u64,
    /// A reader fills them, or they wait for a worker.
    pub inputs: u64,
    /// A worker fills them, or they wait for a writer.
    pub outputs: u64,
}

/// The last line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndLine {
    /// Nanoseconds since the recording began.
    pub at_nanos: u64,
    /// `done` or `failed`.
    pub outcome: String,
    /// Why it failed.
    pub error: Option<String>,
    /// Events in the file.
    pub written: u64,
    /// Events that were left out; other events stand for them.
    pub thinned: u64,
    /// Events that were left out, and no other event stands for them.
    pub lost: u64,
    /// The run's report.
    pub report: Option<Value>,
}

/// A wait or an I/O as it is written.
#[derive(Deserialize)]
struct Raw {
    cause: String,
    stage: String,
    device: Option<usize>,
    duration_nanos: u64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    depth: u64,
    weight: Option<u64>,
}

/// The longest line of a file of events. A longer one belongs to another kind of file.
const LINE_BYTES_MAX: u64 = 1 << 20;

impl EventFile {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        let failed = |source| LabError::Io {
            operation: "read",
            path: path.to_owned(),
            source,
        };
        let file = windlass_engine::open_regular(path).map_err(failed)?;
        Self::read(std::io::BufReader::new(file), path)
    }

    /// Reads lines. Errors name `path`.
    pub fn read(mut input: impl BufRead, path: &Path) -> Result<Self, LabError> {
        let mut found = Self::default();
        let (mut text, mut number) = (Vec::new(), 0);
        loop {
            text.clear();
            number += 1;
            let mut line = input.by_ref().take(LINE_BYTES_MAX);
            let read = line.read_until(b'\n', &mut text);
            let read = read.map_err(|source| LabError::Io {
                operation: "read",
                path: path.to_owned(),
                source,
            })?;
            let whole = text.last() == Some(&b'\n');
            if text.len() as u64 == LINE_BYTES_MAX {
                return Err(LabError::Events {
                    path: path.to_owned(),
                    line: number,
                    what: format!("it is longer than {} KiB", LINE_BYTES_MAX >> 10),
                });
            }
            // A line without a line break was cut off.
            if read == 0 || !whole && number > 1 {
                break;
            }
            let refused = |what: &str| LabError::Events {
                path: path.to_owned(),
                line: number,
                what: what.to_owned(),
            };
            let line = serde_json::from_slice(&text);
            let line: Value = match line {
                Ok(line) => line,
                Err(_) if number == 1 => return Err(refused(FOREIGN)),
                Err(error) => return Err(refused(&error.to_string())),
            };
            if number == 1 {
                found.header = header(line).map_err(refused)?;
            } else {
                found
                    .line(line)
                    .map_err(|error| refused(&error.to_string()))?;
            }
        }
        match number {
            1 => Err(LabError::Events {
                path: path.to_owned(),
                line: 1,
                what: "the file is empty".to_owned(),
            }),
            _ => Ok(found),
        }
    }

    fn line(&mut self, line: Value) -> Result<(), serde_json::Error> {
        match line["event"].as_str().unwrap_or_default() {
            "wait" => self.event(false, line),
            "io" => self.event(true, line),
            "sample" => {
                self.samples.push(serde_json::from_value(line)?);
                Ok(())
            }
            "end" => {
                self.end = Some(serde_json::from_value(line)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn event(&mut self, io: bool, line: Value) -> Result<(), serde_json::Error> {
        let raw: Raw = serde_json::from_value(line)?;
        let stage = self
            .header
            .stages
            .iter()
            .position(|name| *name == raw.stage);
        // A newer program may have causes and stages that this one does not know: skip them.
        if let (Some(cause), Some(stage)) = (Cause::parse(&raw.cause), stage) {
            self.events.push(EventLine {
                io,
                cause,
                stage,
                device: raw.device,
                nanos: raw.duration_nanos,
                bytes: raw.bytes,
                depth: raw.depth,
                weight: raw.weight.unwrap_or(1).max(1),
            });
        }
        Ok(())
    }

    /// Names of the devices without their directories. Devices with the same name get a number too.
    pub fn short_names(&self) -> Vec<String> {
        let devices = self.header.devices.iter();
        let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        let names: Vec<_> = devices.map(|device| last(&device.name)).collect();
        let name = |(index, name): (usize, &String)| {
            let same = names.iter().filter(|other| *other == name).count();
            let before = names[..index].iter().filter(|other| *other == name).count();
            match same {
                1 => name.clone(),
                _ => format!("{name} ({})", before + 1),
            }
        };
        names.iter().enumerate().map(name).collect()
    }

    /// The length of the recording, in seconds.
    pub fn seconds(&self) -> f64 {
        let last = self.samples.last().map_or(0, |sample| sample.at_nanos);
        super::spread::seconds(self.end.as_ref().map_or(last, |end| end.at_nanos))
    }
}

fn header(line: Value) -> Result<HeaderLine, &'static str> {
    let Ok(header) = serde_json::from_value::<HeaderLine>(line) else {
        return Err(FOREIGN);
    };
    match (header.format.as_str(), header.version) {
        ("windlass-events", VERSION) => Ok(header),
        ("windlass-events", _) => Err("a newer version of the format: use a newer windlass"),
        _ => Err(FOREIGN),
    }
}
