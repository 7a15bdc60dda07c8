//! Columns of texts, read back: where each text is, in a stream or among the texts that were made.
//!
//! Invariants
//! - The texts of a frame together are not longer than the frame, or they are refused before they
//!   are made.

use crate::error::{PagesError, invalid};
use crate::integers;
use crate::number::{index, position};
use crate::numeric;
use crate::opaque::take_bytes;
use crate::pattern::Pattern;
use crate::streams::Source;
use crate::texts::{NUMERIC, PATTERN, PLAIN, Span, WORDS};
use crate::words::WORDS_MAX;

/// Texts that are in no stream because they were numbers.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    limit: usize,
    numbers: Vec<i64>,
    scales: Vec<i64>,
}

impl Arena {
    /// Begins a frame, whose texts are at most this long together.
    pub(crate) fn start(&mut self, limit: usize) {
        self.bytes.clear();
        self.limit = limit;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes room for one more text.
    #[inline]
    fn room(&self, bytes: usize) -> Result<u32, PagesError> {
        if self.bytes.len() > self.limit {
            return Err(invalid("there are more texts than the pages have bytes"));
        }
        debug_assert!(bytes <= 256, "one text more than the limit is short");
        Ok(position(self.bytes.len()))
    }

    #[inline]
    fn since(&self, at: u32) -> Span {
        let bytes = position(self.bytes.len()) - at;
        Span { at, bytes }
    }
}

/// Reads a column of `count` texts, which is not empty, and appends where each is. Returns the
/// bytes that they are in; `None` if that is the arena.
pub(crate) fn append<'a>(
    source: &mut Source<'a>,
    count: usize,
    texts: &mut Vec<Span>,
    arena: &mut Arena,
) -> Result<Option<&'a [u8]>, PagesError> {
    texts.reserve(count);
    match source.byte()? {
        NUMERIC => take_numeric(source, count, texts, arena).map(|()| None),
        PATTERN => take_pattern(source, count, texts, arena).map(|()| None),
        WORDS => take_words(source, count, texts, arena).map(Some),
        PLAIN => take_plain(source, count, texts, arena).map(Some),
        _ => Err(invalid("a column of texts is of an unknown kind")),
    }
}

fn take_numeric(
    source: &mut Source<'_>,
    count: usize,
    texts: &mut Vec<Span>,
    arena: &mut Arena,
) -> Result<(), PagesError> {
    let mut scales = std::mem::take(&mut arena.scales);
    let mut numbers = std::mem::take(&mut arena.numbers);
    integers::decode(source, count, &mut scales)?;
    integers::decode(source, count, &mut numbers)?;
    for (number, scale) in numbers.iter().zip(&scales) {
        let at = arena.room(numeric::PAYLOAD_BYTES_MAX)?;
        let written = numeric::write(*number, *scale, &mut arena.bytes);
        written.ok_or(invalid("a number is not decimal"))?;
        texts.push(arena.since(at));
    }
    (arena.scales, arena.numbers) = (scales, numbers);
    Ok(())
}

fn take_pattern(
    source: &mut Source<'_>,
    count: usize,
    texts: &mut Vec<Span>,
    arena: &mut Arena,
) -> Result<(), PagesError> {
    let pattern = Pattern::take(source)?;
    let mut numbers = std::mem::take(&mut arena.numbers);
    integers::decode(source, count, &mut numbers)?;
    for number in &numbers {
        let at = arena.room(pattern.bytes_max())?;
        let written = pattern.write(*number, &mut arena.bytes);
        written.ok_or(invalid("a number does not fit its pattern"))?;
        texts.push(arena.since(at));
    }
    arena.numbers = numbers;
    Ok(())
}

fn take_words<'a>(
    source: &mut Source<'a>,
    count: usize,
    texts: &mut Vec<Span>,
    arena: &mut Arena,
) -> Result<&'a [u8], PagesError> {
    let entries = usize::from(source.byte()?);
    if entries > WORDS_MAX {
        return Err(invalid("a dictionary has too many texts"));
    }
    let mut words = [Span::default(); WORDS_MAX];
    let mut end = 0usize;
    for word in &mut words[..entries] {
        let bytes = index(source.number()?);
        if bytes > arena.limit {
            return Err(invalid("a text is longer than the pages"));
        }
        *word = Span {
            at: position(end),
            bytes: position(bytes),
        };
        end += bytes;
    }
    let bytes = source.main_on(end)?;
    let words = &words[..entries];
    integers::decode(source, count, &mut arena.numbers)?;
    let mut are_known = true;
    texts.extend(arena.numbers.iter().map(|code| {
        let word = words.get(index(code.cast_unsigned()));
        are_known &= word.is_some();
        word.copied().unwrap_or_default()
    }));
    match are_known {
        true => Ok(bytes),
        false => Err(invalid("a text is not in the dictionary")),
    }
}

fn take_plain<'a>(
    source: &mut Source<'a>,
    count: usize,
    texts: &mut Vec<Span>,
    arena: &mut Arena,
) -> Result<&'a [u8], PagesError> {
    integers::decode(source, count, &mut arena.numbers)?;
    let (limit, mut end, mut fit) = (arena.limit, 0usize, true);
    texts.extend(arena.numbers.iter().map(|length| {
        let bytes = index(length.cast_unsigned());
        fit &= bytes <= limit - end;
        let bytes = bytes.min(limit - end);
        let at = position(end);
        end += bytes;
        Span {
            at,
            bytes: position(bytes),
        }
    }));
    match fit {
        true => take_bytes(source, end),
        false => Err(invalid("there are more texts than the pages have bytes")),
    }
}
