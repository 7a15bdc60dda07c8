//! A file's bytes in an overlay: read from store and image, written to the store.
//!
//!   offset --> page in the store?  --yes--> the slot's bytes
//!                    |
//!                    no --> below `base_bytes`? --yes--> the image's bytes, otherwise zeros
//!
//! Invariants
//! - If a file grows, the bytes between its old and its new end are zeros. So a page that the end
//!   of the file cuts is replaced, and what a killed write left behind the end is overwritten.
//! - A page is written to the store before the record that mentions it is written to the journal.

use std::io;
use std::ops::Range;

use windlass_engine::media::fitted;

use super::Overlay;
use super::node::{Node, State};
use super::record::{Record, Slot};
use super::store::PAGE_BYTES;
use crate::error::ImageError;

const PAGE: u64 = PAGE_BYTES as u64;

/// The part of a request that lies in one page.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: u64,
    /// Where the part begins in the page.
    within: usize,
    /// Where the part begins in the request.
    from: usize,
    to: usize,
}

/// Splits a request of `bytes` bytes at `offset` at the page boundaries.
fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = Part> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = offset + from as u64;
        let within = fitted(at % PAGE);
        let to = bytes.min(from + PAGE_BYTES - within);
        let part = Part {
            block: at / PAGE,
            within,
            from,
            to,
        };
        from = to;
        (part.from < part.to).then_some(part)
    })
}

