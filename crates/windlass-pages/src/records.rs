//! Records of SQLite to columns: the kinds of a record's values together as one number, then the
//! values, one list for each column and kind.
//!
//! Pages do not say to which table they belong. Pages whose first records have as many values of
//! the same kinds share columns.
//!
//! Invariants
//! - A record is cut only if joining its values gives the same bytes. If not, no list has anything
//!   of it, and its cell is kept as it is.

use crate::forms::Forms;
use crate::integers::{IntegerEncoder, bytes_of};
use crate::leaf::{
    COLUMNS_MAX, SERIAL_BLOB, SERIAL_TEXT, SERIALS, VALUES_MAX, header_bytes, integer,
    integer_bytes, is_shortest, kind, text_bytes, varint,
};
use crate::leaf_survey::{Cell, Leaf};
use crate::number::{index, low_u8, position, u64_at};
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

/// A record of which the header was read, and nothing is in any list yet.
#[derive(Debug, Default)]
struct Record {
    kinds: Vec<u8>,
    serials: Vec<u32>,
    /// Where its values begin.
    body: usize,
}

/// The encoder's half.
#[derive(Debug, Default)]
pub(crate) struct RecordEncoder {
    record: Record,
    groups: Vec<Group>,
    groups_used: usize,
    leaf_groups: Vec<i64>,
    /// For each cell: 0 if it is kept, or the number of its record's form.
    cell_forms: Vec<i64>,
    forms: Forms,
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
        self.forms.put(&self.cell_forms, integers, streams);
        streams.number(self.groups_used as u64);
        integers.encode(&self.leaf_groups, 4, streams);
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
        self.cell_forms.clear();
        self.forms.clear();
        self.columns = 0;
        self.opaque.clear();
    }

    fn leaf(&mut self, raw: &[u8], is_table: bool, cells: &[Cell]) {
        let mut group = None;
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
                self.cell_forms.push(0);
                continue;
            };
            group = Some(into);
            self.push(into, is_table.then_some(cell.rowid), raw);
            self.cell_forms.push(self.forms.of(&self.record.kinds));
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
    fn push(&mut self, group: usize, rowid: Option<i64>, raw: &[u8]) {
        let group = &mut self.groups[group];
        let more = self.record.kinds.len().saturating_sub(group.used);
        if more > 0 {
            group.used += more;
            self.columns += more;
            let columns = group.used.max(group.columns.len());
            group.columns.resize_with(columns, Lists::default);
        }
        group.rowids.extend(rowid);
        self.record.push_to(raw, &mut group.columns);
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
}

impl Record {
    /// Reads the header of the record in a range of the frame. `false` if SQLite would not write a
    /// record like that.
    #[inline]
    fn read(&mut self, raw: &[u8], from: u32, to: u32) -> bool {
        self.kinds.clear();
        self.serials.clear();
        let (from, to) = (from as usize, to as usize);
        let bytes = self.read_types(raw, from, to);
        bytes.is_some_and(|bytes| self.body as u64 + bytes == to as u64)
            && self.kinds.len() <= VALUES_MAX
    }

    /// Returns how many bytes its values have.
    #[inline]
    fn read_types(&mut self, raw: &[u8], from: usize, to: usize) -> Option<u64> {
        let header = varint(raw, from)?;
        self.body = from.checked_add(usize::try_from(header.value).ok()?)?;
        let types = self.body.checked_sub(header.end)?;
        let is_usual = header.is_short && header_bytes(types) as u64 == header.value;
        if !is_usual || self.body > to {
            return None;
        }
        let types = &raw[header.end..self.body];
        if types.iter().fold(0, |all, byte| all | byte) >= 0x80 {
            return self.read_long_types(types);
        }
        let (mut bytes, mut all) = (0, 0);
        self.kinds.extend(types.iter().map(|serial| {
            let (kind, value_bytes) = SERIALS[usize::from(serial & 0x7F)];
            bytes += u64::from(value_bytes);
            all |= kind;
            kind
        }));
        self.serials
            .extend(types.iter().map(|serial| u32::from(*serial)));
        (all & kind::IMPOSSIBLE == 0).then_some(bytes)
    }

    /// The same if some serial types have more than one byte.
    fn read_long_types(&mut self, types: &[u8]) -> Option<u64> {
        let (mut bytes, mut at) = (0u64, 0);
        while at < types.len() {
            let found = varint(types, at)?;
            if !found.is_short {
                return None;
            }
            let serial = found.value;
            at = found.end;
            let (kind, value_bytes) = match serial {
                0x80.. if serial % 2 == SERIAL_TEXT % 2 => (kind::TEXT, (serial - SERIAL_BLOB) / 2),
                0x80.. => (kind::BLOB, (serial - SERIAL_BLOB) / 2),
                _ => {
                    let (kind, value_bytes) = SERIALS[index(serial)];
                    (kind, value_bytes.into())
                }
            };
            if kind == kind::IMPOSSIBLE {
                return None;
            }
            bytes = bytes.checked_add(value_bytes)?;
            self.kinds.push(kind);
            self.serials.push(u32::try_from(serial).ok()?);
        }
        Some(bytes)
    }

    /// Gives its values to their columns, and finds which of its integers are longer than they need
    /// to be.
    #[inline]
    fn push_to(&mut self, raw: &[u8], columns: &mut [Lists]) {
        let mut at = self.body;
        let values = self.kinds.iter_mut().zip(&self.serials);
        for ((kind, serial), lists) in values.zip(columns) {
            match *kind {
                kind::NULL => {}
                kind::INTEGER => {
                    let serial = low_u8((*serial).into());
                    let number = integer(raw, at, serial);
                    if !is_shortest(number, serial) {
                        *kind = kind::LONG + serial;
                    }
                    lists.integers.push(number);
                    at += integer_bytes(serial);
                }
                kind::REAL => {
                    lists.reals.push(u64_at(raw, at).swap_bytes().cast_signed());
                    at += 8;
                }
                text => {
                    let span = Span {
                        at: position(at),
                        bytes: text_bytes(*serial),
                    };
                    match text {
                        kind::TEXT => lists.texts.push(span),
                        _ => lists.blobs.push(span),
                    }
                    at += span.bytes as usize;
                }
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
