//! Frames of a log object, compressed on several threads.

use windlass_media::{Codec, Encoder, FormatError, crc32c, fitted};

/// A compressed frame.
pub(crate) struct Packed {
    pub(crate) codec: Codec,
    pub(crate) stored: Vec<u8>,
    pub(crate) decoded_crc: u32,
    pub(crate) decoded_bytes: u32,
}

/// Compresses with one encoder for each thread.
pub(crate) struct Compressor {
    encoders: Vec<Encoder>,
}

impl Compressor {
    pub(crate) fn new(codec: Codec, threads: usize) -> Result<Self, FormatError> {
        let encoders = (0..threads.max(1)).map(|_| Encoder::new(codec));
        Ok(Self {
            encoders: encoders.collect::<Result<_, _>>()?,
        })
    }

    /// The frames of some bytes, in order.
    pub(crate) fn pack(&mut self, raw: &[u8], frame_bytes: usize) -> Vec<Packed> {
        let frames: Vec<&[u8]> = raw.chunks(frame_bytes.max(1)).collect();
        let share = frames.len().div_ceil(self.encoders.len()).max(1);
        let mut shares = frames.chunks(share);
        let Some((own, others)) = self.encoders.split_first_mut() else {
            return Vec::new();
        };
        let first = shares.next().unwrap_or_default();
        std::thread::scope(|scope| {
            let others: Vec<_> = others
                .iter_mut()
                .zip(shares)
                .map(|(encoder, frames)| scope.spawn(move || pack_all(encoder, frames)))
                .collect();
            let mut packed = pack_all(own, first);
            for other in others {
                match other.join() {
                    Ok(more) => packed.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            packed
        })
    }
}

fn pack_all(encoder: &mut Encoder, frames: &[&[u8]]) -> Vec<Packed> {
    frames.iter().map(|raw| pack_one(encoder, raw)).collect()
}

fn pack_one(encoder: &mut Encoder, raw: &[u8]) -> Packed {
    let mut stored = vec![0; encoder.bound(raw.len())];
    let codec = match encoder.encode(raw, &mut stored) {
        Some((codec, bytes)) => {
            stored.truncate(bytes);
            codec
        }
        None => {
            stored.clear();
            stored.extend_from_slice(raw);
            Codec::None
        }
    };
    Packed {
        codec,
        stored,
        decoded_crc: crc32c(raw),
        decoded_bytes: fitted(raw.len()),
    }
}
