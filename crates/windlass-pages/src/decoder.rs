//! Streams to pages.

use crate::btree::BtreeDecoder;
use crate::error::PagesError;
use crate::frame::{Pages, check_length, pages};
use crate::heap::HeapDecoder;
use crate::layout::{Column, Layout};
use crate::leaf_rebuild::LeafRebuild;
use crate::rebuild::Rebuild;
use crate::slotted::{Order, Shape};
use crate::streams::Source;

/// Puts frames together. It keeps its memory for the next frame: at most 64 times the longest frame
/// that it was asked for, and 1 MiB, whatever the streams say.
#[derive(Debug, Default)]
pub struct Decoder {
    rebuild: Rebuild,
    heap: HeapDecoder,
    btree: BtreeDecoder,
    leaves: LeafRebuild,
}

impl Decoder {
    /// Without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the pages of a frame to `raw`, which has exactly its length. The streams must be
    /// those of an encoder, in their order; if they are not, there is an error or there are wrong
    /// pages, so the caller compares a checksum. After an error the bytes in `raw` have no meaning.
    pub fn decode(
        &mut self,
        layout: &Layout,
        streams: &[&[u8]],
        raw: &mut [u8],
    ) -> Result<(), PagesError> {
        check_length(layout, raw.len())?;
        let mut source = Source::new(streams)?;
        match pages(layout)? {
            Pages::Slotted(shape) => self.slotted(&mut source, shape, layout.columns(), raw)?,
            Pages::Leaves(form) => self.leaves.decode(&mut source, form, raw)?,
        }
        source.end()
    }

    /// Puts PostgreSQL's pages together.
    fn slotted<'a>(
        &'a mut self,
        source: &mut Source<'a>,
        shape: Shape,
        columns: &[Column],
        raw: &mut [u8],
    ) -> Result<(), PagesError> {
        let rebuild = &mut self.rebuild;
        let count = rebuild.take(source, shape, raw)?;
        match shape.order {
            Order::Place => {
                let mut rows = self.heap.take(source, count, columns, raw.len())?;
                rebuild.place(source, shape, raw, |page, at, slot, number| {
                    rows.write(page, at, slot, (number, shape.page_bytes))
                })?;
                rows.finish(raw)
            }
            Order::Slot => {
                let mut rows = self.btree.take(source, count, columns, raw.len())?;
                rebuild.place(source, shape, raw, |page, at, _, number| {
                    rows.write(page, at, number * shape.page_bytes)
                })?;
                rows.finish(raw)
            }
        }
    }
}
