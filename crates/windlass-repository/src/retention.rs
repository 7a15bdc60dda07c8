//! Retention: which sets of a database stay, by count, by age, and by day, week, month and year.
//!
//!   sets --lines--> rules of each line --> what is held or in use --> bases of all that --> kept
//!
//! A line is the sets of one server with those of its past. A server that was restored and its
//! source have one identity, and both may go on: the rules count in each line by itself. A line
//! that ended before everything that the newest line keeps no longer counts.
//!
//! Invariants
//! - A set that stays has its base, and the base has its own.
//! - The newest full set of a line that counts always stays. If there is none, everything stays.
//! - What only the clock says removes nothing: an age counts from the newest set, if that is
//!   earlier than the clock. If the times of sets are not in the order in which the sets were made,
//!   the rules count in both orders, and what one of them keeps stays.

mod making;

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use windlass_media::{SetId, saturated};
use windlass_postgres::{Lsn, is_from_past};

/// What to keep. A set stays if one of the rules keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The newest full sets, and all that was made since the oldest of them.
    pub full: Option<u32>,
    /// All sets of this time, and what leads to each moment in it.
    pub within: Option<SignedDuration>,
    /// The newest set of each of the last days that have one.
    pub daily: Option<u32>,
    /// The same for weeks, which begin on Monday.
    pub weekly: Option<u32>,
    /// The same for months.
    pub monthly: Option<u32>,
    /// The same for years.
    pub yearly: Option<u32>,
}

impl Policy {
    /// Whether it says nothing, and so would keep nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a set stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// It is one of the newest full sets.
    Full,
    /// It was made since the oldest full set that is counted.
    SinceFull,
    /// It is young enough.
    Within,
    /// From it, the log leads to the first moment that is young enough.
    Window,
    /// It is the newest of its day.
    Daily,
    /// It is the newest of its week.
    Weekly,
    /// It is the newest of its month.
    Monthly,
    /// It is the newest of its year.
    Yearly,
    /// It is the newest full set.
    LastFull,
    /// It is the newest that leads to the newest timeline of the log.
    Timeline,
    /// Somebody holds it.
    Held,
    /// Somebody reads it.
    InUse,
    /// Another set that stays builds on it.
    Base,
    /// A set that cannot be read may build on it.
    Unclear,
}

impl Rule {
    /// Whether the log behind the set stays, so that each moment from the set on can be restored.
    pub fn keeps_log(self) -> bool {
        match self {
            Self::Full | Self::SinceFull | Self::Within | Self::Window => true,
            Self::LastFull | Self::Timeline | Self::InUse => true,
            Self::Daily | Self::Weekly | Self::Monthly | Self::Yearly => false,
            Self::Held | Self::Base | Self::Unclear => false,
        }
    }

    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::SinceFull => "since-full",
            Self::Within => "within",
            Self::Window => "window",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
            Self::LastFull => "last-full",
            Self::Timeline => "timeline",
            Self::Held => "held",
            Self::InUse => "in-use",
            Self::Base => "base",
            Self::Unclear => "unclear",
        }
    }
}

/// A set of a database, as far as the rules ask. It can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The set.
    pub id: SetId,
    /// The set that it builds on.
    pub base: Option<SetId>,
    /// Whether it is a full one.
    pub is_full: bool,
    /// When it was begun, in nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// When it was consistent, in nanoseconds since 1970 UTC.
    pub ended_nanos: i64,
    /// PostgreSQL: which restores its server comes from, and where the set ends.
    pub origin: (String, Lsn),
    /// Why it stays, whatever the rules say.
    pub always: BTreeSet<Rule>,
}

/// The sets that stay, each with the reasons.
pub type KeptSets = BTreeMap<SetId, BTreeSet<Rule>>;

/// What stays of the sets of one database. `now` is what the clock says, in nanoseconds since 1970.
pub fn kept(policy: &Policy, sets: &[Member], now: i64, zone: &TimeZone) -> KeptSets {
    let mut kept = KeptSets::new();
    let newest = sets.iter().map(|set| set.begun_nanos).max();
    let now = newest.map_or(now, |newest| newest.min(now));
    let mut counted_since = None;
    for line in lines(sets) {
        let newest = line.last().map(|set| set.begun_nanos);
        if counted_since.is_some_and(|since| newest < Some(since)) {
            continue;
        }
        let of_line = kept_of_line(policy, &line, now, zone);
        let stays = |set: &&&Member| {
            let rules = of_line.get(&set.id);
            rules.is_some_and(|rules| rules.iter().any(|rule| rule.keeps_log()))
        };
        let since = line.iter().filter(stays).map(|set| set.begun_nanos).min();
        counted_since = counted_since.into_iter().chain(since).min();
        for (set, rules) in of_line {
            kept.entry(set).or_default().extend(rules);
        }
    }
    for set in sets.iter().filter(|set| !set.always.is_empty()) {
        kept.entry(set.id).or_default().extend(&set.always);
    }
    keep_bases(sets, &mut kept);
    kept
}

