//! Laid out frames: the parts of pages, sorted by kind into streams, as they stand on a stripe.
//!
//!   pages --windlass-pages--> streams --lay out--> laid out bytes --codec--> stored bytes
//!
//!   laid out bytes = [directory][streams that a codec makes smaller][streams that are dense]
//!   stored bytes   = [part table][part][part] ...
//!
//! A part is a range of the laid out bytes. It is compressed by itself, or stored as it is where
//! that gains nothing. So numbers that are packed already cost the codec no time.
//!
//! Invariants
//! - Laid out bytes are never longer than the pages: where they would be, the pages stay as they
//!   are. So the length of the pages bounds every length here.
//! - No content breaks it: each length is checked before it is used.

use crate::codec::{Codec, Decoder, Encoder};
use crate::error::FormatError;
use crate::number::fitted;

/// Most streams of one frame.
pub const STREAMS_MAX: usize = 1024;
/// Most bytes of a description of pages.
pub const DESCRIPTION_BYTES_MAX: usize = 64 * 1024;
/// Most parts of one frame.
const PARTS_MAX: usize = 255;
/// A part's entry in the part table: its stored and its decoded length.
const PART_ENTRY_BYTES: usize = 8;
/// A stream of at least this length is a part of its own, so that it has statistics of its own.
/// Shorter ones share a part, because each part costs the codec a few microseconds.
const PART_BYTES_MIN: usize = 16 * 1024;
/// Bytes of the sample that shows whether a dense stream can be made smaller.
const SAMPLE_BYTES: usize = 1024;
/// A sample of random bytes shows about 7.82 bits for each byte. A stream is worth the codec's
/// time if it can become 5 % smaller.
const RANDOM_BITS: f32 = 7.45;

/// A stream of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether its values are packed already, so that a codec probably gains little.
    pub is_dense: bool,
}

/// A frame that was laid out and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Length of the stored bytes.
    pub stored_bytes: usize,
    /// Length of the laid out bytes.
    pub laid_bytes: usize,
}

/// Lays out frames; holds the memory for it. One per thread.
#[derive(Debug, Default)]
pub struct Arranger {
    laid: Vec<u8>,
    /// Which streams are stored as they are.
    kept: Vec<bool>,
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    end: usize,
    /// Whether it is stored as it is.
    is_kept: bool,
}

