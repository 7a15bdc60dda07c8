//! Every stored structure: written, read, compared; then each byte flipped.

use proptest::prelude::*;
use windlass_media::{
    Base, BlockSpans, Facts, FileNo, FileSpan, FileTable, Footer, FormatError, IndexBlock,
    Inherited, InheritedFiles, LAYOUT_PLAIN, PageFrame, ParityHeader, PieceEntry, SEAL_BYTES, Seal,
    SetDescription, SetId, StripeHeader, StripeIndex, Structure,
};

use crate::samples::{self, REGION, REGION_BYTES};

const METADATA_LIMIT: u64 = 1 << 20;

/// Asserts that `decode` refuses every flip of one bit, and every cut, of `bytes`.
pub fn every_flip_is_refused<T>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T, FormatError>) {
    assert!(decode(bytes).is_ok());
    for offset in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.to_vec();
            flipped[offset] ^= 1 << bit;
            assert!(decode(&flipped).is_err(), "bit {bit} of byte {offset}");
        }
    }
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "cut to {length}");
    }
}

#[test]
fn the_first_eight_bytes_say_which_record_it_is() {
    let header = StripeHeader {
        parities: vec![b"/backup/p".to_vec(), b"/backup/q".to_vec()],
        ..samples::header()
    };
    let parity = ParityHeader::of(&header, 1, 4096).encode().unwrap();
    let block = samples::index_block().encode(512).unwrap();
    let seal = samples::seal().encode();
    assert_eq!(seal[Seal::SET_ID], samples::SET.0);
    let records = [
        (header.encode().unwrap(), Structure::Header),
        (block, Structure::IndexBlock),
        (samples::footers().0.remove(0), Structure::Footer),
        (seal, Structure::Seal),
        (parity, Structure::ParityHeader),
    ];
    for (mut bytes, structure) in records {
        assert_eq!(Structure::begun_by(&bytes), Some(structure));
        assert_eq!(Structure::begun_by(&bytes[..8]), Some(structure));
        assert_eq!(Structure::begun_by(&bytes[..7]), None);
        bytes[7] ^= 1;
        assert_eq!(Structure::begun_by(&bytes), None);
        // Another version of the format has another eighth byte.
        let begins = StripeHeader::begins(&bytes) || ParityHeader::begins(&bytes);
        let is_header = matches!(structure, Structure::Header | Structure::ParityHeader);
        assert_eq!(begins, is_header);
    }
}

#[test]
fn a_header_comes_back_and_no_flip_is_taken_for_it() {
    let header = samples::header();
    let bytes = header.encode().unwrap();
    assert_eq!(StripeHeader::decode(&bytes).unwrap(), header);
    assert_eq!(
        StripeHeader::encoded_bytes(&bytes[..64]).unwrap() as usize,
        bytes.len()
    );
    every_flip_is_refused(&bytes, StripeHeader::decode);
}

#[test]
fn an_index_block_comes_back_and_no_flip_is_taken_for_it() {
    let mut block = samples::index_block();
    let bytes = block.encode(512).unwrap();
    let at = REGION + REGION_BYTES;
    assert_eq!(IndexBlock::decode(&bytes, at, 512).unwrap(), block);
    assert_eq!(
        IndexBlock::encoded_bytes_of(&bytes).unwrap() as usize,
        bytes.len()
    );
    every_flip_is_refused(&bytes, |bytes| IndexBlock::decode(bytes, at, 512));
    for elsewhere in [0, at - 1, at + 1, at + 512, u64::MAX] {
        assert!(IndexBlock::decode(&bytes, elsewhere, 512).is_err());
    }
}

/// The sample as a block of page-aware frames.
fn page_aware() -> IndexBlock {
    let mut block = samples::index_block();
    for frame in &mut block.frames {
        frame.page = Some(PageFrame {
            raw_crc32c: 0x0bad_cafe,
            laid_bytes: frame.raw_bytes,
            layout: LAYOUT_PLAIN,
            kind: 7,
        });
    }
    block
}

