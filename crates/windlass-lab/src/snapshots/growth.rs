//! How fast a snapshot will grow, from what a server says about itself in a short time.
//!
//! A snapshot keeps a page when it changes for the first time. A server logs a whole page when it
//! changes for the first time after a checkpoint, and counts these pages. So the pages that it has
//! logged since its last checkpoint are those that a snapshot of the same age would have kept.
//!
//!   pages
//!     |            ______  G(t) = all (1 - exp(-rate t)): pages that change again cost nothing
//!     |       ____/
//!     |    __/   slope now, from the count during the look
//!     |  _/
//!     |_/___________________ t
//!       checkpoint      now
//!
//! The slope now and the pages since the checkpoint give both numbers of the curve. If the slope is
//! as steep as at the beginning, no end can be seen, and the curve is a line.
//!
//! The control file names a checkpoint only when it has ended, and pages are counted anew from its
//! beginning on. So a checkpoint that is older than `checkpoint_timeout` has a successor that has
//! begun and not ended: then the log has the pages of a whole interval, and those since.

use serde::Serialize;

/// What part of a page an image of it in the log has on average: the unused middle is left out.
const IMAGE_SHARE: f64 = 0.85;
/// The same when the server compresses its log.
const COMPRESSED_SHARE: f64 = 0.35;

/// What was seen of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GrowthLook {
    /// How long it was looked at.
    pub seconds: f64,
    /// Pages that changed for the first time since the checkpoint, during the look.
    pub first_changes: u64,
    /// Rows that were inserted, updated and deleted during the look.
    pub row_changes: u64,
    /// Bytes of log that were written during the look.
    pub log_bytes: u64,
    /// The age of the last checkpoint at the end of the look, in seconds.
    pub checkpoint_age_seconds: f64,
    /// Bytes of log since that checkpoint.
    pub checkpoint_log_bytes: u64,
    /// After so many seconds a checkpoint begins at the latest.
    pub checkpoint_timeout_seconds: f64,
    /// Pages that have changed since that checkpoint, if it began during the look.
    pub checkpoint_changes: Option<u64>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages of the cluster. More cannot be kept.
    pub cluster_pages: u64,
    /// Whether the server logs whole pages. If not, only changed rows are known.
    pub full_page_writes: bool,
    /// Whether the server compresses its log.
    pub compresses: bool,
}

/// The curve of growth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GrowthModel {
    /// Pages in the first second.
    pub pages_per_second: f64,
    /// The share of the pages that remain which change in a second; zero for a line.
    pub rate: f64,
    page_bytes: f64,
    pages_max: f64,
    /// Whether real growth is rather less, because only changed rows are known.
    pub is_upper_bound: bool,
}

impl GrowthModel {
    /// The curve that fits what was seen.
    pub fn of(look: &GrowthLook) -> Self {
        let seconds = look.seconds.max(1e-3);
        let line = |pages_per_second: f64, is_upper_bound| Self {
            pages_per_second,
            rate: 0.0,
            page_bytes: number(look.page_bytes),
            pages_max: number(look.cluster_pages),
            is_upper_bound,
        };
        if !look.full_page_writes {
            return line(number(look.row_changes) / seconds, true);
        }
        let slope = number(look.first_changes) / seconds;
        // All is taken in the middle of the look, where the slope is the mean one.
        let ages = ages(look, look.checkpoint_age_seconds - seconds / 2.0);
        let changed = (changed_pages(look) - slope * seconds / 2.0).max(slope * seconds / 2.0);
        let rows = (number(look.row_changes) / seconds).max(slope);
        if changed <= 0.0 {
            return line(slope, false);
        }
        let all_ages: f64 = ages.iter().sum();
        let wanted = slope / changed;
        if wanted * all_ages >= 0.98 {
            return line(slope.max(changed / all_ages).min(rows), false);
        }
        // Pages that all have changed already change again as fast as rows change, at most.
        let again = |all: f64| rows / all;
        let (all, rate) = match wanted > 0.0 {
            true => {
                let rate = root(|rate| steepness(rate, &ages), wanted);
                let shares: f64 = ages.iter().map(|age| 1.0 - (-rate * age).exp()).sum();
                let all = changed / shares;
                (all, rate.min(again(all)))
            }
            false => (changed, again(changed)),
        };
        Self {
            rate,
            ..line(all * rate, false)
        }
    }

    /// Bytes that a snapshot has after so many seconds.
    pub fn bytes_after(&self, seconds: f64) -> f64 {
        let pages = match self.rate {
            rate if rate > 0.0 => self.pages_per_second / rate * (1.0 - (-rate * seconds).exp()),
            _ => self.pages_per_second * seconds,
        };
        pages.min(self.pages_max) * self.page_bytes
    }

    /// After how many seconds a snapshot has so many bytes; none if it never has.
    pub fn seconds_until(&self, bytes: f64) -> Option<f64> {
        let pages = bytes / self.page_bytes;
        if pages > self.pages_max || self.pages_per_second <= 0.0 {
            return None;
        }
        if self.rate <= 0.0 {
            return Some(pages / self.pages_per_second);
        }
        let share = pages * self.rate / self.pages_per_second;
        (share < 1.0).then(|| -(1.0 - share).ln() / self.rate)
    }
}

