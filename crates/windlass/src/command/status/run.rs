//! The lines of a backup, restore or verification in `windlass status`.

use serde::Deserialize;
use serde_json::Value;
use windlass_engine::{Live, Occupancy, StageReport, WaitReport, show_rate, show_size};

/// The most waits that are shown for each stage.
const WAITS_MAX: usize = 3;

/// What a run reports about itself.
#[derive(Deserialize)]
struct RunNumbers {
    #[serde(flatten)]
    live: Live,
    estimated_completion: Option<String>,
}

/// The lines of a run; `None` when the numbers belong to another kind of operation.
pub fn lines(numbers: &Value) -> Option<Vec<(String, String)>> {
    let RunNumbers {
        live: run,
        estimated_completion,
    } = serde_json::from_value(numbers.clone()).ok()?;
    let mut found = Vec::new();
    let mut line = |name: &str, text: String| found.push((name.to_owned(), text));
    let done = show_size(run.done_bytes);
    line(
        "done",
        match run.done_share {
            Some(share) => {
                let (percent, total) = (share * 100.0, show_size(run.total_bytes));
                format!("{percent:.1} %, {done} of {total}")
            }
            None => done,
        },
    );
    line("rate", rates(&run));
    if let Some(end) = estimated_completion {
        line("estimated completion", end);
    }
    if let Some(limit) = &run.limit {
        let resource = limit.stage.words();
        let device = limit.device.as_ref();
        let words = device.map_or(resource.to_owned(), |name| format!("the device {name}"));
        line("bottleneck", words);
    }
    for stage in &run.stages {
        line(&format!("{} waited", stage.name), waits(stage));
    }
    for device in &run.devices {
        let (bytes, rate) = (show_size(device.bytes), show_rate(device.rate));
        line("device", format!("{}: {bytes}, {rate}", device.name));
    }
    if let Some(Occupancy {
        free,
        inputs,
        outputs,
    }) = run.buffers
    {
        line(
            "buffers",
            format!("{inputs} inputs, {outputs} outputs, {free} free"),
        );
    }
    Some(found)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rates(run: &Live) -> String {
    let mean = run.done_bytes as f64 / run.elapsed_seconds.max(1e-3);
    format!(
        "{} now, {} in the mean",
        show_rate(run.rate),
        show_rate(mean)
    )
}

/// The longest waits of a stage.
fn waits(stage: &StageReport) -> String {
    let mut waits: Vec<_> = stage.waits.iter().collect();
    waits.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let wait = |wait: &&WaitReport| {
        format!(
            "{:.1} s {}",
            wait.seconds,
            wait.cause.name().replace('_', " ")
        )
    };
    let waits: Vec<_> = waits.iter().take(WAITS_MAX).map(wait).collect();
    match waits.as_slice() {
        [] => "not yet".to_owned(),
        waits if stage.threads > 1 => {
            format!("{} ({} threads together)", waits.join(", "), stage.threads)
        }
        waits => waits.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_in_words() {
        let numbers = serde_json::json!({
            "phase": "reading", "elapsed_seconds": 2.0, "done_bytes": 1_048_576, "total_bytes": 4_194_304,
            "done_share": 0.25, "rate": 3e6, "estimated_completion": "2026-01-01T00:00:00Z",
            "limit": {"stage": "device", "device": "/backup/0"},
            "stages": [{"name": "reader", "threads": 2, "waits": [
                {"cause": "jobs", "seconds": 0.5, "count": 1},
                {"cause": "free_buffer", "seconds": 1.25, "count": 2},
            ], "busy_seconds": 0.0, "cpu_seconds": 0.0, "operations": 3, "bytes": 4096}],
            "devices": [{"name": "/backup/0", "bytes": 2048, "operations": 1, "rate": 1e6}],
            "buffers": {"free": 1, "inputs": 2, "outputs": 3},
        });
        let lines = lines(&numbers).unwrap();
        let shown: Vec<_> = lines
            .iter()
            .map(|(name, text)| format!("{name}: {text}"))
            .collect();
        assert_eq!(
            shown,
            [
                "done: 25.0 %, 1 MiB of 4 MiB",
                "rate: 2.86 MiB/s now, 512 KiB/s in the mean",
                "estimated completion: 2026-01-01T00:00:00Z",
                "bottleneck: the device /backup/0",
                "reader waited: 1.2 s free buffer, 0.5 s jobs (2 threads together)",
                "device: /backup/0: 2 KiB, 977 KiB/s",
                "buffers: 2 inputs, 3 outputs, 1 free",
            ]
        );
        assert_eq!(super::lines(&serde_json::json!({"reads": 3})), None);
    }
}
