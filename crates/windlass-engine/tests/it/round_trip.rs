//! Whatever goes in comes out: any files x any stripes x any sizes x any codec.

use proptest::prelude::*;
use windlass_engine::BufferRequest;
use windlass_engine::media::Codec;

use crate::support::*;

fn content() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![
        Just(0usize),
        1usize..9000,
        60_000usize..70_000,
        100_000usize..400_000
    ];
    (size, any::<u64>(), 0u8..4).prop_map(|(size, seed, kind)| {
        let mut state = seed | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut bytes: Vec<u8> = match kind {
            0 => vec![0; size],
            1 => (0..size).map(|_| next().to_le_bytes()[3]).collect(),
            _ => (0..size)
                .map(|index| (index / 64) as u8 ^ (next() & 1) as u8)
                .collect(),
        };
        // A run of zeros in the middle makes holes and frames of zeros.
        if kind == 3 && size > 200_000 {
            bytes[5000..180_000].fill(0);
        }
        bytes
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    proptest::collection::vec(content(), 1..12).prop_map(|contents| {
        let name = |index: usize| format!("dir{}/file{index}", index % 3);
        contents
            .into_iter()
            .enumerate()
            .map(|(index, bytes)| (name(index), bytes))
            .collect()
    })
}

fn setup() -> impl Strategy<Value = Setup> {
    let codec = prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd(1))];
    let sizes = (1usize..4, 9u32..17, 12u32..17, 2usize..20, any::<bool>());
    (1usize..6, codec, sizes).prop_map(|(stripes, codec, sizes)| {
        let (transfers, alignment, frame, buffers, ring) = sizes;
        let request = BufferRequest {
            transfer_bytes: Some(transfers * 64 * 1024),
            alignment: Some(1 << alignment),
            // A frame is at most half a transfer.
            frame_bytes: Some((1 << frame).min(1 << (transfers * 32 * 1024).ilog2())),
            buffers: Some(buffers),
            ..BufferRequest::default()
        };
        Setup {
            stripes,
            codec,
            request,
            ring,
            ..Setup::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_comes_back_equal(tree in tree(), setup in setup()) {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        plant(&tree, &source);
        back_up(&tree, &source, &setup, file_devices(dir.path(), &setup)).unwrap();
        let set = open(&[stripe_path(dir.path(), setup.stripes - 1)]).unwrap();
        set.check_index().unwrap();
        let target = dir.path().join("target");
        bring_back(&set, &target).unwrap();
        assert_same(&tree, &target);
    }
}
