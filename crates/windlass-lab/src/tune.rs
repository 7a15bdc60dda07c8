//! Tuning: settings found by measured trials.
//!
//!   default --trial--> what binds it --> moves that could help --trial--> keep what is faster
//!                          ^                                                    |
//!                          +----------------------------------------------------+
//!
//! Not a formula, and not every combination: the verdict of a trial says which knobs can matter
//! next. A knob that helps is turned on until it helps no more. The search ends at the predicted
//! limit, when no move is faster by more than the noise, or when the budget is spent.
//!
//! Invariants
//! - A setting is never tried twice, but for the first one, which measures the noise, and the
//!   fastest ones at the end: of many trials the fastest is fast by luck, too.
//! - No setting is tried that takes more memory than allowed, or kept that takes more of the cores.
//! - Time is what trials say it was: the search itself looks at no clock.

mod moves;
mod space;

use serde::Serialize;

use crate::error::LabError;
use crate::sweep::{Difference, Noise};

pub use space::{Setting, Space};

use moves::moves;

/// Differences below this are noise, whatever two equal trials say.
const NOISE_MIN: f64 = 0.02;
/// Noise beyond this is no measure of anything: something else was using the machine.
const NOISE_MAX: f64 = 0.10;
/// Of all settings at most this part is climbed over.
const PART_MAX: usize = 6;
/// At most this part of all that a sweep would cost is spent, a first look and second ones
/// included: beyond, a search would be no better than a sweep.
const COST_PART_MAX: usize = 5;
/// Trials that every search may make.
const TRIALS_MIN: usize = 8;
/// So many of the fastest settings are tried once more.
const CONFIRMED: usize = 3;
/// So often the default and the best are tried once more at the end, at most.
const DUEL_ROUNDS: usize = 3;
/// So near to the predicted limit there is nothing left to find.
const AT_LIMIT: f64 = 0.97;

/// What one trial of a setting showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// What was tried.
    pub setting: Setting,
    /// Bytes of the database per second.
    pub rate: f64,
    /// Bytes of the database for a stored byte.
    pub ratio: f64,
    /// Cores that it kept busy.
    pub cores: f64,
    /// The stage that bound it, as in a verdict.
    pub limit: String,
    /// The verdict.
    pub verdict: String,
    /// What it cost, in seconds.
    pub seconds: f64,
    /// What it cost, in bytes read from the database.
    pub bytes: u64,
}

/// How much a search may cost, and what it may use.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Seconds of trials.
    pub seconds: f64,
    /// Bytes read by trials.
    pub bytes: u64,
    /// Cores that a setting may keep busy.
    pub cores: f64,
    /// Bytes of the database per second that nothing can be above; infinite where not known.
    pub limit: f64,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The best setting is as fast as anything is predicted to be.
    AtTheLimit,
    /// A rate limit that the user set binds it.
    AtTheRate,
    /// Nothing that could help did.
    NoGain,
    /// The time or the bytes are spent.
    Budget,
}

/// What a search found.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The best trial.
    pub best: Trial,
    /// That of the default setting.
    pub first: Trial,
    /// All trials, in order.
    pub trials: Vec<Trial>,
    /// Differences below this share were taken as noise while searching.
    pub noise: f64,
    /// The best setting's rate over the default's, and whether the trials tell the two apart.
    pub difference: Difference,
    /// Why it ended.
    pub ended: Ended,
    /// Seconds of all trials.
    pub seconds: f64,
    /// Bytes read by all trials.
    pub bytes: u64,
}

/// Looks for the fastest setting of a space.
pub fn tune(
    space: &Space,
    bounds: &Bounds,
    trial: &mut dyn FnMut(&Setting) -> Result<Trial, LabError>,
) -> Result<Tuned, LabError> {
    let settings = space.all().len();
    let mut search = Search {
        space,
        bounds,
        trial,
        trials: Vec::new(),
        noise: NOISE_MIN,
        trials_max: (settings / PART_MAX).max(TRIALS_MIN),
        confirmed_max: (settings / COST_PART_MAX).saturating_sub(1),
    };
    let first = search.measure(&space.first())?;
    let again = search.measure(&space.first())?;
    let apart = (first.rate - again.rate).abs() / first.rate.max(again.rate).max(1.0);
    search.noise = apart.clamp(NOISE_MIN, NOISE_MAX);
    let (best, ended) = search.search()?;
    let best = search.cheapest_like(&best);
    search.duel(&first.setting, &best.setting)?;
    let (best, first) = (search.mean(&best), search.mean(&first));
    Ok(Tuned {
        difference: difference(&search.trials, &first.setting, &best.setting),
        best,
        first,
        noise: search.noise,
        ended,
        seconds: search.seconds(),
        bytes: search.bytes(),
        trials: search.trials,
    })
}

