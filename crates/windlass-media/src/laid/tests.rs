//! Streams that are laid out, stored and found again; hostile lengths.

use proptest::prelude::*;

use super::*;

const CODECS: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd(1)];

/// Stores streams; returns stored and laid out bytes.
fn stored(
    streams: &[(Vec<u8>, bool)],
    raw_bytes: usize,
    codec: Codec,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let streams: Vec<_> = streams
        .iter()
        .map(|(bytes, is_dense)| Stream {
            bytes,
            is_dense: *is_dense,
        })
        .collect();
    let mut encoder = Encoder::new(codec).unwrap();
    let mut into = vec![0; encoder.bound(raw_bytes) + 3000];
    let mut arranger = Arranger::default();
    let laid = arranger.store(b"description", &streams, raw_bytes, &mut encoder, &mut into)?;
    assert_eq!(laid.laid_bytes, arranger.laid.len());
    into.truncate(laid.stored_bytes);
    Some((into, arranger.laid))
}

/// Numbers that look random, from a generator that is short enough to be seen through.
fn noise(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn streams_come_back_in_their_order_whatever_the_codec() {
    let streams = [
        (vec![7; 20_000], false),
        (noise(5000, 1), true),
        (Vec::new(), false),
        (vec![1, 2, 3], true),
        (noise(40_000, 2), false),
        (b"words words words".to_vec(), false),
        (vec![0; 3000], true),
    ];
    for codec in CODECS {
        let (packed, laid) = stored(&streams, 80_000, codec).unwrap();
        let mut again = vec![0xee; laid.len()];
        let mut decoder = Decoder::new().unwrap();
        unpack(&mut decoder, codec, &packed, &mut again).unwrap();
        assert!(again == laid, "{codec}");
        let directory = Directory::read(&again).unwrap();
        assert_eq!(directory.description, b"description");
        let found: Vec<_> = directory.streams.iter().map(|it| it.to_vec()).collect();
        let expected: Vec<_> = streams.iter().map(|(bytes, _)| bytes.clone()).collect();
        assert!(found == expected, "{codec}");
    }
}

#[test]
fn dense_streams_go_through_the_codec_only_if_that_gains() {
    let (size, codec) = (60_000, Codec::Zstd(1));
    let random = [(noise(50_000, 3), true)];
    let half = [(
        noise(50_000, 3).iter().map(|byte| byte & 15).collect(),
        true,
    )];
    let bytes = |streams: &[(Vec<u8>, bool)]| stored(streams, size, codec).unwrap().0.len();
    assert!((50_000..50_100).contains(&bytes(&random)));
    assert!(bytes(&half) < 26_000);
    // LZ4 finds no repetitions there, and is not asked.
    assert!(stored(&half, size, Codec::Lz4).unwrap().0.len() >= 50_000);
}

#[test]
fn what_would_be_longer_than_the_pages_is_not_laid_out() {
    for codec in CODECS {
        assert_eq!(stored(&[(noise(1000, 4), true)], 1000, codec), None);
        assert_eq!(stored(&[(noise(1000, 4), false)], 1001, codec), None);
        assert!(stored(&[(noise(1000, 4), true)], 1100, codec).is_some());
    }
    let many = vec![(Vec::new(), false); STREAMS_MAX + 1];
    assert_eq!(stored(&many, 1 << 20, Codec::Zstd(1)), None);
    let most = vec![(Vec::new(), false); STREAMS_MAX];
    assert!(stored(&most, 1 << 20, Codec::Zstd(1)).is_some());
}

#[test]
fn a_frame_with_more_large_streams_than_parts_is_stored() {
    let streams = vec![(vec![9; PART_BYTES_MIN], false); 200];
    let (packed, laid) = stored(&streams, 4 << 20, Codec::Zstd(1)).unwrap();
    let mut again = vec![0; laid.len()];
    let mut decoder = Decoder::new().unwrap();
    unpack(&mut decoder, Codec::Zstd(1), &packed, &mut again).unwrap();
    assert!(again == laid);
}

#[test]
fn lengths_that_do_not_add_up_are_refused() {
    let (packed, laid) = stored(&[(noise(500, 5), true)], 600, Codec::None).unwrap();
    let refused = |packed: &[u8], bytes: usize| {
        let mut into = vec![0; bytes];
        let mut decoder = Decoder::new().unwrap();
        unpack(&mut decoder, Codec::None, packed, &mut into).unwrap_err();
    };
    refused(&packed, laid.len() + 1);
    refused(&packed, laid.len() - 1);
    refused(&packed[..packed.len() - 1], laid.len());
    refused(&[], 0);
    refused(&[1], 0);
    Directory::read(&laid[..laid.len() - 1]).unwrap_err();
    Directory::read(&[&laid[..], &[0]].concat()).unwrap_err();
    Directory::read(&[]).unwrap_err();
    Directory::read(&[0xff, 0xff, 0xff, 0xff, 1]).unwrap_err();
    Directory::read(&[0xff, 0xff, 0x7f]).unwrap_err();
}

proptest! {
    #[test]
    fn no_stored_bytes_break_the_readers(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        laid_bytes in 0_usize..3000,
    ) {
        let mut laid = vec![0; laid_bytes];
        let mut decoder = Decoder::new().unwrap();
        for codec in CODECS {
            drop(unpack(&mut decoder, codec, &bytes, &mut laid));
        }
        if let Ok(directory) = Directory::read(&bytes) {
            let held: usize = directory.streams.iter().map(|stream| stream.len()).sum();
            prop_assert!(held + directory.description.len() < bytes.len());
        }
    }
}
