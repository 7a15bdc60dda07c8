//! From where to where each index block has bytes of each file: a footer's section that spares
//! readers of upper layers blocks which cannot tell of what they read.
//!
//! The section is not critical. Who does not know it reads more blocks and gets the same bytes.
//!
//! Nothing but the block itself can show that a span is too narrow. So what the footer says twice
//! is compared here, and the spans with the pieces each time that a block is read.

use crate::error::{FormatError, Structure};
use crate::ids::FileNo;
use crate::index::PieceEntry;
use crate::limits::{FILE_BYTES_MAX, FRAME_BYTES_MAX};
use crate::number::fitted;
use crate::wire::Reader;

/// A block with pieces of more files has no spans. So the section is small, however many files a
/// set has: who asks for one of many small files reads few blocks anyway.
const SPANS_MAX: usize = 16;
/// In the place of a count: the block has no spans.
const NO_SPANS: u8 = u8::MAX;
/// No piece ends beyond this.
const END_MAX: u64 = FILE_BYTES_MAX + FRAME_BYTES_MAX as u64;

/// From where to where an index block has bytes of a file, and in which layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpan {
    /// The file.
    pub file: FileNo,
    /// The highest layer of its pieces in the block.
    pub layer_max: u8,
    /// Where its first piece begins.
    pub first: u64,
    /// The greatest end of its pieces.
    pub end: u64,
}

/// The spans of an index block, in the order of file numbers; `None` if the footer states none.
pub type BlockSpans = Option<Box<[FileSpan]>>;

impl FileSpan {
    /// The spans of a block with these pieces. A block with pieces of more than 16 files has none,
    /// nor has one with a piece of no bytes: so every file of a block with spans has one of them.
    pub fn of(pieces: &[PieceEntry]) -> BlockSpans {
        if pieces.is_empty() || pieces.iter().any(|piece| piece.bytes == 0) {
            return None;
        }
        let mut spans: Vec<Self> = Vec::new();
        for piece in pieces {
            let end = piece.offset.saturating_add(piece.bytes.into());
            let mut known = spans.iter_mut().rev();
            if let Some(span) = known.find(|span| span.file == piece.file) {
                span.layer_max = span.layer_max.max(piece.layer);
                span.first = span.first.min(piece.offset);
                span.end = span.end.max(end);
                continue;
            }
            if spans.len() == SPANS_MAX {
                return None;
            }
            spans.push(Self {
                file: piece.file,
                layer_max: piece.layer,
                first: piece.offset,
                end,
            });
        }
        spans.sort_unstable_by_key(|span| span.file);
        Some(spans.into())
    }
}

pub(super) fn encode_spans(blocks: &[BlockSpans]) -> Vec<u8> {
    let mut out = Vec::new();
    for spans in blocks {
        let Some(spans) = spans else {
            out.push(NO_SPANS);
            continue;
        };
        out.push(fitted(spans.len()));
        for span in spans {
            out.extend_from_slice(&span.file.0.to_le_bytes());
            out.push(span.layer_max);
            out.extend_from_slice(&span.first.to_le_bytes());
            out.extend_from_slice(&span.end.to_le_bytes());
        }
    }
    out
}

/// Reads the spans of all blocks of a stripe. Of each block, `listed` has what the directory says:
/// its lowest and its highest file, and its highest layer. What contradicts that is refused.
pub(super) fn decode_spans(
    raw: &[u8],
    listed: impl ExactSizeIterator<Item = (FileNo, FileNo, u8)>,
) -> Result<Vec<BlockSpans>, FormatError> {
    let mut reader = Reader::new(raw, Structure::IndexSpans);
    let mut blocks = Vec::with_capacity(listed.len());
    for listed in listed {
        let count = reader.u8()?;
        if count == NO_SPANS {
            blocks.push(None);
            continue;
        }
        if usize::from(count) > SPANS_MAX {
            return Err(reader.limit("spans of a block", count.into(), SPANS_MAX as u64));
        }
        let spans = read_spans(&mut reader, count)?;
        if stated(&spans) != Some(listed) {
            return Err(reader.invalid("a block has other files or layers in the index directory"));
        }
        blocks.push(Some(spans.into()));
    }
    reader.end()?;
    Ok(blocks)
}

/// The spans of one block.
fn read_spans(reader: &mut Reader<'_>, count: u8) -> Result<Vec<FileSpan>, FormatError> {
    let mut spans: Vec<FileSpan> = Vec::with_capacity(count.into());
    for _ in 0..count {
        let span = FileSpan {
            file: FileNo(reader.u32()?),
            layer_max: reader.u8()?,
            first: reader.u64()?,
            end: reader.u64()?,
        };
        if spans.last().is_some_and(|last| last.file >= span.file) {
            return Err(reader.invalid("the files of a block are not in order"));
        }
        if span.first >= span.end {
            return Err(reader.invalid("a span has no bytes"));
        }
        if span.end > END_MAX {
            return Err(reader.limit("end of a span", span.end, END_MAX));
        }
        spans.push(span);
    }
    Ok(spans)
}

/// What the directory must say of a block with these spans.
fn stated(spans: &[FileSpan]) -> Option<(FileNo, FileNo, u8)> {
    let layers = spans.iter().map(|span| span.layer_max);
    Some((spans.first()?.file, spans.last()?.file, layers.max()?))
}
