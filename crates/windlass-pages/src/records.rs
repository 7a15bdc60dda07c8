//! Records of SQLite to columns: the kinds of a record's values together as one number, then the
//! values, one list for each column and kind.
//!
//! Pages do not say to which table they belong. Pages whose first records have as many values of
//! the same kinds share columns.
//!
//! Invariants
//! - A record is cut only if joining its values gives the same bytes. If not, no list has anything
//!   of it, and its cell is kept as it is.

use std::collections::HashMap;

use crate::integers::{IntegerEncoder, bytes_of};
use crate::leaf::{
    COLUMNS_MAX, SERIAL_BLOB, SERIAL_REAL, SERIAL_TEXT, VALUES_MAX, header_bytes, integer,
    integer_bytes, kind, shortest_type, varint, varint_bytes,
};
use crate::leaf_survey::{Cell, Leaf};
use crate::number::{low_u8, low_u32, position, u64_at};
use crate::opaque::Opaque;
use crate::reals::RealEncoder;
use crate::streams::Streams;
use crate::texts::{Span, TextEncoder};

/// Pages share columns with one of so many groups that were found last.
const GROUPS_SEEN: usize = 32;

/// The values of one column, by kind.
#[derive(Debug, Default)]
struct Lists {
    integers: Vec<i64>,
    reals: Vec<i64>,
    texts: Vec<Span>,
    blobs: Vec<Span>,
}

/// Pages that share columns.
#[derive(Debug, Default)]
struct Group {
    /// The kinds of the first record.
    kinds: Vec<u8>,
    is_table: bool,
    rowids: Vec<i64>,
    columns: Vec<Lists>,
    /// How many columns records have.
    used: usize,
}

impl Group {
    fn clear(&mut self) {
        self.kinds.clear();
        self.rowids.clear();
        self.used = 0;
        for column in &mut self.columns {
            column.integers.clear();
            column.reals.clear();
            column.texts.clear();
            column.blobs.clear();
        }
    }

    /// Whether a record could be of the same table. Anything may be NULL, and a number without a
    /// fraction is an integer.
    fn suits(&self, is_table: bool, kinds: &[u8]) -> bool {
        let class = |kind: u8| match kind {
            kind::NULL | kind::TEXT | kind::BLOB => kind,
            _ => kind::INTEGER,
        };
        let pairs = self.kinds.iter().zip(kinds);
        let mut pairs = pairs.map(|(one, other)| (class(*one), class(*other)));
        let alike = |(one, other)| one == other || one == kind::NULL || other == kind::NULL;
        self.is_table == is_table && self.kinds.len() == kinds.len() && pairs.all(alike)
    }
}

/// A record that was read but is in no list yet.
#[derive(Debug, Default)]
struct Record {
    kinds: Vec<u8>,
    /// An integer, the bits of a number, or where the value begins and its length.
    values: Vec<(i64, u32)>,
}

/// The kinds of a record's values.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    /// The first is 1.
    number: i64,
    from: usize,
    to: usize,
}

/// The encoder's half.
#[derive(Debug, Default)]
pub(crate) struct RecordEncoder {
    record: Record,
    groups: Vec<Group>,
    groups_used: usize,
    leaf_groups: Vec<i64>,
    /// For each cell: 0 if it is kept, or the number of its record's form.
    forms: Vec<i64>,
    /// Where the kinds of a form are, and its number.
    known: HashMap<Box<[u8]>, Form>,
    /// The kinds of each form, one form after the other, and how many each has.
    kinds: Vec<u8>,
    kind_counts: Vec<u32>,
    /// How many columns all groups have.
    columns: usize,
    opaque: Opaque,
    reals: RealEncoder,
    texts: TextEncoder,
}

impl RecordEncoder {
    /// Appends all cells of a frame.
    pub(crate) fn encode(
        &mut self,
        raw: &[u8],
        leaves: &[Leaf],
        mut cells: &[Cell],
        integers: &mut IntegerEncoder,
        streams: &mut Streams,
    ) {
        self.clear();
        for leaf in leaves {
            let (of_leaf, rest) = cells.split_at(leaf.cells as usize);
            self.leaf(raw, leaf.is_table, of_leaf);
            cells = rest;
        }
        self.put_forms(integers, streams);
        self.opaque.put(integers, streams);
        for group in &self.groups[..self.groups_used] {
            put_group(
                group,
                raw,
                &mut self.reals,
                &mut self.texts,
                integers,
                streams,
            );
        }
    }

