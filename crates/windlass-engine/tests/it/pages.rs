//! Hooks that replace, drop and describe pages, and sets of page-aware frames.

use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{
    BackupType, Base, Codec, Encoder, Facts, FileEntry, FileNo, FileTable, FormatError, Inherited,
    InheritedFiles, LAYOUT_PLAIN, PageFrame, PieceEntry, SetId, crc32c,
};
use windlass_engine::{
    BackupRun, Cancel, EngineError, Files, FoundSet, METADATA_LIMIT_DEFAULT, PageHook, Pages,
};

use crate::forge::{Forge, packed, piece};
use crate::support::*;

const PAGE: usize = 4096;
const CODECS: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd(1)];

/// Decides by the first byte of each page.
struct ByPage;

const DROPPED: u8 = b'd';
const REPLACED: u8 = b'r';

impl PageHook for ByPage {
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError> {
        let firsts: Vec<u8> = pages.bytes().chunks(PAGE).map(|page| page[0]).collect();
        let length = pages.bytes().len();
        for (number, first) in firsts.into_iter().enumerate() {
            let at = number * PAGE;
            let end = length.min(at + PAGE);
            match first {
                DROPPED => pages.drop_range(at..end),
                REPLACED => pages.bytes_mut()[at..end].fill(b'R'),
                digit if digit.is_ascii_digit() => pages.describe(at, (digit - b'0').into()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A file whose pages begin with these letters, and the last of which is short.
fn lettered(letters: &[u8], seed: u8) -> Vec<u8> {
    let mut bytes = plain(letters.len() * PAGE - 96, seed);
    for (page, letter) in bytes.chunks_mut(PAGE).zip(letters) {
        page[0] = *letter;
    }
    bytes
}

fn hooked(dir: &Path, setup: &Setup, tree: &Tree) -> BackupRun {
    let mut run = begin(setup, file_devices(dir, setup), &Cancel::new()).unwrap();
    run.set_hook(Arc::new(ByPage));
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    run
}

/// The pieces of all frames of a set of any type, with what is known about the pages of each.
fn pieces(dir: &Path) -> Vec<(PieceEntry, Option<PageFrame>)> {
    let places = [dir.to_owned()];
    let set = FoundSet::whole(&Files, &places, METADATA_LIMIT_DEFAULT).unwrap();
    let mut found = Vec::new();
    for stripe in set.stripes() {
        for entry in stripe.directory() {
            let block = stripe.index_block(entry).unwrap();
            for (frame, pieces) in block.iter() {
                found.extend(pieces.iter().map(|piece| (*piece, frame.page)));
            }
        }
    }
    found.sort_unstable_by_key(|(piece, _)| (piece.file, piece.offset));
    found
}

/// A base that has all bytes of the first files. Nobody knows a checksum of these files.
fn base(files: &mut FileTable, count: usize) -> Base {
    let inherit = |entry: &mut FileEntry| {
        entry.flags.crc_known = false;
        entry.crc32c = 0;
        Inherited {
            file: entry.file,
            base_file: entry.file,
            bytes: entry.bytes,
        }
    };
    Base {
        set: SetId([9; 16]),
        root: [9; 32],
        locations: vec![],
        files: InheritedFiles::new(files.0[..count].iter_mut().map(inherit).collect()),
    }
}

fn trees() -> Tree {
    vec![
        (
            "large".into(),
            lettered(&b"addddrrxdxxxxxrdxxxxxxxxxxxxxxxxxxxd".repeat(5), 1),
        ),
        ("small".into(), lettered(b"xd", 2)),
        ("gone".into(), lettered(b"ddd", 3)),
        ("kept".into(), lettered(b"xxr", 4)),
    ]
}

#[test]
fn dropped_pages_are_not_in_the_set_and_all_others_are() {
    for codec in CODECS {
        let dir = tempfile::tempdir().unwrap();
        let (setup, tree) = (Setup::small(2, codec), trees());
        let run = hooked(dir.path(), &setup, &tree);
        let dropped: Vec<_> = (0..4)
            .map(|file| run.outcome(windlass_engine::media::FileNo(file)).unwrap())
            .map(|outcome| outcome.dropped_bytes)
            .collect();
        let page = PAGE as u64;
        assert_eq!(dropped, [5 * 7 * page - 96, page - 96, 3 * page - 96, 0]);
        let mut run = run;
        let mut files = table(&run, &tree);
        run.build_on(base(&mut files, 3));
        let backup_type = BackupType::Diff;
        run.finish(
            files,
            Facts {
                backup_type,
                ..facts()
            },
        )
        .unwrap();
        let mut found = pieces(dir.path()).into_iter().peekable();
        for (file, (name, bytes)) in tree.iter().enumerate() {
            for (number, page) in bytes.chunks(PAGE).enumerate() {
                let mut expected = page.to_vec();
                match page[0] {
                    DROPPED => continue,
                    REPLACED => expected.fill(b'R'),
                    _ => {}
                }
                // The pages of a piece follow each other; each is checked by itself where it is
                // alone, and otherwise as a part of the checksum of the piece.
                let at = (number * PAGE) as u64;
                let end = at + page.len() as u64;
                let holds = |piece: &PieceEntry| {
                    piece.file.0 as usize == file
                        && piece.offset <= at
                        && piece.offset + u64::from(piece.bytes) >= end
                };
                while !found.peek().is_some_and(|(piece, _)| holds(piece)) {
                    found
                        .next()
                        .unwrap_or_else(|| panic!("{name}: page {number}"));
                }
                let (piece, _) = found.peek().unwrap();
                if piece.bytes as usize == page.len() {
                    assert_eq!(piece.crc32c, crc32c(&expected), "{name}: page {number}");
                }
            }
        }
        let held: u64 = pieces(dir.path())
            .iter()
            .map(|(it, _)| u64::from(it.bytes))
            .sum();
        let all: usize = tree.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(held, all as u64 - dropped.iter().sum::<u64>());
    }
}

/// Finishes a run of a set whose base has the first files; returns why it fails.
fn refused(kind: BackupType, base_files: Option<usize>) -> EngineError {
    let dir = tempfile::tempdir().unwrap();
    let (setup, tree) = (Setup::small(2, Codec::Lz4), trees());
    let mut run = hooked(dir.path(), &setup, &tree);
    let mut files = table(&run, &tree);
    if let Some(count) = base_files {
        run.build_on(base(&mut files, count));
    }
    let facts = Facts {
        backup_type: kind,
        ..facts()
    };
    let error = run.finish(files, facts).unwrap_err();
    assert_eq!(names(dir.path()), Vec::<std::path::PathBuf>::new());
    error
}

#[test]
fn a_set_without_bytes_that_no_base_has_is_never_sealed() {
    for (kind, base_files, file) in [
        (BackupType::Full, None, 0),
        (BackupType::Diff, Some(2), 2),
        (BackupType::Incr, Some(0), 0),
    ] {
        let error = refused(kind, base_files);
        let left_out = FileNo(file);
        assert!(
            matches!(error, EngineError::LeftOut { file } if file == left_out),
            "{error}"
        );
    }
    for (kind, base_files) in [(BackupType::Full, Some(3)), (BackupType::Diff, None)] {
        let error = refused(kind, base_files);
        assert!(matches!(error, EngineError::WrongBase), "{error}");
    }
}

#[test]
fn described_pages_have_frames_of_their_own_and_come_back() {
    let letters = b"xx11111122xxr0x3333333333333333333333333333333333333333".repeat(3);
    for codec in CODECS {
        for page_frames in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let tree: Tree = vec![
                ("a".into(), lettered(&letters, 5)),
                ("b".into(), vec![0; 9000]),
            ];
            let setup = Setup {
                page_frames,
                ..Setup::small(2, codec)
            };
            let run = hooked(dir.path(), &setup, &tree);
            let files = table(&run, &tree);
            run.finish(files, facts()).unwrap();
            let mut expected = tree.clone();
            for page in expected[0]
                .1
                .chunks_mut(PAGE)
                .filter(|page| page[0] == REPLACED)
            {
                page.fill(b'R');
            }
            let set = verify(&[dir.path().to_owned()]).unwrap();
            let into = dir.path().join("into");
            bring_back(&set, &into).unwrap();
            assert_same(&expected, &into);
            let mut kinds: Vec<u16> = Vec::new();
            for (piece, page) in pieces(dir.path()) {
                assert_eq!(page.is_some(), page_frames);
                let Some(page) = page else { continue };
                let bytes = &expected[piece.file.0 as usize].1[piece.offset as usize..];
                assert_eq!(page.raw_crc32c == crc32c(&bytes[..piece.bytes as usize]), {
                    page.laid_bytes == piece.bytes
                });
                if kinds.last() != Some(&page.kind) {
                    kinds.push(page.kind);
                }
            }
            if page_frames {
                assert_eq!(kinds, [0, 1, 2, 0, 3, 1, 2, 0, 3, 1, 2, 0, 3, 0]);
            }
        }
    }
}

/// The checksums of the pieces are right, and the one of the frame is not.
#[test]
fn a_wrong_checksum_of_a_page_aware_frame_is_damage() {
    let content = plain(3 * PAGE, 1);
    for codec in CODECS {
        let mut stored = vec![0; 2 * content.len()];
        let encoded = Encoder::new(codec).unwrap().encode(&content, &mut stored);
        let stored = match encoded {
            Some((_, length)) => stored[..length].to_vec(),
            None => content.clone(),
        };
        let with = |page: PageFrame| {
            let mut forge = Forge::default();
            let pieces = vec![piece(0, 0, &content)];
            let mut frame = packed(codec, content.len(), stored.clone(), pieces);
            frame.0.page = Some(page);
            forge.header.page_frames = true;
            forge.frames = vec![frame];
            forge.files = vec![entry(0, "file", content.len())];
            let dir = tempfile::tempdir().unwrap();
            verify(&[forge.write(dir.path())]).map(drop)
        };
        let right = PageFrame {
            raw_crc32c: crc32c(&content),
            laid_bytes: content.len() as u32,
            layout: LAYOUT_PLAIN,
            kind: 9,
        };
        with(right).unwrap();
        let raw_crc32c = right.raw_crc32c ^ 1;
        let error = with(PageFrame {
            raw_crc32c,
            ..right
        })
        .unwrap_err();
        assert!(error.is_damage(), "{error}");
        let error = with(PageFrame { layout: 7, ..right }).unwrap_err();
        let unknown = matches!(&error, EngineError::Damage { source, .. }
            if *source == FormatError::PageLayout(7));
        assert!(unknown, "{error}");
    }
}

/// What versions without page-aware frames look at first: two bytes that they know only as zero.
#[test]
fn a_set_of_page_aware_frames_needs_a_feature_and_no_other_set_does() {
    for page_frames in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup {
            page_frames,
            ..Setup::small(1, Codec::Zstd(1))
        };
        let places = make_set(&trees(), dir.path(), &setup);
        let header = std::fs::read(&places[0]).unwrap();
        assert_eq!(header[10..12], [u8::from(page_frames), 0]);
        assert_eq!(
            verify(&places).unwrap().stripes()[0].header().page_frames,
            page_frames
        );
    }
}