/// Tries every setting of a space, for comparing; the fastest is the best.
pub fn exhaust(
    space: &Space,
    bounds: &Bounds,
    trial: &mut dyn FnMut(&Setting) -> Result<Trial, LabError>,
) -> Result<Tuned, LabError> {
    let mut trials = Vec::new();
    for setting in space.all() {
        trials.push(trial(&setting)?);
    }
    let fastest = trials
        .iter()
        .filter(|one| one.cores <= bounds.cores)
        .max_by(|one, other| one.rate.total_cmp(&other.rate));
    let first = trials.iter().find(|one| one.setting == space.first());
    let (Some(best), Some(first)) = (fastest, first) else {
        return Err(nothing_fits());
    };
    Ok(Tuned {
        difference: difference(&trials, &first.setting, &best.setting),
        best: best.clone(),
        first: first.clone(),
        noise: NOISE_MIN,
        ended: Ended::NoGain,
        seconds: trials.iter().map(|one| one.seconds).sum(),
        bytes: trials.iter().map(|one| one.bytes).sum(),
        trials,
    })
}

/// Compares two settings by all trials, as a sweep compares its runs: the spread is that of all
/// settings that were tried more than once. The best was chosen among all that were tried, and
/// each of them could have looked best by chance, so that is how many comparisons are made.
fn difference(trials: &[Trial], first: &Setting, best: &Setting) -> Difference {
    let mut settings: Vec<&Setting> = Vec::new();
    let mut values = Vec::new();
    for trial in trials {
        let known = settings.iter().position(|one| **one == trial.setting);
        let case = known.unwrap_or_else(|| {
            settings.push(&trial.setting);
            settings.len() - 1
        });
        values.push((case, 0, trial.rate));
    }
    let case = |setting: &Setting| settings.iter().position(|one| *one == setting);
    let noise = Noise::of_values(values.into_iter(), settings.len(), settings.len() - 1);
    noise.compare(case(first).unwrap_or(0), case(best).unwrap_or(0))
}

fn nothing_fits() -> LabError {
    LabError::Option {
        option: "--max-memory, --max-cpu",
        what: "no setting takes as little".to_owned(),
    }
}

struct Search<'a> {
    space: &'a Space,
    bounds: &'a Bounds,
    trial: &'a mut dyn FnMut(&Setting) -> Result<Trial, LabError>,
    trials: Vec<Trial>,
    noise: f64,
    /// Trials of the climb.
    trials_max: usize,
    /// All trials, with the second looks.
    confirmed_max: usize,
}