    fn clear(&mut self) {
        self.groups[..self.groups_used]
            .iter_mut()
            .for_each(Group::clear);
        self.groups_used = 0;
        self.leaf_groups.clear();
        self.forms.clear();
        self.known.clear();
        self.kinds.clear();
        self.kind_counts.clear();
        self.columns = 0;
        self.opaque.clear();
    }

    fn leaf(&mut self, raw: &[u8], is_table: bool, cells: &[Cell]) {
        let mut group = None;
        let mut last = Form::default();
        for cell in cells {
            let record = cell.record;
            let is_cut = record.is_some_and(|record| self.record.read(raw, record, cell.end()));
            let into = match group {
                _ if !is_cut => None,
                None => Some(self.group(is_table)),
                Some(group) => Some(group),
            };
            let Some(into) = into.filter(|group| self.has_room(*group)) else {
                self.opaque
                    .push(&raw[cell.start as usize..cell.end() as usize]);
                self.forms.push(0);
                continue;
            };
            group = Some(into);
            if last.number == 0 || self.kinds[last.from..last.to] != self.record.kinds {
                last = self.form();
            }
            self.forms.push(last.number);
            self.push(into, is_table.then_some(cell.rowid));
        }
        let group = group.unwrap_or_else(|| self.groups_used.saturating_sub(1));
        self.leaf_groups.push(group as i64);
    }

    /// Whether a group can have the columns of the record that was just read.
    fn has_room(&self, group: usize) -> bool {
        let more = self
            .record
            .kinds
            .len()
            .saturating_sub(self.groups[group].used);
        self.columns + more <= COLUMNS_MAX
    }

    /// Gives the values of the record that was just read to the columns of a group.
    #[inline]
    fn push(&mut self, group: usize, rowid: Option<i64>) {
        let group = &mut self.groups[group];
        let more = self.record.kinds.len().saturating_sub(group.used);
        group.used += more;
        self.columns += more;
        group.rowids.extend(rowid);
        self.record.push_to(&mut group.columns);
    }

    /// The group of a page whose first record was just read.
    fn group(&mut self, is_table: bool) -> usize {
        let kinds = &self.record.kinds;
        let seen = self.groups_used.saturating_sub(GROUPS_SEEN);
        let mut found = (seen..self.groups_used).rev();
        if let Some(found) = found.find(|group| self.groups[*group].suits(is_table, kinds)) {
            return found;
        }
        if self.groups_used == self.groups.len() {
            self.groups.push(Group::default());
        }
        let group = &mut self.groups[self.groups_used];
        group.is_table = is_table;
        group.kinds.extend_from_slice(kinds);
        self.groups_used += 1;
        self.groups_used - 1
    }

    /// The form of the record that was just read.
    fn form(&mut self) -> Form {
        let kinds = self.record.kinds.as_slice();
        if let Some(form) = self.known.get(kinds) {
            return *form;
        }
        let from = self.kinds.len();
        self.kinds.extend_from_slice(kinds);
        self.kind_counts.push(position(kinds.len()));
        let form = Form {
            number: self.kind_counts.len() as i64,
            from,
            to: self.kinds.len(),
        };
        self.known.insert(kinds.into(), form);
        form
    }

    fn put_forms(&self, integers: &mut IntegerEncoder, streams: &mut Streams) {
        integers.encode(&self.forms, 4, streams);
        streams.number(self.kind_counts.len() as u64);
        for count in &self.kind_counts {
            streams.number((*count).into());
        }
        streams.main.extend_from_slice(&self.kinds);
        streams.number(self.groups_used as u64);
        integers.encode(&self.leaf_groups, 4, streams);
    }
}

