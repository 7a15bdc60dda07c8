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
//! - A page that a sync has made durable is written to a new slot, never in place. So after a power
//!   cut every page is as it was at the last sync.

use std::io;
use std::ops::Range;

use windlass_engine::media::fitted;

use super::Overlay;
use super::node::{Node, NodeState};
use super::record::{PAGE_BYTES, Record};
use crate::error::ImageError;
use crate::store::{PageOwner, Slot, Writing};

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

/// What may be written about one file.
#[derive(Clone, Copy)]
struct WrittenFile<'a> {
    node: &'a Node,
    state: &'a NodeState,
    writing: &'a Writing<'a>,
}

fn owner(node: &Node, block: u64) -> PageOwner {
    PageOwner {
        file: node.number.0,
        block,
    }
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
        state: &NodeState,
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
        state: &NodeState,
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
                let of = owner(node, at / PAGE);
                let read = self.store.read(slot, of, within, into);
                read.map_err(|error| self.page_fault("read pages of", error))
            }
        }
    }

    /// Reads the bytes that the image has of a file. Beyond them it fills in zeros.
    fn read_base(
        &self,
        node: &Node,
        state: &NodeState,
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

    /// Writes bytes of a file. Pages that need a new slot come first, then those that are written
    /// in place, then the records.
    pub(super) fn write_content(
        &self,
        node: &Node,
        state: &mut NodeState,
        offset: u64,
        bytes: &[u8],
        nanos: i64,
    ) -> Result<(), ImageError> {
        let writing = self.store.writing();
        let before = state.attributes.bytes;
        let after = before.max(offset + bytes.len() as u64);
        let target = WrittenFile {
            node,
            state,
            writing: &writing,
        };
        let tail = match offset > before {
            true => self.clear_tail(target, offset)?,
            false => None,
        };
        if let Some((block, slot)) = tail {
            let record = paged(node, (block, slot, 1), before, nanos);
            self.commit(state, &[record])?;
        }
        let target = WrittenFile {
            node,
            state,
            writing: &writing,
        };
        let (old, new): (Vec<_>, Vec<_>) =
            parts(offset, bytes.len()).partition(|part| target.fresh(part.block).is_some());
        let runs = self.write_new(target, &new, bytes)?;
        self.write_in_place(target, &old, bytes)?;
        let runs = runs.into_iter();
        let mut records: Vec<_> = runs.map(|run| paged(node, run, after, nanos)).collect();
        if records.is_empty() && after > before {
            records.push(Record::Resized {
                node: node.number,
                bytes: after,
                tail: None,
                nanos,
            });
        }
        self.commit(state, &records)?;
        state.touch(nanos);
        state.is_touched = true;
        Ok(())
    }

    /// Writes records about one node to the journal, and makes their changes.
    fn commit(&self, state: &mut NodeState, records: &[Record]) -> Result<(), ImageError> {
        if let Err(error) = self.append(records) {
            let slots = records.iter().filter_map(Record::slots);
            self.give_back(&slots.collect::<Vec<_>>());
            return Err(error);
        }
        for record in records {
            self.store.free(state.apply(record));
        }
        Ok(())
    }

    fn write_in_place(
        &self,
        target: WrittenFile<'_>,
        parts: &[Part],
        bytes: &[u8],
    ) -> Result<(), ImageError> {
        for part in parts {
            let Some(slot) = target.fresh(part.block) else {
                continue;
            };
            let (of, bytes) = (owner(target.node, part.block), &bytes[part.from..part.to]);
            let written = target.writing.overwrite(slot, of, part.within, bytes);
            written.map_err(|error| self.page_fault("write pages of", error))?;
        }
        Ok(())
    }

    /// Puts pages into slots of their own. Returns runs of (block, slot, count).
    fn write_new(
        &self,
        target: WrittenFile<'_>,
        parts: &[Part],
        bytes: &[u8],
    ) -> Result<Vec<(u64, Slot, u32)>, ImageError> {
        let Ok(count) = u32::try_from(parts.len()) else {
            return Err(crate::view::refused(rustix::io::Errno::FBIG));
        };
        let full = || self.fault("write pages of", io::ErrorKind::StorageFull.into());
        let slots = target.writing.take(count).ok_or_else(full)?;
        let written = self.write_to(target, &slots, parts, bytes);
        if written.is_err() {
            self.store.give_back(&slots);
        }
        written
    }

    fn write_to(
        &self,
        target: WrittenFile<'_>,
        slots: &[Range<Slot>],
        parts: &[Part],
        bytes: &[u8],
    ) -> Result<Vec<(u64, Slot, u32)>, ImageError> {
        let mut runs: Vec<(u64, Slot, u32)> = Vec::new();
        for (part, slot) in parts.iter().zip(slots.iter().cloned().flatten()) {
            match runs.last_mut() {
                Some((block, first, count))
                    if *block + u64::from(*count) == part.block && *first + *count == slot =>
                {
                    *count += 1;
                }
                _ => runs.push((part.block, slot, 1)),
            }
        }
        let (mut rest, mut pages) = (parts, Vec::new());
        for (block, slot, count) in &runs {
            let (now, later) = rest.split_at(*count as usize);
            pages.clear();
            for part in now {
                self.add_page(target, part, bytes, &mut pages)?;
            }
            let written = target
                .writing
                .write(*slot, owner(target.node, *block), &pages);
            written.map_err(|error| self.page_fault("write pages of", error))?;
            rest = later;
        }
        Ok(runs)
    }

    /// Adds a page as it will be. The bytes that the write leaves out keep their content; beyond
    /// the end that is zeros.
    fn add_page(
        &self,
        target: WrittenFile<'_>,
        part: &Part,
        bytes: &[u8],
        pages: &mut Vec<u8>,
    ) -> Result<(), ImageError> {
        let start = pages.len();
        pages.resize(start + PAGE_BYTES, 0);
        let page = &mut pages[start..];
        if part.to - part.from < PAGE_BYTES {
            let WrittenFile { node, state, .. } = target;
            match state.blocks.get(part.block) {
                None => self.read_base(node, state, part.block * PAGE, page)?,
                Some(slot) => {
                    let read = self.store.read(slot, owner(node, part.block), 0, page);
                    read.map_err(|error| self.page_fault("read pages of", error))?;
                }
            }
        }
        let piece = &bytes[part.from..part.to];
        page[part.within..part.within + piece.len()].copy_from_slice(piece);
        Ok(())
    }

    /// Writes zeros into the last page, from the file's end to `until` or to the page's end. A
    /// write that was cut off before its record was written may have left something there. Returns
    /// the page's block and its new slot, if it has one.
    fn clear_tail(
        &self,
        target: WrittenFile<'_>,
        until: u64,
    ) -> Result<Option<(u64, Slot)>, ImageError> {
        let end = target.state.attributes.bytes;
        let (block, within) = (end / PAGE, fitted(end % PAGE));
        if within == 0 || target.state.blocks.get(block).is_none() {
            return Ok(None);
        }
        let until: usize = fitted(until - block * PAGE);
        let part = Part {
            block,
            within,
            from: 0,
            to: until.min(PAGE_BYTES) - within,
        };
        let zeros = vec![0; part.to];
        if target.fresh(block).is_some() {
            self.write_in_place(target, &[part], &zeros)?;
            return Ok(None);
        }
        let runs = self.write_new(target, &[part], &zeros)?;
        Ok(runs.first().map(|(block, slot, _)| (*block, *slot)))
    }

    /// Changes the length of a file.
    pub(super) fn resize(
        &self,
        node: &Node,
        state: &mut NodeState,
        bytes: u64,
        nanos: i64,
    ) -> Result<(), ImageError> {
        let writing = self.store.writing();
        let before = state.attributes.bytes;
        let mut tail = None;
        let target = WrittenFile {
            node,
            state,
            writing: &writing,
        };
        if bytes > before {
            if let Some((block, slot)) = self.clear_tail(target, bytes)? {
                self.commit(state, &[paged(node, (block, slot, 1), before, nanos)])?;
            }
        } else if bytes < before {
            tail = self.cut_page(target, bytes)?;
        }
        let record = Record::Resized {
            node: node.number,
            bytes,
            tail,
            nanos,
        };
        self.commit(state, std::slice::from_ref(&record))
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
    fn cut_page(&self, target: WrittenFile<'_>, bytes: u64) -> Result<Option<Slot>, ImageError> {
        let (block, within) = (bytes / PAGE, fitted(bytes % PAGE));
        let Some(slot) = target.state.blocks.get(block).filter(|_| within > 0) else {
            return Ok(None);
        };
        let of = owner(target.node, block);
        let mut page = vec![0; PAGE_BYTES];
        let read = self.store.read(slot, of, 0, &mut page[..within]);
        read.map_err(|error| self.page_fault("read pages of", error))?;
        let full = || self.fault("write pages of", io::ErrorKind::StorageFull.into());
        let taken = target.writing.take(1).ok_or_else(full)?;
        let new = taken[0].start;
        let written = target.writing.write(new, of, &page);
        if let Err(error) = written {
            self.store.give_back(&taken);
            return Err(self.page_fault("write pages of", error));
        }
        Ok(Some(new))
    }
}

impl WrittenFile<'_> {
    /// The slot of a block that may be written in place.
    fn fresh(&self, block: u64) -> Option<Slot> {
        let slot = self.state.blocks.get(block)?;
        self.writing.is_fresh(slot).then_some(slot)
    }
}

/// The record of pages that are in the store from now on.
fn paged(node: &Node, (block, slot, count): (u64, Slot, u32), bytes: u64, nanos: i64) -> Record {
    Record::Paged {
        node: node.number,
        block,
        slot,
        count,
        bytes,
        nanos,
    }
}