#[test]
fn page_aware_frames_come_back_and_no_flip_is_taken_for_them() {
    let mut block = page_aware();
    let bytes = block.encode(512).unwrap();
    let at = REGION + REGION_BYTES;
    assert_eq!(IndexBlock::decode(&bytes, at, 512).unwrap(), block);
    every_flip_is_refused(&bytes, |bytes| IndexBlock::decode(bytes, at, 512));
    let header = StripeHeader {
        page_frames: true,
        ..samples::header()
    };
    let bytes = header.encode().unwrap();
    assert_eq!(StripeHeader::decode(&bytes).unwrap(), header);
    every_flip_is_refused(&bytes, StripeHeader::decode);
}

#[test]
fn pages_in_another_layout_and_blocks_of_two_kinds_are_refused() {
    let at = REGION + REGION_BYTES;
    let refused = |change: fn(&mut IndexBlock)| {
        let mut block = page_aware();
        change(&mut block);
        let decoded = block
            .encode(512)
            .and_then(|bytes| IndexBlock::decode(&bytes, at, 512));
        decoded.unwrap_err()
    };
    let layout = refused(|block| block.frames[0].page.as_mut().unwrap().layout = 3);
    assert_eq!(layout, FormatError::PageLayout(3));
    refused(|block| block.frames[0].page.as_mut().unwrap().laid_bytes += 1);
    refused(|block| block.frames[1].page = None);
    refused(|block| block.frames[0].page = None);
}

#[test]
fn a_seal_comes_back_and_no_flip_is_taken_for_it() {
    let seal = samples::seal();
    let block = seal.encode();
    let length = seal.stripe_bytes;
    let record = &block[block.len() - SEAL_BYTES..];
    assert_eq!(Seal::decode(record, length).unwrap(), seal);
    every_flip_is_refused(record, |bytes| Seal::decode(bytes, length));
    for other in [0, length - 1, length + 1, u64::MAX] {
        assert!(Seal::decode(record, other).is_err());
    }
}

#[test]
fn a_footer_comes_back_from_each_stripe_with_the_same_root() {
    let (footers, root) = samples::footers();
    for (stripe, bytes) in (0u16..).zip(&footers) {
        let footer = Footer::decode(bytes, METADATA_LIMIT).unwrap();
        assert_eq!(footer.stripe, StripeIndex(stripe));
        assert_eq!(footer.set_id, samples::SET);
        assert_eq!(footer.set_root, root);
        assert_eq!(footer.description, samples::description());
        let directory = if stripe == 0 {
            samples::directory()
        } else {
            Vec::new()
        };
        assert_eq!(footer.directory, directory);
    }
}

#[test]
fn a_base_comes_back_and_changes_the_root() {
    let mut description = samples::description();
    for entry in &mut description.files.0 {
        entry.flags.crc_known = false;
        entry.crc32c = 0;
    }
    let mut roots = Vec::new();
    for base in [None, Some(3), Some(4)] {
        description.base = base.map(|byte| Base {
            set: SetId([1; 16]),
            root: [byte; 32],
            locations: vec![b"/backup/full".to_vec()],
            files: InheritedFiles::new(vec![Inherited {
                file: FileNo(2),
                base_file: FileNo(7),
                bytes: 2000,
            }]),
        });
        let each = |_, footer: Vec<u8>, root| {
            let read = Footer::decode(&footer, METADATA_LIMIT)?;
            assert_eq!((&read.description, read.set_root), (&description, root));
            roots.push(root);
            Ok::<(), FormatError>(())
        };
        description
            .footers(samples::SET, 512, &[samples::directory()], each)
            .unwrap();
    }
    roots.dedup();
    assert_eq!(roots.len(), 3);
}

