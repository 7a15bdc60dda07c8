//! Which alternative to take, and how sure a plan is.
//!
//! Cheap means: the fewest bytes kept, for they cost as long as the backup is kept; among those
//! within one percent the fewest files; among those the least time on cores.

use serde::Serialize;

use super::{Direction, Prediction};
use crate::accuracy::Accuracy;

/// Stored sizes this near are the same size.
const SAME_SIZE: f64 = 1.01;
/// What the plan was off by for the published runs it was not fitted on (docs/lab.md): nine in ten
/// were nearer.
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

/// How sure a plan is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sureness {
    /// Nine in ten runs should be within this share of the prediction.
    pub share: f64,
    /// What that rests on.
    pub why: String,
}

/// How sure plans of this direction are: by the runs kept in the state directory, else by the
/// published ones.
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
