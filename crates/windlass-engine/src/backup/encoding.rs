//! One frame: compressed as it is, or with its pages taken apart, whichever is shorter.
//!
//! Invariants
//! - Pages that were taken apart and do not come back are never stored. The frame is stored as it
//!   is, and the report counts it. Only a run without the proof of frames does not look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_media::{Codec, Encoder, PageEncoder, Taken, is_zero};

use super::class::{PageClass, Way};
use crate::report::PagesReport;

/// Encodes frames. One per compressor.
pub struct FrameEncoder {
    codec: Encoder,
    /// Made when the first frame needs it.
    pages: Option<PageEncoder>,
    /// The frame as it is, while it is stored both ways.
    plain: Vec<u8>,
    counts: Arc<PageCounts>,
    /// Whether pages are put together again before they are stored.
    proves: bool,
}

/// A frame, stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The codec.
    pub codec: Codec,
    /// How many bytes it takes.
    pub stored: usize,
    /// Length between codec and layout, if its pages were taken apart.
    pub laid: Option<usize>,
}

/// What became of frames whose pages have a class, in all compressors.
#[derive(Debug, Default)]
pub struct PageCounts {
    apart_raw: AtomicU64,
    apart_stored: AtomicU64,
    plain_raw: AtomicU64,
    plain_stored: AtomicU64,
    wrong_frames: AtomicU64,
}

impl PageCounts {
    fn count(&self, raw: usize, encoded: Encoded) {
        let (all, stored) = match encoded.laid {
            Some(_) => (&self.apart_raw, &self.apart_stored),
            None => (&self.plain_raw, &self.plain_stored),
        };
        all.fetch_add(raw as u64, Ordering::Relaxed);
        stored.fetch_add(encoded.stored as u64, Ordering::Relaxed);
    }

    /// `None` if no page had a class.
    pub(crate) fn report(&self) -> Option<PagesReport> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let report = PagesReport {
            apart_bytes: of(&self.apart_raw),
            apart_stored_bytes: of(&self.apart_stored),
            plain_bytes: of(&self.plain_raw),
            plain_stored_bytes: of(&self.plain_stored),
            wrong_frames: of(&self.wrong_frames),
        };
        (report.apart_bytes + report.plain_bytes > 0).then_some(report)
    }
}

impl FrameEncoder {
    /// Frames with this codec. `proves`: pages are put together again before they are stored.
    pub fn new(codec: Encoder, counts: Arc<PageCounts>, proves: bool) -> Self {
        Self {
            codec,
            pages: None,
            plain: Vec::new(),
            counts,
            proves,
        }
    }

    /// The codec.
    pub(crate) fn codec(&self) -> Codec {
        self.codec.codec()
    }

    /// Encodes with another codec from now on.
    pub(crate) fn set_codec(&mut self, codec: Encoder) {
        self.codec = codec;
    }

    /// Takes what takes pages apart, unless it has that already. Without it, all pages stay as they
    /// are.
    pub fn prepare(&mut self, make: impl FnOnce() -> PageEncoder) {
        let proves = self.proves;
        self.pages.get_or_insert_with(|| match proves {
            true => make(),
            false => make().without_proof(),
        });
    }

    /// How much room a frame of `raw_bytes` needs.
    pub fn bound(&self, raw_bytes: usize) -> usize {
        self.codec.bound(raw_bytes).max(raw_bytes)
    }

    /// Encodes a frame to the start of `into`, which has room for [`FrameEncoder::bound`] bytes.
    pub fn encode(&mut self, raw: &[u8], class: Option<&PageClass>, into: &mut [u8]) -> Encoded {
        let Some(class) = class.filter(|class| class.layout().fits(raw) && !is_zero(raw)) else {
            return self.plain(raw, into);
        };
        let encoded = match class.way() {
            Way::Plain => self.plain(raw, into),
            Way::Both => self.shorter(class, raw, into),
            Way::Apart => match self.apart(class, raw, into) {
                Some(apart) if !class.is_surprise(raw.len(), apart.stored) => apart,
                Some(apart) => self.or_plain(class, raw, apart, into),
                None => self.plain(raw, into),
            },
        };
        self.counts.count(raw.len(), encoded);
        encoded
    }

    /// The frame as it is.
    fn plain(&mut self, raw: &[u8], into: &mut [u8]) -> Encoded {
        let (codec, stored) = self.codec.encode(raw, into).unwrap_or_else(|| {
            into[..raw.len()].copy_from_slice(raw);
            (Codec::None, raw.len())
        });
        Encoded {
            codec,
            stored,
            laid: None,
        }
    }

    /// The frame with its pages taken apart; `None` if that is not possible or not shorter than
    /// the pages.
    fn apart(&mut self, class: &PageClass, raw: &[u8], into: &mut [u8]) -> Option<Encoded> {
        let pages = self.pages.as_mut()?;
        match pages.take_apart(class.layout(), raw) {
            Taken::Apart => {}
            Taken::NotWorth => return None,
            Taken::Wrong => {
                self.counts.wrong_frames.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        let laid = pages.store(class.layout(), raw.len(), &mut self.codec, into)?;
        Some(Encoded {
            codec: self.codec.codec(),
            stored: laid.stored_bytes,
            laid: Some(laid.laid_bytes),
        })
    }

    /// Both ways, of which the shorter stays.
    fn shorter(&mut self, class: &PageClass, raw: &[u8], into: &mut [u8]) -> Encoded {
        match self.apart(class, raw, into) {
            Some(apart) => self.or_plain(class, raw, apart, into),
            None => {
                let plain = self.plain(raw, into);
                class.sampled(raw.len(), plain.stored, plain.stored);
                plain
            }
        }
    }

    /// The frame as it is, if that is shorter than what stands in `into`.
    fn or_plain(
        &mut self,
        class: &PageClass,
        raw: &[u8],
        apart: Encoded,
        into: &mut [u8],
    ) -> Encoded {
        let mut room = std::mem::take(&mut self.plain);
        room.resize(self.bound(raw.len()), 0);
        let plain = self.plain(raw, &mut room);
        class.sampled(raw.len(), plain.stored, apart.stored);
        let is_shorter = plain.stored <= apart.stored;
        if is_shorter {
            into[..plain.stored].copy_from_slice(&room[..plain.stored]);
        }
        self.plain = room;
        if is_shorter { plain } else { apart }
    }
}
