//! Columns to records of SQLite: writes one cell after another, in the order of their keys.
//!
//! Invariants
//! - All records of a frame together have no more values than the frame has bytes, and their texts
//!   no more bytes than the frame, or they are refused before they are made.
//! - A cell is never longer than a page.

use crate::error::{PagesError, invalid};
use crate::integers;
use crate::leaf::{
    COLUMNS_MAX, SERIAL_BLOB, SERIAL_REAL, SERIAL_TEXT, VALUES_MAX, header_bytes, integer_bytes,
    kind, put_varint, shortest_type,
};
use crate::leaf_survey::Leaf;
use crate::number::{index, position};
use crate::opaque;
use crate::reals;
use crate::streams::Source;
use crate::texts::Span;
use crate::texts_back::{self, Arena};

/// The lists of a column: integers, floating-point numbers, texts, blobs.
const LISTS: usize = 4;
const INTEGERS: usize = 0;
const REALS: usize = 1;
const TEXTS: usize = 2;
const BLOBS: usize = 3;

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

/// One column of a group of pages.
#[derive(Debug, Default)]
struct Column {
    /// How many values each list has.
    counts: [u32; LISTS],
    /// Where the next value of each is among all of their sort.
    next: [u32; LISTS],
}

/// Pages that share columns.
#[derive(Debug, Default)]
struct Group {
    /// Where its columns begin among all columns.
    first: usize,
    used: usize,
    rowids: usize,
    next_rowid: usize,
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
    columns: Vec<Column>,
    numbers: Vec<i64>,
    spans: Vec<Span>,
    scratch: Vec<i64>,
    texts: Vec<Span>,
    lengths: Vec<i64>,
    arena: Arena,
}

