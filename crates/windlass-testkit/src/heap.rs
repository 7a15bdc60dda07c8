//! Pages of a table as PostgreSQL would write them, made from a seed.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::sync::Arc;

use windlass_engine::media::windlass_pages::{Column, Layout, PageSize};
use windlass_engine::media::{FileNo, PageEncoder, PageLayout, TakeApart, windlass_pages};
use windlass_engine::{EngineError, PageClass, PageHook, Pages};

use crate::sqlite::Random;

/// Bytes of a page.
pub const HEAP_PAGE: usize = 8192;
const ROW_HEADER: usize = 24;
/// A column of varying length, valid since its insertion, never ended.
const INFOMASK: u16 = 0x0902;

/// The columns of the table: int4, int8, text.
pub fn heap_layout() -> PageLayout {
    let columns = [(4, b'i', 23), (8, b'd', 20), (-1, b'i', 25)];
    let columns = columns.map(|(length, align, oid)| Column::postgres(length, align, oid).unwrap());
    PageLayout::new(Layout::PostgresHeap {
        page_size: PageSize::new(HEAP_PAGE as u32).unwrap(),
        columns: columns.into(),
    })
}

/// This many pages of the table.
pub fn heap_pages(count: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut pages = vec![0; count * HEAP_PAGE];
    let mut id = 0;
    for (block, page) in pages.chunks_exact_mut(HEAP_PAGE).enumerate() {
        fill(page, block, &mut id, &mut random);
    }
    pages
}

fn fill(page: &mut [u8], block: usize, id: &mut u32, random: &mut Random) {
    let (mut lower, mut upper) = (24, HEAP_PAGE);
    loop {
        *id += 1;
        let row = row(block, (lower - 24) / 4 + 1, *id, random);
        let at = upper.saturating_sub(row.len().next_multiple_of(8));
        if at < lower + 4 {
            break;
        }
        page[at..at + row.len()].copy_from_slice(&row);
        let pointer = at as u32 | 1 << 15 | (row.len() as u32) << 17;
        page[lower..lower + 4].copy_from_slice(&pointer.to_le_bytes());
        (lower, upper) = (lower + 4, at);
    }
    page[4..8].copy_from_slice(&(0x0100_0000 + block as u32 * 40).to_le_bytes());
    let fields = [
        lower as u16,
        upper as u16,
        HEAP_PAGE as u16,
        HEAP_PAGE as u16 | 4,
    ];
    for (field, value) in page[12..20].chunks_exact_mut(2).zip(fields) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

fn row(block: usize, position: usize, id: u32, random: &mut Random) -> Vec<u8> {
    let mut row = vec![0; ROW_HEADER];
    row[..4].copy_from_slice(&700_u32.to_le_bytes());
    row[14..16].copy_from_slice(&(block as u16).to_le_bytes());
    row[16..18].copy_from_slice(&(position as u16).to_le_bytes());
    row[18..20].copy_from_slice(&3_u16.to_le_bytes());
    row[20..22].copy_from_slice(&INFOMASK.to_le_bytes());
    row[22] = ROW_HEADER as u8;
    row.extend(id.to_le_bytes());
    row.extend([0; 4]);
    row.extend(u64::from(1_000_000 + random.below(500)).to_le_bytes());
    let text = format!("customer {:05}", random.below(100_000));
    row.push(((text.len() + 1) << 1 | 1) as u8);
    row.extend(text.as_bytes());
    row
}

/// A hook that says of these files that they are pages of the table.
pub struct HeapHook {
    class: Arc<PageClass>,
    files: Vec<FileNo>,
    is_wrong: bool,
}

impl HeapHook {
    /// With the encoder that everybody has.
    pub fn new(files: &[u32]) -> Self {
        Self {
            class: Arc::new(PageClass::new(heap_layout())),
            files: files.iter().map(|file| FileNo(*file)).collect(),
            is_wrong: false,
        }
    }

    /// With an encoder that loses a bit of each frame.
    pub fn wrong(files: &[u32]) -> Self {
        Self {
            is_wrong: true,
            ..Self::new(files)
        }
    }
}

impl PageHook for HeapHook {
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError> {
        if self.files.contains(&pages.file()) {
            pages.classify(&self.class);
        }
        Ok(())
    }

    fn page_encoder(&self) -> PageEncoder {
        match self.is_wrong {
            true => PageEncoder::new(Box::new(Wrong::default())),
            false => PageEncoder::default(),
        }
    }
}

/// An encoder that loses a bit.
#[derive(Default)]
struct Wrong(windlass_pages::Encoder);

impl TakeApart for Wrong {
    fn take_apart(
        &mut self,
        layout: &Layout,
        raw: &[u8],
        streams: &mut windlass_pages::Streams,
    ) -> bool {
        let mut changed = raw.to_vec();
        if let Some(last) = changed.last_mut() {
            *last ^= 1;
        }
        self.0.take_apart(layout, &changed, streams)
    }
}
