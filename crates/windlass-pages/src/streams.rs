//! The byte streams between pages and a codec: written by an encoder, read back by a decoder.
//!
//!   main     what a codec compresses: how each column is coded, exceptions, bytes of short columns
//!   packed   what is dense already: packed integers, and bytes that look like noise
//!   texts    one stream for each column with many bytes, so that a codec sees like beside like
//!
//! Invariants
//! - A reader never returns more bytes than a stream has, and allocates nothing.

use crate::error::{PagesError, invalid};
use crate::number::{low_u8, unzigzag, zigzag};

/// Most streams that a frame becomes.
pub const STREAMS_MAX: usize = 64;
/// The streams that every frame has.
pub(crate) const STREAMS_MIN: usize = 2;

/// What to expect of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It is dense already, so a codec gains little. Try a sample before you spend time on it.
    Dense,
    /// A codec makes it shorter.
    Compressible,
}

/// What a frame becomes. Use one again for the next frame: its memory is kept.
#[derive(Debug, Default)]
pub struct Streams {
    pub(crate) main: Vec<u8>,
    pub(crate) packed: Vec<u8>,
    texts: Vec<Vec<u8>>,
    texts_used: usize,
}

impl Streams {
    /// Without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Each stream in the order in which a decoder wants them.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Hint)> {
        let texts = self.texts[..self.texts_used].iter();
        let fixed = [
            (self.main.as_slice(), Hint::Compressible),
            (self.packed.as_slice(), Hint::Dense),
        ];
        fixed
            .into_iter()
            .chain(texts.map(|text| (text.as_slice(), Hint::Compressible)))
    }

    /// How many streams there are, at most [`STREAMS_MAX`].
    pub fn count(&self) -> usize {
        STREAMS_MIN + self.texts_used
    }

    /// The lengths of all streams together.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(stream, _)| stream.len()).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.main.clear();
        self.packed.clear();
        self.texts[..self.texts_used]
            .iter_mut()
            .for_each(Vec::clear);
        self.texts_used = 0;
    }

    /// A new stream for the bytes of one column; `None` if there are as many as there may be.
    pub(crate) fn text(&mut self) -> Option<&mut Vec<u8>> {
        if self.count() == STREAMS_MAX {
            return None;
        }
        if self.texts_used == self.texts.len() {
            self.texts.push(Vec::new());
        }
        self.texts_used += 1;
        self.texts.get_mut(self.texts_used - 1)
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.main.push(byte);
    }

    /// A number in as few bytes as it needs: seven bits each, the lowest first.
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.main.push(low_u8(number) | 0x80);
            number >>= 7;
        }
        self.main.push(low_u8(number));
    }

    pub(crate) fn signed(&mut self, number: i64) {
        self.number(zigzag(number));
    }
}

/// Reads streams from their beginnings to their ends.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    main: &'a [u8],
    packed: &'a [u8],
    texts: &'a [&'a [u8]],
}

impl<'a> Source<'a> {
    pub(crate) fn new(streams: &'a [&'a [u8]]) -> Result<Self, PagesError> {
        match streams {
            [main, packed, texts @ ..] if streams.len() <= STREAMS_MAX => Ok(Self {
                main,
                packed,
                texts,
            }),
            _ => Err(invalid("there are too few or too many streams")),
        }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, PagesError> {
        let (first, rest) = self.main.split_first().ok_or(PagesError::Truncated)?;
        self.main = rest;
        Ok(*first)
    }

    pub(crate) fn number(&mut self) -> Result<u64, PagesError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.byte()?);
            let bits = byte & 0x7F;
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(invalid("a number has more than 64 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, PagesError> {
        Ok(unzigzag(self.number()?))
    }

    pub(crate) fn main(&mut self, count: usize) -> Result<&'a [u8], PagesError> {
        take(&mut self.main, count)
    }

    /// The next bytes, and all that follow them: a copy of a fixed length may begin in the last.
    pub(crate) fn main_on(&mut self, count: usize) -> Result<&'a [u8], PagesError> {
        let all = self.main;
        take(&mut self.main, count)?;
        Ok(all)
    }

    pub(crate) fn packed(&mut self, count: usize) -> Result<&'a [u8], PagesError> {
        take(&mut self.packed, count)
    }

    /// The next stream of a column, which has exactly this many bytes.
    pub(crate) fn text(&mut self, count: usize) -> Result<&'a [u8], PagesError> {
        let (first, rest) = self.texts.split_first().ok_or(PagesError::Truncated)?;
        self.texts = rest;
        match first.len() {
            found if found < count => Err(PagesError::Truncated),
            found if found > count => Err(PagesError::Surplus),
            _ => Ok(first),
        }
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), PagesError> {
        if self.main.is_empty() && self.packed.is_empty() && self.texts.is_empty() {
            return Ok(());
        }
        Err(PagesError::Surplus)
    }
}

fn take<'a>(stream: &mut &'a [u8], count: usize) -> Result<&'a [u8], PagesError> {
    let (head, rest) = stream
        .split_at_checked(count)
        .ok_or(PagesError::Truncated)?;
    *stream = rest;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back() {
        let mut streams = Streams::new();
        let numbers = [0, 1, 127, 128, 1 << 20, (1 << 63) - 1, u64::MAX];
        numbers.iter().for_each(|number| streams.number(*number));
        let slices: Vec<&[u8]> = streams.iter().map(|(stream, _)| stream).collect();
        let mut source = Source::new(&slices).unwrap();
        for number in numbers {
            assert_eq!(source.number(), Ok(number));
        }
        assert_eq!(source.number(), Err(PagesError::Truncated));
        assert_eq!(source.end(), Ok(()));
    }

    #[test]
    fn a_number_that_is_too_long_is_refused() {
        let long = [0xFF; 11];
        let streams: [&[u8]; 2] = [&long, &[]];
        let mut source = Source::new(&streams).unwrap();
        assert!(matches!(source.number(), Err(PagesError::Invalid { .. })));
    }
}
