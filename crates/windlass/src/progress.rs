//! Progress: a bar on a terminal, a line now and then elsewhere, nothing with `--json`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use windlass_engine::{Live, Meter, Progress, show_rate};

use crate::output;
use windlass_engine::show_size;

const LOOK: Duration = Duration::from_millis(100);

/// How to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Not at all.
    Nothing,
    /// A line at each so many percent.
    Lines(u8),
    /// A bar.
    Bar,
}

impl Show {
    /// What suits the place where standard error goes.
    pub fn choose(silent: bool, percent: u8) -> Self {
        match (silent, output::is_watched()) {
            (true, _) => Self::Nothing,
            (false, true) => Self::Bar,
            (false, false) => Self::Lines(percent),
        }
    }
}

/// A thread that shows progress until it is dropped.
pub struct Shown {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    /// Starts to show `progress`.
    pub fn start(progress: &Arc<Progress>, show: Show) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (progress, flag) = (Arc::clone(progress), Arc::clone(&stop));
        let body = move || match show {
            Show::Nothing => {}
            Show::Lines(percent) => lines(&progress, percent, &flag),
            Show::Bar => bar(&progress, &flag),
        };
        // Without a thread there is no progress to see, but the run itself goes on.
        let thread = std::thread::Builder::new()
            .name("progress".to_owned())
            .spawn(body)
            .ok();
        Self { stop, thread }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().unwrap_or_default();
        }
    }
}

fn bar(progress: &Arc<Progress>, stop: &AtomicBool) {
    let style = "{prefix:>12} {percent:>3}% [{wide_bar:.cyan/dim}] {bytes} of {total_bytes}  \
                 {binary_bytes_per_sec}  eta {eta}  {msg}";
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("=> "));
    }
    let mut meter = Meter::new(progress);
    while !stop.load(Ordering::Acquire) {
        let total = progress.total().max(progress.done());
        // Nothing to draw before there is something to do: an empty bar would say 100 %.
        if total == 0 {
            std::thread::park_timeout(LOOK);
            continue;
        }
        bar.set_length(total);
        bar.set_position(progress.done());
        bar.set_prefix(progress.phase());
        bar.set_message(bound(&meter.look()));
        std::thread::park_timeout(LOOK);
    }
    bar.finish_and_clear();
}

fn lines(progress: &Arc<Progress>, percent: u8, stop: &AtomicBool) {
    let (began, mut shown, mut phase) = (Instant::now(), 0, "");
    let mut meter = Meter::new(progress);
    while !stop.load(Ordering::Acquire) {
        let (total, done) = (progress.total(), progress.done());
        let now = progress.phase();
        if now != phase && !now.is_empty() && done == 0 {
            output::note(now);
        }
        phase = now;
        let live = meter.look();
        let reached = (done.min(total) * 100).checked_div(total).unwrap_or(0);
        if reached >= shown + u64::from(percent) {
            shown = reached - reached % u64::from(percent);
            let rate = bytes_per_second(done, began.elapsed());
            let (done, total) = (show_size(done), show_size(total));
            let bound = bound(&live);
            output::note(&format!(
                "{shown:>3} %  {done} of {total}  {}  {bound}",
                show_rate(rate)
            ));
        }
        std::thread::park_timeout(LOOK);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn bytes_per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-3)
}

/// What holds the run back right now, in words.
fn bound(live: &Live) -> &'static str {
    match live.limit.as_ref().map_or("", |limit| limit.stage) {
        "compressor" | "reader" => "bound by cores",
        "source" => "bound by the source",
        "device" => "bound by a device",
        "target" => "bound by the target",
        "rate_limit" | "device_rate_limit" => "bound by a rate limit",
        "buffers" => "bound by too few buffers",
        "database" => "bound by the database",
        _ => "",
    }
}
