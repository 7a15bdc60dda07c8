//! Events: what a run records agrees with what it reports, whole and within its limit.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use windlass_engine::media::{Codec, FileTable};
use windlass_engine::{
    BackupOptions, BackupRun, Cancel, EVENT_BYTES_MIN, EventFormat, EventHeader, EventLog,
    EventOptions, Meter, NulDevice, Outputs, Progress, RunReport,
};

use crate::support::*;

fn options(path: &Path, format: EventFormat) -> EventOptions {
    EventOptions {
        path: path.to_owned(),
        format,
        limit_bytes: EVENT_BYTES_MIN,
        header: EventHeader {
            tool: "windlass test".into(),
            command: "backup".into(),
            subject: "noise".into(),
            started: "2026-01-01T00:00:00Z".into(),
        },
    }
}

/// A backup of `bytes` bytes to two `nul` devices, with recorded events. Returns its report and the
/// file.
fn record(format: EventFormat, bytes: usize, units: usize) -> (RunReport, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    let progress = Arc::<Progress>::default();
    let log = EventLog::create(options(&path, format), &Outputs::new(), &progress).unwrap();
    let mut run = begin_watched(&progress);
    let noise = Random::new(7).noise(bytes);
    for number in 0..units {
        run.push(bytes_spec(number, &noise)).unwrap();
    }
    let report = run.finish(FileTable::default(), facts()).unwrap();
    let summary = log.finish(Ok(&report)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(summary.bytes, text.len() as u64);
    assert!(summary.bytes <= EVENT_BYTES_MIN);
    (report, text)
}

fn begin_watched(progress: &Arc<Progress>) -> BackupRun {
    let setup = Setup::default();
    let devices: Vec<Box<dyn windlass_engine::Device>> = (0..2)
        .map(|_| Box::new(NulDevice::new(4096)) as _)
        .collect();
    let options = BackupOptions {
        plan: setup.request.plan(devices.len(), 1).unwrap(),
        codec: Codec::None,
        range: None,
        source_rate: None,
        device_rate: None,
        ring: false,
        pacing: None,
        page_frames: false,
        frame_proof: true,
        encryption: None,
        parities: 0,
    };
    let (progress, cancel) = (Arc::clone(progress), Cancel::new());
    BackupRun::start(setup.set_id, 1, options, devices, progress, cancel).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

#[test]
fn a_file_agrees_with_the_report_of_its_run() {
    let (report, text) = record(EventFormat::JsonLines, 600_000, 8);
    let lines = lines(&text);
    assert_eq!(lines[0]["event"], "header");
    assert_eq!(lines[0]["version"], 1);
    assert_eq!(lines[0]["devices"].as_array().unwrap().len(), 3);
    let end = lines.last().unwrap();
    assert_eq!(end["event"], "end");
    assert_eq!(end["outcome"], "done");
    assert_eq!(end["report"]["set_id"].as_str(), report.set_id.as_deref());
    let mut waits: HashMap<(String, String), (u64, f64)> = HashMap::new();
    let mut written = 0;
    for line in &lines {
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        match word("event").as_str() {
            "wait" => {
                let wait = waits.entry((word("stage"), word("cause"))).or_default();
                wait.0 += 1;
                wait.1 += line["duration_nanos"].as_f64().unwrap() / 1e9;
            }
            "io" if word("cause") == "device_write" => {
                written += line["bytes"].as_u64().unwrap();
            }
            _ => {}
        }
    }
    for stage in &report.stages {
        for wait in &stage.waits {
            let key = (stage.name.to_string(), wait.cause.name().to_owned());
            let (count, seconds) = waits.remove(&key).unwrap();
            assert_eq!(count, wait.count, "{key:?}");
            assert!((seconds - wait.seconds).abs() < 1e-6, "{key:?}");
        }
    }
    assert!(waits.is_empty(), "{waits:?}");
    // The headers of the stripes are written before any thread starts.
    let devices: u64 = report.devices.iter().map(|device| device.bytes).sum();
    assert_eq!(written + 2 * 4096, devices);
}

#[test]
fn a_trace_is_one_json_document_with_a_span_for_each_wait() {
    let (report, text) = record(EventFormat::Chrome, 600_000, 4);
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let spans = events.iter().filter(|event| event["ph"] == "X").count() as u64;
    let waits = report.stages.iter().flat_map(|stage| &stage.waits);
    assert_eq!(spans, waits.map(|wait| wait.count).sum::<u64>());
    let ends = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert!(ends("b") > 0);
    assert_eq!(ends("b"), ends("e"));
    assert_eq!(trace["otherData"]["outcome"], "done");
}

#[test]
fn a_long_run_stays_within_its_limit_and_its_weights_add_up() {
    let (report, text) = record(EventFormat::JsonLines, 64 * 1024, 30_000);
    let lines = lines(&text);
    assert!(lines.iter().any(|line| line["event"] == "thin"));
    let end = lines.last().unwrap();
    assert!(end["thinned"].as_u64().unwrap() > 0);
    let weight = |line: &Value| line["weight"].as_u64().unwrap_or(1);
    let writes = lines
        .iter()
        .filter(|line| line["event"] == "io" && line["cause"] == "device_write");
    let weights: Vec<u64> = writes.map(weight).collect();
    let estimated: u64 = weights.iter().sum();
    let lost = end["lost"].as_u64().unwrap();
    let real: u64 = report.devices.iter().map(|device| device.operations).sum();
    // One event in w is drawn, so each one that is kept adds w(w - 1) to the variance. The limit is
    // six deviations and not a share, because the last part of the file keeps only a few events,
    // and each stands for hundreds.
    let variance: u64 = weights.iter().map(|weight| weight * (weight - 1)).sum();
    let noise = 6 * variance.isqrt();
    let shown = format!("{estimated} of {real}, {lost} lost, noise {noise}");
    assert!(estimated + lost + noise >= real, "{shown}");
    assert!(estimated <= real + noise, "{shown}");
    assert!(weights.iter().any(|weight| *weight > 1), "{shown}");
}

#[test]
fn a_run_that_fails_leaves_a_whole_file_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    let progress = Arc::<Progress>::default();
    let log = EventLog::create(
        options(&path, EventFormat::JsonLines),
        &Outputs::new(),
        &progress,
    )
    .unwrap();
    let mut run = begin_watched(&progress);
    run.push(bytes_spec(0, &[1; 100_000])).unwrap();
    let gone = dir.path().join("gone");
    // The reader may have failed before the second half of the file is pushed.
    let pushed = run.push(path_spec(1, &gone, 100_000));
    let ended = pushed.and_then(|()| run.finish(FileTable::default(), facts()).map(drop));
    let error = ended.unwrap_err();
    log.finish(Err(&error.to_string())).unwrap();
    let lines = lines(&std::fs::read_to_string(&path).unwrap());
    let end = lines.last().unwrap();
    assert_eq!(end["outcome"], "failed");
    assert!(end["error"].as_str().unwrap().contains("gone"));
    assert!(end["report"].is_null());
    assert_eq!(end["stages"].as_array().unwrap().len(), 3);
}

#[test]
fn a_file_whose_run_never_began_has_a_beginning_and_an_end() {
    let dir = tempfile::tempdir().unwrap();
    for format in [EventFormat::JsonLines, EventFormat::Chrome] {
        let path = dir.path().join("events");
        let progress = Arc::<Progress>::default();
        drop(EventLog::create(options(&path, format), &Outputs::new(), &progress).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        if format == EventFormat::Chrome {
            let trace: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(trace["otherData"]["outcome"], "failed");
        } else {
            let kinds: Vec<_> = lines(&text)
                .into_iter()
                .map(|line| line["event"].clone())
                .collect();
            assert_eq!(kinds, ["header", "end"]);
        }
    }
}

#[test]
fn a_run_under_way_counts_the_waits_that_have_not_ended() {
    let progress = Arc::<Progress>::default();
    let mut meter = Meter::new(&progress);
    let run = begin_watched(&progress);
    // Nothing was pushed, so sooner or later all threads wait and go on waiting.
    loop {
        let live = meter.look();
        let waiting = |stage: &windlass_engine::StageReport| {
            stage
                .waits
                .iter()
                .any(|wait| wait.count == 0 && wait.seconds > 0.0)
        };
        if live.stages.iter().all(waiting) {
            assert_eq!(live.limit, None);
            assert_eq!(live.devices.len(), 3);
            let buffers = live.buffers.unwrap();
            assert_eq!((buffers.inputs, buffers.outputs), (0, 0));
            break;
        }
        std::thread::yield_now();
    }
    drop(run);
}
