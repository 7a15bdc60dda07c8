//! Frames of pages that are taken apart before they are compressed, and put together again.
//!
//!   pages --take apart--> streams --put together--> proof: equal? --> [laid] --> stored bytes
//!
//! Invariants
//! - A frame is laid out only after its streams were put together again and gave the same bytes. So
//!   a mistake in the encoder costs room, never content. The caller can do without that proof.

use windlass_pages::{Encoded, Hint, Layout, Streams};

use crate::cipher::SetCipher;
use crate::codec::{Codec, Decoder, Encoder};
use crate::error::FormatError;
use crate::index::{FrameEntry, LAYOUT_STREAMS, PieceEntry};
use crate::laid::{Arranger, Directory, Laid, Stream, unpack};

/// Takes pages apart. There is one encoder; tests have others, which are wrong on purpose.
pub trait TakeApart: Send {
    /// Takes the pages of a frame apart. Returns false if they are better left as they are.
    fn take_apart(&mut self, layout: &Layout, raw: &[u8], streams: &mut Streams) -> bool;
}

impl TakeApart for windlass_pages::Encoder {
    fn take_apart(&mut self, layout: &Layout, raw: &[u8], streams: &mut Streams) -> bool {
        self.encode(layout, raw, streams) == Encoded::Streams
    }
}

/// What became of the pages of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// They were taken apart, and the streams give the same pages again.
    Apart,
    /// They are better left as they are.
    NotWorth,
    /// The streams do not give the same pages again, so the encoder is wrong.
    Wrong,
}

/// Pages of one kind: how they are laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLayout {
    layout: Layout,
    description: Vec<u8>,
}

impl PageLayout {
    /// Pages with this layout.
    pub fn new(layout: Layout) -> Self {
        let description = layout.to_bytes();
        Self {
            layout,
            description,
        }
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether these bytes can be pages of this layout: as many as a number of whole pages have.
    pub fn fits(&self, raw: &[u8]) -> bool {
        !raw.is_empty() && raw.len().is_multiple_of(self.layout.page_size().bytes())
    }
}

/// Takes pages apart, proves it, and stores them; holds the memory for that. One per thread.
pub struct PageEncoder {
    encoder: Box<dyn TakeApart>,
    decoder: windlass_pages::Decoder,
    streams: Streams,
    proof: Vec<u8>,
    arranger: Arranger,
    proves: bool,
}

impl Default for PageEncoder {
    fn default() -> Self {
        Self::new(Box::new(windlass_pages::Encoder::new()))
    }
}

impl PageEncoder {
    /// With this encoder, which need not be right.
    pub fn new(encoder: Box<dyn TakeApart>) -> Self {
        Self {
            encoder,
            decoder: windlass_pages::Decoder::new(),
            streams: Streams::new(),
            proof: Vec::new(),
            arranger: Arranger::default(),
            proves: true,
        }
    }

    /// Without the proof. A mistake in the encoder is then found by readers, and the frame is lost.
    pub fn without_proof(self) -> Self {
        Self {
            proves: false,
            ..self
        }
    }

    /// Takes the pages of a frame apart, and puts them together again as a proof, if it has one.
    pub fn take_apart(&mut self, pages: &PageLayout, raw: &[u8]) -> Taken {
        let apart = pages.fits(raw)
            && self
                .encoder
                .take_apart(&pages.layout, raw, &mut self.streams);
        match apart {
            false => Taken::NotWorth,
            true if self.proves && !self.is_right(pages, raw) => Taken::Wrong,
            true => Taken::Apart,
        }
    }

    fn is_right(&mut self, pages: &PageLayout, raw: &[u8]) -> bool {
        let streams: Vec<&[u8]> = self.streams.iter().map(|(bytes, _)| bytes).collect();
        self.proof.resize(raw.len(), 0);
        let again = self
            .decoder
            .decode(&pages.layout, &streams, &mut self.proof);
        again.is_ok() && self.proof == raw
    }

    /// Stores the frame that was taken apart last, at the start of `into`. Returns `None` if it
    /// would not be shorter than its pages, which have `raw_bytes`, or does not fit.
    pub fn store(
        &mut self,
        pages: &PageLayout,
        raw_bytes: usize,
        encoder: &mut Encoder,
        into: &mut [u8],
    ) -> Option<Laid> {
        let streams = self.streams.iter().map(|(bytes, hint)| Stream {
            bytes,
            is_dense: hint == Hint::Dense,
        });
        let streams: Vec<_> = streams.collect();
        let arranger = &mut self.arranger;
        arranger.store(&pages.description, &streams, raw_bytes, encoder, into)
    }
}

/// Decodes frames of every kind; holds the memory for that. One per thread.
pub struct FrameDecoder {
    codec: Decoder,
    pages: windlass_pages::Decoder,
    laid: Vec<u8>,
    /// A frame that was decrypted.
    clear: Vec<u8>,
}

impl FrameDecoder {
    /// A decoder for every codec and every layout that this build knows.
    pub fn new() -> Result<Self, FormatError> {
        Ok(Self {
            codec: Decoder::new()?,
            pages: windlass_pages::Decoder::new(),
            laid: Vec::new(),
            clear: Vec::new(),
        })
    }

    /// Decodes a frame of a set that may be encrypted.
    pub fn decode_with(
        &mut self,
        cipher: Option<&SetCipher>,
        (entry, pieces): (&FrameEntry, &[PieceEntry]),
        stored: &[u8],
        into: &mut [u8],
    ) -> Result<(), FormatError> {
        let Some(cipher) = cipher.filter(|_| entry.codec != Codec::Zero) else {
            return self.decode(entry, stored, into);
        };
        let mut clear = std::mem::take(&mut self.clear);
        let opened = cipher.open_frame(entry, pieces, stored, &mut clear);
        let decoded = opened.and_then(|()| self.decode(entry, &clear, into));
        self.clear = clear;
        decoded
    }

    /// Decodes a frame to `into`, which has the frame's decoded length. The caller checks the
    /// stored bytes before ([`FrameEntry::check_stored`]), and the decoded ones after
    /// ([`FrameEntry::check_pieces`]).
    pub fn decode(
        &mut self,
        entry: &FrameEntry,
        stored: &[u8],
        into: &mut [u8],
    ) -> Result<(), FormatError> {
        let Some(page) = entry.page.filter(|page| page.layout == LAYOUT_STREAMS) else {
            return self.codec.decode(entry.codec, stored, into);
        };
        // An index block that states more was refused.
        let laid_bytes = page.laid_bytes.min(entry.raw_bytes);
        self.laid.resize(laid_bytes as usize, 0);
        unpack(&mut self.codec, entry.codec, stored, &mut self.laid)?;
        let directory = Directory::read(&self.laid)?;
        let layout = Layout::from_bytes(directory.description).map_err(FormatError::Pages)?;
        let decoded = self.pages.decode(&layout, &directory.streams, into);
        decoded.map_err(FormatError::Pages)
    }
}
