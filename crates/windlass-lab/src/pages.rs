//! What the pages of a relation take, as they are and taken apart, and how long that lasts.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use windlass_engine::media::{Codec, Encoder, PageEncoder, PageLayout, Taken};
use windlass_engine::{EngineError, PageClass};

use crate::error::LabError;
use crate::sample::Sample;

/// The frame size that a backup uses by default.
const FRAME_BYTES: usize = windlass_engine::FRAME_BYTES_DEFAULT;
/// The most bytes of a relation that are read.
const SAMPLE_BYTES: u64 = 4 << 20;

/// A sample of a relation in every way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageTrial {
    /// Bytes of the sample.
    pub raw_bytes: u64,
    /// Each codec.
    pub ways: Vec<PageWay>,
}

/// What a codec makes of a sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageWay {
    /// The codec.
    pub codec: Codec,
    /// The pages as they are.
    pub plain: Spent,
    /// The pages taken apart, proven, and compressed.
    pub apart: Spent,
}

/// What storing a sample takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spent {
    /// Bytes that are stored.
    pub stored_bytes: u64,
    /// Time of one core, in seconds.
    pub seconds: f64,
}

impl PageWay {
    /// Whether a backup would take these `raw_bytes` of pages apart.
    pub fn is_apart(&self, raw_bytes: u64) -> bool {
        PageClass::wins(raw_bytes, self.plain.stored_bytes, self.apart.stored_bytes)
    }
}

/// Tries these codecs on a sample of a relation's files.
pub fn try_pages(
    files: &[PathBuf],
    layout: &PageLayout,
    codecs: &[Codec],
) -> Result<PageTrial, LabError> {
    let sample = Sample::of_files(files, SAMPLE_BYTES)?;
    let extents = sample.extents.iter();
    let frames = extents.flat_map(|one| one.bytes.chunks(FRAME_BYTES));
    let frames: Vec<&[u8]> = frames.collect();
    let mut ways = Vec::new();
    for codec in codecs {
        let mut trial = Bench::new(*codec)?;
        let plain = trial.plain(&frames);
        let apart = trial.apart(&frames, layout);
        ways.push(PageWay {
            codec: *codec,
            plain,
            apart,
        });
    }
    Ok(PageTrial {
        raw_bytes: sample.bytes(),
        ways,
    })
}

struct Bench {
    encoder: Encoder,
    pages: PageEncoder,
    room: Vec<u8>,
}

impl Bench {
    fn new(codec: Codec) -> Result<Self, LabError> {
        let encoder = Encoder::new(codec).map_err(EngineError::from)?;
        Ok(Self {
            room: vec![0; encoder.bound(FRAME_BYTES).max(FRAME_BYTES)],
            encoder,
            pages: PageEncoder::default(),
        })
    }

    fn plain(&mut self, frames: &[&[u8]]) -> Spent {
        spent(frames, |raw| self.frame(raw))
    }

    fn apart(&mut self, frames: &[&[u8]], layout: &PageLayout) -> Spent {
        spent(frames, |raw| {
            let stored = match self.pages.take_apart(layout, raw) {
                Taken::Apart => {
                    let (pages, encoder) = (&mut self.pages, &mut self.encoder);
                    pages.store(layout, raw.len(), encoder, &mut self.room)
                }
                Taken::NotWorth | Taken::Wrong => None,
            };
            stored.map_or_else(|| self.frame(raw), |laid| laid.stored_bytes)
        })
    }

    fn frame(&mut self, raw: &[u8]) -> usize {
        let encoded = self.encoder.encode(raw, &mut self.room);
        encoded.map_or(raw.len(), |(_, stored)| stored)
    }
}

fn spent(frames: &[&[u8]], mut store: impl FnMut(&[u8]) -> usize) -> Spent {
    let began = Instant::now();
    let stored: usize = frames.iter().map(|raw| store(raw)).sum();
    Spent {
        stored_bytes: stored as u64,
        seconds: began.elapsed().as_secs_f64(),
    }
}
