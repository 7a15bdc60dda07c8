//! Frames of a log object, compressed on several threads.
//!
//!   source --a frame at a time--> workers --> frames, in order
//!
//! Each worker reads into memory of its own and compresses from there, so a frame's bytes are still
//! in the core's cache. A process that stores one segment takes memory only for what it touches:
//! new memory costs such a process more than the reading.
//!
//! Invariant: memory does not grow with the source. No more than [`ROUND_FRAMES`] compressed frames
//! wait to be written.

use windlass_media::{CONTENT_TOKEN_BYTES, Codec, Encoder, FormatError, crc32c, fitted};

use crate::error::RepositoryError;
use crate::token::ContentKey;

/// How many frames are compressed before the first of them is written, if several threads work.
const ROUND_FRAMES: usize = 16;

/// Where the bytes of frames come from.
pub(crate) trait Bytes: Sync {
    /// So many of its bytes from a position on, which counts from 0. `memory` is for bytes that
    /// have to be read.
    fn part<'a>(
        &'a self,
        at: u64,
        bytes: usize,
        memory: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], RepositoryError>;
}

impl Bytes for [u8] {
    fn part<'a>(
        &'a self,
        at: u64,
        bytes: usize,
        _memory: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], RepositoryError> {
        let at = fitted::<usize, u64>(at);
        Ok(&self[at..at + bytes])
    }
}

/// A compressed frame.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    pub(crate) codec: Codec,
    pub(crate) stored: &'a [u8],
    pub(crate) decoded_crc: u32,
    pub(crate) decoded_bytes: u32,
    /// What tells its content from others, if that was asked for.
    pub(crate) token: [u8; CONTENT_TOKEN_BYTES],
}

/// A compressed frame that waits for those before it.
struct Waiting {
    codec: Codec,
    stored: Vec<u8>,
    decoded_crc: u32,
    decoded_bytes: u32,
    token: [u8; CONTENT_TOKEN_BYTES],
}

/// Compresses with one worker for each thread.
pub(crate) struct Compressor {
    workers: Vec<Worker>,
    frame_bytes: usize,
}

/// An encoder, with memory for one frame.
struct Worker {
    encoder: Encoder,
    content_key: Option<ContentKey>,
    raw: Vec<u8>,
    stored: Vec<u8>,
}

/// A frame of a source.
#[derive(Clone, Copy)]
struct Cut {
    /// Where it begins in the source.
    at: u64,
    /// Its position in the object.
    position: u64,
    bytes: usize,
}

impl Compressor {
    /// With a content key, each frame gets what tells its content from others.
    pub(crate) fn new(
        (codec, threads): (Codec, usize),
        frame_bytes: usize,
        content_key: Option<&ContentKey>,
    ) -> Result<Self, FormatError> {
        let worker = |_| {
            Encoder::new(codec).map(|encoder| Worker {
                encoder,
                content_key: content_key.cloned(),
                raw: Vec::new(),
                stored: Vec::new(),
            })
        };
        Ok(Self {
            workers: (0..threads.max(1)).map(worker).collect::<Result<_, _>>()?,
            frame_bytes: frame_bytes.max(1),
        })
    }

    /// Cuts the first bytes of a source into frames, and hands these over in order. The first one
    /// has this position.
    pub(crate) fn pack(
        &mut self,
        source: &(impl Bytes + ?Sized),
        (position, bytes): (u64, u64),
        mut each: impl FnMut(Packed<'_>) -> Result<(), RepositoryError>,
    ) -> Result<(), RepositoryError> {
        let cuts = cuts((position, bytes), self.frame_bytes);
        let Some((own, others)) = self.workers.split_first_mut() else {
            return Ok(());
        };
        for round in cuts.chunks(ROUND_FRAMES) {
            if others.is_empty() || round.len() == 1 {
                for cut in round {
                    each(own.pack(source, *cut)?)?;
                }
                continue;
            }
            for waiting in pack_round(own, others, source, round)? {
                each(waiting.packed())?;
            }
        }
        Ok(())
    }
}

fn cuts((position, bytes): (u64, u64), frame_bytes: usize) -> Vec<Cut> {
    let step = frame_bytes as u64;
    let begins = (0..bytes.div_ceil(step)).map(|number| number * step);
    let length = |at: u64| fitted::<usize, u64>((bytes - at).min(step));
    let cut = |at| Cut {
        at,
        position: position + at,
        bytes: length(at),
    };
    begins.map(cut).collect()
}

/// Some frames, compressed on all threads. Each takes frames that follow each other.
fn pack_round(
    own: &mut Worker,
    others: &mut [Worker],
    source: &(impl Bytes + ?Sized),
    round: &[Cut],
) -> Result<Vec<Waiting>, RepositoryError> {
    let share = round.len().div_ceil(others.len() + 1);
    let mut shares = round.chunks(share);
    let first = shares.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let others: Vec<_> = others
            .iter_mut()
            .zip(shares)
            .map(|(worker, share)| scope.spawn(move || worker.pack_all(source, share)))
            .collect();
        let mut packed = own.pack_all(source, first);
        for other in others {
            match (other.join(), &mut packed) {
                (Ok(Ok(more)), Ok(packed)) => packed.extend(more),
                (Ok(Err(error)), Ok(_)) => packed = Err(error),
                (Ok(_), Err(_)) => {}
                (Err(panic), _) => std::panic::resume_unwind(panic),
            }
        }
        packed
    })
}

