//! What would have made a run faster.
//!
//! The engine says what a run did. The lab says what other settings would have brought
//! ([`windlass_lab::advise`]).

use windlass_engine::media::fitted;
use windlass_engine::{BufferRequest, FileDeviceOptions, Resource};
use windlass_lab::{Advice, Advised, Direction, Measured, Speeds, to_f64};

use crate::foretold::Done;
use crate::probed::Ends;

/// The advice that a finished run gives, if there is any.
pub fn of(ends: &Ends<'_>, done: &Done<'_>, speeds: &Speeds) -> Option<Advised> {
    let report = done.report;
    if !report.limit.conclusive {
        return None;
    }
    windlass_lab::advise(&measured(ends, done), speeds)
}

fn measured(ends: &Ends<'_>, done: &Done<'_>) -> Measured {
    let report = done.report;
    let (bytes, stored_bytes) = ends.amounts(report);
    let busy = |resource: Resource| {
        let found = report
            .limit
            .resources
            .iter()
            .find(|one| one.stage == resource);
        found.map_or(0.0, |found| found.busy)
    };
    let seconds = report.data_seconds.max(1e-9);
    let threads = |index: usize| report.stages.get(index).map(|stage| stage.threads);
    let narrow = |count: u64| fitted(count);
    // A thread that was ready but waited for a core counts too: it needed one.
    let on_cores: f64 = report.stages.iter().map(|stage| stage.cpu_seconds).sum();
    let ready = report.stages.get(1).map_or(0.0, |stage| stage.busy_seconds);
    Measured {
        direction: match ends.is_backup {
            true => Direction::Backup,
            false => Direction::Restore,
        },
        bytes,
        stored_bytes,
        seconds,
        other_seconds: (report.seconds - report.data_seconds).max(0.0),
        codec: done.codec,
        apart: !done.pages_asked && report.pages.is_some_and(|pages| pages.apart_bytes > 0),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        request: BufferRequest {
            buffers: Some(report.buffers_peak),
            transfer_bytes: Some(report.transfer_bytes),
            readers: threads(0).map(narrow),
            compressors: threads(1).map(narrow),
            memory_limit: Some(u64::MAX),
            ..done.request.clone()
        },
        buffers_asked: done.request.buffers,
        write_depth: FileDeviceOptions::default().depth,
        database_busy: busy(match ends.is_backup {
            true => Resource::Source,
            false => Resource::Target,
        }),
        devices: report
            .devices
            .iter()
            .map(|device| (device.bytes, device.busy_seconds / seconds))
            .collect(),
        core_seconds: on_cores.max(ready),
        read_rate: done.rates.0.map(to_f64),
        write_rate: done.rates.1.map(to_f64),
        limit: report.limit.stage,
        blame: report
            .limit
            .resources
            .first()
            .map_or(0.0, |first| first.blame),
    }
}

/// What the run's JSON object says about the advice; null if there is none.
pub fn document(advised: Option<&Advised>) -> serde_json::Value {
    let Some(advised) = advised else {
        return serde_json::Value::Null;
    };
    let (what, value) = match advised.advice {
        Advice::Codec(codec) => ("compress", codec.to_string().into()),
        Advice::MoreDevices => ("devices", serde_json::Value::Null),
        Advice::Buffers(count) => ("buffers", count.into()),
        Advice::NoReadRate => ("max_rate", serde_json::Value::Null),
        Advice::NoWriteRate => ("max_device_rate", serde_json::Value::Null),
        Advice::Cores(count) => ("cores", count.into()),
        Advice::FasterDatabase => ("database_storage", serde_json::Value::Null),
        Advice::FasterDevices => ("device_storage", serde_json::Value::Null),
    };
    serde_json::json!({
        "what": what,
        "value": value,
        "data_seconds": advised.seconds,
        "saved_share": advised.saved,
        "limit": advised.limit,
    })
}
