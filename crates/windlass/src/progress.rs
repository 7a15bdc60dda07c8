//! Progress: a line on a terminal that is drawn again and again; elsewhere a line now and then;
//! nothing with `--json` or `--quiet`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use windlass_engine::{Live, Meter, Progress, show_rate, show_size};

use crate::terminal::{self, Stream};
use crate::{output, words};

const LOOK: Duration = Duration::from_millis(100);
/// The width of a terminal that does not say how wide it is.
const COLUMNS_DEFAULT: usize = 80;
/// The largest width of the line.
const COLUMNS_MAX: usize = 200;
/// The smallest width at which the bar itself is drawn, and its largest width.
const BAR_COLUMNS: std::ops::RangeInclusive<usize> = 8..=40;

/// How to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Not at all.
    Nothing,
    /// A line each time that this many more percent are done.
    Lines(u8),
    /// A bar.
    Bar,
}

impl Show {
    /// The way that fits the destination of standard error.
    pub fn choose(silent: bool, percent: u8) -> Self {
        match (silent, terminal::is_clever(Stream::Err)) {
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
    /// Starts showing `progress`.
    pub fn start(progress: &Arc<Progress>, show: Show) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (progress, flag) = (Arc::clone(progress), Arc::clone(&stop));
        let body = move || match show {
            Show::Nothing => {}
            Show::Lines(percent) => lines(&progress, percent, &flag),
            Show::Bar => bar(&progress, &flag),
        };
        // Without the thread there is no progress to see, but the run goes on.
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
    let mut meter = Meter::new(progress);
    while !stop.load(Ordering::Acquire) {
        let live = meter.look();
        if !live.phase.is_empty() {
            let columns = terminal::columns(Stream::Err).unwrap_or(COLUMNS_DEFAULT);
            output::bar(&bar_text(&live, columns), columns);
        }
        std::thread::park_timeout(LOOK);
    }
    output::bar("", 0);
}

/// The line for a terminal with this many columns. The last column stays free, because some
/// terminals would begin a new row. If there is too little room, the least important parts are left
/// out.
fn bar_text(live: &Live, columns: usize) -> String {
    let room = columns.min(COLUMNS_MAX).saturating_sub(1);
    let total = live.total_bytes.max(live.done_bytes);
    // Before the total is known there is no share of it: a bar would say 100 %.
    let known = total > 0;
    let share = live.done_share.unwrap_or(0.0);
    let left = live.remaining_seconds.map_or(String::new(), |seconds| {
        format!("{} left", words::duration(seconds.ceil()))
    });
    let if_known = |text: String| if known { text } else { String::new() };
    // In the order of importance. The number is the position in the line.
    let parts = [
        (1, if_known(format!("{:>3.0} %", (share * 100.0).floor()))),
        (4, if_known(show_rate(live.rate))),
        (5, if_known(left)),
        (
            3,
            if_known(format!(
                "{} of {}",
                show_size(live.done_bytes),
                show_size(total)
            )),
        ),
        (0, live.phase.to_owned()),
        (6, words::bound_now(live)),
    ];
    let mut line: Vec<(u8, String)> = Vec::new();
    let mut used = 0;
    for (place, text) in parts {
        let length = text.chars().count() + if line.is_empty() { 0 } else { 2 };
        if !text.is_empty() && used + length <= room {
            used += length;
            line.push((place, text));
        }
    }
    let bar = (room - used).saturating_sub(4).min(*BAR_COLUMNS.end());
    if known && bar >= *BAR_COLUMNS.start() {
        line.push((2, drawn(share, bar)));
    }
    line.sort();
    let texts: Vec<_> = line.into_iter().map(|(_, text)| text).collect();
    texts.join("  ")
}

/// `[====>   ]`, with `columns` characters between the brackets.
fn drawn(share: f64, columns: usize) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "at most the number of columns"
    )]
    let full = ((share.clamp(0.0, 1.0) * columns as f64) as usize).min(columns);
    let head = if full < columns { ">" } else { "" };
    format!("[{:<columns$}]", "=".repeat(full) + head)
}

fn lines(progress: &Arc<Progress>, percent: u8, stop: &AtomicBool) {
    let (began, mut shown, mut phase) = (Instant::now(), 0, "");
    let mut meter = Meter::new(progress);
    while !stop.load(Ordering::Acquire) {
        let done = progress.done();
        let total = progress.total();
        let now = progress.phase();
        // A directory has many sets, and the result of each names it.
        let is_news = now != phase && !now.is_empty() && now != "verifying";
        if is_news && done == 0 {
            output::note(now);
        }
        phase = now;
        let live = meter.look();
        let reached = (done.min(total) * 100).checked_div(total).unwrap_or(0);
        if reached >= shown + u64::from(percent) {
            shown = reached - reached % u64::from(percent);
            let rate = bytes_per_second(done, began.elapsed());
            let (done, total) = (show_size(done), show_size(total));
            let bound = words::bound_now(&live);
            let line = format!(
                "{shown:>3} %  {done} of {total}  {}  {bound}",
                show_rate(rate)
            );
            output::note(line.trim_end());
        }
        std::thread::park_timeout(LOOK);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn bytes_per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in its middle, with the longest possible texts.
    fn live(done: u64, total: u64) -> Live {
        let progress = Arc::<Progress>::default();
        let live = Meter::new(&progress).look();
        Live {
            phase: "copying".to_owned(),
            done_bytes: done,
            total_bytes: total,
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            done_share: (total > 0).then(|| done as f64 / total as f64),
            rate: 1023.0 * 1048576.0,
            remaining_seconds: Some(12_000.0),
            limit: Some(windlass_engine::LiveLimit {
                stage: windlass_engine::Resource::DeviceRateLimit,
                device: None,
            }),
            ..live
        }
    }

    #[test]
    fn the_line_fits_every_terminal() {
        for columns in 1..300 {
            for (done, total) in [(0, 1), (1023 << 30, 1023 << 40), (5, 5), (7, 0)] {
                let text = bar_text(&live(done, total), columns);
                assert!(text.chars().count() < columns.max(1), "{columns}: {text}");
                assert!(text.chars().count() < COLUMNS_MAX, "{columns}: {text}");
            }
        }
    }

    #[test]
    fn what_matters_is_there_at_60_columns_and_more_at_80_and_200() {
        let half = live(512 << 30, 1 << 40);
        let shown = |columns| bar_text(&half, columns);
        assert_eq!(
            shown(60),
            " 50 %  512 GiB of 1 TiB  1023 MiB/s  3 h 20 min left"
        );
        assert_eq!(
            shown(80),
            "copying   50 %  [=======>      ]  512 GiB of 1 TiB  1023 MiB/s  3 h 20 min left"
        );
        assert_eq!(
            shown(200),
            "copying   50 %  [====================>                   ]  512 GiB of 1 TiB  \
             1023 MiB/s  3 h 20 min left  bound by the rate limit on the devices"
        );
    }
}