impl Worker {
    fn pack_all(
        &mut self,
        source: &(impl Bytes + ?Sized),
        share: &[Cut],
    ) -> Result<Vec<Waiting>, RepositoryError> {
        let packed = share
            .iter()
            .map(|cut| self.pack(source, *cut).map(Waiting::of));
        packed.collect()
    }

    fn pack<'a>(
        &'a mut self,
        source: &'a (impl Bytes + ?Sized),
        cut: Cut,
    ) -> Result<Packed<'a>, RepositoryError> {
        let raw = source.part(cut.at, cut.bytes, &mut self.raw)?;
        let key = self.content_key.as_ref();
        let bound = self.encoder.bound(raw.len());
        if self.stored.len() < bound {
            // Made new, it is memory that nobody touches before the encoder does.
            self.stored = vec![0; bound];
        }
        let (codec, stored) = match self.encoder.encode(raw, &mut self.stored[..bound]) {
            Some((codec, bytes)) => (codec, &self.stored[..bytes]),
            None => (Codec::None, raw),
        };
        Ok(Packed {
            codec,
            stored,
            decoded_crc: crc32c(raw),
            decoded_bytes: fitted(raw.len()),
            token: key.map_or([0; CONTENT_TOKEN_BYTES], |key| key.token(cut.position, raw)),
        })
    }
}

impl Waiting {
    fn of(packed: Packed<'_>) -> Self {
        Self {
            codec: packed.codec,
            stored: packed.stored.to_vec(),
            decoded_crc: packed.decoded_crc,
            decoded_bytes: packed.decoded_bytes,
            token: packed.token,
        }
    }

    fn packed(&self) -> Packed<'_> {
        Packed {
            codec: self.codec,
            stored: &self.stored,
            decoded_crc: self.decoded_crc,
            decoded_bytes: self.decoded_bytes,
            token: self.token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that have to be read.
    struct Read<'a>(&'a [u8]);

    impl Bytes for Read<'_> {
        fn part<'a>(
            &'a self,
            at: u64,
            bytes: usize,
            memory: &'a mut Vec<u8>,
        ) -> Result<&'a [u8], RepositoryError> {
            memory.clear();
            memory.extend_from_slice(self.0.part(at, bytes, &mut Vec::new())?);
            Ok(memory)
        }
    }

    /// Runs of text, of zeros, and of what cannot be compressed.
    fn mixed(bytes: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        };
        let byte = |at: usize| match at / 700 % 3 {
            0 => b"a text that repeats "[at % 20],
            1 => 0,
            _ => noise(),
        };
        (0..bytes).map(byte).collect()
    }

    fn decoded(
        codec: Codec,
        threads: usize,
        source: &(impl Bytes + ?Sized),
        bytes: u64,
    ) -> Vec<u8> {
        let mut compressor = Compressor::new((codec, threads), 500, None).unwrap();
        let mut decoder = windlass_media::Decoder::new().unwrap();
        let mut all = Vec::new();
        let mut add = |packed: Packed<'_>| {
            let mut raw = vec![0; packed.decoded_bytes as usize];
            decoder
                .decode(packed.codec, packed.stored, &mut raw)
                .unwrap();
            assert_eq!(crc32c(&raw), packed.decoded_crc);
            all.extend_from_slice(&raw);
            Ok(())
        };
        compressor.pack(source, (0, bytes), &mut add).unwrap();
        // Memory of the first source is used again for a second one.
        compressor.pack(source, (0, bytes), &mut add).unwrap();
        all
    }

    #[test]
    fn frames_come_in_order_whoever_compresses_and_wherever_the_bytes_are() {
        let content = mixed(500 * 40 + 123);
        for threads in [1, 2, 3, 64] {
            for codec in [Codec::Zstd(1), Codec::Lz4, Codec::None] {
                for bytes in [0, 1, 500, 501, content.len()] {
                    let part = &content[..bytes];
                    let expected = [part, part].concat();
                    let read = decoded(codec, threads, &Read(&content), bytes as u64);
                    assert!(
                        read == expected,
                        "{codec:?}, {threads} threads, {bytes} bytes"
                    );
                    let lent = decoded(codec, threads, &content[..], bytes as u64);
                    assert!(
                        lent == expected,
                        "{codec:?}, {threads} threads, {bytes} bytes"
                    );
                }
            }
        }
    }

    #[test]
    fn a_source_that_cannot_be_read_ends_it_whichever_thread_meets_that() {
        struct Broken(u64);
        impl Bytes for Broken {
            fn part<'a>(
                &'a self,
                at: u64,
                bytes: usize,
                memory: &'a mut Vec<u8>,
            ) -> Result<&'a [u8], RepositoryError> {
                memory.resize(bytes, 7);
                match at == self.0 {
                    true => Err(RepositoryError::Name {
                        name: "broken".to_owned(),
                    }),
                    false => Ok(memory),
                }
            }
        }
        for threads in [1, 2, 3] {
            for at in [0, 500, 500 * 7, 500 * 9, 500 * 15, 500 * 16] {
                let mut compressor = Compressor::new((Codec::Lz4, threads), 500, None).unwrap();
                let mut handed = 0;
                let ended = compressor.pack(&Broken(at), (0, 500 * 20), |packed| {
                    handed += u64::from(packed.decoded_bytes);
                    Ok(())
                });
                assert!(ended.is_err() && handed <= at, "{threads} threads, {at}");
            }
        }
    }
}