/// Pages that have changed since the last checkpoint: counted, or from the bytes of log. What the
/// log has besides whole pages is the same in each second.
fn changed_pages(look: &GrowthLook) -> f64 {
    if let Some(counted) = look.checkpoint_changes {
        return number(counted);
    }
    let share = if look.compresses {
        COMPRESSED_SHARE
    } else {
        IMAGE_SHARE
    };
    let image = number(look.page_bytes) * share;
    let others = number(look.log_bytes) - number(look.first_changes) * image;
    let others = others.max(0.0) / look.seconds.max(1e-3) * look.checkpoint_age_seconds;
    // What was loaded in bulk is in the log, too. It is no more than there is.
    let logged = (number(look.checkpoint_log_bytes) - others).max(0.0) / image;
    logged.min(number(look.cluster_pages))
}

/// How long pages have been counted: since the last checkpoint, or in the interval before it and
/// since.
fn ages(look: &GrowthLook, age: f64) -> Vec<f64> {
    let (age, most) = (age.max(look.seconds / 2.0), look.checkpoint_timeout_seconds);
    match most > 0.0 && age > most && look.checkpoint_changes.is_none() {
        true => vec![most, (age - most).clamp(look.seconds / 2.0, most)],
        false => vec![age],
    }
}

/// The slope at the end of the last interval, for each page of all intervals.
fn steepness(rate: f64, ages: &[f64]) -> f64 {
    let last = ages.last().copied().unwrap_or(0.0);
    let shares: f64 = ages.iter().map(|age| -(-rate * age).exp_m1()).sum();
    rate * (-rate * last).exp() / shares
}

/// Where a function that falls steadily has this value; by bisection.
fn root(of: impl Fn(f64) -> f64, value: f64) -> f64 {
    let (mut low, mut high) = (1e-9_f64, 10.0_f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if of(middle) > value {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

fn number(value: u64) -> f64 {
    crate::numbers::to_f64(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with 10,000 pages that change by chance, and 100 KiB of other log a second.
    fn seen(rate: f64, age: f64) -> GrowthLook {
        let kept = |seconds: f64| 10_000.0 * (1.0 - (-rate * seconds).exp());
        let image = 8192.0 * IMAGE_SHARE;
        let log = |seconds: f64| kept(seconds) * image + seconds * 102_400.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small numbers"
        )]
        let whole = |value: f64| value as u64;
        GrowthLook {
            seconds: 10.0,
            first_changes: whole(kept(age) - kept(age - 10.0)),
            log_bytes: whole(log(age) - log(age - 10.0)),
            checkpoint_age_seconds: age,
            checkpoint_log_bytes: whole(log(age)),
            checkpoint_timeout_seconds: 300.0,
            row_changes: 50_000,
            page_bytes: 8192,
            cluster_pages: 50_000,
            full_page_writes: true,
            ..GrowthLook::default()
        }
    }

    #[test]
    fn the_curve_is_found_from_a_look_at_any_age_of_the_checkpoint() {
        for rate in [0.0005, 0.005, 0.02] {
            for age in [12.0, 60.0, 200.0] {
                let model = GrowthModel::of(&seen(rate, age));
                for after in [10.0, 60.0, 600.0] {
                    let real = 10_000.0 * (1.0 - (-rate * after).exp()) * 8192.0;
                    let ratio = model.bytes_after(after) / real;
                    let place = format!("rate {rate}, age {age}, after {after}: {ratio}");
                    // A young checkpoint shows no end of a slow curve yet.
                    let most = if rate * age < 0.5 { 6.0 } else { 1.25 };
                    assert!(ratio > 0.85 && ratio < most, "{place}");
                }
            }
        }
    }

    #[test]
    fn a_checkpoint_that_has_begun_and_not_ended_is_reckoned_with() {
        let (rate, timeout, since) = (0.004, 300.0, 120.0);
        let young = seen(rate, since);
        let before = seen(rate, timeout);
        let look = GrowthLook {
            checkpoint_age_seconds: timeout + since,
            checkpoint_log_bytes: young.checkpoint_log_bytes + before.checkpoint_log_bytes,
            ..young
        };
        let model = GrowthModel::of(&look);
        let real = 10_000.0 * (1.0 - (-rate * 600.0_f64).exp()) * 8192.0;
        let ratio = model.bytes_after(600.0) / real;
        // Two intervals together say little about the end of the curve.
        assert!((0.6..2.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_time_until_a_size_is_that_at_which_the_size_is_reached() {
        let model = GrowthModel::of(&seen(0.005, 100.0));
        let seconds = model.seconds_until(40e6).unwrap();
        assert!((model.bytes_after(seconds) - 40e6).abs() < 1.0);
        assert_eq!(model.seconds_until(1e9), None, "no more than all pages");
        let quiet = GrowthModel::of(&GrowthLook {
            first_changes: 0,
            row_changes: 0,
            log_bytes: 0,
            checkpoint_log_bytes: 0,
            ..seen(0.005, 100.0)
        });
        assert!(quiet.bytes_after(3600.0) < 1.0, "{quiet:?}");
        assert_eq!(quiet.seconds_until(1.0), None);
    }
}
