//! Tuning: it finds settings by measured trials.
//!
//!   default --trial--> what binds it --> moves that could help --trial--> keep what is faster
//!                          ^                                                    |
//!                          +----------------------------------------------------+
//!
//! Tuning neither follows a formula nor tries every combination. The verdict of a trial says which
//! knobs can matter next. A knob that helps is turned further until it no longer helps. The search
//! ends at the predicted limit, when no move gains more than the noise, or when the budget is
//! spent.
//!
//! Invariants
//! - No setting is tried twice, with two exceptions. The first setting is repeated to measure the
//!   noise. The fastest ones are repeated at the end, because the fastest of many trials owes a
//!   part of its speed to luck.
//! - Tuning never tries a setting that takes more memory than allowed, and never keeps one that
//!   takes more of the cores.
//! - Time is what the trials report. The search itself looks at no clock.

mod moves;
mod space;

use serde::Serialize;
use windlass_engine::Resource;

use crate::error::LabError;
use crate::setting::{LabFault, LabSetting};
use crate::sweep::{Difference, Noise};

pub use space::{Settings, Space};

use moves::moves;

/// The smallest noise that is assumed, even if two equal trials differ less.
const NOISE_MIN: f64 = 0.02;
/// The largest noise that is assumed. If equal trials differ more, something else was using the
/// machine.
const NOISE_MAX: f64 = 0.10;
/// The climb tries at most one in this many of all settings.
const PART_MAX: usize = 6;
/// The search costs at most one part in this many of a full sweep, including the first look and the
/// repeated trials. If it cost more, it would be no better than a sweep.
const COST_PART_MAX: usize = 5;
/// Every search may make this many trials.
const TRIALS_MIN: usize = 8;
/// This many of the fastest settings are tried once more.
const CONFIRMED: usize = 3;
/// The trials of one round of these.
const DUEL_TRIALS: usize = 2;
/// At most this often, the default and the best setting are tried once more at the end.
const DUEL_ROUNDS: usize = 3;
/// If a rate reaches this share of the predicted limit, there is nothing left to find.
const AT_LIMIT: f64 = 0.97;

/// What one trial of a setting showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// What was tried.
    pub setting: Settings,
    /// Bytes of the database per second.
    pub rate: f64,
    /// Bytes of the database for each stored byte.
    pub ratio: f64,
    /// The number of cores that it kept busy.
    pub cores: f64,
    /// What bound it, as in a verdict.
    pub limit: Resource,
    /// The verdict.
    pub verdict: String,
    /// What the trial cost, in seconds.
    pub seconds: f64,
    /// What the trial cost, in bytes read from the database.
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
    /// Bytes of the database per second that no setting can exceed; infinite if not known.
    pub limit: f64,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The best setting is as fast as the predicted limit.
    AtTheLimit,
    /// A rate limit that the user set binds the best setting.
    AtTheRate,
    /// No move that could have helped did.
    NoGain,
    /// The time or the bytes of the budget are spent.
    Budget,
}

/// What a search found.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The best trial.
    pub best: Trial,
    /// The trial of the default setting.
    pub first: Trial,
    /// All trials, in order.
    pub trials: Vec<Trial>,
    /// The search took differences below this share as noise.
    pub noise: f64,
    /// The rate of the best setting divided by that of the default, and whether the trials can tell
    /// the two apart.
    pub difference: Difference,
    /// Why the search ended.
    pub ended: Ended,
    /// Seconds of all trials.
    pub seconds: f64,
    /// Bytes read by all trials.
    pub bytes: u64,
}

