//! Columns of texts: each frame chooses one way for a whole column, the first that holds for all of
//! its texts.
//!
//!   numeric   PostgreSQL's decimal numbers as integers
//!   pattern   numbers in words as integers
//!   words     at most 128 different texts, and which of them
//!   plain     lengths, and the bytes one text after the other, for a codec
//!
//! A sample says whether a way is worth a try; whether it holds is seen for each text.

use crate::integers::IntegerEncoder;
use crate::numeric;
use crate::opaque::put_bytes;
use crate::pattern::Pattern;
use crate::streams::Streams;
use crate::words::Words;

pub(crate) const NUMERIC: u8 = 0;
pub(crate) const PATTERN: u8 = 1;
pub(crate) const WORDS: u8 = 2;
pub(crate) const PLAIN: u8 = 3;

/// How many texts of a column are looked at before a way is tried.
const SAMPLE: usize = 48;
/// A dictionary is tried if the sample has more texts than different ones in this proportion.
const REPEATED: (usize, usize) = (6, 5);

/// Where a text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) bytes: u32,
}

impl Span {
    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..(self.at + self.bytes) as usize]
    }
}

/// Codes columns of texts; its memory is used again.
#[derive(Debug, Default)]
pub(crate) struct TextEncoder {
    numbers: Vec<i64>,
    scales: Vec<i64>,
    bytes: Vec<u8>,
    words: Words,
}

impl TextEncoder {
    /// Appends a column, which is not empty. Its texts are in `raw`.
    pub(crate) fn encode(
        &mut self,
        raw: &[u8],
        texts: &[Span],
        numeric: bool,
        integers: &mut IntegerEncoder,
        streams: &mut Streams,
    ) {
        if numeric && self.read_numeric(raw, texts) {
            streams.byte(NUMERIC);
            integers.encode(&self.scales, 1, streams);
            integers.encode(&self.numbers, 8, streams);
            return;
        }
        let step = texts.len().div_ceil(SAMPLE);
        if !numeric && let Some(pattern) = self.read_pattern(raw, texts, step) {
            streams.byte(PATTERN);
            pattern.put(streams);
            integers.encode(&self.numbers, 8, streams);
            return;
        }
        if self.read_words(raw, texts, step) {
            self.put_words(raw, integers, streams);
            return;
        }
        self.put_plain(raw, texts, integers, streams);
    }

    fn read_numeric(&mut self, raw: &[u8], texts: &[Span]) -> bool {
        self.numbers.clear();
        self.scales.clear();
        for text in texts {
            let Some((number, scale)) = numeric::read(raw, *text) else {
                return false;
            };
            self.numbers.push(number);
            self.scales.push(scale);
        }
        true
    }

    /// The pattern that all texts follow; then their numbers are read.
    fn read_pattern<'a>(
        &mut self,
        raw: &'a [u8],
        texts: &[Span],
        step: usize,
    ) -> Option<Pattern<'a>> {
        let first = texts[0].of(raw);
        let patterns = [Pattern::decimal(first), Pattern::digits(first)];
        patterns.into_iter().flatten().find(|pattern| {
            let mut sample = texts.iter().step_by(step);
            if !sample.all(|text| pattern.read(text.of(raw)).is_some()) {
                return false;
            }
            self.numbers.clear();
            let numbers = texts.iter().map_while(|text| pattern.read(text.of(raw)));
            self.numbers.extend(numbers);
            self.numbers.len() == texts.len()
        })
    }

    /// Whether a dictionary holds; then it is made, and the codes of the texts.
    fn read_words(&mut self, raw: &[u8], texts: &[Span], step: usize) -> bool {
        self.words.clear();
        let mut taken = 0;
        for text in texts.iter().step_by(step) {
            if self.words.code(raw, *text).is_none() {
                return false;
            }
            taken += 1;
        }
        if taken > 1 && self.words.count() * REPEATED.0 > taken * REPEATED.1 {
            return false;
        }
        self.numbers.clear();
        let words = &mut self.words;
        let codes = texts.iter().map_while(|text| words.code(raw, *text));
        self.numbers.extend(codes.map(i64::from));
        self.numbers.len() == texts.len()
    }

    fn put_words(&mut self, raw: &[u8], integers: &mut IntegerEncoder, streams: &mut Streams) {
        streams.byte(WORDS);
        streams.byte(crate::number::low_u8(self.words.count() as u64));
        for word in self.words.spans() {
            streams.number(word.bytes.into());
        }
        for word in self.words.spans() {
            streams.main.extend_from_slice(word.of(raw));
        }
        integers.encode(&self.numbers, 1, streams);
    }

    fn put_plain(
        &mut self,
        raw: &[u8],
        texts: &[Span],
        integers: &mut IntegerEncoder,
        streams: &mut Streams,
    ) {
        streams.byte(PLAIN);
        self.numbers.clear();
        self.numbers
            .extend(texts.iter().map(|text| i64::from(text.bytes)));
        integers.encode(&self.numbers, 2, streams);
        join(raw, texts, &mut self.bytes);
        put_bytes(&self.bytes, streams);
    }
}

/// How many bytes are copied at once.
const STRIDE: usize = 32;

/// Puts texts one after the other. Most are short, so each is copied in whole strides, and the next
/// one is written over what was too much.
fn join(raw: &[u8], texts: &[Span], into: &mut Vec<u8>) {
    let total: usize = texts.iter().map(|text| text.bytes as usize).sum();
    into.resize(total + STRIDE, 0);
    let mut at = 0;
    for text in texts {
        let (from, bytes) = (text.at as usize, text.bytes as usize);
        let stride = raw.get(from..from + STRIDE);
        if let Some(stride) = stride.filter(|_| bytes <= STRIDE) {
            into[at..at + STRIDE].copy_from_slice(stride);
        } else {
            into[at..at + bytes].copy_from_slice(text.of(raw));
        }
        at += bytes;
    }
    into.truncate(total);
}
