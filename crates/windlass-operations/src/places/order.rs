//! The order in which the sets of a place were made, also where their times cannot be right: the
//! clock of a machine was wrong.
//!
//!   a set from the future         --> was made right before the first set that came after it
//!   a set with an earlier time    --> was made right behind its base
//!   than its base
//!
//! What builds on a set came after it. What ends behind a set in the log of its cluster came after
//! it, too, if the set is from the future. If it is not, positions prove nothing: a cluster that
//! was reverted writes the same positions again, and a set of a snapshot is younger than its end.
//!
//! Invariants
//! - Sets whose times contradict nothing are in the order of their times.
//! - No set stands before its base, and none has an earlier time than the set before it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use jiff::{SignedDuration, Timestamp};
use windlass_engine::SetEntry;
use windlass_engine::media::{SetId, saturated};

use crate::reach::ClusterSet;

/// How far apart the clocks of two machines may be without a word about it.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// What another set proves about the time of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFault {
    /// It is in the future, and the other set builds on the set.
    FutureBase,
    /// It is in the future, and the other set ends behind the set in the log.
    FutureLog,
    /// It is earlier than that of the other set, on which the set builds.
    BeforeBase,
}

/// A set in the order of making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made<'a> {
    /// The set.
    pub(crate) set: &'a SetEntry,
    /// When it was begun, in nanoseconds since 1970 UTC: what it says, or a time that fits what
    /// other sets say.
    pub(crate) begun_nanos: i64,
    /// Why that is not what it says, and the set that proves it.
    pub(crate) fault: Option<(TimeFault, &'a SetEntry)>,
}

/// The last moment that is not in the future, in nanoseconds since 1970 UTC.
pub(super) fn future_after(now: Timestamp) -> i64 {
    let limit = now.saturating_add(CLOCKS_DIFFER).unwrap_or(now);
    saturated(limit.as_nanosecond())
}

/// These sets, which come in the order of their times, in the order in which they were made.
pub(crate) fn in_order<'a>(sets: &[&'a SetEntry], now: Timestamp) -> Vec<Made<'a>> {
    let mut order = Order::of(sets, future_after(now));
    order.lower();
    order.made()
}

/// Sets by number, and what is known of their times.
struct Order<'s, 'a> {
    sets: &'s [&'a SetEntry],
    /// The number of the set on which each one builds, if that is among them.
    bases: Vec<Option<usize>>,
    /// What is later is in the future.
    limit: i64,
    begun: Vec<i64>,
    faults: Vec<Option<(TimeFault, usize)>>,
}

