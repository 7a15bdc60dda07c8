//! Progress: a bar on a terminal, a line now and then elsewhere, nothing with `--json`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use windlass_engine::{Cause, Progress, Stage, megabytes};

use crate::output;
use crate::sizes::show_size;

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

fn bar(progress: &Progress, stop: &AtomicBool) {
    let style = "{prefix:>12} {percent:>3}% [{wide_bar:.cyan/dim}] {bytes} of {total_bytes}  \
                 {binary_bytes_per_sec}  eta {eta}  {msg}";
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("=> "));
    }
    let mut watch = Bottleneck::default();
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
        bar.set_message(watch.look(progress));
        std::thread::park_timeout(LOOK);
    }
    bar.finish_and_clear();
}

fn lines(progress: &Progress, percent: u8, stop: &AtomicBool) {
    let (began, mut shown, mut phase) = (Instant::now(), 0, "");
    let mut watch = Bottleneck::default();
    while !stop.load(Ordering::Acquire) {
        let (total, done) = (progress.total(), progress.done());
        let now = progress.phase();
        if now != phase && !now.is_empty() && done == 0 {
            output::note(now);
        }
        phase = now;
        let reached = (done.min(total) * 100).checked_div(total).unwrap_or(0);
        if reached >= shown + u64::from(percent) {
            shown = reached - reached % u64::from(percent);
            let rate = bytes_per_second(done, began.elapsed());
            let (done, total) = (show_size(done), show_size(total));
            let bound = watch.look(progress);
            output::note(&format!(
                "{shown:>3} %  {done} of {total}  {}  {bound}",
                megabytes(rate)
            ));
        }
        std::thread::park_timeout(LOOK);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn bytes_per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-3)
}

/// What holds the run back right now: who waited least since the last look.
#[derive(Default)]
struct Bottleneck {
    before: [u64; 3],
}

impl Bottleneck {
    fn look(&mut self, progress: &Progress) -> &'static str {
        let waited = |stage: &Stage, causes: &[Cause]| -> u64 {
            causes.iter().map(|cause| stage.waited_nanos(*cause)).sum()
        };
        let now = [
            waited(
                &progress.reader,
                &[Cause::SourceRead, Cause::DeviceRead, Cause::RateLimit],
            ),
            waited(&progress.compressor, &[Cause::FullBuffer]),
            waited(
                &progress.writer,
                &[Cause::DeviceWrite, Cause::TargetWrite, Cause::RateLimit],
            ),
        ];
        let since: Vec<u64> = now
            .iter()
            .zip(self.before)
            .map(|(now, then)| now - then)
            .collect();
        self.before = now;
        let look = u64::try_from(LOOK.as_nanos()).unwrap_or(u64::MAX);
        match since.as_slice() {
            [_, idle, _] if *idle < look / 4 => "bound by cores",
            [reading, _, writing] if reading >= writing && *reading > look / 4 => {
                "bound by reading"
            }
            [_, _, writing] if *writing > look / 4 => "bound by writing",
            _ => "",
        }
    }
}
