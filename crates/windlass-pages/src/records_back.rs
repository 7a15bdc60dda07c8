//! Columns of SQLite's records, read back: where the values of each list of each column are.
//!
//! Invariants
//! - All records of a frame together have no more values than the frame has bytes, and their texts
//!   no more bytes than the frame, or they are refused before they are made.

use crate::cells_back::{Records, TypesRoom};
use crate::error::{PagesError, invalid};
use crate::integers;
use crate::leaf::{COLUMNS_MAX, VALUES_MAX, kind};
use crate::leaf_survey::Leaf;
use crate::number::{index, position};
use crate::opaque;
use crate::reals;
use crate::streams::Source;
use crate::texts::Span;
use crate::texts_back::{self, Arena};

/// The lists of a column: integers, floating-point numbers, texts, blobs.
pub(crate) const LISTS: usize = 4;
pub(crate) const INTEGERS: usize = 0;
pub(crate) const REALS: usize = 1;
pub(crate) const TEXTS: usize = 2;
pub(crate) const BLOBS: usize = 3;

/// The list that has the values of a kind; `None` for NULL.
#[inline]
fn list(kind: u8) -> Option<usize> {
    match kind {
        kind::NULL => None,
        kind::REAL => Some(REALS),
        kind::TEXT => Some(TEXTS),
        kind::BLOB => Some(BLOBS),
        _ => Some(INTEGERS),
    }
}

/// Pages that share columns.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Where its columns begin among all columns.
    pub(crate) first: usize,
    used: usize,
    rowids: usize,
    /// Where the rowid of the next cell is among all numbers.
    pub(crate) next_rowid: usize,
}

/// The decoder's memory.
#[derive(Debug, Default)]
pub(crate) struct RecordDecoder {
    forms: Vec<i64>,
    leaf_groups: Vec<i64>,
    /// Where the kinds of each form end.
    form_ends: Vec<u32>,
    kinds: Vec<u8>,
    groups: Vec<Group>,
    /// How many values each list of each column has.
    counts: Vec<[u32; LISTS]>,
    /// Where the next value of each is among all of their sort.
    next: Vec<[u32; LISTS]>,
    numbers: Vec<i64>,
    spans: Vec<Span>,
    scratch: Vec<i64>,
    lengths: Vec<i64>,
    arena: Arena,
    types: TypesRoom,
}

