//! Pages that no server wrote: any bytes must come back, with any layout.

use proptest::prelude::*;
use windlass_pages::{Align, Column, Layout, PagesError};

use crate::support::{Draw, column, damage, layout, page_size, round_trip};

/// A page with the shape of a heap's, and rows that fit their columns more or less.
fn heap_page(draw: &mut Draw, columns: &[Column], bytes: usize) -> Vec<u8> {
    let mut page = vec![0; bytes];
    let rows = draw.below(40);
    let lower = 24 + 4 * rows;
    let mut upper = bytes;
    for slot in 0..rows {
        let row = row(draw, columns);
        let at = (upper.saturating_sub(row.len())) & !7;
        let pointer_at = 24 + 4 * slot;
        let pointer = if at < lower || draw.below(20) == 0 {
            draw.below(4) as u32 | (draw.below(5) as u32 & 2) << 15
        } else {
            page[at..at + row.len()].copy_from_slice(&row);
            upper = at;
            at as u32 | 1 << 15 | (row.len() as u32) << 17
        };
        page[pointer_at..pointer_at + 4].copy_from_slice(&pointer.to_le_bytes());
    }
    page[..8].copy_from_slice(&draw.next().to_le_bytes());
    for (at, field) in [(12, lower), (14, upper), (16, bytes), (18, bytes | 4)] {
        page[at..at + 2].copy_from_slice(&(field as u16).to_le_bytes());
    }
    if draw.below(4) == 0 && upper > lower {
        page[lower + draw.below(upper - lower)] = 7;
    }
    page
}

fn row(draw: &mut Draw, columns: &[Column]) -> Vec<u8> {
    let has_null = draw.below(3) == 0;
    let bitmap = if has_null {
        columns.len().div_ceil(8)
    } else {
        0
    };
    let hoff = (23 + bitmap + 7) & !7;
    let mut row = vec![0; hoff];
    row[..4].copy_from_slice(&(700 + draw.below(3) as u32).to_le_bytes());
    row[18..20].copy_from_slice(&(columns.len() as u16).to_le_bytes());
    row[20] = u8::from(has_null);
    row[22] = hoff as u8;
    for (number, column) in columns.iter().enumerate() {
        if has_null {
            if draw.below(2) == 0 {
                continue;
            }
            row[23 + number / 8] |= 1 << (number % 8);
        }
        value(draw, *column, &mut row);
    }
    if draw.below(20) == 0 {
        row.push(1);
    }
    row
}

fn pad(row: &mut Vec<u8>, align: Align) {
    let align = match align {
        Align::One => 1,
        Align::Two => 2,
        Align::Four => 4,
        Align::Eight => 8,
    };
    row.resize(row.len().next_multiple_of(align), 0);
}

fn value(draw: &mut Draw, column: Column, row: &mut Vec<u8>) {
    match column {
        Column::Fixed { bytes, align } => {
            pad(row, align);
            let number = draw.below(1000) as u64;
            let value = number.to_le_bytes().into_iter().chain(std::iter::repeat(0));
            row.extend(value.take(bytes.into()));
        }
        Column::Variable { align, numeric } => match draw.below(12) {
            0 => {
                row.extend([1, 18]);
                row.extend([draw.next() as u8; 16]);
            }
            1 => {
                pad(row, align);
                let length = draw.below(300);
                let form = draw.below(2) as u32 * 2;
                row.extend((((4 + length) as u32) << 2 | form).to_le_bytes());
                row.extend(std::iter::repeat_n(b'x', length));
            }
            _ if numeric => {
                let digits = draw.below(4);
                row.push((1 + 2 + 2 * digits as u8) << 1 | 1);
                row.extend((0x8000u16 | 2 << 7 | draw.below(2) as u16).to_le_bytes());
                (0..digits).for_each(|_| row.extend((draw.below(10_000) as u16).to_le_bytes()));
            }
            _ => {
                let text = format!("word#{}", draw.below(2000));
                row.push((1 + text.len() as u8) << 1 | 1);
                row.extend(text.as_bytes());
            }
        },
    }
}

fn heap_frame(seed: u64, columns: &[Column], bytes: usize) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    let pages = 1 + draw.below(5);
    (0..pages)
        .flat_map(|_| match draw.below(8) {
            0 => vec![0; bytes],
            _ => heap_page(&mut draw, columns, bytes),
        })
        .collect()
}