impl Arranger {
    /// Lays streams out behind the description of their pages, and stores them at the start of
    /// `into`. Returns `None` if the result would not be shorter than the pages, which have
    /// `raw_bytes`, or does not fit.
    pub fn store(
        &mut self,
        description: &[u8],
        streams: &[Stream<'_>],
        raw_bytes: usize,
        encoder: &mut Encoder,
        into: &mut [u8],
    ) -> Option<Laid> {
        self.lay_out(description, streams, raw_bytes, encoder.codec())?;
        let table = 1 + self.parts.len() * PART_ENTRY_BYTES;
        let (mut used, mut begin) = (table, 0);
        for (index, part) in self.parts.iter().enumerate() {
            let bytes = self.laid.get(begin..part.end)?;
            begin = part.end;
            let room = into.get_mut(used..)?;
            let smaller = (!part.is_kept).then(|| encoder.shrink(bytes, room));
            let stored = match smaller.flatten() {
                Some(stored) => stored,
                None => {
                    room.get_mut(..bytes.len())?.copy_from_slice(bytes);
                    bytes.len()
                }
            };
            used += stored;
            let at = 1 + index * PART_ENTRY_BYTES;
            put_u32(into.get_mut(at..at + 4)?, stored);
            put_u32(into.get_mut(at + 4..at + 8)?, bytes.len());
        }
        *into.first_mut()? = fitted(self.parts.len());
        (used < raw_bytes).then_some(Laid {
            stored_bytes: used,
            laid_bytes: self.laid.len(),
        })
    }

    fn lay_out(
        &mut self,
        description: &[u8],
        streams: &[Stream<'_>],
        raw_bytes: usize,
        codec: Codec,
    ) -> Option<()> {
        let total = streams
            .iter()
            .map(|stream| stream.bytes.len())
            .sum::<usize>();
        let fits = streams.len() <= STREAMS_MAX && description.len() <= DESCRIPTION_BYTES_MAX;
        if !fits || total > raw_bytes {
            return None;
        }
        self.laid.clear();
        self.parts.clear();
        self.kept.clear();
        let kept = streams.iter().map(|stream| is_kept(stream, codec));
        self.kept.extend(kept);
        put_number(&mut self.laid, streams.len());
        for (stream, is_kept) in streams.iter().zip(&self.kept) {
            put_number(
                &mut self.laid,
                stream.bytes.len() << 1 | usize::from(*is_kept),
            );
        }
        put_number(&mut self.laid, description.len());
        self.laid.extend_from_slice(description);
        for pass in [false, true] {
            for (index, stream) in streams.iter().enumerate() {
                if self.kept.get(index) == Some(&pass) {
                    self.add(stream.bytes, pass);
                }
            }
            self.end_part(pass);
        }
        (self.laid.len() <= raw_bytes).then_some(())
    }

    fn add(&mut self, bytes: &[u8], is_kept: bool) {
        let alone = !is_kept && bytes.len() >= PART_BYTES_MIN && self.parts.len() + 4 < PARTS_MAX;
        if alone {
            self.end_part(is_kept);
        }
        self.laid.extend_from_slice(bytes);
        if alone {
            self.end_part(is_kept);
        }
    }

    /// Ends a part here, if anything has been added since the last one ended.
    fn end_part(&mut self, is_kept: bool) {
        let (begin, end) = (
            self.parts.last().map_or(0, |part| part.end),
            self.laid.len(),
        );
        if end > begin {
            self.parts.push(Part { end, is_kept });
        }
    }
}

/// Whether a stream is stored as it is. LZ4 gains only where bytes repeat, and they do not in a
/// dense stream. Entropy coding may gain.
fn is_kept(stream: &Stream<'_>, codec: Codec) -> bool {
    stream.is_dense
        && match codec {
            Codec::Zstd(_) => bits_of_sample(stream.bytes) > RANDOM_BITS,
            Codec::Lz4 | Codec::None | Codec::Zero => true,
        }
}

/// How many bits a byte of a stream has, as bytes from all over it show.
fn bits_of_sample(bytes: &[u8]) -> f32 {
    let step = (bytes.len() / SAMPLE_BYTES).max(1);
    let (mut counts, mut total) = ([0_u16; 256], 0_u16);
    for byte in bytes.iter().step_by(step).take(SAMPLE_BYTES) {
        counts[usize::from(*byte)] += 1;
        total += 1;
    }
    let all = f32::from(total.max(1));
    let seen = counts.iter().filter(|count| **count > 0);
    seen.map(|count| f32::from(*count) / all)
        .map(|share| -share * share.log2())
        .sum()
}

/// Decodes the parts of a frame to its laid out bytes, which must fill `laid`.
pub(crate) fn unpack(
    decoder: &mut Decoder,
    codec: Codec,
    stored: &[u8],
    laid: &mut [u8],
) -> Result<(), FormatError> {
    let (count, rest) = stored.split_first().ok_or(CUT_OFF)?;
    let table = usize::from(*count) * PART_ENTRY_BYTES;
    let (table, mut rest) = rest.split_at_checked(table).ok_or(CUT_OFF)?;
    let mut laid = laid;
    for entry in table.chunks_exact(PART_ENTRY_BYTES) {
        let (stored_bytes, bytes) = (u32_at(entry, 0), u32_at(entry, 4));
        let (part, after) = rest.split_at_checked(stored_bytes).ok_or(CUT_OFF)?;
        let (into, behind) = laid.split_at_mut_checked(bytes).ok_or(LENGTHS)?;
        if stored_bytes == bytes {
            into.copy_from_slice(part);
        } else {
            decoder.decode(codec, part, into)?;
        }
        (rest, laid) = (after, behind);
    }
    match rest.is_empty() && laid.is_empty() {
        true => Ok(()),
        false => Err(LENGTHS),
    }
}

/// Laid out bytes, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Directory<'a> {
    /// The description of the pages.
    pub(crate) description: &'a [u8],
    /// The streams, in their order.
    pub(crate) streams: Vec<&'a [u8]>,
}

impl<'a> Directory<'a> {
    /// Takes laid out bytes apart. Each byte belongs to the directory or to one stream.
    pub(crate) fn read(laid: &'a [u8]) -> Result<Self, FormatError> {
        let mut rest = laid;
        let count = number(&mut rest)?;
        // Each stream has at least one byte in the directory.
        if count > STREAMS_MAX || count > rest.len() {
            return Err(FormatError::LaidOut("more streams than it can have"));
        }
        let mut lengths = Vec::with_capacity(count);
        for _ in 0..count {
            lengths.push(number(&mut rest)?);
        }
        let length = number(&mut rest)?;
        if length > DESCRIPTION_BYTES_MAX {
            return Err(FormatError::LaidOut(
                "the description of its pages is too long",
            ));
        }
        let (description, after) = rest.split_at_checked(length).ok_or(CUT_OFF)?;
        rest = after;
        let mut streams: Vec<&[u8]> = vec![&[]; count];
        for is_kept in [0, 1] {
            for (stream, length) in streams.iter_mut().zip(&lengths) {
                if length & 1 == is_kept {
                    (*stream, rest) = rest.split_at_checked(length >> 1).ok_or(CUT_OFF)?;
                }
            }
        }
        if !rest.is_empty() {
            return Err(LENGTHS);
        }
        Ok(Self {
            description,
            streams,
        })
    }
}

const CUT_OFF: FormatError = FormatError::LaidOut("a part or a stream ends behind the frame");
const LENGTHS: FormatError = FormatError::LaidOut("the lengths of its parts do not add up");

fn put_u32(into: &mut [u8], value: usize) {
    let value: u32 = fitted(value);
    into.copy_from_slice(&value.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field) as usize
}

/// Appends a number of at most 28 bits: seven bits a byte, the lowest first; the highest bit says
/// that another byte follows.
fn put_number(into: &mut Vec<u8>, value: usize) {
    let mut left = value;
    while left > 0x7f {
        into.push(fitted(left & 0x7f | 0x80));
        left >>= 7;
    }
    into.push(fitted(left));
}

fn number(bytes: &mut &[u8]) -> Result<usize, FormatError> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = bytes.split_first().ok_or(CUT_OFF)?;
        *bytes = rest;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(FormatError::LaidOut("a number has more than 28 bits"))
}

#[cfg(test)]
mod tests;