impl Overlay {
    /// Reads up to `into.len()` bytes of a file.
    pub(super) fn read_content(
        &self,
        node: &Node,
        state: &State,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, ImageError> {
        let left = state.attributes.bytes.saturating_sub(offset);
        let length = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let mut run: Option<(Option<Slot>, u64, usize, usize)> = None;
        for part in parts(offset, length) {
            let slot = state.blocks.get(part.block);
            run = match run {
                // Neighbours are read together.
                Some((None, block, from, _)) if slot.is_none() => {
                    Some((None, block, from, part.to))
                }
                Some((Some(first), block, from, _))
                    if slot.map(u64::from) == Some(u64::from(first) + (part.block - block)) =>
                {
                    Some((Some(first), block, from, part.to))
                }
                done => {
                    self.read_run(node, state, offset, done, into)?;
                    Some((slot, part.block, part.from, part.to))
                }
            };
        }
        self.read_run(node, state, offset, run, into)?;
        Ok(length)
    }

    /// Reads a run: consecutive slots, or bytes that are not in the store.
    fn read_run(
        &self,
        node: &Node,
        state: &State,
        offset: u64,
        run: Option<(Option<Slot>, u64, usize, usize)>,
        into: &mut [u8],
    ) -> Result<(), ImageError> {
        let Some((slot, _, from, to)) = run else {
            return Ok(());
        };
        let (at, into) = (offset + from as u64, &mut into[from..to]);
        match slot {
            None => self.read_base(node, state, at, into),
            Some(slot) => {
                let within = fitted(at % PAGE);
                let read = self.store.read(slot, within, into);
                read.map_err(|source| self.fault("read pages of", source))
            }
        }
    }

    /// Reads the bytes that the image has of a file. Beyond them it fills in zeros.
    fn read_base(
        &self,
        node: &Node,
        state: &State,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ImageError> {
        let has: usize = fitted(state.base_bytes.saturating_sub(offset));
        let (base, beyond) = into.split_at_mut(has.min(into.len()));
        beyond.fill(0);
        match node.base {
            Some(file) if !base.is_empty() => {
                let count = self.image.read(file, offset, base)?;
                // The file table states the length, so an image that returns less breaks its
                // promise.
                if count < base.len() {
                    let offset = offset + count as u64;
                    let path = format!("file {file}");
                    return Err(ImageError::Missing { path, offset });
                }
            }
            _ => base.fill(0),
        }
        Ok(())
    }

    /// Writes bytes of a file. New pages come first, then the pages that exist, then the records.
    pub(super) fn write_content(
        &self,
        node: &Node,
        state: &mut State,
        offset: u64,
        bytes: &[u8],
        nanos: i64,
    ) -> Result<(), ImageError> {
        let before = state.attributes.bytes;
        let after = before.max(offset + bytes.len() as u64);
        if offset > before {
            self.clear_tail(state, offset)?;
        }
        let (old, new): (Vec<_>, Vec<_>) =
            parts(offset, bytes.len()).partition(|part| state.blocks.get(part.block).is_some());
        let runs = self.write_new(node, state, &new, bytes)?;
        for part in old {
            if let Some(slot) = state.blocks.get(part.block) {
                let written = self
                    .store
                    .write(slot, part.within, &bytes[part.from..part.to]);
                written.map_err(|source| self.fault("write pages of", source))?;
            }
        }
        let mut records: Vec<_> = runs
            .into_iter()
            .map(|(block, slot, count)| Record::Paged {
                node: node.number,
                block,
                slot,
                count,
                bytes: after,
                nanos,
            })
            .collect();
        if records.is_empty() && after > before {
            records.push(Record::Resized {
                node: node.number,
                bytes: after,
                tail: None,
                nanos,
            });
        }
        if let Err(error) = self.append(&records) {
            let slots = records.iter().filter_map(Record::slots);
            self.give_back(&slots.collect::<Vec<_>>());
            return Err(error);
        }
        for record in &records {
            self.store.free(state.apply(record));
        }
        state.touch(nanos);
        state.is_touched = true;
        Ok(())
    }

    /// Puts pages into the store that are not there yet. Returns runs of (block, slot, count).
    fn write_new(
        &self,
        node: &Node,
        state: &State,
        parts: &[Part],
        bytes: &[u8],
    ) -> Result<Vec<(u64, Slot, u32)>, ImageError> {
        let Ok(count) = u32::try_from(parts.len()) else {
            return Err(crate::view::refused(rustix::io::Errno::FBIG));
        };
        let full = || self.fault("write pages of", io::ErrorKind::StorageFull.into());
        let slots = self.store.take(count).ok_or_else(full)?;
        let mut runs: Vec<(u64, Slot, u32)> = Vec::new();
        let mut pages = Vec::with_capacity(parts.len() * PAGE_BYTES);
        for part in parts {
            let start = pages.len();
            pages.resize(start + PAGE_BYTES, 0);
            let page = &mut pages[start..];
            if part.to - part.from < PAGE_BYTES {
                // The bytes that this write leaves out keep their content; beyond the end that is
                // zeros.
                let filled = self.read_base(node, state, part.block * PAGE, page);
                if let Err(error) = filled {
                    self.store.give_back(&slots);
                    return Err(error);
                }
            }
            let piece = &bytes[part.from..part.to];
            page[part.within..part.within + piece.len()].copy_from_slice(piece);
        }
        let mut rest = pages.as_slice();
        for run in &slots {
            let (now, later) = rest.split_at((run.end - run.start) as usize * PAGE_BYTES);
            if let Err(source) = self.store.write(run.start, 0, now) {
                self.store.give_back(&slots);
                return Err(self.fault("write pages of", source));
            }
            rest = later;
        }
        for (part, slot) in parts.iter().zip(slots.into_iter().flatten()) {
            match runs.last_mut() {
                Some((block, first, count))
                    if *block + u64::from(*count) == part.block && *first + *count == slot =>
                {
                    *count += 1;
                }
                _ => runs.push((part.block, slot, 1)),
            }
        }
        Ok(runs)
    }

    /// Writes zeros into the last page, from the file's end to `until` or to the page's end. A
    /// write that was cut off before its record was written may have left something there.
    fn clear_tail(&self, state: &State, until: u64) -> Result<(), ImageError> {
        let end = state.attributes.bytes;
        let (block, within) = (end / PAGE, fitted(end % PAGE));
        let Some(slot) = state.blocks.get(block).filter(|_| within > 0) else {
            return Ok(());
        };
        let until: usize = fitted(until - block * PAGE);
        let zeros = vec![0; until.min(PAGE_BYTES) - within];
        let cleared = self.store.write(slot, within, &zeros);
        cleared.map_err(|source| self.fault("write pages of", source))
    }

    /// Changes the length of a file.
    pub(super) fn resize(
        &self,
        node: &Node,
        state: &mut State,
        bytes: u64,
        nanos: i64,
    ) -> Result<(), ImageError> {
        let before = state.attributes.bytes;
        let mut tail = None;
        if bytes > before {
            self.clear_tail(state, bytes)?;
        } else if bytes < before {
            tail = self.cut_page(state, bytes)?;
        }
        let record = Record::Resized {
            node: node.number,
            bytes,
            tail,
            nanos,
        };
        if let Err(error) = self.append(std::slice::from_ref(&record)) {
            self.give_back(tail.map(|slot| slot..slot + 1).as_slice());
            return Err(error);
        }
        self.store.free(state.apply(&record));
        Ok(())
    }

    /// Gives back slots whose record was not written. After a failure the journal may contain the
    /// record anyway; then the slots stay taken.
    fn give_back(&self, slots: &[Range<Slot>]) {
        if !self.journal.is_dead() {
            self.store.give_back(slots);
        }
    }

    /// If the page in which the shorter file ends is in the store, copies it to a new slot, up to
    /// the new end. The old page stays as it is until the journal says otherwise.
    fn cut_page(&self, state: &State, bytes: u64) -> Result<Option<Slot>, ImageError> {
        let within = fitted(bytes % PAGE);
        let Some(slot) = state.blocks.get(bytes / PAGE).filter(|_| within > 0) else {
            return Ok(None);
        };
        let fault = |source| self.fault("write pages of", source);
        let mut page = vec![0; PAGE_BYTES];
        self.store
            .read(slot, 0, &mut page[..within])
            .map_err(fault)?;
        let taken = self.store.take(1);
        let taken = taken.ok_or_else(|| fault(io::ErrorKind::StorageFull.into()))?;
        let new = taken[0].start;
        if let Err(source) = self.store.write(new, 0, &page) {
            self.store.give_back(&taken);
            return Err(fault(source));
        }
        Ok(Some(new))
    }
}
