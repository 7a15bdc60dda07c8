//! The end of a run for people: the result and what bound the run. With `--details` also the table
//! of stages and the devices.

use windlass_engine::{BufferPlan, PagesReport, RunReport, StageReport, show_rate, show_size};
use windlass_lab::Record;
use windlass_operations::MoreMemory;

use crate::advice;
use crate::foretold::Judgement;
use crate::output::{self, Tone};
use crate::words::{self, bound, duration};

/// A finished run that is to be shown.
pub struct Finished<'a> {
    /// The result (`sealed`, `restored`, `verified`), and of what.
    pub result: (&'static str, String),
    /// What a person needs after the result and the verdict: where it is, and what to type next.
    pub then: Vec<(&'static str, String)>,
    pub report: &'a RunReport,
    /// What the plan would have predicted, and what would make the run faster.
    pub judgement: Option<&'a Judgement>,
    /// Further remarks, each with a label.
    pub remarks: Vec<(&'static str, String)>,
    /// Whether to show the table of stages and the devices.
    pub details: bool,
}

impl Finished<'_> {
    /// Prints it; nothing with `--quiet`.
    pub fn print(&self, quiet: bool) {
        if quiet {
            return;
        }
        let (label, text) = &self.result;
        output::entry(label, text, Tone::Good);
        print_verdict(self.report);
        for (label, text) in &self.then {
            output::entry(label, text, Tone::Plain);
        }
        if let Some(judgement) = self.judgement {
            if let Some(advised) = &judgement.advice {
                let words = advice::words(advised, self.report);
                output::entry("advice", &words, Tone::Plain);
            }
            print_foretold(judgement.foretold.as_ref());
        }
        for (label, text) in &self.remarks {
            output::entry(label, text, Tone::Plain);
        }
        if self.details {
            print_details(self.report);
        }
    }
}

/// Prints what bound a run.
pub fn print_verdict(report: &RunReport) {
    output::entry("verdict", &report.verdict, Tone::Plain);
    if let Some(compression) = &report.compression {
        output::entry("compression", &compression.words, Tone::Plain);
    }
    if let Some(pages) = &report.pages {
        print_pages(pages);
    }
}

/// Prints what a run did with pages that it could take apart.
fn print_pages(pages: &PagesReport) {
    let all = pages.apart_bytes + pages.plain_bytes;
    let text = format!(
        "{} of {} taken apart: {} on the devices; the others: {}",
        show_size(pages.apart_bytes),
        show_size(all),
        show_size(pages.apart_stored_bytes),
        show_size(pages.plain_stored_bytes),
    );
    output::entry("pages", &text, Tone::Plain);
}

/// Prints the buffers before a run, and with `details` the threads and the layout. Without a codec,
/// the run reads a set.
pub fn print_plan(plan: &BufferPlan, codec: Option<&str>, more: MoreMemory, details: bool) {
    let size = |bytes: usize| show_size(bytes as u64);
    let most = plan.buffers_max(more.pages_bytes + more.parity_bytes);
    let grown = match most > plan.buffers {
        true => format!(
            ", max {}",
            show_size(most as u64 * plan.transfer_bytes as u64)
        ),
        false => String::new(),
    };
    output::note(&format!(
        "buffers       {} x {} = {} of memory{grown}",
        plan.buffers,
        size(plan.transfer_bytes),
        show_size(plan.buffer_bytes)
    ));
    if more.parity_bytes > 0 {
        output::note(&format!(
            "parity        {} more",
            show_size(more.parity_bytes)
        ));
    }
    if more.pages_bytes > 0 {
        output::note(&format!(
            "pages         about {} more, to take them apart",
            show_size(more.pages_bytes)
        ));
    }
    if more.mirror_bytes > 0 {
        let bytes = show_size(more.mirror_bytes);
        output::note(&format!(
            "mirror        {bytes} of memory, when the set is complete"
        ));
    }
    if !details {
        return;
    }
    let middle = match codec {
        Some(_) => "compressor",
        None => "decompressor",
    };
    output::note(&format!(
        "threads       {}, {}, {}",
        count(plan.readers, "reader"),
        count(plan.compressors, middle),
        count(plan.writers, "writer")
    ));
    let codec = codec.map_or(String::new(), |codec| format!(", {codec}"));
    output::note(&format!(
        "layout        {}, {}, blocks of {}, frames of {}{codec}",
        count(plan.devices, "device"),
        count(plan.volumes, "source volume"),
        plan.alignment,
        size(plan.frame_bytes)
    ));
}

/// Prints a line below a heading: a name and its text.
pub fn row(name: &str, text: &str) {
    output::line(&format!("  {name:<22}{text}"));
}

fn count(number: usize, noun: &str) -> String {
    output::count(number as u64, noun)
}

/// Prints how a finished run spent its time.
pub fn print_details(report: &RunReport) {
    output::line("");
    output::line(
        "stage         threads     busy      cpu  waiting              operations      bytes        rate",
    );
    for stage in &report.stages {
        print_stage(stage, report.data_seconds);
    }
    output::line("");
    if report.buffers_peak > report.buffers {
        let (first, peak) = (report.buffers, report.buffers_peak);
        output::line(&format!(
            "buffers       {first} at the beginning, {peak} at most"
        ));
    }
    for device in &report.devices {
        output::line(&format!(
            "device        {}  {}  {} transfers  p50 {}  p99 {}  max {}",
            device.name,
            show_size(device.bytes),
            device.operations,
            micros(device.latency_micros_p50),
            micros(device.latency_micros_p99),
            micros(device.latency_micros_max),
        ));
    }
}

/// Prints what the plan would have predicted, if it could predict anything.
fn print_foretold(record: Option<&Record>) {
    let Some(record) = record else { return };
    if record.is_too_short() {
        return output::entry("predicted", words::TOO_SHORT, Tone::Plain);
    }
    let percent = record.error() * 100.0;
    let far = match percent {
        percent if percent.abs() < 0.5 => "which it took".to_owned(),
        percent if percent < 0.0 => format!("{:.0} % less than it took", -percent),
        percent => format!("{percent:.0} % more than it took"),
    };
    let (seconds, limit) = (
        duration(record.predicted_seconds),
        bound(record.predicted_limit),
    );
    output::entry(
        "predicted",
        &format!("{seconds}, {far}; {limit}"),
        Tone::Plain,
    );
}

fn print_stage(stage: &StageReport, seconds: f64) {
    let mut waits = stage.waits.clone();
    waits.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut waits = waits
        .iter()
        .filter(|wait| wait.seconds >= 0.0005)
        .map(|wait| format!("{:>7} {}", seconds_text(wait.seconds), wait.cause.name()));
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = stage.bytes as f64 / seconds.max(1e-9);
    output::line(&format!(
        "{:<13} {:>7}  {:>7}  {:>7}  {:<20} {:>10} {:>10}  {:>10}",
        stage.name,
        stage.threads,
        seconds_text(stage.busy_seconds),
        seconds_text(stage.cpu_seconds),
        waits.next().unwrap_or_default(),
        stage.operations,
        show_size(stage.bytes),
        show_rate(rate),
    ));
    for wait in waits {
        output::line(&format!("{:41}{wait}", ""));
    }
}

fn seconds_text(seconds: f64) -> String {
    if seconds >= 100.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{seconds:.2} s")
    }
}

fn micros(micros: u64) -> String {
    match micros {
        0..=9_999 => format!("{micros} us"),
        10_000..=9_999_999 => format!("{} ms", micros / 1000),
        _ => format!("{} s", micros / 1_000_000),
    }
}
