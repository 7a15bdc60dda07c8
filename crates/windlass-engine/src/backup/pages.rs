//! What a hook sees and decides: a run of bytes of one file, on its way to the devices.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use windlass_media::{FileNo, PageEncoder};

use super::class::PageClass;
use crate::error::EngineError;
use crate::waits::{Cause, Stage};

/// Looks at, changes, drops or describes the bytes that were read, before they are compressed.
/// Compressors call it in parallel and in any order. Each run of bytes starts at a multiple of
/// 64 KiB of its file (a small file: at 0).
pub trait PageHook: Send + Sync {
    /// One run of bytes of a file.
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError>;

    /// What takes apart the pages that it classifies; each compressor has its own. Tests have one
    /// that is wrong.
    fn page_encoder(&self) -> PageEncoder {
        PageEncoder::default()
    }
}

/// A hook that says how the pages of some files are laid out, and changes nothing.
#[derive(Debug)]
pub struct FileClasses(HashMap<FileNo, Arc<PageClass>>);

impl FromIterator<(FileNo, Arc<PageClass>)> for FileClasses {
    fn from_iter<I: IntoIterator<Item = (FileNo, Arc<PageClass>)>>(classes: I) -> Self {
        Self(classes.into_iter().collect())
    }
}

impl PageHook for FileClasses {
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError> {
        if let Some(class) = self.0.get(&pages.file) {
            pages.classify(class);
        }
        Ok(())
    }
}

/// A run of bytes of a file, and what becomes of it.
pub struct Pages<'a> {
    file: FileNo,
    offset: u64,
    bytes: &'a mut [u8],
    dropped: Vec<Range<usize>>,
    kinds: Vec<(usize, u16)>,
    class: Option<Arc<PageClass>>,
    layer: u8,
    stage: Option<&'a Stage>,
}

impl<'a> Pages<'a> {
    /// A run of bytes that nobody has decided about.
    pub fn new(file: FileNo, offset: u64, bytes: &'a mut [u8]) -> Self {
        Self {
            file,
            offset,
            bytes,
            dropped: Vec::new(),
            kinds: Vec::new(),
            class: None,
            layer: 0,
            stage: None,
        }
    }

    /// The same, as a version of this layer that passes a stage.
    pub(crate) fn in_stage(mut self, layer: u8, stage: &'a Stage) -> Self {
        (self.layer, self.stage) = (layer, Some(stage));
        self
    }

    /// Which version of the bytes this is: 0, or higher for a range that was read again.
    pub fn layer(&self) -> u8 {
        self.layer
    }

    /// Runs a call that reads something else. Its time counts as a wait for the source, except what
    /// it computes.
    pub fn reading<T>(&self, read: impl FnOnce() -> T) -> T {
        match self.stage {
            Some(stage) => stage.wait_off_core(Cause::SourceRead, read),
            None => read(),
        }
    }

    /// The file.
    pub fn file(&self) -> FileNo {
        self.file
    }

    /// Where in the file the run begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The bytes, to replace them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Leaves a range of the run out of the set. Its bytes must come from another set, so a full
    /// backup cannot end with it. Call it from the first range to the last.
    pub fn drop_range(&mut self, range: Range<usize>) {
        let end = self.dropped.last().map_or(0, |last| last.end);
        assert!(
            end <= range.start && range.start <= range.end && range.end <= self.bytes.len(),
            "dropped ranges are in order and inside the run"
        );
        match self.dropped.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.dropped.push(range),
        }
    }

    /// Says what the pages from `at` on are, up to the next call; 0 is unknown. Pages of different
    /// kinds do not share a frame. Call it from the first page to the last.
    pub fn describe(&mut self, at: usize, kind: u16) {
        assert!(
            self.kinds.last().is_none_or(|(last, _)| *last < at) && at < self.bytes.len(),
            "descriptions are in order and inside the run"
        );
        self.kinds.push((at, kind));
    }

    /// Says how the pages of the whole run are laid out. Their frames may be stored with the pages
    /// taken apart, if the set has page-aware frames. Pages of different classes do not share a
    /// frame.
    pub fn classify(&mut self, class: &Arc<PageClass>) {
        self.class = Some(Arc::clone(class));
    }

    /// The class of its pages.
    pub(crate) fn into_class(self) -> Option<Arc<PageClass>> {
        self.class
    }

    /// What is kept: each range, and the kind of its pages.
    pub(crate) fn kept(&self) -> Vec<(Range<usize>, u16)> {
        let mut cuts: Vec<usize> = self.kinds.iter().map(|(at, _)| *at).collect();
        cuts.extend(self.dropped.iter().flat_map(|gone| [gone.start, gone.end]));
        cuts.extend([0, self.bytes.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let is_dropped = |at: usize| self.dropped.iter().any(|gone| gone.contains(&at));
        let kind = |at: usize| {
            let before = self.kinds.partition_point(|(from, _)| *from <= at);
            before.checked_sub(1).map_or(0, |last| self.kinds[last].1)
        };
        let ranges = cuts.windows(2).map(|pair| pair[0]..pair[1]);
        ranges
            .filter(|range| !is_dropped(range.start))
            .map(|range| (range.clone(), kind(range.start)))
            .collect()
    }
}

/// Bytes of a file that follow each other in a buffer and are kept.
#[derive(Debug)]
pub(crate) struct KeptBytes {
    pub(crate) file: FileNo,
    /// How long the file is in the set.
    pub(crate) file_bytes: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) layer: u8,
    pub(crate) kind: u16,
    pub(crate) class: Option<Arc<PageClass>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(decide: impl Fn(&mut Pages<'_>)) -> Vec<(Range<usize>, u16)> {
        let mut bytes = [0; 100];
        let mut pages = Pages::new(FileNo(1), 0, &mut bytes);
        decide(&mut pages);
        pages.kept()
    }

    #[test]
    fn what_is_neither_dropped_nor_described_is_kept_as_one_run() {
        assert_eq!(kept(|_| ()), [(0..100, 0)]);
    }

    #[test]
    fn dropped_ranges_and_descriptions_cut_the_run() {
        let found = kept(|pages| {
            pages.drop_range(10..20);
            pages.drop_range(20..30);
            pages.drop_range(90..100);
            pages.describe(5, 7);
            pages.describe(25, 8);
            pages.describe(60, 0);
        });
        assert_eq!(found, [(0..5, 0), (5..10, 7), (30..60, 8), (60..90, 0)]);
        assert!(kept(|pages| pages.drop_range(0..100)).is_empty());
    }
}
