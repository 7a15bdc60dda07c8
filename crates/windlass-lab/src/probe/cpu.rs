//! What a core can do: each codec and level on a sample of a database, checksums, copies.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_engine::media::{
    Codec, Encoder, FrameDecoder, FrameEntry, LAYOUT_STREAMS, PageEncoder, PageFrame, PageLayout,
    crc32c, fitted,
};
use windlass_engine::{Cancel, Encoded, FrameEncoder, PageClass};

use crate::error::LabError;
use crate::sample::Sample;
use crate::setting::{LabFault, LabSetting};
use crate::speeds::{CodecSpeed, MemorySpeeds, Speeds};

/// The frame size that a backup uses by default.
const FRAME_BYTES: usize = windlass_engine::FRAME_BYTES_DEFAULT;
/// The codecs and levels that are tried; the cheapest first.
pub const CODECS: [Codec; 9] = [
    Codec::None,
    Codec::Lz4,
    Codec::Zstd(-3),
    Codec::Zstd(1),
    Codec::Zstd(3),
    Codec::Zstd(6),
    Codec::Zstd(9),
    Codec::Zstd(12),
    Codec::Zstd(19),
];

/// Measures codecs on a sample, for about `budget` altogether.
pub fn measure_codecs(
    sample: &Sample,
    codecs: &[Codec],
    budget: Duration,
    cancel: &Cancel,
) -> Result<Speeds, LabError> {
    let extents = sample.extents.iter();
    let frames = extents.flat_map(|extent| {
        let frames = extent.bytes.chunks(FRAME_BYTES);
        frames.map(|raw| (raw, extent.layout))
    });
    let frames: Vec<Frame<'_>> = frames.collect();
    if frames.is_empty() {
        return Err(LabError::Setting {
            setting: LabSetting::Database,
            fault: LabFault::NothingToSample,
        });
    }
    let share = budget / fitted(codecs.len().max(1));
    let mut speeds = Speeds {
        origin: format!("a sample of {} MiB", sample.bytes() >> 20),
        codecs: Vec::new(),
    };
    for codec in codecs {
        speeds.codecs.push(codec_speed(
            *codec,
            (&frames, sample.layouts_with(*codec)),
            share,
            cancel,
        )?);
    }
    Ok(speeds)
}

/// A frame, and which of the layouts its pages have.
type Frame<'a> = (&'a [u8], Option<usize>);