impl Search<'_> {
    fn measure(&mut self, setting: &Setting) -> Result<Trial, LabError> {
        let found = (self.trial)(setting)?;
        self.trials.push(found.clone());
        Ok(found)
    }

    /// Climbs from the first setting, and on from what a second look finds to be the fastest.
    fn search(&mut self) -> Result<(Trial, Ended), LabError> {
        let mut from = self.mean(&self.trials[0]);
        loop {
            let (best, ended) = self.climb(&from)?;
            if ended != Ended::NoGain {
                return Ok((best, ended));
            }
            match self.confirm()? {
                Some(fastest) if fastest.setting != best.setting && self.has_trials() => {
                    from = fastest;
                }
                _ => return Ok((best, ended)),
            }
        }
    }

    /// Goes from the best setting known to a better one until there is an end.
    fn climb(&mut self, first: &Trial) -> Result<(Trial, Ended), LabError> {
        let mut best = first.clone();
        loop {
            if self.allowed(&best) && best.rate >= AT_LIMIT * self.bounds.limit {
                return Ok((best, Ended::AtTheLimit));
            }
            if self.allowed(&best) && best.limit == "rate_limit" {
                return Ok((best, Ended::AtTheRate));
            }
            // Where nothing gains more than the noise, the fastest so far is as good a place to go
            // on from: what it gains may be real, and more of the same would show.
            match self.improve(&best)?.or_else(|| self.faster_than(&best)) {
                Some(better) => best = better,
                None if self.is_spent() => return Ok((best, Ended::Budget)),
                None => return Ok((best, Ended::NoGain)),
            }
        }
    }

    /// The first move that helps, turned on until it helps no more.
    fn improve(&mut self, best: &Trial) -> Result<Option<Trial>, LabError> {
        let limit = if self.allowed(best) {
            best.limit.as_str()
        } else {
            "compressor"
        };
        for step in moves(limit) {
            let mut better: Option<Trial> = None;
            loop {
                let from = better.as_ref().unwrap_or(best);
                let next = self.space.step(&from.setting, *step);
                let Some(next) = next.filter(|next| !self.is_tried(next)) else {
                    break;
                };
                if self.is_spent() || !self.has_trials() {
                    return Ok(better);
                }
                let from = from.clone();
                let found = self.measure(&next)?;
                if !self.is_better(&found, &from) {
                    break;
                }
                better = Some(found);
            }
            if better.is_some() {
                return Ok(better);
            }
        }
        Ok(None)
    }

    /// Tries the fastest settings once more, where they are too near each other to tell apart; the
    /// fastest then.
    fn confirm(&mut self) -> Result<Option<Trial>, LabError> {
        for trial in self.fastest() {
            if self.is_spent() || self.trials.len() >= self.confirmed_max {
                break;
            }
            self.measure(&trial.setting)?;
        }
        Ok(self.fastest().into_iter().next())
    }

    /// Tries the first setting and the best one again, in turn, so that there is something to tell
    /// them apart by; as often as what the search may cost allows.
    fn duel(&mut self, first: &Setting, best: &Setting) -> Result<(), LabError> {
        if first == best {
            return Ok(());
        }
        for _ in 0..DUEL_ROUNDS {
            for setting in [first, best] {
                if self.is_spent() || self.trials.len() >= self.confirmed_max {
                    return Ok(());
                }
                self.measure(setting)?;
            }
        }
        Ok(())
    }

    fn has_trials(&self) -> bool {
        self.trials.len() < self.trials_max
    }

    /// The fastest settings, each once; none where one is faster than all others beyond the noise.
    fn fastest(&self) -> Vec<Trial> {
        let mut found: Vec<Trial> = Vec::new();
        for trial in self.means() {
            if found.iter().all(|one| one.setting != trial.setting) {
                found.push(trial);
            }
        }
        found.sort_by(|one, other| other.rate.total_cmp(&one.rate));
        found.truncate(CONFIRMED);
        let near = |one: &Trial| one.rate * (1.0 + 2.0 * NOISE_MAX) >= found[0].rate;
        let apart = found.len() < 2 || !near(&found[1]);
        if apart { vec![] } else { found }
    }

    /// All trials that are allowed, each with the mean rate of its setting's.
    fn means(&self) -> impl Iterator<Item = Trial> {
        let allowed = self.trials.iter().filter(|one| self.allowed(one));
        allowed.map(|one| self.mean(one))
    }

    /// A trial with the mean rate of all of its setting's: the geometric one, as where settings are
    /// compared.
    fn mean(&self, trial: &Trial) -> Trial {
        let same = self
            .trials
            .iter()
            .filter(|one| one.setting == trial.setting);
        let (sum, count) = same.fold((0.0, 0.0), |(sum, count), one| {
            (sum + one.rate.max(1e-9).ln(), count + 1.0)
        });
        Trial {
            rate: (sum / count).exp(),
            ..trial.clone()
        }
    }

    fn faster_than(&self, best: &Trial) -> Option<Trial> {
        let faster = |one: &Trial| one.setting != best.setting && one.rate > best.rate;
        let faster = self.means().filter(faster);
        faster.max_by(|one, other| one.rate.total_cmp(&other.rate))
    }

    fn is_better(&self, found: &Trial, than: &Trial) -> bool {
        match (self.allowed(found), self.allowed(than)) {
            (true, true) => found.rate > than.rate * (1.0 + self.noise),
            (true, false) => true,
            (false, true) => false,
            (false, false) => found.cores < than.cores * (1.0 - self.noise),
        }
    }

    fn allowed(&self, trial: &Trial) -> bool {
        trial.cores <= self.bounds.cores
    }

    fn is_tried(&self, setting: &Setting) -> bool {
        self.trials.iter().any(|trial| trial.setting == *setting)
    }

    fn is_spent(&self) -> bool {
        self.seconds() >= self.bounds.seconds || self.bytes() >= self.bounds.bytes
    }

    fn seconds(&self) -> f64 {
        self.trials.iter().map(|trial| trial.seconds).sum()
    }

    fn bytes(&self) -> u64 {
        self.trials.iter().map(|trial| trial.bytes).sum()
    }

    /// Of what is as fast as the best, within the noise: what stores the fewest bytes; of the same
    /// codec, what takes the least memory.
    fn cheapest_like(&self, best: &Trial) -> Trial {
        let means: Vec<Trial> = self.means().collect();
        let fastest = means.iter().map(|one| one.rate).fold(0.0, f64::max);
        let like = means
            .iter()
            .filter(|one| one.rate * (1.0 + NOISE_MIN) >= fastest);
        let found = like.min_by(|one, other| {
            let key = |one: &Trial| (one.setting.weakness(), one.setting.memory());
            key(one).cmp(&key(other))
        });
        found.unwrap_or(best).clone()
    }
}

#[cfg(test)]
mod tests;