impl RecordDecoder {
    /// Reads the columns of all cells.
    pub(crate) fn take<'s, 'a: 's>(
        &'s mut self,
        source: &mut Source<'a>,
        leaves: &[Leaf],
        limit: usize,
    ) -> Result<Records<'s>, PagesError> {
        let cells = leaves.iter().map(|leaf| leaf.cells as usize).sum();
        self.take_forms(source, cells, leaves.len(), limit)?;
        let kept = self.forms.iter().filter(|form| **form == 0).count();
        let opaque = opaque::take(source, kept, limit, &mut self.lengths)?;
        self.count(leaves, limit)?;
        let mut bytes = Vec::with_capacity(self.counts.len());
        self.start();
        self.arena.start(limit);
        for group in 0..self.groups.len() {
            self.take_group(source, group, &mut bytes)?;
        }
        let arena = self.arena.bytes();
        let bytes = bytes
            .into_iter()
            .map(|lists| lists.map(|list| list.unwrap_or(arena)));
        Ok(Records {
            forms: &self.forms,
            leaf_groups: &self.leaf_groups,
            form_ends: &self.form_ends,
            kinds: &self.kinds,
            groups: &mut self.groups,
            next: &mut self.next,
            numbers: &self.numbers,
            spans: &self.spans,
            bytes: bytes.collect(),
            lengths: self.lengths.iter(),
            opaque,
            types: &mut self.types,
        })
    }

    /// Makes room for all values, whose number is known.
    fn start(&mut self) {
        let counts = self.counts.iter();
        let counts = counts.map(|counts| counts.map(|count| count as usize));
        let (numbers, spans) = counts.fold((0, 0), |(numbers, spans), counts| {
            let more = counts[INTEGERS] + counts[REALS];
            (numbers + more, spans + counts[TEXTS] + counts[BLOBS])
        });
        let rowids: usize = self.groups.iter().map(|group| group.rowids).sum();
        self.numbers.clear();
        self.numbers.reserve_exact(numbers + rowids);
        self.spans.clear();
        self.spans.reserve_exact(spans);
    }

    fn take_forms(
        &mut self,
        source: &mut Source<'_>,
        cells: usize,
        leaves: usize,
        limit: usize,
    ) -> Result<(), PagesError> {
        integers::decode(source, cells, &mut self.forms)?;
        let count = index(source.number()?);
        if count > cells {
            return Err(invalid("there are more forms than records"));
        }
        self.form_ends.clear();
        let mut end = 0usize;
        for _ in 0..count {
            let kinds = index(source.number()?);
            if kinds > VALUES_MAX || end + kinds > limit {
                return Err(invalid("a record has too many values"));
            }
            end += kinds;
            self.form_ends.push(position(end));
        }
        self.kinds.clear();
        self.kinds.extend_from_slice(source.main(end)?);
        if self.kinds.iter().any(|kind| *kind >= kind::COUNT) {
            return Err(invalid("a value is of an unknown kind"));
        }
        if self
            .forms
            .iter()
            .any(|form| index(form.cast_unsigned()) > count)
        {
            return Err(invalid("a record is of an unknown form"));
        }
        let groups = index(source.number()?);
        if groups > leaves {
            return Err(invalid("there are more groups than pages"));
        }
        self.groups.clear();
        self.groups.resize_with(groups, Group::default);
        integers::decode(source, leaves, &mut self.leaf_groups)?;
        let is_known = |group: &i64| index(group.cast_unsigned()) < groups.max(1);
        if !self.leaf_groups.iter().all(is_known) {
            return Err(invalid("a page is in an unknown group"));
        }
        Ok(())
    }

    /// Counts the values of each column of each group.
    fn count(&mut self, leaves: &[Leaf], limit: usize) -> Result<(), PagesError> {
        let mut values = 0usize;
        let mut forms = self.forms.as_slice();
        for (leaf, group) in leaves.iter().zip(&self.leaf_groups) {
            let (of_leaf, rest) = forms.split_at(leaf.cells as usize);
            forms = rest;
            for form in of_leaf.iter().filter(|form| **form != 0) {
                let count = kinds_of(*form, &self.form_ends, &self.kinds).len();
                values += count;
                let group = self.groups.get_mut(index(group.cast_unsigned()));
                let group = group.ok_or(invalid("a record is in no group"))?;
                group.used = group.used.max(count);
                group.rowids += usize::from(leaf.is_table);
            }
        }
        let mut columns = 0;
        for group in &mut self.groups {
            group.first = columns;
            columns += group.used;
        }
        if values > limit || columns > COLUMNS_MAX {
            return Err(invalid("there are more values than the pages have bytes"));
        }
        self.counts.clear();
        self.counts.resize(columns, [0; LISTS]);
        self.next.clear();
        self.next.resize(columns, [0; LISTS]);
        let mut forms = self.forms.as_slice();
        for (leaf, group) in leaves.iter().zip(&self.leaf_groups) {
            let (of_leaf, rest) = forms.split_at(leaf.cells as usize);
            forms = rest;
            for run in of_leaf
                .chunk_by(|one, other| one == other)
                .filter(|run| run[0] != 0)
            {
                let first = self.groups[index(group.cast_unsigned())].first;
                let columns = self.counts[first..].iter_mut();
                let kinds = kinds_of(run[0], &self.form_ends, &self.kinds);
                for (counts, kind) in columns.zip(kinds) {
                    if let Some(list) = list(*kind) {
                        counts[list] += position(run.len());
                    }
                }
            }
        }
        Ok(())
    }

    fn take_group<'a>(
        &mut self,
        source: &mut Source<'a>,
        group: usize,
        bytes: &mut Vec<[Option<&'a [u8]>; 2]>,
    ) -> Result<(), PagesError> {
        let group = &mut self.groups[group];
        group.next_rowid = self.numbers.len();
        integers::append(source, group.rowids, &mut self.numbers)?;
        let columns = group.first..group.first + group.used;
        let columns = self.counts[columns.clone()]
            .iter()
            .zip(&mut self.next[columns]);
        for (counts, next) in columns {
            let counts = counts.map(|count| count as usize);
            next[INTEGERS] = position(self.numbers.len());
            integers::append(source, counts[INTEGERS], &mut self.numbers)?;
            next[REALS] = position(self.numbers.len());
            if counts[REALS] > 0 {
                let scratch = &mut self.scratch;
                reals::decode(source, counts[REALS], scratch, &mut self.numbers)?;
            }
            let mut lists = [None; 2];
            for (list, bytes) in (TEXTS..=BLOBS).zip(&mut lists) {
                next[list] = position(self.spans.len());
                if counts[list] > 0 {
                    let (spans, arena) = (&mut self.spans, &mut self.arena);
                    *bytes = texts_back::append(source, counts[list], spans, arena)?;
                }
            }
            bytes.push(lists);
        }
        Ok(())
    }
}

/// The kinds of a form that is not 0.
#[inline]
pub(crate) fn kinds_of<'a>(form: i64, ends: &[u32], kinds: &'a [u8]) -> &'a [u8] {
    let form = index(form.cast_unsigned()) - 1;
    let from = if form == 0 { 0 } else { ends[form - 1] };
    &kinds[from as usize..ends[form] as usize]
}
