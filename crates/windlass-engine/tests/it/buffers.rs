//! Any number of buffers with any number of threads: nobody waits for a buffer for ever.
//!
//! A deadlock shows as a test that does not end: run the tests under a time limit.

use proptest::prelude::*;
use windlass_engine::media::Codec;
use windlass_engine::{BufferRequest, Cancel, Discard, EngineError, RestoreOptions, restore};

use crate::support::*;

fn codec() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd(1))]
}

/// Files of all kinds in any order. Runs of zeros make messages that hold no buffer.
fn tree() -> impl Strategy<Value = Tree> {
    proptest::collection::vec((0u8..5, any::<u64>()), 1..40).prop_map(|kinds| {
        let content = |(kind, seed): (u8, u64)| match kind {
            0 => vec![0; 200_000],
            1 => Random::new(seed).noise(100_000),
            2 => plain(150_000, 1),
            3 => Random::new(seed).noise(1000),
            _ => Vec::new(),
        };
        let named = |(index, kind)| (format!("f{index}"), content(kind));
        kinds.into_iter().enumerate().map(named).collect()
    })
}

fn request() -> impl Strategy<Value = BufferRequest> {
    (2usize..=20, 1usize..=8, 1usize..=3).prop_map(|(buffers, compressors, readers)| {
        BufferRequest {
            buffers: Some(buffers),
            compressors: Some(compressors),
            readers: Some(readers),
            transfer_bytes: Some(64 * 1024),
            ..BufferRequest::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_configuration_deadlocks(
        (there, back) in (request(), request()),
        (stripes, codec, ring) in (1usize..=5, codec(), any::<bool>()),
        tree in tree(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup { stripes, codec, ring, request: there, ..Setup::default() };
        let set = open(&make_set(&tree, dir.path(), &setup)).unwrap();
        let plan = back.plan(stripes, 1).unwrap();
        let options = RestoreOptions { plan, device_rate: None, ring, pacing: None };
        let options = options.fit(&set).unwrap();
        restore(&set, &Discard, &options, &Default::default(), &Cancel::new()).unwrap();
        let into = dir.path().join("into");
        bring_back(&set, &into).unwrap();
        assert_same(&tree, &into);
    }
}

#[test]
fn a_set_with_large_frames_does_not_raise_the_memory_above_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::default();
    setup.request.transfer_bytes = Some(4 << 20);
    setup.request.frame_bytes = Some(2 << 20);
    let tree = vec![("file".to_owned(), plain(3 << 20, 1))];
    let set = open(&make_set(&tree, dir.path(), &setup)).unwrap();
    let fitted = |memory_limit, buffers| {
        let request = BufferRequest {
            memory_limit: Some(memory_limit),
            buffers: Some(buffers),
            ..Default::default()
        };
        let plan = request.plan(1, 1).unwrap();
        let options = RestoreOptions {
            plan,
            device_rate: None,
            ring: true,
            pacing: None,
        };
        options.fit(&set)
    };
    let error = fitted(8 << 20, 7).unwrap_err();
    let EngineError::FramesTooLarge { needed_bytes, .. } = error else {
        panic!("{error}")
    };
    assert!(error.to_string().contains("memory limit"), "{error}");
    assert!(
        error.to_string().ends_with(&needed_bytes.to_string()),
        "{error}"
    );
    assert_eq!(
        fitted(needed_bytes, 7).unwrap().plan.buffer_bytes,
        needed_bytes
    );
    assert!(matches!(
        fitted(needed_bytes - 1, 7),
        Err(EngineError::FramesTooLarge { .. })
    ));
    // The hint also offers another way: fewer buffers.
    assert!(fitted(8 << 20, 2).is_ok());
}
