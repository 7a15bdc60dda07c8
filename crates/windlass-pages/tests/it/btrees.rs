//! Pages of B-trees of every size that PostgreSQL can be built with, made from a seed: whatever
//! they hold comes back, and they become shorter.

use proptest::prelude::*;
use windlass_pages::{Align, Column, Layout};

use crate::support::{Draw, damage, page_size, round_trip};

/// Every size of a page that PostgreSQL's B-trees have here.
pub const SIZES: [u32; 3] = [8192, 16_384, 32_768];
const HEADER: usize = 24;
const SPECIAL: usize = 16;
/// What the size field of a row says besides its size.
const HAS_NULLS: u16 = 0x8000;
const HAS_VARIABLE: u16 = 0x4000;
const ALTERNATIVE: u16 = 0x2000;
const IS_POSTING: u16 = 0x2000;
/// A line pointer that is dead, without a row.
const DEAD: u32 = 3 << 15;

/// A key of int8 and text.
pub fn layout(bytes: u32) -> Layout {
    let text = Column::Variable {
        align: Align::Four,
        numeric: false,
    };
    let number = Column::Fixed {
        bytes: 8,
        align: Align::Eight,
    };
    Layout::PostgresBtree {
        page_size: page_size(bytes),
        columns: vec![number, text],
    }
}

fn pointer((block, slot): (u32, u16)) -> [u8; 6] {
    let mut bytes = [0; 6];
    bytes[..2].copy_from_slice(&((block >> 16) as u16).to_le_bytes());
    bytes[2..4].copy_from_slice(&(block as u16).to_le_bytes());
    bytes[4..].copy_from_slice(&slot.to_le_bytes());
    bytes
}

fn pad(row: &mut Vec<u8>) {
    row.resize(row.len().next_multiple_of(8), 0);
}

/// The rows that keys point to, one after the other.
struct Targets(u32, u16);

impl Targets {
    fn next(&mut self) -> (u32, u16) {
        (self.0, self.1) = match self.1 {
            90.. => (self.0 + 1, 1),
            slot => (self.0, slot + 1),
        };
        (self.0, self.1)
    }
}

/// What every page begins with: the highest key, which is a pivot.
fn high_key(key: u64) -> Vec<u8> {
    let mut row = pointer((0, 1)).to_vec();
    row.extend((ALTERNATIVE | 16).to_le_bytes());
    row.extend(key.to_le_bytes());
    row
}

fn row(draw: &mut Draw, key: u64, targets: &mut Targets) -> Vec<u8> {
    let (has_nulls, is_list) = (draw.below(12) == 0, draw.below(12) == 1);
    let mut row = vec![0; 8];
    if has_nulls {
        // The first column has a value, the second has none.
        row.extend(1_u64.to_le_bytes());
    }
    row.extend(key.to_le_bytes());
    if !has_nulls {
        let text = format!("item {}", draw.below(1000));
        row.push(((text.len() + 1) << 1 | 1) as u8);
        row.extend(text.as_bytes());
    }
    pad(&mut row);
    let mut flags = if has_nulls { HAS_NULLS } else { HAS_VARIABLE };
    let target = match is_list {
        false => targets.next(),
        true => {
            let (at, count) = (row.len() as u32, 2 + draw.below(10) as u16);
            (0..count).for_each(|_| row.extend(pointer(targets.next())));
            pad(&mut row);
            flags |= ALTERNATIVE;
            (at, count | IS_POSTING)
        }
    };
    row[..6].copy_from_slice(&pointer(target));
    let info = row.len() as u16 | flags;
    row[6..8].copy_from_slice(&info.to_le_bytes());
    row
}

/// A leaf that is full but for a few hundred bytes.
fn leaf(draw: &mut Draw, bytes: usize, block: u32) -> Vec<u8> {
    let mut page = vec![0; bytes];
    let special = bytes - SPECIAL;
    let (mut lower, mut upper) = (HEADER, special);
    let mut key = 5_000_000_000 + u64::from(block) * 10_000;
    let mut targets = Targets(block * 977, 0);
    let mut next = high_key(key + 10_000);
    while upper - lower > next.len() + 300 {
        upper -= next.len();
        page[upper..upper + next.len()].copy_from_slice(&next);
        let place = upper as u32 | 1 << 15 | (next.len() as u32) << 17;
        page[lower..lower + 4].copy_from_slice(&place.to_le_bytes());
        lower += 4;
        if draw.below(40) == 0 {
            page[lower..lower + 4].copy_from_slice(&DEAD.to_le_bytes());
            lower += 4;
        }
        key += 1 + draw.below(8) as u64;
        next = row(draw, key, &mut targets);
    }
    page[4..8].copy_from_slice(&(0x0100_0000 + block * 8200).to_le_bytes());
    let fields = [lower, upper, special, bytes | 4];
    for (field, value) in page[12..20].chunks_exact_mut(2).zip(fields) {
        field.copy_from_slice(&(value as u16).to_le_bytes());
    }
    page[special..special + 4].copy_from_slice(&block.to_le_bytes());
    page[special + 4..special + 8].copy_from_slice(&(block + 2).to_le_bytes());
    page[special + 12] = 1;
    page
}

/// So many pages of an index.
pub fn index(bytes: u32, pages: u32, seed: u64) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    let page = |block| leaf(&mut draw, bytes as usize, block);
    (0..pages).flat_map(page).collect()
}

#[test]
fn btrees_of_every_page_size_come_back_and_become_much_shorter() {
    for bytes in SIZES {
        let raw = index(bytes, 8, 1);
        let streams = round_trip(&layout(bytes), &raw).unwrap();
        // Rows that nobody cut would take as much as before.
        assert!(streams * 2 < raw.len(), "{bytes}: {streams}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn damaged_pages_of_btrees_come_back(
        bytes in prop::sample::select(SIZES.to_vec()),
        seed in any::<u64>(),
        damages in 0usize..20,
    ) {
        let mut raw = index(bytes, 2, seed);
        let mut draw = Draw::new(seed ^ 1);
        (0..damages).for_each(|_| damage(&mut raw, &mut draw));
        round_trip(&layout(bytes), &raw);
    }

    #[test]
    fn pages_of_btrees_come_back_with_the_size_of_others(
        bytes in prop::sample::select(SIZES.to_vec()),
        other in prop::sample::select(SIZES.to_vec()),
        seed in any::<u64>(),
    ) {
        // As many bytes as each size has whole pages of.
        let raw = index(bytes, 32_768 / bytes, seed);
        round_trip(&layout(other), &raw);
    }
}
