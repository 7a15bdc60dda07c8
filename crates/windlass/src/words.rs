//! Words for durations, moments and limits. They are the same wherever they are shown.

use std::path::PathBuf;

use windlass_engine::{Live, Resource, show_rate, show_size};
use windlass_lab::{Operation, Pattern, Point, Trial};
pub use windlass_operations::moments::{age, local_time, moment, timestamp, when, zone_fault};

/// Why a prediction has no time.
pub const TOO_SHORT: &str =
    "too short to predict: a run of less than 1 s is mostly its beginning and its end";

/// A duration: `0.35 s`, `12.3 s`, `5 min 10 s`, `3 h 20 min`, `4 days`.
pub fn duration(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a duration of a run or an age"
    )]
    let whole = seconds.max(0.0).round() as u64;
    let two = |first: String, rest: u64, unit: &str| match rest {
        0 => first,
        rest => format!("{first} {rest} {unit}"),
    };
    match whole {
        0..=119 if seconds.fract() == 0.0 => format!("{whole} s"),
        0..=9 if seconds < 9.995 => format!("{seconds:.2} s"),
        0..=119 if seconds < 99.95 => format!("{seconds:.1} s"),
        0..=119 => format!("{whole} s"),
        120..=7_199 => two(format!("{} min", whole / 60), whole % 60, "s"),
        7_200..=172_799 => two(format!("{} h", whole / 3600), whole % 3600 / 60, "min"),
        _ => format!("{} days", whole / 86_400),
    }
}

/// The text of a time, followed by its [`moment`] in brackets. If the text is not a time, it stays
/// as it is.
pub fn moment_of(text: &str) -> String {
    text.parse()
        .map_or(text.to_owned(), |time| format!("{text} ({})", moment(time)))
}

/// What binds a run right now; empty while that is not known.
pub fn bound_now(live: &Live) -> String {
    let words = |limit: &windlass_engine::LiveLimit| bound(limit.stage);
    live.limit.as_ref().map_or(String::new(), words)
}

/// What bound a run, in a few words.
pub fn bound(resource: Resource) -> String {
    format!("bound by {}", resource.words())
}

/// Paths as they are typed in a shell.
pub fn typed(paths: &[PathBuf]) -> String {
    let words = paths.iter().map(|path| quoted(&path.display().to_string()));
    words.collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it: in quotes if it has letters that a shell would change.
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:@%+,".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A measured point of storage.
pub fn point_text(point: &Point) -> String {
    format!(
        "{:<22} {:>8} x {:<2}  {:>10}  {:>8.0} a second  p50 {:.0} us",
        path_kind(point.pattern, point.operation, point.direct),
        show_size(point.block_bytes),
        point.depth,
        show_rate(point.bytes_per_second),
        point.operations_per_second,
        point.latency_micros_p50
    )
}

/// A trial of a setting, without its verdict.
pub fn trial_text(trial: &Trial) -> String {
    let setting = &trial.setting;
    format!(
        "{:<8} {:>3} x {:<7} {:>2} readers  {:>10}  ratio {:.2}",
        setting.codec.to_string(),
        setting.buffers,
        show_size(setting.transfer_bytes as u64),
        setting.readers,
        show_rate(trial.rate),
        trial.ratio
    )
}

/// A way to read or write storage.
pub fn path_kind(pattern: Pattern, operation: Operation, direct: bool) -> String {
    let pattern = match pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
    };
    let operation = match operation {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let way = if direct { "" } else { ", cached" };
    format!("{pattern} {operation}{way}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let expected = [
            (0.0, "0 s"),
            (3.0, "3 s"),
            (0.004, "0.00 s"),
            (0.354, "0.35 s"),
            (12.34, "12.3 s"),
            (110.2, "110 s"),
            (310.0, "5 min 10 s"),
            (7_200.0, "2 h"),
            (12_000.0, "3 h 20 min"),
            (360_000.0, "4 days"),
        ];
        for (seconds, words) in expected {
            assert_eq!(duration(seconds), words);
        }
    }

    #[test]
    fn a_word_can_be_typed_as_it_is_shown() {
        assert_eq!(quoted("/backup/shop-1.windlass"), "/backup/shop-1.windlass");
        assert_eq!(quoted("/my backup/x"), "'/my backup/x'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