#[test]
fn no_flip_of_a_footer_keeps_both_its_content_and_its_hash() {
    // A footer has no checksum of its own, because its hash is in the seal. Still, no flip may
    // panic. If a flipped footer decodes to the same description, the flip changed something else
    // in the footer, or only how it is packed.
    let (footers, _) = samples::footers();
    let whole = Footer::decode(&footers[0], METADATA_LIMIT).unwrap();
    let padding = footers[0]
        .iter()
        .rev()
        .take_while(|byte| **byte == 0)
        .count();
    assert!(padding > 0);
    for offset in 0..footers[0].len() {
        let mut flipped = footers[0].clone();
        flipped[offset] ^= 1;
        let decoded = Footer::decode(&flipped, METADATA_LIMIT);
        if offset >= flipped.len() - padding {
            assert!(decoded.is_err(), "padding at {offset}");
        }
        if let Ok(decoded) = decoded {
            let same_root = decoded.set_root == whole.set_root;
            assert_eq!(
                same_root,
                decoded.description == whole.description,
                "byte {offset}"
            );
        }
    }
}

#[test]
fn a_footer_beyond_its_metadata_limit_is_refused_before_it_is_unpacked() {
    let (footers, _) = samples::footers();
    let refused = Footer::decode(&footers[0], 100);
    assert!(
        matches!(
            refused,
            Err(FormatError::Limit {
                what: "metadata",
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn a_file_table_comes_back_and_every_cut_is_refused() {
    let files = samples::files();
    let bytes = files.encode().unwrap();
    assert_eq!(FileTable::decode(&bytes).unwrap(), files);
    (0..bytes.len()).for_each(|length| assert!(FileTable::decode(&bytes[..length]).is_err()));
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(FileTable::decode(&longer).is_err());
}

#[test]
fn paths_that_lead_out_are_refused_by_writer_and_reader() {
    for path in [
        "",
        "/etc",
        "..",
        "a/..",
        "../a",
        "a/./b",
        "a//b",
        "a/",
        "a\0",
        &"x".repeat(256),
    ] {
        let mut files = samples::files();
        files.0[1].path = path.as_bytes().to_vec();
        assert!(
            matches!(files.encode(), Err(FormatError::Path { .. })),
            "{path:?}"
        );
    }
}

#[test]
fn facts_come_back_and_unknown_keys_do_not_matter() {
    let facts = samples::facts();
    let bytes = facts.encode().unwrap();
    assert_eq!(Facts::decode(&bytes).unwrap(), facts);
    let mut newer: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    newer["of a later version"] = serde_json::json!({"a": 1});
    assert_eq!(Facts::decode(newer.to_string().as_bytes()).unwrap(), facts);
    (0..bytes.len()).for_each(|length| assert!(Facts::decode(&bytes[..length]).is_err()));
}

fn location() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..60)
}

proptest! {
    #[test]
    fn any_header_comes_back(
        id in any::<[u8; 16]>(),
        (alignment, transfer, frame) in (9u32..17, 1u32.., 1u32..=4 << 20),
        created_nanos in any::<i64>(),
        locations in proptest::collection::vec(location(), 1..61),
        parities in proptest::collection::vec(location(), 0..5),
        stripe in any::<prop::sample::Index>(),
    ) {
        let header = StripeHeader {
            set_id: SetId(id),
            stripe: StripeIndex(stripe.index(locations.len()) as u16),
            alignment: 1 << alignment,
            transfer_bytes: transfer,
            frame_bytes: frame,
            created_nanos,
            page_frames: false,
            lock: None,
            locations,
            parities,
        };
        let bytes = header.encode().unwrap();
        prop_assert_eq!(bytes.len() % (1 << alignment), 0);
        prop_assert_eq!(StripeHeader::decode(&bytes).unwrap(), header);
    }

    #[test]
    fn any_file_table_comes_back(
        names in proptest::collection::btree_set("[a-z\u{e4}]{1,20}(/[a-z .]{3,9}x){0,3}", 0..40),
        bytes in 0u64..=1 << 62,
        (mode, mtime, crc) in (0u32..0o1000, any::<i64>(), any::<u32>()),
    ) {
        let mut files = samples::files();
        let sample = files.0[1].clone();
        let is_above = |name: &str, other: &String| other.starts_with(&format!("{name}/"));
        let mut files_only = names.clone();
        files_only.retain(|name| !names.iter().any(|other| is_above(name, other)));
        files.0 = files_only.into_iter().zip(0..).map(|(name, number)| {
            let (path, file) = (name.into_bytes(), windlass_media::FileNo(number));
            windlass_media::FileEntry {
                file, path, bytes, mode, mtime_nanos: mtime, crc32c: crc, ..sample.clone()
            }
        }).collect();
        prop_assert_eq!(FileTable::decode(&files.encode().unwrap()).unwrap(), files);
    }
}

/// The encoder refuses what the decoder refuses. So the test changes the bytes: kind, flags, mode
/// and checksum stand at fixed places of the first entry.
#[test]
fn flags_and_modes_of_files_mean_nothing_on_directories_and_links() {
    use windlass_media::{FileEntry, FileFlags, FileKind};
    const FLAGS: usize = 4 + 5;
    const MODE: usize = 4 + 6;
    const CRC: usize = 4 + 26;
    let sample = samples::files();
    let encoded = |index: usize, at: usize, value: u8| {
        let entry = FileEntry {
            flags: FileFlags::default(),
            crc32c: 0,
            ..sample.0[index].clone()
        };
        let mut bytes = FileTable(vec![entry]).encode().unwrap();
        bytes[at] = value;
        FileTable::decode(&bytes)
    };
    for (index, kind) in [
        (0, FileKind::Directory),
        (1, FileKind::File),
        (3, FileKind::Symlink),
    ] {
        let is_file = kind == FileKind::File;
        assert_eq!(sample.0[index].kind, kind);
        for flags in 1..4 {
            assert_eq!(
                encoded(index, FLAGS, flags).is_ok(),
                is_file,
                "{kind:?} {flags}"
            );
        }
        encoded(index, CRC, 1).unwrap_err();
        let mode = encoded(index, MODE, 0o111).unwrap().0[0].permissions();
        assert_eq!(mode & 0o777 == 0o777, kind == FileKind::Symlink, "{mode:o}");
    }
}

#[test]
fn a_path_that_leads_through_a_regular_file_is_refused_at_any_depth() {
    let sample = samples::files().0[1].clone();
    let table = |paths: &[&str]| {
        let entry = |(number, path): (u32, &&str)| windlass_media::FileEntry {
            file: windlass_media::FileNo(number),
            path: path.as_bytes().to_vec(),
            ..sample.clone()
        };
        FileTable((0..).zip(paths).map(entry).collect())
    };
    for paths in [
        &["global", "global/pg_control"][..],
        &["a/b/c", "a", "a.b", "a-"],
        &["x", "a/b", "a", "a\u{1}"],
    ] {
        let error = table(paths).encode().unwrap_err().to_string();
        assert!(error.contains("leads through a regular file"), "{error}");
    }
    for paths in [
        &["a", "a.b/c", "a-/d", "ab/e"][..],
        &["a/b", "a/bc/d", "a/b.c"],
    ] {
        let table = table(paths);
        assert_eq!(FileTable::decode(&table.encode().unwrap()).unwrap(), table);
    }
}

#[test]
fn a_frame_of_zeros_with_a_stored_crc_is_refused() {
    let mut block = samples::index_block();
    let mut frames = block.frames.iter_mut();
    let zeros = frames.find(|frame| frame.codec == windlass_media::Codec::Zero);
    zeros.unwrap().crc32c = 1;
    let bytes = block.encode(512).unwrap();
    let at = samples::REGION + samples::REGION_BYTES;
    let error = IndexBlock::decode(&bytes, at, 512).unwrap_err();
    assert!(error.to_string().contains("a frame of zeros"), "{error}");
}

/// The footer of the sample's directory with these spans.
fn spanned(description: &SetDescription, spans: Vec<BlockSpans>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let each = |_, footer, _| {
        bytes = footer;
        Ok::<(), FormatError>(())
    };
    let own = ([samples::directory()], [spans]);
    description
        .footers_spanned(
            (samples::SET, None),
            512,
            (own.0.as_slice(), own.1.as_slice()),
            each,
        )
        .unwrap();
    bytes
}

fn span(file: u32, layer_max: u8, first: u64, end: u64) -> FileSpan {
    FileSpan {
        file: FileNo(file),
        layer_max,
        first,
        end,
    }
}

#[test]
fn spans_come_back_and_who_does_not_know_them_reads_the_rest() {
    let description = samples::description();
    let some: Box<[FileSpan]> = [span(1, 0, 0, 9), span(3, 1, 5, 1 << 40)].into();
    let cases: [Vec<BlockSpans>; 2] = [vec![None], vec![Some(some)]];
    for spans in cases {
        let mut bytes = spanned(&description, spans.clone());
        let footer = Footer::decode(&bytes, METADATA_LIMIT).unwrap();
        assert_eq!((&footer.description, footer.spans), (&description, spans));
        // The head of the second section: its kind, and flags without the critical bit.
        assert_eq!(bytes[64..68], 7u32.to_le_bytes());
        assert_eq!(bytes[68] & 1, 0);
        bytes[64] = 99;
        let unknown = Footer::decode(&bytes, METADATA_LIMIT).unwrap();
        assert_eq!(
            (unknown.directory, unknown.spans),
            (footer.directory, vec![])
        );
        assert_eq!(
            (unknown.description, unknown.set_root),
            (description.clone(), footer.set_root)
        );
    }
}

#[test]
fn spans_that_contradict_the_directory_are_refused() {
    let description = samples::description();
    let (first, last) = (span(1, 0, 0, 9), span(3, 1, 5, 6));
    let end: u64 = (1 << 62) + (4 << 20);
    let right: [&[FileSpan]; 4] = [
        &[first, last],
        &[first, span(2, 1, 0, 1), last],
        &[span(1, 1, 0, 1), span(3, 0, 0, 1)],
        &[first, span(3, 1, end - 1, end)],
    ];
    for spans in right {
        let bytes = spanned(&description, vec![Some(spans.into())]);
        let footer = Footer::decode(&bytes, METADATA_LIMIT).unwrap();
        assert_eq!(footer.spans[0].as_deref(), Some(spans));
    }
    let refused = |spans: Vec<BlockSpans>| {
        let bytes = spanned(&description, spans.clone());
        assert!(Footer::decode(&bytes, METADATA_LIMIT).is_err(), "{spans:?}");
    };
    refused(vec![]);
    refused(vec![None, None]);
    let many: Vec<_> = (1..18).map(|file| span(file, 1, 0, 1)).collect();
    let wrong: [&[FileSpan]; 13] = [
        // None, only one of the two files of the directory, and others than these.
        &[],
        &[first],
        &[last],
        &[span(0, 0, 0, 1), last],
        &[first, span(4, 1, 0, 1)],
        // Another layer than the highest of the directory.
        &[first, span(3, 0, 5, 6)],
        &[first, span(3, 2, 5, 6)],
        // No bytes, and bytes where no piece can be.
        &[span(1, 0, 1, 1), last],
        &[span(1, 0, 2, 1), last],
        &[first, span(3, 1, end, end + 1)],
        // Out of order, twice, and too many.
        &[first, last, span(2, 1, 0, 1)],
        &[first, first, last],
        &many,
    ];
    for spans in wrong {
        refused(vec![Some(spans.into())]);
    }
}

#[test]
fn a_block_has_spans_if_each_piece_has_bytes_and_the_files_are_few() {
    let piece = |file, layer, offset, bytes| PieceEntry {
        file: FileNo(file),
        bytes,
        offset,
        crc32c: 0,
        layer,
    };
    let of = |pieces: &[PieceEntry]| FileSpan::of(pieces).map(<[FileSpan]>::into_vec);
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[piece(1, 0, 0, 5), piece(2, 0, 0, 0)]), None);
    let pieces = [
        piece(7, 0, 100, 10),
        piece(2, 1, 3, 4),
        piece(7, 2, 20, 1),
        piece(7, 1, 50, 70),
    ];
    let expected = vec![span(2, 1, 3, 7), span(7, 2, 20, 120)];
    assert_eq!(of(&pieces), Some(expected));
    let files = |count: u32| {
        (0..count)
            .map(|file| piece(file, 0, 0, 1))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&files(16)).unwrap().len(), 16);
    assert_eq!(of(&files(17)), None);
}