impl Record {
    /// Reads the record in a range of the frame. `false` if SQLite would not write it like that.
    fn read(&mut self, raw: &[u8], from: u32, to: u32) -> bool {
        self.kinds.clear();
        self.values.clear();
        let (from, to) = (from as usize, to as usize);
        self.read_all(raw, from, to).is_some_and(|end| end == to) && self.kinds.len() <= VALUES_MAX
    }

    /// Returns where the last value ends.
    #[inline]
    fn read_all(&mut self, raw: &[u8], from: usize, to: usize) -> Option<usize> {
        let (header, mut at) = varint(raw, from)?;
        let types_end = from.checked_add(usize::try_from(header).ok()?)?;
        let types = types_end.checked_sub(at)?;
        let is_usual = at - from == varint_bytes(header) && header_bytes(types) as u64 == header;
        if !is_usual || types_end > to {
            return None;
        }
        let mut body = types_end;
        while at < types_end {
            let mut serial = u64::from(raw[at]);
            if serial < 0x80 {
                at += 1;
            } else {
                let next;
                (serial, next) = varint(&raw[..types_end], at)?;
                if next - at != varint_bytes(serial) {
                    return None;
                }
                at = next;
            }
            body = self.read_value(raw, serial, body, to)?;
        }
        Some(body)
    }

    /// Reads the value at a place, and returns where it ends.
    #[inline]
    fn read_value(&mut self, raw: &[u8], serial: u64, at: usize, to: usize) -> Option<usize> {
        if serial >= SERIAL_BLOB {
            let bytes = (serial - SERIAL_BLOB) / 2;
            if bytes > (to - at) as u64 {
                return None;
            }
            let is_text = serial % 2 == SERIAL_TEXT % 2;
            self.kinds
                .push(if is_text { kind::TEXT } else { kind::BLOB });
            let bytes = usize::try_from(bytes).ok()?;
            self.values.push((at as i64, position(bytes)));
            return Some(at + bytes);
        }
        let serial = low_u8(serial);
        match serial {
            0 => {
                self.kinds.push(kind::NULL);
                Some(at)
            }
            1..=6 | 8 | 9 => {
                let end = at + integer_bytes(serial);
                if end > to {
                    return None;
                }
                let number = integer(raw, at, serial);
                let is_shortest = shortest_type(number) == serial;
                let kind = if is_shortest {
                    kind::INTEGER
                } else {
                    kind::LONG + serial
                };
                self.kinds.push(kind);
                self.values.push((number, 0));
                Some(end)
            }
            SERIAL_REAL if at + 8 <= to => {
                let bits = u64_at(raw, at).swap_bytes();
                self.kinds.push(kind::REAL);
                self.values.push((bits.cast_signed(), 0));
                Some(at + 8)
            }
            _ => None,
        }
    }

    /// Gives its values to their columns.
    #[inline]
    fn push_to(&self, columns: &mut Vec<Lists>) {
        if columns.len() < self.kinds.len() {
            columns.resize_with(self.kinds.len(), Lists::default);
        }
        let mut values = self.values.iter();
        for (kind, lists) in self.kinds.iter().zip(columns) {
            if *kind == kind::NULL {
                continue;
            }
            let Some((value, bytes)) = values.next() else {
                return;
            };
            let span = || Span {
                at: low_u32(value.cast_unsigned()),
                bytes: *bytes,
            };
            match *kind {
                kind::REAL => lists.reals.push(*value),
                kind::TEXT => lists.texts.push(span()),
                kind::BLOB => lists.blobs.push(span()),
                _ => lists.integers.push(*value),
            }
        }
    }
}

/// Appends the columns of a group.
fn put_group(
    group: &Group,
    raw: &[u8],
    reals: &mut RealEncoder,
    texts: &mut TextEncoder,
    integers: &mut IntegerEncoder,
    streams: &mut Streams,
) {
    integers.encode(&group.rowids, bytes_of(&group.rowids), streams);
    for column in &group.columns[..group.used] {
        integers.encode(&column.integers, bytes_of(&column.integers), streams);
        if !column.reals.is_empty() {
            reals.encode(&column.reals, integers, streams);
        }
        for spans in [&column.texts, &column.blobs] {
            if !spans.is_empty() {
                texts.encode(raw, spans, false, integers, streams);
            }
        }
    }
}
