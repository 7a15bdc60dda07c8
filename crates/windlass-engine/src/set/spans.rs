//! The spans of a stripe: what its footer says that its index blocks have of each file.
//!
//! Readers of upper layers skip blocks because of them, so a span that is too narrow hides bytes
//! until somebody reads the block. From then on nobody may believe any span of the stripe, whatever
//! else is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use windlass_media::{
    BlockSpans, FileNo, FileSpan, FormatError, IndexBlock, IndexDirectoryEntry, SetDescription,
    Structure,
};

use crate::mismatch::Mismatch;

/// What the footer of a stripe says that each of its index blocks has.
#[derive(Debug, Default)]
pub(crate) struct StripeSpans {
    /// Empty if the footer does not say it.
    blocks: Vec<BlockSpans>,
    /// Where the first block lies of which somebody saw that its spans are others.
    wrong: OnceLock<u64>,
}

impl StripeSpans {
    pub(crate) fn new(blocks: Vec<BlockSpans>) -> Self {
        let wrong = OnceLock::new();
        Self { blocks, wrong }
    }

    /// What a block has of each file, if the footer says it.
    pub(super) fn of(&self, block: usize) -> Option<&[FileSpan]> {
        self.blocks.get(block)?.as_deref()
    }

    /// Whether a block that was read from `offset` has the spans that the footer states. If not,
    /// this remembers it.
    pub(super) fn agree(&self, (number, block): (usize, &IndexBlock), offset: u64) -> bool {
        let Some(listed) = self.of(number) else {
            return true;
        };
        let agree = FileSpan::of(&block.pieces).as_deref() == Some(listed);
        if !agree {
            self.wrong.get_or_init(|| offset);
        }
        agree
    }

    /// Where a block lies of which somebody saw that its spans are others, if anybody did.
    pub(super) fn wrong(&self) -> Option<u64> {
        self.wrong.get().copied()
    }

    /// The fault of such a block.
    pub(super) fn fault() -> FormatError {
        FormatError::Invalid {
            structure: Structure::IndexBlock,
            what: "it holds other ranges of files than the footer says",
        }
    }

    /// How much memory this takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let spans = self.blocks.iter().flatten().map(|spans| spans.len());
        let spans = spans.sum::<usize>() * size_of::<FileSpan>();
        (self.blocks.capacity() * size_of::<BlockSpans>() + spans) as u64
    }
}

/// Refuses spans of files that the set does not have, and those that end beyond a file. A file with
/// anything over other bytes may have been longer, and its pieces with it. `stripes` are all of the
/// set, each with its index directory.
pub(super) fn check_lengths<'a>(
    stripes: impl Iterator<Item = (&'a StripeSpans, &'a [IndexDirectoryEntry])> + Clone,
    description: &SetDescription,
) -> Result<(), Mismatch> {
    let blocks = stripes.clone().flat_map(|(spans, _)| &spans.blocks);
    let all = blocks.flatten().flat_map(|spans| spans.iter());
    let mut lengths: BTreeMap<FileNo, Option<u64>> =
        all.clone().map(|span| (span.file, None)).collect();
    if lengths.is_empty() {
        return Ok(());
    }
    for entry in &description.files.0 {
        if let Some(length) = lengths.get_mut(&entry.file) {
            *length = Some(entry.bytes);
        }
    }
    let layered = all.clone().filter(|span| span.layer_max > 0);
    let layered: BTreeSet<_> = layered.map(|span| span.file).collect();
    let unsaid = stripes.flat_map(|(spans, directory)| {
        let blocks = directory.iter().enumerate();
        blocks.filter(move |(block, it)| it.layer_max > 0 && spans.of(*block).is_none())
    });
    let unsaid: Vec<_> = unsaid.map(|(_, it)| it.file_min..=it.file_max).collect();
    let inherited = description.base.as_ref().map(|base| &base.files);
    let may_be_longer = |file: FileNo| {
        inherited.is_some_and(|files| files.get(file).is_some())
            || layered.contains(&file)
            || unsaid.iter().any(|files| files.contains(&file))
    };
    for span in all {
        let (file, offset) = (span.file, span.first);
        match lengths.get(&file).copied().flatten() {
            Some(bytes) if span.end > bytes && !may_be_longer(file) => {
                return Err(Mismatch::PieceBeyond { file, offset });
            }
            None if !description.superseded.contains(file) => {
                return Err(Mismatch::PieceOfNone { file, offset });
            }
            _ => {}
        }
    }
    Ok(())
}