/// Frames with rows of all kinds, in pages of every size that PostgreSQL has, whole and damaged.
pub fn samples() -> Vec<(Layout, Vec<u8>)> {
    let fixed = |bytes, align| Column::Fixed { bytes, align };
    let variable = |numeric| Column::Variable {
        align: Align::Four,
        numeric,
    };
    let columns = vec![
        fixed(4, Align::Four),
        variable(false),
        fixed(1, Align::One),
        fixed(8, Align::Eight),
        variable(true),
        fixed(3, Align::One),
        variable(false),
        fixed(2, Align::Two),
        fixed(16, Align::One),
    ];
    let sizes = [8192, 16_384, 32_768].into_iter();
    let seeds = sizes.flat_map(|size| (0..4).map(move |seed| (size, seed)));
    let frame = |(size, seed)| {
        let mut raw = heap_frame(seed, &columns, size as usize);
        let mut draw = Draw::new(seed ^ 7);
        (0..3 * seed).for_each(|_| damage(&mut raw, &mut draw));
        let (page_size, columns) = (page_size(size), columns.clone());
        (Layout::PostgresHeap { page_size, columns }, raw)
    };
    seeds.map(frame).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rows_of_any_columns_come_back(
        columns in prop::collection::vec(column(), 0..10),
        seed in any::<u64>(),
        size in prop::sample::select(vec![8192, 16_384, 32_768]),
    ) {
        let raw = heap_frame(seed, &columns, size as usize);
        let layout = Layout::PostgresHeap { page_size: page_size(size), columns };
        round_trip(&layout, &raw);
    }

    #[test]
    fn damaged_pages_come_back(
        columns in prop::collection::vec(column(), 0..10),
        seed in any::<u64>(),
        damages in 1usize..20,
    ) {
        let mut raw = heap_frame(seed, &columns, 8192);
        let mut draw = Draw::new(seed ^ 1);
        (0..damages).for_each(|_| damage(&mut raw, &mut draw));
        let layout = Layout::PostgresHeap { page_size: page_size(8192), columns };
        round_trip(&layout, &raw);
    }

    #[test]
    fn pages_come_back_if_the_layout_is_of_another_table(
        columns in prop::collection::vec(column(), 0..10),
        layout in layout(),
        seed in any::<u64>(),
    ) {
        let raw = heap_frame(seed, &columns, 65_536 / 2);
        round_trip(&layout, &raw);
    }

    #[test]
    fn bytes_that_are_no_pages_come_back(layout in layout(), seed in any::<u64>()) {
        let mut draw = Draw::new(seed);
        let raw: Vec<u8> = (0..layout.page_size().bytes() * 2).map(|_| draw.next() as u8).collect();
        round_trip(&layout, &raw);
    }

    #[test]
    fn a_layout_comes_back_from_its_bytes(layout in layout()) {
        prop_assert_eq!(Layout::from_bytes(&layout.to_bytes()), Ok(layout));
    }

    #[test]
    fn any_bytes_are_a_layout_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(layout) = Layout::from_bytes(&bytes) {
            prop_assert_eq!(Layout::from_bytes(&layout.to_bytes()), Ok(layout));
        }
    }
}

/// No type of PostgreSQL is like this, but a layout from a set may be.
#[test]
fn short_values_with_a_wide_alignment_come_back() {
    let text = Column::Variable {
        align: windlass_pages::Align::One,
        numeric: false,
    };
    for align in [
        windlass_pages::Align::Two,
        windlass_pages::Align::Four,
        windlass_pages::Align::Eight,
    ] {
        for bytes in [1, 2, 3, 4, 8] {
            let columns = vec![text, Column::Fixed { bytes, align }, text];
            for seed in 0..20 {
                let raw = heap_frame(seed, &columns, 8192);
                let columns = columns.clone();
                let page_size = page_size(8192);
                round_trip(&Layout::PostgresHeap { page_size, columns }, &raw);
            }
        }
    }
}

#[test]
fn a_frame_of_half_a_page_stays_raw_and_is_refused_by_the_decoder() {
    let layout = Layout::PostgresHeap {
        page_size: page_size(8192),
        columns: Vec::new(),
    };
    assert_eq!(round_trip(&layout, &[0; 4096]), None);
    assert_eq!(round_trip(&layout, &[]), None);
    let decoded = windlass_pages::Decoder::new().decode(&layout, &[&[], &[]], &mut [0; 4096]);
    let page_bytes = 8192;
    let bytes = 4096;
    assert_eq!(decoded, Err(PagesError::Length { bytes, page_bytes }));
}
