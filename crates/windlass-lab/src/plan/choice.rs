//! Which alternative to take, and how certain a plan is.
//!
//! The cheapest alternative keeps the fewest bytes, because these cost money as long as the backup
//! is kept. Among those within one percent, it has the fewest files. Among those, it takes the
//! least CPU time.

use serde::Serialize;

use super::{Direction, Prediction};
use crate::accuracy::Accuracy;

/// Stored sizes within this factor count as equal.
const SAME_SIZE: f64 = 1.01;
/// The error of the plan for the published runs that it was not fitted on (docs/lab.md): nine in
/// ten runs were within this share.
const PUBLISHED_BACKUP: f64 = 0.10;
const PUBLISHED_RESTORE: f64 = 0.30;

/// What is recommended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Index into the predictions.
    pub index: usize,
    /// It ends within the window, or no window was given.
    pub meets: bool,
    /// Why it was taken, as a sentence.
    pub why: String,
}

/// The cheapest prediction that ends within `window_seconds`; the fastest if none does.
pub fn choose(predictions: &[Prediction], window_seconds: Option<f64>) -> Option<Choice> {
    let window = window_seconds.unwrap_or(f64::INFINITY);
    let meets = |one: &&(usize, &Prediction)| one.1.seconds <= window;
    let all: Vec<_> = predictions.iter().enumerate().collect();
    let least = all
        .iter()
        .filter(meets)
        .map(|one| one.1.stored_bytes)
        .fold(f64::INFINITY, f64::min);
    let small = |one: &&(usize, &Prediction)| one.1.stored_bytes <= least * SAME_SIZE;
    let cheapest = all.iter().filter(meets).filter(small).min_by(|one, other| {
        let key = |one: &Prediction| (one.files, one.cpu_seconds, one.seconds);
        let (one, other) = (key(one.1), key(other.1));
        one.partial_cmp(&other).unwrap_or(std::cmp::Ordering::Equal)
    });
    if let Some((index, _)) = cheapest {
        let within = if window_seconds.is_some() {
            "within the window "
        } else {
            ""
        };
        return Some(Choice {
            index: *index,
            meets: true,
            why: format!("cheapest {within}(fewest bytes kept, then fewest files, then least CPU)"),
        });
    }
    let by_time = |one: &&(usize, &Prediction), other: &&(usize, &Prediction)| {
        one.1.seconds.total_cmp(&other.1.seconds)
    };
    all.iter().min_by(by_time).map(|(index, _)| Choice {
        index: *index,
        meets: false,
        why: "none ends within that time; this is the fastest".to_owned(),
    })
}

/// How certain a plan is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sureness {
    /// Nine in ten runs should be within this share of the prediction.
    pub share: f64,
    /// Where that number comes from.
    pub why: String,
}

/// How certain plans of this direction are. The runs kept in the state directory decide; without
/// any, the published ones do.
pub fn sureness(direction: Direction, accuracy: Option<&Accuracy>, measured: bool) -> Sureness {
    if let Some(known) = accuracy.filter(|known| known.runs >= 5) {
        return Sureness {
            share: known.error_p90,
            why: format!(
                "{} runs of this kind on this machine: median error {:.0} %",
                known.runs,
                known.error_median * 100.0
            ),
        };
    }
    let share = match direction {
        Direction::Backup => PUBLISHED_BACKUP,
        Direction::Restore => PUBLISHED_RESTORE,
    };
    let rests = if measured {
        "size and ratio were measured"
    } else {
        "size and ratio are as given"
    };
    Sureness {
        share,
        why: format!("the usual error of plans for published runs; {rests}"),
    }
}