/// Looks for the fastest setting of a space. The error of a trial ends the search as it is.
pub fn tune<E: From<LabError>>(
    space: &Space,
    bounds: &Bounds,
    trial: &mut dyn FnMut(&Settings) -> Result<Trial, E>,
) -> Result<Tuned, E> {
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
    // The repeated trials may show that the best one was only lucky.
    let best = match search.allowed(&first) && best.rate < first.rate {
        true => first.clone(),
        false => best,
    };
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

/// Tries every setting of a space, to compare with a search. The fastest is the best.
pub fn exhaust<E: From<LabError>>(
    space: &Space,
    bounds: &Bounds,
    trial: &mut dyn FnMut(&Settings) -> Result<Trial, E>,
) -> Result<Tuned, E> {
    let mut trials = Vec::new();
    let others = space.all().into_iter();
    let others = others.filter(|setting| *setting != space.first());
    for setting in std::iter::once(space.first()).chain(others) {
        trials.push(trial(&setting)?);
    }
    let fastest = trials
        .iter()
        .filter(|one| one.cores <= bounds.cores)
        .max_by(|one, other| one.rate.total_cmp(&other.rate));
    let first = trials.iter().find(|one| one.setting == space.first());
    let (Some(best), Some(first)) = (fastest, first) else {
        return Err(nothing_fits().into());
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

/// Compares two settings by all trials, as a sweep compares its runs. The spread is estimated from
/// all settings that were tried more than once. The best was chosen among all settings that were
/// tried, and each of them could have looked best by chance. So their number decides how many
/// comparisons count.
fn difference(trials: &[Trial], first: &Settings, best: &Settings) -> Difference {
    let mut settings: Vec<&Settings> = Vec::new();
    let mut values = Vec::new();
    for trial in trials {
        let known = settings.iter().position(|one| **one == trial.setting);
        let case = known.unwrap_or_else(|| {
            settings.push(&trial.setting);
            settings.len() - 1
        });
        values.push((case, 0, trial.rate));
    }
    let case = |setting: &Settings| settings.iter().position(|one| *one == setting);
    let noise = Noise::of_values(values.into_iter(), settings.len(), settings.len() - 1);
    noise.compare(case(first).unwrap_or(0), case(best).unwrap_or(0))
}

fn nothing_fits() -> LabError {
    LabError::Setting {
        setting: LabSetting::Bounds,
        fault: LabFault::NothingFits,
    }
}

struct Search<'a, E> {
    space: &'a Space,
    bounds: &'a Bounds,
    trial: &'a mut dyn FnMut(&Settings) -> Result<Trial, E>,
    trials: Vec<Trial>,
    noise: f64,
    /// The most trials that the climb may reach.
    trials_max: usize,
    /// The most trials that all phases may reach, including the repeated ones.
    confirmed_max: usize,
}

impl<E> Search<'_, E> {
    fn measure(&mut self, setting: &Settings) -> Result<Trial, E> {
        let found = (self.trial)(setting)?;
        self.trials.push(found.clone());
        Ok(found)
    }

    /// Climbs from the first setting. If repeated trials then find another setting to be the
    /// fastest, it climbs on from that one.
    fn search(&mut self) -> Result<(Trial, Ended), E> {
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

    /// Goes from the best known setting to a better one, again and again, until the search ends.
    fn climb(&mut self, first: &Trial) -> Result<(Trial, Ended), E> {
        let mut best = first.clone();
        loop {
            if self.allowed(&best) && best.rate >= AT_LIMIT * self.bounds.limit {
                return Ok((best, Ended::AtTheLimit));
            }
            if self.allowed(&best) && best.limit == Resource::RateLimit {
                return Ok((best, Ended::AtTheRate));
            }
            // If nothing gains more than the noise, the climb goes on from the fastest setting so
            // far. Its gain may be real, and further moves would show that.
            match self.improve(&best)?.or_else(|| self.faster_than(&best)) {
                Some(better) => best = better,
                None if self.is_spent() => return Ok((best, Ended::Budget)),
                None => return Ok((best, Ended::NoGain)),
            }
        }
    }

    /// Finds the first move that helps, and repeats it until it no longer helps.
    fn improve(&mut self, best: &Trial) -> Result<Option<Trial>, E> {
        let limit = if self.allowed(best) {
            best.limit
        } else {
            Resource::Compressor
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

    /// Repeats the fastest settings once if they are too close to tell apart. Returns the fastest
    /// after that.
    fn confirm(&mut self) -> Result<Option<Trial>, E> {
        for trial in self.fastest() {
            if self.is_spent() || self.trials.len() + DUEL_TRIALS >= self.confirmed_max {
                break;
            }
            self.measure(&trial.setting)?;
        }
        Ok(self.fastest().into_iter().next())
    }

    /// Repeats the first setting and the best one, in turn, to get enough trials to tell them
    /// apart. It does so as often as the allowed cost permits; the phases before leave room for one
    /// round, because the best setting may have had only one trial, and a lucky one.
    fn duel(&mut self, first: &Settings, best: &Settings) -> Result<(), E> {
        if first == best {
            return Ok(());
        }
        for _ in 0..DUEL_ROUNDS {
            for setting in [best, first] {
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

    /// The fastest settings, without duplicates; none if one is faster than all others by more than
    /// the noise.
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

    /// All allowed trials, each with the mean rate of its setting.
    fn means(&self) -> impl Iterator<Item = Trial> {
        let allowed = self.trials.iter().filter(|one| self.allowed(one));
        allowed.map(|one| self.mean(one))
    }

    /// A trial with the mean rate of all trials of its setting. The mean is geometric, as in the
    /// comparison of settings.
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

    fn is_tried(&self, setting: &Settings) -> bool {
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

    /// Among the settings that are as fast as the best, within the noise: the one that stores the
    /// fewest bytes. If several have the same codec, it is the one with the least memory.
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
