//! Which objects of the log of a SQLite database are read, if some of them hold the same.
//!
//!   a bucket, after parts were joined   |===========|      this one, and no part
//!                                       |part|part|part|
//!   after two receivers side by side    |---|---|----|
//!                                       |----|----|------| these: they lead further
//!
//! Two receivers of one database that do not see each other's notes both store every transaction
//! from where they began, in objects of different lengths. Each of these ways is whole, and they
//! cannot be mixed: an object goes on only where another one ended.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use windlass_postgres::Lsn;

use crate::place::ObjectName;

/// The objects that lie within no other one, in their order. A directory has others only if it is a
/// copy of what a bucket had. Of those that overlap, the ones that lead furthest.
pub(crate) fn outermost(objects: Vec<ObjectName>) -> Vec<ObjectName> {
    let outer = without_inner(objects.clone());
    match overlap(&outer) {
        true => leading(&objects),
        false => outer,
    }
}

/// Whether there are two objects that overlap, of which none lies within the other one. Then an
/// object within another one may be needed.
pub(crate) fn have_two_ways(objects: &[ObjectName]) -> bool {
    overlap(&without_inner(objects.to_vec()))
}

/// The same, of objects in their order.
fn overlap(outer: &[ObjectName]) -> bool {
    let mut pairs = outer.windows(2);
    pairs.any(|pair| pair[0].end.is_some_and(|end| end > pair[1].start))
}

fn without_inner(mut objects: Vec<ObjectName>) -> Vec<ObjectName> {
    objects.sort_by_key(|one| (one.start, Reverse(one.end)));
    let mut covered = Lsn(0);
    objects.retain(|one| {
        let is_outer = one.end.is_none_or(|end| end > covered);
        covered = covered.max(one.end.unwrap_or_default());
        is_outer
    });
    objects.sort();
    objects
}

/// An object to read at a position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    /// How far it leads, with those behind it.
    reach: Lsn,
    end: Lsn,
    /// Which one of a list it is.
    number: usize,
}

/// The objects that follow each other the furthest.
fn leading(objects: &[ObjectName]) -> Vec<ObjectName> {
    let mut from_last: Vec<usize> = (0..objects.len()).collect();
    from_last.sort_by_key(|number| Reverse(objects[*number].start));
    let mut ways: BTreeMap<Lsn, Way> = BTreeMap::new();
    for number in from_last {
        let one = &objects[number];
        let end = one.end.unwrap_or(Lsn(u64::MAX));
        let reach = ways.get(&end).map_or(end, |way| way.reach);
        let way = Way { reach, end, number };
        let best = ways.entry(one.start).or_insert(way);
        *best = way.max(*best);
    }
    let (mut chosen, mut at) = (Vec::new(), Some(Lsn(0)));
    while let Some((start, way)) = at.and_then(|at| ways.range(at..).next()) {
        chosen.push(objects[way.number].clone());
        let behind = start.0.checked_add(1);
        at = behind.map(|behind| way.end.max(Lsn(behind)));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    type Ranges = &'static [(u64, u64)];

    fn name(start: u64, end: u64) -> ObjectName {
        ObjectName {
            start: Lsn(start),
            end: Some(Lsn(end)),
            path: format!("{start}-{end}").into(),
            bytes: None,
        }
    }

    fn names(ranges: Ranges) -> Vec<ObjectName> {
        let names = ranges.iter().map(|(start, end)| name(*start, *end));
        names.collect()
    }

    fn assert_read(there: Ranges, read: Ranges) {
        assert_eq!(outermost(names(there)), names(read), "{there:?}");
    }

    #[test]
    fn what_lies_within_another_one_is_not_read() {
        let apart: Ranges = &[(0, 5), (5, 9), (12, 20)];
        assert_read(apart, apart);
        assert_read(&[(0, 5), (0, 9), (5, 9), (9, 11)], &[(0, 9), (9, 11)]);
    }

    #[test]
    fn of_objects_that_overlap_those_are_read_that_lead_furthest() {
        assert_read(
            &[(0, 5), (5, 6), (5, 10), (6, 12), (10, 15)],
            &[(0, 5), (5, 10), (10, 15)],
        );
        assert_read(
            &[(0, 5), (5, 6), (5, 10), (6, 12), (10, 15), (12, 18)],
            &[(0, 5), (5, 6), (6, 12), (12, 18)],
        );
        // Nothing leads from one to the next.
        assert_read(&[(0, 8), (5, 10), (20, 30)], &[(0, 8), (20, 30)]);
        let last = u64::MAX;
        let found = leading(&[name(last, last), name(last - 1, last)]);
        assert_eq!(found.len(), 2);
    }
}