impl<'s, 'a> Order<'s, 'a> {
    fn of(sets: &'s [&'a SetEntry], limit: i64) -> Self {
        let numbers = sets.iter().enumerate();
        let numbers: BTreeMap<SetId, usize> =
            numbers.map(|(number, set)| (set.set_id, number)).collect();
        let base = |set: &&SetEntry| {
            let base = set.about.as_ref()?.base?;
            numbers.get(&base).copied()
        };
        Self {
            sets,
            bases: sets.iter().map(base).collect(),
            limit,
            begun: sets.iter().map(|set| set.begun_nanos).collect(),
            faults: vec![None; sets.len()],
        }
    }

    /// Gives sets from the future a time before those that came after them.
    fn lower(&mut self) {
        if self.begun.iter().all(|begun| *begun <= self.limit) {
            return;
        }
        let clusters: Vec<_> = self.sets.iter().map(|set| ClusterSet::of(set)).collect();
        // A chain of bases may stand in any order, and one without an end is none.
        for _ in 0..=self.sets.len() {
            let by_base = self.lower_by_base();
            let by_log = self.lower_by_log(&clusters);
            if !by_base && !by_log {
                break;
            }
        }
    }

    fn lower_by_base(&mut self) -> bool {
        let mut is_changed = false;
        for above in (0..self.sets.len()).rev() {
            if let Some(base) = self.bases[above] {
                is_changed |= self.put_before(base, above, TimeFault::FutureBase);
            }
        }
        is_changed
    }

    fn lower_by_log(&mut self, clusters: &[Option<ClusterSet>]) -> bool {
        let mut is_changed = false;
        for (number, cluster) in clusters.iter().enumerate() {
            // A standby may be far behind its primary.
            let cluster = cluster.as_ref().filter(|cluster| !cluster.standby);
            let Some(cluster) = cluster.filter(|_| self.begun[number] > self.limit) else {
                continue;
            };
            let later = (0..clusters.len()).filter(|other| {
                let other_cluster = clusters[*other].as_ref();
                self.begun[*other] <= self.limit
                    && other_cluster.is_some_and(|other| ends_before(cluster, other))
            });
            if let Some(first) = later.min_by_key(|other| self.begun[*other]) {
                is_changed |= self.put_before(number, first, TimeFault::FutureLog);
            }
        }
        is_changed
    }

    /// Gives a set a time before that of another one, if its own is in the future. Returns whether
    /// that changed something.
    fn put_before(&mut self, set: usize, other: usize, fault: TimeFault) -> bool {
        let is_future = self.sets[set].begun_nanos > self.limit;
        if !is_future || self.begun[other] >= self.begun[set] {
            return false;
        }
        self.begun[set] = self.begun[other].saturating_sub(1);
        let proof = self.faults[other].map_or(other, |(_, proof)| proof);
        self.faults[set] = Some((fault, proof));
        true
    }

    fn made(mut self) -> Vec<Made<'a>> {
        let order = self.numbers();
        let mut last = i64::MIN;
        for set in &order {
            if self.begun[*set] < last {
                self.begun[*set] = last.saturating_add(1);
                self.faults[*set] = self.faults[*set].or_else(|| self.behind(*set));
            }
            last = self.begun[*set];
        }
        // Each of several sets from the future has a time of its own.
        for pair in order.windows(2).rev() {
            let (set, next) = (pair[0], pair[1]);
            if self.faults[set].is_some() && self.begun[set] >= self.begun[next] {
                self.begun[set] = self.begun[next].saturating_sub(1);
            }
        }
        let made = order.into_iter().map(|number| Made {
            set: self.sets[number],
            begun_nanos: self.begun[number],
            fault: self.faults[number].map(|(fault, other)| (fault, self.sets[other])),
        });
        made.collect()
    }

    /// Each behind its base, and otherwise by time.
    fn numbers(&self) -> Vec<usize> {
        let mut above = vec![Vec::new(); self.sets.len()];
        let mut waiting = BinaryHeap::new();
        for (number, base) in self.bases.iter().enumerate() {
            match base {
                Some(base) => above[*base].push(number),
                None => waiting.push(Reverse((self.begun[number], number))),
            }
        }
        let mut order = Vec::with_capacity(self.sets.len());
        let mut is_in = vec![false; self.sets.len()];
        while let Some(Reverse((_, number))) = waiting.pop() {
            order.push(number);
            is_in[number] = true;
            let next = std::mem::take(&mut above[number]);
            waiting.extend(
                next.into_iter()
                    .map(|next| Reverse((self.begun[next], next))),
            );
        }
        // What builds on itself in the end.
        order.extend((0..is_in.len()).filter(|number| !is_in[*number]));
        order
    }

    /// Why a set stands behind one with a later time.
    fn behind(&self, set: usize) -> Option<(TimeFault, usize)> {
        let base = self.bases[set]?;
        let is_later = self.sets[base].begun_nanos > self.sets[set].begun_nanos;
        match is_later {
            true => Some((TimeFault::BeforeBase, base)),
            false => self.faults[base].filter(|(fault, _)| *fault == TimeFault::BeforeBase),
        }
    }
}

/// Whether a set of a server ends before another one of the same server.
fn ends_before(one: &ClusterSet, other: &ClusterSet) -> bool {
    let server = |set: &ClusterSet| (set.system, set.timeline);
    server(one) == server(other) && one.restored == other.restored && one.stop < other.stop
}

#[cfg(test)]
mod tests;