/// Measures one codec on frames from all over the sample, until the time is up or all are done.
/// Pages with a layout are taken apart.
fn codec_speed(
    codec: Codec,
    (frames, layouts): (&[Frame<'_>], &[PageLayout]),
    budget: Duration,
    cancel: &Cancel,
) -> Result<CodecSpeed, LabError> {
    let mut encoder = FrameEncoder::new(encoder(codec)?, Arc::default(), true);
    encoder.prepare(PageEncoder::default);
    let mut decoder = FrameDecoder::new().map_err(windlass_engine::EngineError::from)?;
    let layouts = layouts.iter().cloned();
    let classes: Vec<_> = layouts.map(PageClass::new).collect();
    let mut stored = vec![0; encoder.bound(FRAME_BYTES)];
    let mut again = vec![0; FRAME_BYTES];
    let (mut raw_bytes, mut stored_bytes) = (0usize, 0usize);
    let (mut encoding, mut decoding) = (Duration::ZERO, Duration::ZERO);
    for index in spread(frames.len()) {
        cancel.check()?;
        let (raw, layout) = frames[index];
        let class = layout.and_then(|layout| classes.get(layout));
        let began = Instant::now();
        let encoded = encoder.encode(raw, class, &mut stored);
        let bytes = encoded.stored;
        black_box(crc32c(&stored[..bytes]));
        black_box(crc32c(raw));
        encoding += began.elapsed();
        let began = Instant::now();
        black_box(crc32c(&stored[..bytes]));
        let entry = entry(encoded, raw.len());
        let decoded = decoder.decode(&entry, &stored[..bytes], &mut again[..raw.len()]);
        decoded.map_err(windlass_engine::EngineError::from)?;
        black_box(crc32c(&again[..raw.len()]));
        decoding += began.elapsed();
        raw_bytes += raw.len();
        stored_bytes += bytes;
        if encoding + decoding >= budget && raw_bytes >= 4 * FRAME_BYTES {
            break;
        }
    }
    Ok(CodecSpeed {
        codec: codec.to_string(),
        compress_bytes_per_second: rate(raw_bytes, encoding),
        decompress_bytes_per_second: rate(raw_bytes, decoding),
        ratio: to_f64(raw_bytes) / to_f64(stored_bytes).max(1.0),
    })
}

/// What an index block would say of a frame, as far as a decoder wants to know it.
fn entry(encoded: Encoded, raw_bytes: usize) -> FrameEntry {
    FrameEntry {
        offset: 0,
        stored_bytes: fitted(encoded.stored),
        raw_bytes: fitted(raw_bytes),
        crc32c: 0,
        codec: encoded.codec,
        piece_count: 0,
        page: encoded.laid.map(|laid| PageFrame {
            raw_crc32c: 0,
            laid_bytes: fitted(laid),
            layout: LAYOUT_STREAMS,
            kind: 0,
        }),
    }
}

fn encoder(codec: Codec) -> Result<Encoder, LabError> {
    Ok(Encoder::new(codec).map_err(windlass_engine::EngineError::from)?)
}

/// All indexes below `count`. The first ones are far from each other, so wherever the caller stops,
/// it has seen frames from all over the sample.
fn spread(count: usize) -> impl Iterator<Item = usize> {
    let stride = (count / 8).max(1);
    (0..stride).flat_map(move |start| (start..count).step_by(stride))
}

/// Measures checksums and copies, for about `budget` altogether.
pub fn measure_memory(budget: Duration) -> MemorySpeeds {
    const BYTES: usize = 1024 * 1024;
    let from: Vec<u8> = (0..BYTES).map(|at| fitted(at % 251)).collect();
    let mut to = vec![0; BYTES];
    let share = budget / 3;
    MemorySpeeds {
        crc32c_bytes_per_second: repeated(share, || {
            black_box(crc32c(&from));
        }),
        blake3_bytes_per_second: repeated(share, || {
            black_box(blake3::hash(&from));
        }),
        copy_bytes_per_second: repeated(share, || {
            to.copy_from_slice(&from);
            black_box(&to);
        }),
    }
}

/// Bytes per second of a call that works on one mebibyte, repeated.
fn repeated(budget: Duration, mut call: impl FnMut()) -> f64 {
    let began = Instant::now();
    let mut times = 0;
    while times < 3 || began.elapsed() < budget {
        call();
        times += 1;
    }
    rate(times * 1024 * 1024, began.elapsed())
}

fn rate(bytes: usize, time: Duration) -> f64 {
    to_f64(bytes) / time.as_secs_f64().max(1e-9)
}

#[expect(clippy::cast_precision_loss, reason = "a speed needs no 53 bits")]
fn to_f64(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use windlass_testkit::heap::{heap_layout, heap_pages};

    use super::*;
    use crate::sample::Extent;

    fn sample() -> Sample {
        let line = |number: u32| format!("{number:08} a row of a table that compresses well\n");
        let text: String = (0..40_000).map(line).collect();
        let extent = |bytes: &[u8]| Extent {
            bytes: bytes.to_vec(),
            layout: None,
        };
        Sample {
            extents: text.as_bytes().chunks(1 << 20).map(extent).collect(),
            total_bytes: text.len() as u64,
            ..Sample::default()
        }
    }

    /// A backup that is asked takes pages apart with lz4, too; by default it does not.
    #[test]
    fn pages_are_taken_apart_with_the_codecs_with_which_a_backup_does_that() {
        let bytes = heap_pages(128, 1);
        let plain = Sample {
            total_bytes: bytes.len() as u64,
            extents: vec![Extent {
                bytes,
                layout: Some(0),
            }],
            ..Sample::default()
        };
        let usual = Sample {
            layouts: vec![heap_layout()],
            ..plain.clone()
        };
        let asked = usual.clone().asked(true);
        let codecs = [Codec::None, Codec::Lz4, Codec::Zstd(1)];
        let ratios = |sample: &Sample| {
            // All frames are tried long before it is spent.
            let budget = Duration::from_secs(600);
            let speeds = measure_codecs(sample, &codecs, budget, &Cancel::new()).unwrap();
            codecs.map(|codec| speeds.of(codec).ratio)
        };
        let (plain, usual, asked) = (ratios(&plain), ratios(&usual), ratios(&asked));
        assert_eq!(usual[..2], plain[..2]);
        assert!(usual[2] > 1.1 * plain[2], "{usual:?} {plain:?}");
        assert_eq!(asked[0], plain[0]);
        assert!(asked[1] > 1.1 * plain[1], "{asked:?} {plain:?}");
    }

    #[test]
    fn each_codec_has_a_speed_and_a_ratio() {
        let codecs = [Codec::None, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(9)];
        let budget = Duration::from_millis(200);
        let speeds = measure_codecs(&sample(), &codecs, budget, &Cancel::new()).unwrap();
        let names: Vec<_> = speeds
            .codecs
            .iter()
            .map(|speed| speed.codec.as_str())
            .collect();
        assert_eq!(names, ["none", "lz4", "zstd:1", "zstd:9"]);
        assert_eq!(speeds.codecs[0].ratio, 1.0);
        assert!(speeds.codecs[1].ratio > 2.0 && speeds.codecs[3].ratio > speeds.codecs[1].ratio);
        for speed in &speeds.codecs {
            assert!(speed.compress_bytes_per_second > 0.0);
            assert!(speed.decompress_bytes_per_second > 0.0);
        }
        assert_eq!(
            speeds.of(Codec::Zstd(10)).codec,
            "zstd:9",
            "the nearest level"
        );
    }

    #[test]
    fn an_empty_database_has_no_speed() {
        let nothing = Sample::default();
        let budget = Duration::from_millis(1);
        let error = measure_codecs(&nothing, &CODECS, budget, &Cancel::new()).unwrap_err();
        assert!(error.to_string().contains("nothing in it"), "{error}");
    }

    #[test]
    fn all_frames_are_seen_once_and_the_first_are_far_apart() {
        let mut seen: Vec<_> = spread(100).collect();
        assert!(seen[..8].windows(2).all(|pair| pair[1] - pair[0] == 12));
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert_eq!(spread(3).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn memory_has_speeds() {
        let speeds = measure_memory(Duration::from_millis(3));
        assert!(speeds.crc32c_bytes_per_second > 1e6);
        assert!(speeds.blake3_bytes_per_second > 1e6);
        assert!(speeds.copy_bytes_per_second > 1e6);
    }
}
