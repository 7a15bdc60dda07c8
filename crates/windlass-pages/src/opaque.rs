//! Bytes that nobody takes apart: their lengths as integers, then all of them one after the other.

use crate::error::{PagesError, invalid};
use crate::integers::{self, IntegerEncoder};
use crate::number::index;
use crate::streams::{Source, Streams};

/// More bytes than this get a stream of their own.
const OWN_STREAM_BYTES: usize = 4096;
/// Fewer bytes are never looked at: are they noise?
const NOISE_BYTES_MIN: usize = 512;

const IN_MAIN: u8 = 0;
const IN_PACKED: u8 = 1;
const IN_TEXT: u8 = 2;

/// Appends bytes whose number the reader knows: to a stream of their own, or to one that suits
/// them.
pub(crate) fn put_bytes(bytes: &[u8], streams: &mut Streams) {
    if is_noise(bytes) {
        streams.byte(IN_PACKED);
        streams.packed.extend_from_slice(bytes);
        return;
    }
    if bytes.len() >= OWN_STREAM_BYTES
        && let Some(text) = streams.text()
    {
        text.extend_from_slice(bytes);
        streams.byte(IN_TEXT);
        return;
    }
    streams.byte(IN_MAIN);
    streams.main.extend_from_slice(bytes);
}

/// Reads what [`put_bytes`] wrote.
pub(crate) fn take_bytes<'a>(
    source: &mut Source<'a>,
    count: usize,
) -> Result<&'a [u8], PagesError> {
    match source.byte()? {
        IN_MAIN => source.main(count),
        IN_PACKED => source.packed(count),
        IN_TEXT => source.text(count),
        _ => Err(invalid("bytes are in an unknown stream")),
    }
}

/// Whether every byte value is about as common as every other, so that no codec gains anything.
fn is_noise(bytes: &[u8]) -> bool {
    if bytes.len() < NOISE_BYTES_MIN {
        return false;
    }
    let mut counts = [0u32; 256];
    let step = bytes.len().div_ceil(4096).max(1) | 1;
    let mut taken = 0u64;
    for byte in bytes.iter().step_by(step) {
        counts[usize::from(*byte)] += 1;
        taken += 1;
    }
    // The sum of squares is `taken` + taken^2 / 256 if bytes are drawn by lot, and more the less
    // they are.
    let squares: u64 = counts.iter().map(|count| u64::from(*count).pow(2)).sum();
    let flat = taken + taken * taken / 256;
    squares * 16 < flat * 17
}

/// The encoder's half.
#[derive(Debug, Default)]
pub(crate) struct Opaque {
    lengths: Vec<i64>,
    bytes: Vec<u8>,
}

impl Opaque {
    pub(crate) fn clear(&mut self) {
        self.lengths.clear();
        self.bytes.clear();
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.lengths.push(bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends everything that was pushed.
    pub(crate) fn put(&self, integers: &mut IntegerEncoder, streams: &mut Streams) {
        integers.encode(&self.lengths, 2, streams);
        put_bytes(&self.bytes, streams);
    }
}

/// Reads `count` lengths and the bytes, at most `limit` of them.
pub(crate) fn take<'a>(
    source: &mut Source<'a>,
    count: usize,
    limit: usize,
    lengths: &mut Vec<i64>,
) -> Result<&'a [u8], PagesError> {
    integers::decode(source, count, lengths)?;
    let mut total = 0usize;
    for length in lengths {
        total = total.saturating_add(index(length.cast_unsigned()));
    }
    if total > limit {
        return Err(invalid("there are more bytes than the pages have"));
    }
    take_bytes(source, total)
}

/// Takes bytes away from the end.
pub(crate) fn last<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], PagesError> {
    let split = bytes.len().checked_sub(count);
    let (rest, last) = bytes.split_at(split.ok_or(PagesError::Truncated)?);
    *bytes = rest;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_told_from_text() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_le_bytes()[6]
        })
        .take(10_000)
        .collect();
        assert!(is_noise(&noise) && is_noise(&noise[..600]));
        let text = "carefully final deposits sleep ".repeat(100);
        assert!(!is_noise(text.as_bytes()));
        let halves: Vec<u8> = noise.iter().map(|byte| byte & 0x7F).collect();
        assert!(!is_noise(&halves));
    }
}