/// What stays of a line, counted by time. If that is not the order in which its sets were made,
/// they are counted in that order, too.
fn kept_of_line(policy: &Policy, line: &[&Member], now: i64, zone: &TimeZone) -> KeptSets {
    let count = |sets: &[&Member]| {
        let mut rules = Rules {
            sets,
            kept: KeptSets::new(),
        };
        rules.take(policy, now, zone);
        rules.kept
    };
    let mut kept = count(line);
    if let Some(made) = making::in_order(line) {
        let made: Vec<_> = made.iter().collect();
        for (set, rules) in count(&made) {
            kept.entry(set).or_default().extend(rules);
        }
    }
    kept
}

/// The lines of these sets, that with the newest set first. Each is in order of time.
fn lines(sets: &[Member]) -> Vec<Vec<&Member>> {
    let origins: BTreeSet<&String> = sets.iter().map(|set| &set.origin.0).collect();
    let line = |origin: &String| {
        let is_of = |set: &&Member| {
            let (restored, stop) = &set.origin;
            restored == origin || is_from_past((restored, *stop), origin)
        };
        let mut line: Vec<_> = sets.iter().filter(is_of).collect();
        line.sort_by_key(|set| (set.begun_nanos, set.id));
        line
    };
    let mut lines: Vec<_> = origins.into_iter().map(line).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.last().map(|set| (set.begun_nanos, set.id))));
    lines
}

/// Bases stay, down to the full set.
fn keep_bases(sets: &[Member], kept: &mut KeptSets) {
    let bases: BTreeMap<_, _> = sets.iter().map(|set| (set.id, set.base)).collect();
    let roots: Vec<_> = kept.keys().copied().collect();
    for root in roots {
        let mut above = root;
        while let Some(base) = bases.get(&above).copied().flatten() {
            let is_there = bases.contains_key(&base);
            if !is_there || !kept.entry(base).or_default().insert(Rule::Base) {
                break;
            }
            above = base;
        }
    }
}

/// The rules for the sets of a line.
struct Rules<'a> {
    /// In order of time.
    sets: &'a [&'a Member],
    kept: KeptSets,
}

impl Rules<'_> {
    fn take(&mut self, policy: &Policy, now: i64, zone: &TimeZone) {
        let Some(last_full) = self.sets.iter().rposition(|set| set.is_full) else {
            self.keep_from(0, Rule::SinceFull);
            return;
        };
        self.keep(last_full, Rule::LastFull);
        if let Some(count) = policy.full {
            self.newest_full(count);
        }
        if let Some(time) = policy.within {
            self.within(now, time);
        }
        let periods: [(Option<u32>, Rule, PeriodOf); 4] = [
            (policy.daily, Rule::Daily, day),
            (policy.weekly, Rule::Weekly, week),
            (policy.monthly, Rule::Monthly, month),
            (policy.yearly, Rule::Yearly, year),
        ];
        for (count, rule, period) in periods {
            self.newest_of_periods(count.unwrap_or(0), rule, |set| period(&local(set, zone)));
        }
    }

    fn keep(&mut self, at: usize, rule: Rule) {
        self.kept.entry(self.sets[at].id).or_default().insert(rule);
    }

    fn keep_from(&mut self, first: usize, rule: Rule) {
        (first..self.sets.len()).for_each(|at| self.keep(at, rule));
    }

    fn newest_full(&mut self, count: u32) {
        let full = (0..self.sets.len())
            .rev()
            .filter(|at| self.sets[*at].is_full);
        let full: Vec<_> = full.take(count.max(1) as usize).collect();
        let is_all = full.len() < count.max(1) as usize;
        // With fewer full sets than asked for, the oldest one is not the oldest that would count.
        let first = full.last().copied().filter(|_| !is_all).unwrap_or(0);
        self.keep_from(first, Rule::SinceFull);
        for at in full {
            self.keep(at, Rule::Full);
            let rules = self.kept.entry(self.sets[at].id).or_default();
            rules.remove(&Rule::SinceFull);
        }
    }

    fn within(&mut self, now: i64, time: SignedDuration) {
        let nanos: i64 = saturated(time.as_nanos());
        let since = now.saturating_sub(nanos);
        let mut before = None;
        for at in 0..self.sets.len() {
            match self.sets[at].ended_nanos > since {
                true => self.keep(at, Rule::Within),
                false => before = Some(at),
            }
        }
        if let Some(at) = before {
            self.keep(at, Rule::Window);
        }
    }

    fn newest_of_periods(&mut self, count: u32, rule: Rule, period: impl Fn(&Member) -> Period) {
        let mut seen = BTreeSet::new();
        for at in (0..self.sets.len()).rev() {
            if seen.len() >= count as usize {
                break;
            }
            if seen.insert(period(self.sets[at])) {
                self.keep(at, rule);
            }
        }
    }
}

/// A day, a week, a month or a year, as numbers.
type Period = (i16, i16);
/// The period of a moment.
type PeriodOf = fn(&Zoned) -> Period;

fn local(set: &Member, zone: &TimeZone) -> Zoned {
    let moment = Timestamp::from_nanosecond(set.begun_nanos.into());
    moment.unwrap_or_default().to_zoned(zone.clone())
}

fn day(time: &Zoned) -> Period {
    (time.year(), time.day_of_year())
}

fn week(time: &Zoned) -> Period {
    let week = time.date().iso_week_date();
    (week.year(), week.week().into())
}

fn month(time: &Zoned) -> Period {
    (time.year(), time.month().into())
}

fn year(time: &Zoned) -> Period {
    (time.year(), 0)
}

#[cfg(test)]
mod tests;