/// The records of a frame while cells are written.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    forms: &'a [i64],
    leaf_groups: &'a [i64],
    form_ends: &'a [u32],
    kinds: &'a [u8],
    groups: &'a mut [Group],
    columns: &'a mut [Column],
    numbers: &'a [i64],
    spans: &'a [Span],
    /// Where the bytes of the texts and the blobs of each column are.
    bytes: Vec<[&'a [u8]; 2]>,
    lengths: std::slice::Iter<'a, i64>,
    opaque: &'a [u8],
    types: Vec<u8>,
    body: Vec<u8>,
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
        let mut bytes = Vec::with_capacity(self.columns.len());
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
            columns: &mut self.columns,
            numbers: &self.numbers,
            spans: &self.spans,
            bytes: bytes.collect(),
            lengths: self.lengths.iter(),
            opaque,
            types: Vec::new(),
            body: Vec::new(),
        })
    }

    /// Makes room for all values, whose number is known.
    fn start(&mut self) {
        let counts = self
            .columns
            .iter()
            .map(|column| column.counts.map(|count| count as usize));
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
        self.columns.clear();
        self.columns.resize_with(columns, Column::default);
        let mut forms = self.forms.as_slice();
        for (leaf, group) in leaves.iter().zip(&self.leaf_groups) {
            let (of_leaf, rest) = forms.split_at(leaf.cells as usize);
            forms = rest;
            for run in of_leaf
                .chunk_by(|one, other| one == other)
                .filter(|run| run[0] != 0)
            {
                let first = self.groups[index(group.cast_unsigned())].first;
                let columns = self.columns[first..].iter_mut();
                let kinds = kinds_of(run[0], &self.form_ends, &self.kinds);
                for (column, kind) in columns.zip(kinds) {
                    if let Some(list) = list(*kind) {
                        column.counts[list] += position(run.len());
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
        integers::decode(source, group.rowids, &mut self.scratch)?;
        group.next_rowid = self.numbers.len();
        self.numbers.extend_from_slice(&self.scratch);
        for column in &mut self.columns[group.first..group.first + group.used] {
            let counts = column.counts.map(|count| count as usize);
            column.next[INTEGERS] = position(self.numbers.len());
            integers::decode(source, counts[INTEGERS], &mut self.scratch)?;
            self.numbers.extend_from_slice(&self.scratch);
            column.next[REALS] = position(self.numbers.len());
            if counts[REALS] > 0 {
                let scratch = &mut self.scratch;
                reals::decode(source, counts[REALS], scratch, &mut self.numbers)?;
            }
            let mut lists = [None; 2];
            for (list, bytes) in (TEXTS..=BLOBS).zip(&mut lists) {
                column.next[list] = position(self.spans.len());
                if counts[list] > 0 {
                    let (texts, arena) = (&mut self.texts, &mut self.arena);
                    *bytes = texts_back::decode(source, counts[list], texts, arena)?;
                    self.spans.extend_from_slice(&self.texts);
                }
            }
            bytes.push(lists);
        }
        Ok(())
    }
}

/// The kinds of a form that is not 0.
#[inline]
fn kinds_of<'a>(form: i64, ends: &[u32], kinds: &'a [u8]) -> &'a [u8] {
    let form = index(form.cast_unsigned()) - 1;
    let from = if form == 0 { 0 } else { ends[form - 1] };
    &kinds[from as usize..ends[form] as usize]
}

impl Records<'_> {
    /// Appends the next cell, which is in this leaf of the frame.
    pub(crate) fn write(
        &mut self,
        leaf: usize,
        is_table: bool,
        room: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), PagesError> {
        let (form, rest) = self.forms.split_first().ok_or(PagesError::Truncated)?;
        self.forms = rest;
        if *form == 0 {
            let length = *self.lengths.next().ok_or(PagesError::Truncated)?;
            let cell = self.opaque.split_at_checked(index(length.cast_unsigned()));
            let (cell, rest) = cell.ok_or(PagesError::Truncated)?;
            self.opaque = rest;
            into.extend_from_slice(cell);
            return Ok(());
        }
        let group = &mut self.groups[index(self.leaf_groups[leaf].cast_unsigned())];
        let first = group.first;
        let rowid = is_table.then(|| {
            group.next_rowid += 1;
            self.numbers[group.next_rowid - 1]
        });
        let kinds = kinds_of(*form, self.form_ends, self.kinds);
        self.types.clear();
        self.body.clear();
        let columns = self.columns[first..].iter_mut().zip(&self.bytes[first..]);
        for (kind, (column, bytes)) in kinds.iter().zip(columns) {
            let Some(list) = list(*kind) else {
                self.types.push(0);
                continue;
            };
            let at = column.next[list] as usize;
            column.next[list] += 1;
            match list {
                INTEGERS => put_integer(*kind, self.numbers[at], &mut self.types, &mut self.body),
                REALS => {
                    self.types.push(SERIAL_REAL);
                    self.body.extend_from_slice(&self.numbers[at].to_be_bytes());
                }
                _ => {
                    let span = self.spans[at];
                    let from = span.at as usize;
                    let count = span.bytes as usize;
                    if self.body.len() + count > room {
                        return Err(invalid("a record is longer than its page"));
                    }
                    let value = bytes[list - TEXTS].get(from..).unwrap_or_default();
                    append(&mut self.body, value, count).ok_or(PagesError::Truncated)?;
                    let serial = if list == TEXTS {
                        SERIAL_TEXT
                    } else {
                        SERIAL_BLOB
                    };
                    put_varint(serial + 2 * count as u64, &mut self.types);
                }
            }
        }
        let header = header_bytes(self.types.len());
        put_varint((header + self.body.len()) as u64, into);
        if let Some(rowid) = rowid {
            put_varint(rowid.cast_unsigned(), into);
        }
        put_varint(header as u64, into);
        into.extend_from_slice(&self.types);
        into.extend_from_slice(&self.body);
        Ok(())
    }
}

#[inline]
fn put_integer(kind: u8, number: i64, types: &mut Vec<u8>, body: &mut Vec<u8>) {
    let serial = match kind {
        kind::INTEGER => shortest_type(number),
        _ => kind - kind::LONG,
    };
    types.push(serial);
    // The last bytes of the number come first, and what is behind them does not count.
    let bytes = integer_bytes(serial);
    let unused = position(64 - 8 * bytes);
    let word = number.cast_unsigned() << (unused / 2) << (unused - unused / 2);
    let end = body.len() + bytes;
    body.extend_from_slice(&word.to_be_bytes());
    body.truncate(end);
}

/// How many bytes are copied at once.
const STRIDE: usize = 32;

/// Appends the first bytes of a value; `None` if there are not so many. Most values are short, and
/// a copy of a fixed length is much faster.
#[inline]
fn append(into: &mut Vec<u8>, bytes: &[u8], count: usize) -> Option<()> {
    let end = into.len() + count;
    match bytes.first_chunk::<STRIDE>() {
        Some(stride) if count <= STRIDE => into.extend_from_slice(stride),
        _ => into.extend_from_slice(bytes.get(..count)?),
    }
    into.truncate(end);
    Some(())
}
